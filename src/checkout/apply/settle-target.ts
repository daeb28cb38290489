/**
 * Brings one target from before to after, once that is decided: files, then the branch, then the index. Also after a crash, by looking at what is
 * there. A target that was changed meanwhile is taken back to what it was, with the change, and is left for its owner.
 */
import { existsSync } from 'node:fs';
import type { FaultPoints } from '../../base/index.ts';
import type { Checkout } from '../sync/checkout.ts';
import { diskPath } from '../sync/disk-entries.ts';
import { nameText } from '../sync/git-process.ts';
import { type StepHooks, stepBack, stepForward } from './file-steps.ts';
import { checkedOutAt } from './find-place.ts';
import { doFlip } from './flip.ts';
import {
  holdLocks,
  isIndexWaiting,
  logMove,
  makeGitFiles,
  moveIndex,
  moveRef,
  readRef,
  releaseLocks,
} from './git-locks.ts';
import type { JournalTarget, JournalTargetState } from './journal.ts';
import { findStaged } from './obstacles.ts';
import type { TargetConflict } from './plan-target.ts';
import type { Runner } from './runner-lock.ts';
import { syncFolders } from './staging.ts';

export interface Settling {
  readonly runner: Runner;
  readonly faults: FaultPoints;
  /** What the reflog says. */
  readonly why: string;
  readonly atMs: number;
}

export async function settleTarget(
  checkout: Checkout,
  target: JournalTarget,
  settling: Settling,
): Promise<JournalTargetState> {
  const { faults, runner } = settling;
  const { move, place, flip } = target;
  await runner.check();
  if (!existsSync(place.path)) return pending([], `${place.path} is not there any more.`);
  if (flip !== null) {
    const obstacle = await doFlip(flip);
    await faults.hit('plan-flipped');
    return obstacle === undefined ? { kind: 'applied' } : pending([], obstacle);
  }
  const folders = [target.staging, target.gitStaging].filter((folder) => folder !== null);
  if (!folders.every((folder) => existsSync(folder)))
    return pending([], `What was prepared for ${place.path} is gone.`);
  const isMoved = move !== null && (await readRef(checkout, move.ref)) === move.to;
  if (!isMoved) {
    const obstacle = await changeFiles(checkout, target, settling);
    if (obstacle !== undefined) return obstacle;
    // Whoever finds the branch moved takes the files for done: a power loss must not keep the one and lose the others.
    await syncFolders(
      [...target.steps, ...target.makes, ...target.removes].map(({ name }) => diskPath(checkout, name)),
    );
    await faults.hit('plan-files-done');
    await runner.check();
    await moveRef(checkout, target);
    await faults.hit('plan-branch-moved');
  }
  await logMove(checkout, target, settling);
  if (await isIndexWaiting(target)) await settleIndex(checkout, target);
  await faults.hit('plan-index-moved');
  await releaseLocks(target);
  return { kind: 'applied' };
}

async function changeFiles(
  checkout: Checkout,
  target: JournalTarget,
  { runner, faults }: Settling,
): Promise<JournalTargetState | undefined> {
  const { move, steps } = target;
  const hooks: StepHooks = {
    beforeStep: async () => {
      await faults.hit('plan-step');
      await runner.check();
    },
  };
  const takeBack = async (state: JournalTargetState) => {
    await stepBack(checkout, target, hooks);
    await releaseLocks(target);
    return state;
  };
  const { wasHeld } = await holdLocks(target);
  if (move !== null && (await readRef(checkout, move.ref)) !== move.from) {
    return await takeBack(pending([], `The branch ${target.place.branch} was moved meanwhile.`));
  }
  if (!wasHeld && move !== null) {
    // Somebody removed our lock after a crash, and may have staged something since.
    if ((await checkedOutAt(checkout, move.ref)) !== target.place.root)
      return await takeBack(pending([], `The branch ${target.place.branch} was checked out elsewhere meanwhile.`));
    const staged = await findStaged(checkout, target.indexSteps);
    if (staged.length > 0) return await takeBack(pending(staged, 'Files were staged meanwhile.'));
    await makeGitFiles(checkout, target);
  }
  if (steps.length === 0) return undefined;
  const changed = await stepForward(checkout, target, hooks);
  if (changed === undefined) return undefined;
  const path = nameText(changed);
  return await takeBack(pending([{ path, reason: 'changed_meanwhile' }], `${path} was changed meanwhile.`));
}

/** The branch has moved: only the index is left, unless somebody has staged over it after a crash. */
async function settleIndex(checkout: Checkout, target: JournalTarget): Promise<void> {
  const { wasHeld } = await holdLocks(target);
  if (!wasHeld) {
    if ((await findStaged(checkout, target.indexSteps)).length > 0) return;
    await makeGitFiles(checkout, target);
  }
  await moveIndex(target);
}

function pending(conflicts: readonly TargetConflict[], message: string): JournalTargetState {
  return { kind: 'conflictPending', conflicts, message: `${message} It is left as it is.` };
}
