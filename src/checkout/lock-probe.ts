/**
 * Whether the file system of the cache has locks that work. They fail in three ways: everybody gets them, nobody does, or the system says
 * that there are none.
 */
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { isBusy } from './cache-lock.ts';

/** The second process answers with one word, or dies of an error that says what the file system refuses. */
const program = `
const { DatabaseSync } = require('node:sqlite');
const database = new DatabaseSync(process.argv[1]);
database.exec('PRAGMA busy_timeout = 0');
try {
  database.exec('BEGIN IMMEDIATE');
  process.stdout.write('taken');
} catch (error) {
  process.stdout.write(error.errcode % 256 === 5 ? 'refused' : String(error.message));
}
`;
const timeoutMs = 30_000;

/** SQLITE_IOERR with RDLOCK, CHECKRESERVEDLOCK, LOCK and SHMLOCK, and SQLITE_PROTOCOL. */
const lockErrors: readonly number[] = [2_314, 3_594, 3_850, 5_130, 15];

/** What an error of SQLite says about the locks of the folder that `path` is in; nothing: that they work. */
export function lockFaultOf(error: unknown, path: string): string | undefined {
  if (lockErrors.includes((error as { errcode?: number }).errcode ?? 0)) return (error as Error).message;
  return isBusy(error) && isBusyAlone(`${path}.probe-${process.pid}`) ? 'nobody gets a lock' : undefined;
}

/** Some systems say "somebody has it" where they mean "there are none": so they say of a file that nobody else knows. */
function isBusyAlone(path: string): boolean {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path);
    database.exec('BEGIN IMMEDIATE');
    return false;
  } catch (error) {
    return isBusy(error);
  } finally {
    database?.close();
    rmSync(path, { force: true });
  }
}

/**
 * What is wrong with them although SQLite is content; nothing: they work, as far as can be told. Another process must not get the lock that
 * we hold: locks do not keep out the process that has them. It is asked once, when the file is made. `database` is in no transaction.
 */
export function findSharedLock(database: DatabaseSync, path: string): string | undefined {
  database.exec('BEGIN IMMEDIATE');
  try {
    const { stdout, error } = spawnSync(process.execPath, ['--no-warnings', '-e', program, path], {
      encoding: 'utf8',
      timeout: timeoutMs,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    // Where no second process can be started nothing is known, and nothing is refused.
    if (error !== undefined || stdout === 'refused' || stdout === '') return undefined;
    return stdout === 'taken' ? 'a second process gets a lock that is held' : stdout;
  } finally {
    database.exec('ROLLBACK');
  }
}
