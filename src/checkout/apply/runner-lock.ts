/**
 * One apply, undo or recovery at a time for a state folder. The lock is an open write transaction of SQLite, which the kernel frees with the
 * process, however it dies. It counts per connection: a process that takes it twice waits for itself, and is told so when the wait ends.
 *
 * Each holder has a number that is larger than every earlier one. Should two ever believe that they hold it (somebody removed the file of the
 * lock), the earlier one finds a larger number than its own before its next step, and goes no further.
 */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { writeFileDurably } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { type LockOwner, takeLock, type WaitOptions } from '../cache-lock.ts';

/** A process, told apart from a later one with the same number. */
export interface ProcessOwner {
  readonly pid: number;
  readonly bootId: string;
  /** In ticks since the machine started. */
  readonly startTime: string;
}

export interface Runner {
  readonly fence: number;
  readonly owner: ProcessOwner;
  /** Refuses when a later runner has begun. */
  check(): Promise<void>;
}

export interface RunnerOptions extends WaitOptions {
  readonly nowMs: () => number;
  readonly command: string;
}

export async function withRunnerLock<Result>(
  journals: string,
  options: RunnerOptions,
  work: (runner: Runner) => Promise<Result>,
): Promise<Result> {
  const database = new DatabaseSync(join(journals, 'lock.db'));
  try {
    database.exec(
      'PRAGMA busy_timeout = 10000; CREATE TABLE IF NOT EXISTS lock_owner (one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER NOT NULL, command TEXT NOT NULL, since_ms INTEGER NOT NULL) STRICT',
    );
    const who: LockOwner = { pid: process.pid, command: options.command, sinceMs: options.nowMs() };
    await takeLock(database, who, { ...options, what: 'The journal of applied plans' });
    const fence = (await readFence(journals)) + 1;
    await writeFileDurably(fencePath(journals), `${fence}\n`);
    return await work({
      fence,
      owner: presentProcess(),
      check: async () => {
        const newest = await readFence(journals);
        if (newest === fence) return;
        throw new PlatformError(
          'plan_apply_superseded',
          `Another process has taken over (number ${newest} after ${fence}); it settles what was begun.`,
          { details: { fence, newest } },
        );
      },
    });
  } finally {
    if (database.isTransaction) database.exec('ROLLBACK');
    database.close();
  }
}

async function readFence(journals: string): Promise<number> {
  const text = await readFile(fencePath(journals), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '0';
    throw error;
  });
  const fence = Number(text);
  if (!Number.isSafeInteger(fence) || fence < 0) {
    throw new PlatformError('plan_journal_unusable', `${fencePath(journals)} holds no number. Nothing was changed.`);
  }
  return fence;
}

function fencePath(journals: string): string {
  return join(journals, 'fence');
}

function presentProcess(): ProcessOwner {
  return { pid: process.pid, bootId: textOf('/proc/sys/kernel/random/boot_id'), startTime: startTime() };
}

function startTime(): string {
  // The name of the program stands in parentheses and may hold anything; the 22nd field counts from behind it.
  return textOf('/proc/self/stat').split(') ').at(-1)?.split(' ')[19] ?? '';
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return ''; // Only on Linux.
  }
}
