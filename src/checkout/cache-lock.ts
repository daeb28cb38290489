/**
 * Takes the write lock of the cache, and tells who has it meanwhile.
 *
 * What a transaction has written is invisible until it commits, so the owner writes its name in a short transaction before the long one.
 * Another may come in between; then the name is not ours, and we begin again. The name of a process that died stays until the next one
 * writes, and is shown only while the lock is held.
 */
import type { DatabaseSync } from 'node:sqlite';
import { PlatformError } from '../protocol/index.ts';

export interface LockOwner {
  readonly pid: number;
  readonly command: string;
  readonly sinceMs: number;
}

export interface WaitOptions {
  /** Called once, when it is not free. */
  readonly onWait?: (owner: LockOwner | undefined) => void;
  readonly waitMs?: number;
  /** What is locked, for the person who is refused. */
  readonly what?: string;
  readonly signal?: AbortSignal;
}

/** Longer than any creation takes. */
const waitDefaultMs = 120_000;
const pauseFirstMs = 5;
const pauseMaxMs = 100;
const busy = 5;

export async function takeLock(database: DatabaseSync, who: LockOwner, options: WaitOptions): Promise<void> {
  const { waitMs = waitDefaultMs, what = 'The cache of this machine', onWait, signal } = options;
  const untilMs = performance.now() + waitMs;
  for (let attempt = 0; ; attempt++) {
    if (tryLock(database, who)) return;
    const owner = readOwner(database);
    if (attempt === 0) onWait?.(owner);
    if (performance.now() >= untilMs) throw held(owner, what);
    const pauseMs = Math.min(pauseMaxMs, pauseFirstMs * 2 ** Math.min(attempt, 10)) * (0.5 + Math.random() / 2);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    signal?.throwIfAborted();
  }
}

/** How long anything but the lock itself waits for others. */
export const busyTimeoutMs = 10_000;

export function isBusy(error: unknown): boolean {
  return ((error as { errcode?: number }).errcode ?? 0) % 256 === busy;
}

function tryLock(database: DatabaseSync, who: LockOwner): boolean {
  // Waiting inside SQLite would hold up everything else that this process does.
  database.exec('PRAGMA busy_timeout = 0');
  try {
    database.exec('BEGIN IMMEDIATE');
    database
      .prepare('INSERT OR REPLACE INTO lock_owner (one, pid, command, since_ms) VALUES (1, ?, ?, ?)')
      .run(who.pid, who.command, who.sinceMs);
    database.exec('COMMIT');
    database.exec('BEGIN IMMEDIATE');
  } catch (error) {
    if (!isBusy(error)) throw error;
    if (database.isTransaction) database.exec('ROLLBACK');
    return false;
  } finally {
    database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  }
  const owner = readOwner(database);
  if (owner?.pid === who.pid && owner.sinceMs === who.sinceMs && owner.command === who.command) return true;
  database.exec('ROLLBACK');
  return false;
}

function readOwner(database: DatabaseSync): LockOwner | undefined {
  const found = database.prepare('SELECT pid, command, since_ms FROM lock_owner').get();
  if (found === undefined) return undefined;
  return {
    pid: Number(found['pid']),
    command: String(found['command']),
    sinceMs: Number(found['since_ms']),
  };
}

function held(owner: LockOwner | undefined, what: string): PlatformError {
  const who = owner === undefined ? 'another atoll' : `process ${owner.pid} (${owner.command})`;
  const details = owner === undefined ? {} : { ...owner };
  return new PlatformError('checkout_busy', `${what} is held by ${who}.`, { details });
}
