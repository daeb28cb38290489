/**
 * A body that is not JSON, as a stream: read at the pace of whoever takes it, up to a limit. One that breaks off, falls silent or is longer
 * than allowed throws, so that what is made of it is undone.
 */
import type { IncomingMessage } from 'node:http';
import { PlatformError } from '../protocol/index.ts';

/** After a refusal, how much of a body is still read and dropped, so that a caller who is sending gets to read the answer. */
const droppedMaxBytes = 64 * 1024 * 1024;
/** Without a byte for so long, the caller is gone. */
const silenceMs = 120_000;

export async function* readByteBody(request: IncomingMessage, limitBytes: number): AsyncGenerator<Uint8Array, void> {
  const declared = request.headers['content-length'];
  if (declared === undefined && request.headers['transfer-encoding'] === undefined) return;
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new PlatformError('invalid_request', `Content-Encoding ${encoding.slice(0, 50)} is not understood here.`);
  }
  if (Number(declared ?? 0) > limitBytes) throw tooLarge(limitBytes);
  let size = 0;
  request.setTimeout(silenceMs, () => request.destroy(new Error('No byte came for too long.')));
  try {
    // Not destroyed when the reader stops early: the answer goes out on the same connection.
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += chunk.byteLength;
      if (size > limitBytes) throw tooLarge(limitBytes);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof PlatformError) throw error;
    throw new PlatformError('invalid_request', 'The body broke off.', { cause: error });
  } finally {
    request.setTimeout(0);
  }
}

/** Takes what is left of a body that nobody wants any more, up to a bound; beyond it the connection ends. */
export function dropRest(request: IncomingMessage): void {
  if (request.readableEnded || request.destroyed) return;
  let dropped = 0;
  request.on('error', () => {});
  request.on('data', (chunk: Buffer) => {
    dropped += chunk.byteLength;
    if (dropped > droppedMaxBytes) request.destroy();
  });
  request.resume();
}

function tooLarge(limitBytes: number): PlatformError {
  return new PlatformError('payload_too_large', `This route takes at most ${limitBytes} bytes in its body.`, {
    details: { limitBytes },
  });
}
