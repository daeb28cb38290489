/**
 * Takes the last apply back: files with their permissions, symlinks, deletions and folders, the index and the branch. Each target whole or not at
 * all; one that was edited since is left and named, the others are still taken back, and a repeat goes on with what is left.
 */
import { isPlatformError, type PlatformError } from '../../protocol/index.ts';
import { checkedOutAt, refuseUnfinished, unusable } from './find-place.ts';
import { treeStamp } from './flip.ts';
import { readRef, releaseLocks } from './git-locks.ts';
import { type Journal, type JournalTarget, makeFolder, newJournalId } from './journal.ts';
import type { ApplyResult, TargetConflict } from './plan-target.ts';
import { describeFiles, lockTarget } from './prepare-target.ts';
import { recover } from './recover.ts';
import { resultOf, type TargetOutcome } from './result.ts';
import { type ApplyOptions, checkoutFor, type RunContext, saveJournal, withRun, withSyncLocks } from './run-context.ts';
import { asPlatformError, isExpected, notFinished, releaseJournal, settleJournal } from './settle-journal.ts';
import { makeStaging, removeStaging, stageFiles, stagingOf } from './staging.ts';

/** undefined: nothing was ever applied here, or all of it is taken back. */
export function undoLast(options: ApplyOptions): Promise<ApplyResult | undefined> {
  return withRun(options, async (run) => {
    const applied = lastApply(await recover(run));
    if (applied === undefined) return undefined;
    const directories = applied.targets.map(({ place }) => place.syncDirectory);
    return await withSyncLocks(directories, run.signal, () => undo(run, applied));
  });
}

/** What can be undone, newest first; what is still under way counts. */
export function lastApply(journals: readonly Journal[]): Journal | undefined {
  return journals.findLast(
    ({ kind, targets }) => kind === 'apply' && targets.some(({ state }) => state.kind === 'applied'),
  );
}

async function undo(run: RunContext, applied: Journal): Promise<ApplyResult> {
  const id = newJournalId(run.nowMs());
  const wanted = applied.targets.filter(({ state }) => state.kind === 'applied').reverse();
  const { planId, planName, commitId } = applied;
  const told = { id, kind: 'undo', planId, planName, commitId, startedAtMs: run.nowMs() } as const;
  const unfinished = applied.targets.filter(({ state }) => state.kind === 'pending');
  if (unfinished.length > 0) {
    // What is decided still comes there: without the others it would be half of a plan.
    const error = notFinished(planName, unfinished);
    const outcomes = applied.targets.map((target) => ({ target, state: 'undoPending' as const, error }));
    return resultOf(told, { outcomes, state: 'undoIncomplete', finishedAtMs: run.nowMs(), warnings: [] });
  }
  await makeFolder(run.journals, id);
  const begun: JournalTarget[] = [];
  for (const [number, target] of wanted.entries()) begun.push(await reversed(run, target, `${id}-${number}`));
  let journal = await saveJournal(run, {
    ...told,
    of: applied.id,
    phase: 'preparing',
    fence: run.runner.fence,
    owner: run.runner.owner,
    finishedAtMs: null,
    targets: begun,
  });
  const ready: JournalTarget[] = [];
  const left: TargetOutcome[] = [];
  try {
    await run.faults.hit('plan-undo-begun');
    for (const target of begun) {
      const outcome = await prepareUndo(run, target);
      if ('steps' in outcome) {
        ready.push(outcome);
        continue;
      }
      left.push(outcome);
      await releaseLocks(target);
      await removeStaging(target);
    }
    if (ready.length > 0) {
      await run.faults.hit('plan-undo-before-decision');
      journal = await saveJournal(run, { ...journal, phase: 'decided', targets: ready });
    }
  } catch (error) {
    if (!isPlatformError(error, 'plan_apply_superseded')) await releaseJournal(run, journal);
    throw error;
  }
  if (ready.length === 0) {
    await releaseJournal(run, journal);
    return resultOf(told, { outcomes: left, state: 'undoIncomplete', finishedAtMs: run.nowMs(), warnings: [] });
  }
  await run.faults.hit('plan-undo-decided');
  const settled = await settleJournal(run, journal);
  const result = resultOf(settled.journal, { errors: settled.errors, finishedAtMs: run.nowMs(), warnings: [] });
  if (left.length === 0) return result;
  const rest = resultOf(told, { outcomes: left, state: 'undoIncomplete', finishedAtMs: run.nowMs(), warnings: [] });
  return { ...result, state: 'undoIncomplete', targets: [...result.targets, ...rest.targets] };
}

