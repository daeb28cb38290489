/**
 * From a decided journal to a finished one, in whatever process: each target in its recorded order, each outcome written down before the next.
 * What fails is tried again a few times and then left for the next one who comes; the other targets do not wait for it.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import { userCall } from '../sync/checkout.ts';
import { git } from '../sync/git-process.ts';
import { busy } from './find-place.ts';
import { discardCopy } from './flip.ts';
import { releaseLocks } from './git-locks.ts';
import { type Journal, type JournalTarget, readJournal, removeJournal } from './journal.ts';
import { refNames } from './prepare-target.ts';
import { checkoutFor, type RunContext, saveJournal, withSyncLocks } from './run-context.ts';
import { settleTarget } from './settle-target.ts';
import { removeStaging } from './staging.ts';

const attempts = 3;
const pauseMs = 50;

export interface SettledJournal {
  readonly journal: Journal;
  /** Why a target is still pending, by its number. */
  readonly errors: ReadonlyMap<number, PlatformError>;
}

/** The caller holds the locks of sync. */
export async function settleJournal(run: RunContext, decided: Journal): Promise<SettledJournal> {
  let journal = decided;
  const errors = new Map<number, PlatformError>();
  for (const [number, target] of decided.targets.entries()) {
    if (target.state.kind !== 'pending') continue;
    try {
      const state = await settleWithRetry(run, journal, target);
      const targets = journal.targets.map((each, index) => (index === number ? { ...each, state } : each));
      journal = await saveJournal(run, { ...journal, targets });
      await run.faults.hit('plan-target-done');
    } catch (error) {
      if (isPlatformError(error, 'plan_apply_superseded')) throw error;
      errors.set(number, asPlatformError(error));
    }
  }
  if (journal.targets.some(({ state }) => state.kind === 'pending')) return { journal, errors };
  await run.faults.hit('plan-before-finish');
  return { journal: await finish(run, journal), errors };
}

/** What a crash cut off: settled if it was decided, taken back if not, tidied if it was finished. */
export async function recoverJournal(run: RunContext, journal: Journal): Promise<void> {
  const directories = journal.targets.map(({ place }) => place.syncDirectory);
  if (journal.phase === 'finished') {
    for (const target of journal.targets) await removeStaging(target);
    return;
  }
  await run.faults.hit('plan-recover');
  await withSyncLocks(directories, run.signal, async () => {
    if (journal.phase === 'preparing') await releaseJournal(run, journal);
    else await settleJournal(run, journal);
  });
}

/** Takes back everything that was prepared. Only what is our own, by inode or by name, is removed. */
export async function releaseJournal(run: RunContext, journal: Journal): Promise<void> {
  await run.runner.check();
  for (const [number, target] of journal.targets.entries()) {
    await releaseLocks(target);
    await run.faults.hit('plan-release');
    await removeStaging(target);
    if (target.flip !== null && journal.kind === 'apply') await discardCopy(target.flip.link, target.flip.to);
    if (journal.kind === 'apply') await removeRefs(run, journal.id, number, target);
  }
  await removeJournal(run.journals, journal.id);
}

/** The refs that kept both sides of a target, in the user's repository. */
export async function removeRefs(run: RunContext, id: string, number: number, target: JournalTarget): Promise<void> {
  if (target.move === null) return;
  const { before, after } = refNames(id, number);
  const stdin = `delete ${before}\ndelete ${after}\n`;
  // A repository that is gone has no refs either.
  await git(['update-ref', '--stdin'], userCall(checkoutFor(target, run), { stdin, accept: [1, 128] })).catch(() => {});
}

async function settleWithRetry(run: RunContext, journal: Journal, target: JournalTarget) {
  const settling = {
    runner: run.runner,
    faults: run.faults,
    why: `atoll plan ${journal.kind}: ${journal.planName.replaceAll(/\s+/g, ' ')}`,
    atMs: journal.startedAtMs,
  };
  for (let attempt = 1; ; attempt++) {
    try {
      return await settleTarget(checkoutFor(target, run), target, settling);
    } catch (error) {
      if (attempt === attempts || isPlatformError(error, 'plan_apply_superseded')) throw error;
      await pause(pauseMs * 2 ** attempt);
    }
  }
}

/** The record is durable before anything that a repeat would need is removed. */
async function finish(run: RunContext, journal: Journal): Promise<Journal> {
  if (journal.kind === 'undo') return await finishUndo(run, journal);
  const finished = await saveJournal(run, { ...journal, phase: 'finished', finishedAtMs: run.nowMs() });
  await run.faults.hit('plan-finished');
  for (const target of finished.targets) await removeStaging(target);
  return finished;
}

/** What was undone is written into the record of the apply; the undo itself leaves nothing. */
async function finishUndo(run: RunContext, journal: Journal): Promise<Journal> {
  const applied = journal.of === null ? undefined : await readJournal(run.journals, journal.of);
  if (applied !== undefined) {
    const isUndone = (target: JournalTarget) =>
      journal.targets.some(
        ({ state, workspaceId, place }) =>
          state.kind === 'applied' && workspaceId === target.workspaceId && place.path === target.place.path,
      );
    const targets = applied.targets.map((target) =>
      isUndone(target) ? { ...target, state: { kind: 'undone' } as const } : target,
    );
    await saveJournal(run, { ...applied, targets });
  }
  await run.faults.hit('plan-undo-recorded');
  for (const target of journal.targets) await removeStaging(target);
  await removeJournal(run.journals, journal.id);
  return { ...journal, phase: 'finished', finishedAtMs: run.nowMs() };
}

/** Nothing else is done to a target that a decided apply or undo has not finished: it would be done to half of it. */
export function notFinished(planName: string, targets: readonly JournalTarget[]): PlatformError {
  const paths = targets.map(({ place }) => place.path).join(', ');
  return busy(`Plan ${planName} is decided and not finished in ${paths}. Every command goes on with it; ask again.`);
}

/** A refusal, or a failure of the system; anything else is a bug. */
export function isExpected(error: unknown): boolean {
  return isPlatformError(error) || (error instanceof Error && 'syscall' in error);
}

export function asPlatformError(error: unknown): PlatformError {
  if (isPlatformError(error)) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  const known = code === 'ENOSPC' || code === 'EDQUOT' ? 'insufficient_storage' : undefined;
  const closed = code === 'EACCES' || code === 'EPERM' || code === 'EROFS' ? 'permission_denied' : undefined;
  return new PlatformError(known ?? closed ?? 'sync_failed', message, { cause: error });
}
