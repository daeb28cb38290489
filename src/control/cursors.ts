/** Cursors of lists: opaque to callers, and refused when they are not ours. */
import { isId, PlatformError } from '../protocol/index.ts';
import type { SandboxPage, SandboxRecord } from '../store/index.ts';

export function writeCursor(record: Pick<SandboxRecord, 'createdAtMs' | 'id'>): string {
  return Buffer.from(`${record.createdAtMs} ${record.id}`).toString('base64url');
}

export function parseCursor(cursor: string): NonNullable<SandboxPage['after']> {
  const [time, id] = Buffer.from(cursor, 'base64url').toString('utf8').split(' ');
  const createdAtMs = Number(time);
  if (id === undefined || !isId('sandbox', id) || !Number.isSafeInteger(createdAtMs)) throw badCursor();
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
