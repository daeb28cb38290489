import { newId } from '../protocol/index.ts';

/** A key that nobody used before, for a request that the SDK itself may repeat. */
export function newIdempotencyKey(): string {
  // Node makes these by the hundred. A page that came without TLS has none.
  return `sdk-${globalThis.crypto.randomUUID?.() ?? newId('operation')}`;
}
