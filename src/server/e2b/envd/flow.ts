/** Bytes in and out of one exchange, at the pace of whoever is slower. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { EnvdError } from './envd-error.ts';
import { HeldBytes } from './held-bytes.ts';

/** The whole body, up to a limit. */
export async function readWhole(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const held = new HeldBytes();
  for await (const chunk of request as AsyncIterable<Uint8Array>) {
    if (held.length + chunk.byteLength > limitBytes) {
      throw new EnvdError('resource_exhausted', `A message has at most ${limitBytes} bytes.`);
    }
    held.add(chunk);
  }
  return held.look();
}

/** Answers when there is room for more, or nobody reads any more. */
export async function writeSome(response: ServerResponse, bytes: Uint8Array): Promise<void> {
  if (response.destroyed || response.write(bytes)) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once('drain', resolve).once('close', resolve);
  await promise;
  response.off('drain', resolve).off('close', resolve);
}
