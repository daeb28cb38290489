/** What SQLite's errors mean here. */
import { PlatformError } from '../../protocol/index.ts';

/** Primary result codes; an extended code has one of these in its low byte. */
export const sqliteCodes = { busy: 5, locked: 6, corrupt: 11, full: 13, constraint: 19, notADatabase: 26 } as const;
/** The shared-memory file could not grow, which happens only when the disk is full. */
const ioErrorShmSize = 4874;

/** With codes: one of these primary codes. */
export function isSqliteError(error: unknown, ...codes: readonly number[]): boolean {
  const code = extendedCode(error);
  return code !== undefined && (codes.length === 0 || codes.includes(code & 0xff));
}

/** As a caller of the store hears it. Only a full disk is a refusal; the rest is a bug or a broken machine. */
export function storeError(error: unknown): unknown {
  if (!isSqliteError(error)) return error;
  if (isSqliteError(error, sqliteCodes.full) || extendedCode(error) === ioErrorShmSize) {
    return new PlatformError('insufficient_storage', 'The disk that holds the database is full.', { cause: error });
  }
  const text = error instanceof Error ? error.message : '';
  return new PlatformError('internal', `The database failed: ${text}.`, { cause: error });
}

function extendedCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('errcode' in error)) return undefined;
  return typeof error.errcode === 'number' ? error.errcode : undefined;
}
