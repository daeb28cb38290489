/**
 * Looks at a database file before anything may change it, and refuses what is not ours to open.
 *
 * Opening through SQLite, even to read, leaves companion files behind; so the facts are read from the file's own header, and
 * SQLite is asked only when a WAL with newer ones lies beside it.
 */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { applicationId, latestVersion } from './migrate.ts';
import { isSqliteError, sqliteCodes } from './sqlite-errors.ts';
import { StoreOpenError } from './store-open-error.ts';

interface Facts {
  readonly version: number;
  readonly application: number;
  readonly pages: number;
}

const headerBytes = 100;
const magic = 'SQLite format 3\0';

export function inspectFile(path: string): void {
  const header = readHeader(path);
  if (header.byteLength === 0) return; // Missing or empty: a new database.
  if (header.byteLength < headerBytes || header.toString('latin1', 0, magic.length) !== magic) {
    const advice = 'Nothing was changed. Point the server to another path, or put the right file back.';
    throw new StoreOpenError('not_a_database', `The file ${path} is not a SQLite database. ${advice}`);
  }
  const facts = hasWal(path) ? askSqlite(path) : readFacts(header);
  if (facts.application !== applicationId && !isBlank(facts)) {
    const advice = 'Nothing was changed. Point the server to another path.';
    throw new StoreOpenError('not_a_database', `The database ${path} belongs to another program. ${advice}`);
  }
  if (facts.version > latestVersion) {
    const why = `It has version ${facts.version}; this program knows versions up to ${latestVersion}.`;
    const advice = 'Nothing was changed. Start the newer program again, or restore a backup from before the upgrade.';
    throw new StoreOpenError('newer_version', `The database ${path} was written by a newer program. ${why} ${advice}`);
  }
}

function readHeader(path: string): Buffer {
  try {
    const file = openSync(path, 'r');
    try {
      const header = Buffer.alloc(headerBytes);
      return header.subarray(0, readSync(file, header, 0, headerBytes, 0));
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0);
    const advice = 'Check that it is a file and that this user may read it.';
    const message = `The database ${path} cannot be read: ${(error as Error).message}. ${advice}`;
    throw new StoreOpenError('unreadable', message, { cause: error });
  }
}

function hasWal(path: string): boolean {
  return (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

/** Offsets from "The Database Header" of SQLite's file format. */
function readFacts(header: Buffer): Facts {
  return { version: header.readInt32BE(60), application: header.readInt32BE(68), pages: header.readUInt32BE(28) };
}

/** What a crash in the middle of the first opening leaves: a header and no table, which would need a page of its own. */
function isBlank({ version, application, pages }: Facts): boolean {
  return version === 0 && application === 0 && pages <= 1;
}

function askSqlite(path: string): Facts {
  try {
    using database = new DatabaseSync(path, { readOnly: true });
    const ask = (pragma: string) => Number(database.prepare(`PRAGMA ${pragma}`).get()?.[pragma]);
    return { version: ask('user_version'), application: ask('application_id'), pages: ask('page_count') };
  } catch (error) {
    const damaged = isSqliteError(error, sqliteCodes.corrupt, sqliteCodes.notADatabase);
    const advice = damaged
      ? 'It is damaged: restore a backup.'
      : 'Check that this user may read and write its directory.';
    const message = `The database ${path} cannot be read: ${(error as Error).message}. ${advice}`;
    throw new StoreOpenError('unreadable', message, { cause: error });
  }
}