/** The same target the other way round. */
async function reversed(run: RunContext, target: JournalTarget, name: string): Promise<JournalTarget> {
  const { move, flip, insertions, deletions } = target;
  const checkout = checkoutFor(target, run);
  const folders =
    flip === null
      ? await stagingOf(checkout, name, target.place.root !== null).catch(() => ({ staging: null, gitStaging: null }))
      : { staging: null, gitStaging: null };
  return {
    ...target,
    ...folders,
    move: move === null ? null : { ref: move.ref, from: move.to, to: move.from },
    steps: target.steps.map((step) => ({
      ...step,
      from: step.to,
      to: step.from,
      was: step.becomes,
      becomes: step.was,
    })),
    indexSteps: target.indexSteps.map(({ name: path, from, to }) => ({ name: path, from: to, to: from })),
    makes: target.removes,
    removes: target.makes,
    flip:
      flip === null
        ? null
        : {
            ...flip,
            fromText: flip.toText,
            toText: flip.fromText,
            from: flip.to,
            to: flip.from,
            fromStamp: flip.toStamp,
            toStamp: flip.fromStamp,
          },
    insertions: deletions,
    deletions: insertions,
    state: { kind: 'pending' },
  };
}

/** Ready and locked, or why it is not. */
async function prepareUndo(run: RunContext, target: JournalTarget): Promise<JournalTarget | TargetOutcome> {
  const checkout = checkoutFor(target, run);
  const refused = (error: PlatformError | undefined, conflicts: readonly TargetConflict[] = []): TargetOutcome => ({
    target,
    state: 'undoPending',
    conflicts,
    ...(error !== undefined && { error }),
  });
  try {
    const { move, flip, place } = target;
    if (flip !== null) {
      const isSame = (await treeStamp(flip.from)) === flip.fromStamp;
      return isSame ? target : refused(unusable(`Files in ${flip.from} were changed since.`));
    }
    if (move !== null) {
      if (place.root !== null) refuseUnfinished(checkout.gitDirectory ?? '', place.path);
      const now = await readRef(checkout, move.ref);
      if (now !== move.from) return refused(unusable(`The branch ${place.branch} of ${place.path} has moved since.`));
      if ((await checkedOutAt(checkout, move.ref)) !== place.root)
        return refused(unusable(`The branch ${place.branch} is checked out elsewhere than when the plan was applied.`));
    }
    const { target: described, conflicts } =
      place.root === null ? { target, conflicts: [] } : await describeFiles(checkout, target, target.steps);
    if (conflicts.length > 0)
      return refused(
        unusable(`${conflicts.map(({ path }) => path).join(', ')} in ${place.path}: edited since.`),
        conflicts,
      );
    // Folders that the apply made or removed, not those that happen to be empty now.
    const prepared = { ...described, makes: target.makes, removes: target.removes };
    await makeStaging(prepared);
    await stageFiles(checkout, prepared);
    await run.faults.hit('plan-undo-lock');
    if (await lockTarget(checkout, prepared)) return prepared;
    return refused(unusable(`${place.path} was changed while it was looked at. Ask again.`));
  } catch (error) {
    if (!isExpected(error)) throw error;
    return refused(asPlatformError(error));
  }
}
