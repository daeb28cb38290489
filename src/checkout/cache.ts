/**
 * What this machine remembers of its checkouts' sandboxes: one SQLite file.
 *
 * Invariants:
 *  - Everything is written by a `CacheLock`, which is an open `BEGIN IMMEDIATE`: the kernel frees it with the process, and a process that is
 *    killed leaves the file as it was before. A function that writes takes the lock as a parameter, so it is never taken twice.
 *  - Reading needs no lock and never waits for one.
 *  - No key or token is in it.
 *  - A file that is newer than this program is not touched; one that is broken is moved aside, and the server is asked instead.
 */
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readSync, renameSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { PlatformError } from '../protocol/index.ts';
import { busyTimeoutMs, isBusy, type LockOwner, takeLock, type WaitOptions } from './cache-lock.ts';
import { findSharedLock, lockFaultOf } from './lock-probe.ts';
import { type Session, sessionOf } from './session.ts';

export const cacheVersion = 1;
const pauseMs = 10;
const applicationId = 0x41746f6c;
const sqliteMagic = 'SQLite format 3\0';

const schema = `
CREATE TABLE sessions (
  key TEXT PRIMARY KEY, server_url TEXT NOT NULL, sandbox_id TEXT, name TEXT NOT NULL,
  repository TEXT NOT NULL, worktree TEXT NOT NULL, ref TEXT NOT NULL, config_path TEXT NOT NULL, root TEXT NOT NULL,
  definition TEXT, exec_count INTEGER NOT NULL DEFAULT 0, last_exec_ms INTEGER, hint_shown INTEGER NOT NULL DEFAULT 0,
  created_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE lock_owner (one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER NOT NULL, command TEXT NOT NULL, since_ms INTEGER NOT NULL) STRICT;
PRAGMA application_id = ${applicationId};
PRAGMA user_version = ${cacheVersion};
`;

export interface CacheOptions {
  readonly path: string;
  readonly nowMs: () => number;
  /** Who we are, for those who wait. */
  readonly owner: { readonly pid: number; readonly command: string };
  /** Something that the person should know, such as a file that was moved aside. */
  readonly warn: (text: string) => void;
}

export class Cache {
  readonly #options: CacheOptions;

  private constructor(options: CacheOptions) {
    this.#options = options;
  }

  static open(options: CacheOptions): Cache {
    const folder = dirname(options.path);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    chmodSync(folder, 0o700);
    const cache = new Cache(options);
    cache.#prepare();
    return cache;
  }

  get path(): string {
    return this.#options.path;
  }

  /** Every session of one server, or of all. A snapshot: it waits for nobody. */
  sessions(serverUrl?: string): readonly Session[] {
    return this.#read((database) => {
      const all = 'SELECT * FROM sessions';
      const rows =
        serverUrl === undefined
          ? database.prepare(`${all} ORDER BY created_ms`).all()
          : database.prepare(`${all} WHERE server_url = ? ORDER BY created_ms`).all(serverUrl);
      return rows.map(sessionOf);
    });
  }

  find(key: string): Session | undefined {
    return this.#read((database) => {
      const row = database.prepare('SELECT * FROM sessions WHERE key = ?').get(key);
      return row === undefined ? undefined : sessionOf(row);
    });
  }

  /** Runs `work` while nobody else writes. Waits in turn, up to a limit; whoever holds it is told to `onWait`. */
  async withLock<Result>(wait: WaitOptions, work: (lock: CacheLock) => Promise<Result>): Promise<Result> {
    const database = this.#connect();
    const { owner, nowMs } = this.#options;
    const who: LockOwner = { ...owner, sinceMs: nowMs() };
    try {
      await takeLock(database, who, wait);
    } catch (error) {
      database.close();
      throw error;
    }
    const lock = new CacheLock(database);
    try {
      return await work(lock);
    } finally {
      lock.release();
    }
  }

  #read<Result>(look: (database: DatabaseSync) => Result): Result {
    const database = this.#connect();
    try {
      return look(database);
    } finally {
      database.close();
    }
  }

  #connect(): DatabaseSync {
    const database = new DatabaseSync(this.#options.path);
    // Whoever closes last, or opens first, has the file to itself for a moment.
    database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}; PRAGMA synchronous = FULL;`);
    return database;
  }

  /** Makes the file, or finds out whether it is ours. */
  #prepare(): void {
    const { path, warn } = this.#options;
    if (existsSync(path) && isForeign(path)) {
      throw new PlatformError('checkout_cache_unusable', `${path} is not a cache of atoll; it was not touched.`);
    }
    // Made with its mode, so that nobody can read it in between.
    closeSync(openSync(path, 'a', 0o600));
    chmodSync(path, 0o600);
    try {
      this.#create();
    } catch (error) {
      if (error instanceof PlatformError) throw error;
      const fault = lockFaultOf(error, path);
      if (fault !== undefined) throw withoutLocks(path, fault);
      if (!isCorrupt(error)) throw unusable(path, error);
      const aside = `${path}.broken-${this.#options.nowMs()}`;
      renameSync(path, aside);
      for (const suffix of ['-wal', '-shm']) if (existsSync(path + suffix)) renameSync(path + suffix, aside + suffix);
      warn(`The cache ${path} was broken. It is now ${aside}; what it knew is asked of the server.`);
      closeSync(openSync(path, 'a', 0o600));
      this.#create();
    }
  }

  #create(): void {
    const { path } = this.#options;
    const database = this.#connect();
    try {
      const version = numberOf(database, 'user_version');
      if (version > cacheVersion) {
        const message = `${path} was written by a newer atoll (version ${version}); it was not touched.`;
        throw new PlatformError('checkout_cache_unusable', message);
      }
      if (version === cacheVersion) {
        database.prepare('SELECT count(*) FROM sessions').get();
        return;
      }
      if (toWriteAhead(database) !== 'wal') throw withoutLocks(path, 'SQLite refuses WAL');
      const fault = findSharedLock(database, path);
      if (fault !== undefined) throw withoutLocks(path, fault);
      database.exec('BEGIN IMMEDIATE');
      // Another process may have made it meanwhile.
      if (numberOf(database, 'user_version') === 0) database.exec(schema);
      database.exec('COMMIT');
    } finally {
      database.close();
    }
  }
}

