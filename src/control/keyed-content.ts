/** Content under an idempotency key: held whole, so that a repeat can be told from another request. Without a key it is passed on as it comes. */
import { createHash } from 'node:crypto';
import { type Conditions, fileLimits, PlatformError } from '../protocol/index.ts';
import type { Operation } from './mutations.ts';

export interface HeldContent {
  /** null: it is a stream, read once and not held. */
  readonly digest: string | null;
  bytes(): AsyncIterable<Uint8Array>;
}

export async function holdContent(bytes: AsyncIterable<Uint8Array>, conditions: Conditions): Promise<HeldContent> {
  if (conditions.idempotencyKey === undefined) return { digest: null, bytes: () => bytes };
  const hash = createHash('sha256');
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of bytes) {
    size += chunk.byteLength;
    if (size > fileLimits.keyedUploadBytes) {
      const limitBytes = fileLimits.keyedUploadBytes;
      const message = `With an idempotency key a body has at most ${limitBytes} bytes: it is held to compare repeats. Without a key it is streamed; If-Match makes a repeat safe.`;
      throw new PlatformError('payload_too_large', message, { details: { limitBytes } });
    }
    hash.update(chunk);
    chunks.push(chunk);
  }
  return {
    digest: hash.digest('hex'),
    async *bytes() {
      yield* chunks;
    },
  };
}

export function inDoubt(operation: Operation): PlatformError {
  const message = 'It was interrupted and may have been done; it is not done again. Look at the file.';
  return new PlatformError('operation_in_doubt', message, { details: { operationId: operation.id } });
}
