/** How files stand in the API, and back. */
import {
  type FileChange,
  type FileChangeView,
  type FileEntry,
  type FileView,
  PlatformError,
} from '../protocol/index.ts';

export function viewOfFile(entry: FileEntry): FileView {
  const { modifiedAtMs, mode, ...rest } = entry;
  return { ...rest, mode: mode.toString(8).padStart(3, '0'), modifiedAt: new Date(modifiedAtMs).toISOString() };
}

export function viewOfChange(change: FileChange): FileChangeView {
  if (change.kind === 'deleted') return { ...change, entry: null };
  const entry = viewOfFile(change.entry);
  return { kind: change.kind, path: entry.path, pathBase64: entry.pathBase64, entry };
}

export function modeOf(text: string | undefined): number | null {
  return text === undefined ? null : Number.parseInt(text, 8);
}

export function ownerOf(text: string | undefined): { user: string; group: string | null } | null {
  if (text === undefined) return null;
  const [user = '', group = null] = text.split(':');
  return { user, group };
}

/** The bytes of a path below the listed one, in base64: names need not be text. */
export function checkFileCursor(cursor: string): string {
  const bytes = Buffer.from(cursor, 'base64');
  if (bytes.length > 0 && !bytes.includes(0) && bytes.toString('base64') === cursor) return cursor;
  throw new PlatformError('invalid_request', 'This cursor was not made by this list.', { details: { path: 'cursor' } });
}
