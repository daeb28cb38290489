/**
 * Takes back the last change that a pull made in the checkout: its files as they were, and its branch if the pull moved it. Only here; what the
 * sandbox has stays there until the next push. All or nothing, through the journal of `applyChanges`.
 */
import { PlatformError } from '../../protocol/index.ts';
import { applyChanges, recoverApply } from './apply.ts';
import { type BranchMove, commitsRef, refuseLockedIndex, setRef } from './branch-move.ts';
import type { Checkout } from './checkout.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { nameText } from './git-process.ts';
import { headCommit } from './local-head.ts';
import { readUndo, type UndoRecord } from './undo-record.ts';

export interface UndoOptions {
  readonly signal?: AbortSignal;
  readonly dryRun?: boolean;
  readonly onStep?: (files: number) => void;
}

export interface UndoResult {
  readonly kind: UndoRecord['kind'];
  readonly sandboxId: string;
  /** When the change was made, in ISO 8601. */
  readonly at: string;
  /** False on a dry run. */
  readonly undone: boolean;
  readonly files: number;
  readonly paths: readonly string[];
  /** Where the commits are that the branch has left. */
  readonly commitsRef: string | null;
  readonly warnings: readonly string[];
}

/** When the change was made that an undo would take back; undefined: there is none. */
export async function findUndo(checkout: Checkout): Promise<number | undefined> {
  return (await readUndo(checkout))?.madeAt.getTime();
}

export function undo(checkout: Checkout, options: UndoOptions = {}): Promise<UndoResult> {
  return withCheckoutLock(checkout, options.signal, async () => {
    const recovered = await recoverApply(checkout);
    const found = await readUndo(checkout);
    if (found === undefined) throw new PlatformError('undo_nothing', 'There is nothing to take back here.');
    const { record, madeAt } = found;
    const changes = record.changes.map(({ name, from, to }) => ({ name, from: to, to: from }));
    const branch = record.branch === null ? null : await backwards(checkout, record.branch);
    const { kind, sandboxId } = record;
    const ref = branch?.from == null ? null : commitsRef(branch.from);
    const paths = changes.map(({ name }) => nameText(name));
    const warnings = recovered?.warnings ?? [];
    const result = { kind, sandboxId, at: madeAt.toISOString(), files: paths.length, paths, commitsRef: ref };
    if (options.dryRun) return { ...result, undone: false, warnings };
    if (ref !== null && branch?.from != null) await setRef(checkout, ref, branch.from);
    const applied = await applyChanges(checkout, changes, { sync: null, branch, undo: null }, options.onStep);
    if (applied.conflicts.length > 0) {
      const edited = applied.conflicts.map(({ path }) => path);
      throw refusedBecause(`These were edited since: ${edited.join(', ')}.`, edited);
    }
    return { ...result, undone: true, warnings: [...warnings, ...applied.warnings] };
  });
}

async function backwards(checkout: Checkout, move: BranchMove): Promise<BranchMove> {
  await refuseLockedIndex(checkout);
  if ((await headCommit(checkout)) !== move.to) throw refusedBecause('The branch has moved since.', []);
  return { ref: move.ref, from: move.to, to: move.from, indexFrom: move.indexTo, indexTo: move.indexFrom };
}

function refusedBecause(why: string, paths: readonly string[]): PlatformError {
  return new PlatformError('undo_refused', `${why} Nothing was changed.`, { details: { paths } });
}