/** The right to write, until `release`. Each save is whole when `release` or `save` has answered. */
export class CacheLock {
  readonly #database: DatabaseSync;
  #isHeld = true;

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  find(key: string): Session | undefined {
    const row = this.#database.prepare('SELECT * FROM sessions WHERE key = ?').get(key);
    return row === undefined ? undefined : sessionOf(row);
  }

  /** Sets what is given; the rest of an entry that is there stays. */
  save(session: Session): void {
    const columns = columnsOf(session);
    const names = Object.keys(columns);
    const updates = names.filter((name) => name !== 'key' && !counters.includes(name));
    this.#database
      .prepare(
        `INSERT INTO sessions (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})
         ON CONFLICT (key) DO UPDATE SET ${updates.map((name) => `${name} = excluded.${name}`).join(', ')}`,
      )
      .run(...Object.values(columns));
  }

  remove(key: string): void {
    this.#database.prepare('DELETE FROM sessions WHERE key = ?').run(key);
  }

  /** Moves an entry to another key; one that is there is not overwritten. */
  rekey(from: string, to: { readonly key: string; readonly ref: string; readonly repository: string }): boolean {
    const { changes } = this.#database
      .prepare('UPDATE OR IGNORE sessions SET key = ?, ref = ?, repository = ? WHERE key = ?')
      .run(to.key, to.ref, to.repository, from);
    return changes === 1;
  }

  /** Answers with the entry after it. */
  countExec(key: string, nowMs: number): Session | undefined {
    this.#database
      .prepare('UPDATE sessions SET exec_count = exec_count + 1, last_exec_ms = ? WHERE key = ?')
      .run(nowMs, key);
    return this.find(key);
  }

  setHintShown(key: string): void {
    this.#database.prepare('UPDATE sessions SET hint_shown = 1 WHERE key = ?').run(key);
  }

  /** Whatever was written counts from here on. Again: nothing happens. */
  release(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    try {
      this.#database.exec('COMMIT');
    } finally {
      this.#database.close();
    }
  }
}

const counters: readonly string[] = ['exec_count', 'last_exec_ms', 'hint_shown', 'created_ms'];

function columnsOf(session: Session): Record<string, string | number | null> {
  const { identity } = session;
  return {
    key: session.key,
    server_url: session.serverUrl,
    sandbox_id: session.sandboxId,
    name: session.name,
    repository: identity.repository,
    worktree: identity.worktree,
    ref: identity.ref,
    config_path: identity.configPath,
    root: session.root,
    definition: session.definition,
    exec_count: session.execCount,
    last_exec_ms: session.lastExecMs,
    hint_shown: session.hintShown ? 1 : 0,
    created_ms: session.createdMs,
  };
}

function numberOf(database: DatabaseSync, pragma: string): number {
  return Number((database.prepare(`PRAGMA ${pragma}`).get() as Record<string, number>)[pragma]);
}

/** SQLite does not wait by itself here: several may make the file at the same time. */
function toWriteAhead(database: DatabaseSync): string {
  const untilMs = performance.now() + busyTimeoutMs;
  for (;;) {
    try {
      return String((database.prepare('PRAGMA journal_mode = WAL').get() as { journal_mode: string }).journal_mode);
    } catch (error) {
      if (!isBusy(error) || performance.now() > untilMs) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs);
    }
  }
}

/** Neither empty nor a SQLite file, or one of another program. */
function isForeign(path: string): boolean {
  const head = Buffer.alloc(100);
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    throw unusable(path, error);
  }
  try {
    const size = readSync(file, head, 0, head.length, 0);
    if (size === 0) return false;
    // A file that is cut short or overwritten may have been ours; a whole one says whose it is.
    if (size < head.length || head.toString('latin1', 0, 16) !== sqliteMagic)
      return looksLikeText(head.subarray(0, size));
    const id = head.readUInt32BE(68);
    return id !== 0 && id !== applicationId;
  } catch (error) {
    throw unusable(path, error);
  } finally {
    closeSync(file);
  }
}

function looksLikeText(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 9 || byte === 10 || byte === 13 || (byte >= 32 && byte !== 127));
}

function isCorrupt(error: unknown): boolean {
  const code = (error as { errcode?: number }).errcode;
  // SQLITE_CORRUPT, SQLITE_NOTADB, and a table that should be there.
  return code === 11 || code === 26 || code === 1 || (code !== undefined && (code & 0xff) === 11);
}

function withoutLocks(path: string, why: string): PlatformError {
  const message = `The file system of ${path} has no working locks (${why}). Set ATOLL_STATE to a local folder.`;
  return new PlatformError('checkout_cache_unusable', message);
}

function unusable(path: string, cause: unknown): PlatformError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new PlatformError('checkout_cache_unusable', `The cache ${path} cannot be used: ${why}.`, { cause });
}
