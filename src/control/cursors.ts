/** Cursors of lists: opaque to callers, and refused when they are not ours. */
import { type Id, type IdKind, isId, PlatformError } from '../protocol/index.ts';

export function writeCursor(record: { readonly createdAtMs: number; readonly id: string }): string {
  return Buffer.from(`${record.createdAtMs} ${record.id}`).toString('base64url');
}

export function parseCursor<Kind extends IdKind>(
  kind: Kind,
  cursor: string,
): { readonly createdAtMs: number; readonly id: Id<Kind> } {
  const [time, id] = Buffer.from(cursor, 'base64url').toString('utf8').split(' ');
  const createdAtMs = Number(time);
  if (id === undefined || !isId(kind, id) || !Number.isSafeInteger(createdAtMs)) throw badCursor();
  return { createdAtMs, id };
}

export function parseNumberCursor(cursor: string): number {
  const value = Number(cursor);
  if (!/^\d{1,15}$/.test(cursor)) throw badCursor();
  return value;
}

function badCursor(): PlatformError {
  return new PlatformError('invalid_request', 'This cursor was not made by this list.', {
    details: { path: 'cursor' },
  });
}
