/**
 * Opens the store in one SQLite file. A file that is not ours, damaged, or of a newer version is refused and left as it is.
 *
 * Two connections: one writes, one at a time and in groups; the other reads, and in WAL mode sees only what is committed,
 * without waiting for the writer. `synchronous = FULL` makes a commit wait until the disk has it, and those before it.
 */
import { chmodSync, closeSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { assert, type FaultPoints, noFaults, syncDirectory } from '../../base/index.ts';
import type { Store } from '../store.ts';
import { Connection } from './connection.ts';
import { inspectFile } from './inspect-file.ts';
import { migrate } from './migrate.ts';
import type { OnUnreadable } from './readable.ts';
import { isSqliteError, sqliteCodes } from './sqlite-errors.ts';
import { SqliteStore } from './sqlite-store.ts';
import { StoreOpenError } from './store-open-error.ts';

export interface SqliteStoreOptions {
  /** The database file; made if missing, in a directory that exists. */
  readonly path: string;
  /** Hit: `store-before-commit` and `store-after-commit`. */
  readonly faults?: FaultPoints;
  /** Told of every record that is skipped because it cannot be read. Must not use the store. */
  readonly onUnreadable?: OnUnreadable;
  /** What the database file may grow to; beyond it every write is `insufficient_storage`. */
  readonly limitBytes?: number;
  /** How long a statement waits for another process that has the database locked. The whole program waits with it. */
  readonly busyTimeoutMs?: number;
}

const busyTimeoutMs = 2_000;
/** After a burst the WAL file is cut back to this. */
const walLimitBytes = 64 * 1024 * 1024;

export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const { path } = options;
  inspectFile(path);
  const timeout = options.busyTimeoutMs ?? busyTimeoutMs;
  const opened: DatabaseSync[] = [];
  try {
    await createPrivately(path);
    const writer = new DatabaseSync(path, { timeout, enableForeignKeyConstraints: true });
    opened.push(writer);
    prepareWriter(writer, options);
    const reader = new DatabaseSync(path, { timeout, readOnly: true });
    opened.push(reader);
    return new SqliteStore({
      writer: new Connection(writer),
      reader: new Connection(reader),
      faults: options.faults ?? noFaults,
      onUnreadable: options.onUnreadable ?? (() => {}),
    });
  } catch (error) {
    for (const database of opened) database.close();
    throw openError(path, error);
  }
}

/** The file exists with its final mode before anything is in it; SQLite gives its companions the same mode. */
async function createPrivately(path: string): Promise<void> {
  closeSync(openSync(path, 'a', 0o600));
  chmodSync(path, 0o600);
  await syncDirectory(dirname(path));
}

function prepareWriter(writer: DatabaseSync, options: SqliteStoreOptions): void {
  writer.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF');
  writer.exec(`PRAGMA journal_size_limit = ${walLimitBytes}`);
  migrate(writer);
  if (options.limitBytes !== undefined) limitSize(writer, options.limitBytes);
}

function limitSize(writer: DatabaseSync, limitBytes: number): void {
  assert(Number.isSafeInteger(limitBytes) && limitBytes > 0, 'limitBytes must be a whole number above zero.');
  const pageBytes = Number(writer.prepare('PRAGMA page_size').get()?.['page_size']);
  writer.exec(`PRAGMA max_page_count = ${Math.max(1, Math.floor(limitBytes / pageBytes))}`);
}

function openError(path: string, error: unknown): unknown {
  if (error instanceof StoreOpenError) return error;
  if (isSqliteError(error, sqliteCodes.busy, sqliteCodes.locked)) {
    const advice = 'Another program holds it: stop the other server or tool that uses it, then start again.';
    return new StoreOpenError('locked', `The database ${path} is locked. ${advice}`, { cause: error });
  }
  if (isSqliteError(error, sqliteCodes.corrupt, sqliteCodes.notADatabase)) {
    return new StoreOpenError('unreadable', `The database ${path} is damaged: restore a backup.`, { cause: error });
  }
  if (error instanceof Error && 'code' in error) {
    const advice =
      'Check that its directory exists, that this user may read and write both, and that the disk is not full.';
    const message = `The database ${path} cannot be opened: ${error.message}. ${advice}`;
    return new StoreOpenError('unreadable', message, { cause: error });
  }
  return error;
}
