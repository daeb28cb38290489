/** What every part of an apply, an undo and a recovery works with. */

import { mkdir } from 'node:fs/promises';
import type { FaultPoints } from '../../base/index.ts';
import { noFaults } from '../../base/index.ts';
import type { WaitOptions } from '../cache-lock.ts';
import type { Checkout } from '../sync/checkout.ts';
import { withCheckoutLock } from '../sync/checkout-lock.ts';
import { gitEnvironment } from '../sync/git-process.ts';
import { type Journal, type JournalTarget, openJournals, writeJournal } from './journal.ts';
import { type Runner, withRunnerLock } from './runner-lock.ts';

export interface ApplyOptions extends Omit<WaitOptions, 'what'> {
  readonly stateDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly nowMs: () => number;
  /** Who we are, for those who wait. */
  readonly command: string;
  readonly faults?: FaultPoints;
}

export interface RunContext {
  readonly journals: string;
  readonly runner: Runner;
  readonly env: Readonly<Record<string, string>>;
  readonly faults: FaultPoints;
  readonly nowMs: () => number;
  readonly signal: AbortSignal | undefined;
}

export async function withRun<Result>(
  options: ApplyOptions,
  work: (run: RunContext) => Promise<Result>,
): Promise<Result> {
  const { stateDirectory, env, nowMs, faults = noFaults, signal } = options;
  const journals = await openJournals(stateDirectory);
  return await withRunnerLock(journals, options, (runner) =>
    work({ journals, runner, env: gitEnvironment(env), faults, nowMs, signal }),
  );
}

/** A sync of any of these working trees waits, or we wait for it. Taken in one order, so that nobody waits in a circle. */
export async function withSyncLocks<Result>(
  directories: readonly (string | null)[],
  signal: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const [first, ...others] = [...new Set(directories)].filter((directory) => directory !== null).sort();
  if (first === undefined) return await work();
  await mkdir(first, { recursive: true, mode: 0o700 });
  return await withCheckoutLock({ directory: first }, signal, () => withSyncLocks(others, signal, work));
}

/** Every journal carries the number of whoever wrote it; one who was overtaken writes no more. */
export async function saveJournal(run: RunContext, journal: Journal): Promise<Journal> {
  await run.runner.check();
  const saved = { ...journal, fence: run.runner.fence, owner: run.runner.owner };
  await writeJournal(run.journals, saved);
  return saved;
}

export function checkoutFor({ checkout }: JournalTarget, { env }: Pick<RunContext, 'env'>): Checkout {
  return { ...checkout, env };
}
