import { newId } from '../protocol/index.ts';

/** A key that nobody used before, for a request that the SDK itself may repeat. */
export function newIdempotencyKey(): string {
  return `sdk-${newId('operation')}`;
}
