/** Prepares one target: everything that its change will need lies ready, on the right file systems, and nothing of it can be seen. */
import { lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { inOrder } from '../sync/apply.ts';
import { setRef } from '../sync/branch-move.ts';
import { type Checkout, ensureShadow } from '../sync/checkout.ts';
import { diskPath, find, stampOf } from '../sync/disk-entries.ts';
import { checkHostileChanges } from '../sync/hostile-tree.ts';
import type { SyncLimits } from '../sync/options.ts';
import { giveToUser } from '../sync/packs.ts';
import type { TreeChange } from '../sync/trees.ts';
import { folderSteps, stepForward } from './file-steps.ts';
import { checkedOutAt, type FoundPlace } from './find-place.ts';
import { copyTree, planFlip, treeStamp } from './flip.ts';
import { holdLocks, makeGitFiles, readRef } from './git-locks.ts';
import { takeIncoming } from './incoming.ts';
import type { DiskFacts, FileStep, JournalTarget } from './journal.ts';
import { mergeIntoBranch, mergeIntoDirectory } from './merge-target.ts';
import { findObstacles, findStaged } from './obstacles.ts';
import type { AppliedPlan, PlanTarget, TargetConflict } from './plan-target.ts';
import { makeStaging, stageFiles, stagingOf } from './staging.ts';

export interface TargetRequest {
  readonly target: PlanTarget;
  readonly found: FoundPlace;
  readonly plan: AppliedPlan;
  /** Of the journal, and which target of it. */
  readonly id: string;
  readonly number: number;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface PreparedTarget {
  readonly target: JournalTarget;
  readonly conflicts: readonly TargetConflict[];
  readonly warnings: readonly string[];
}

/** What the journal has to know before anything is made. */
export async function beginTarget(request: TargetRequest): Promise<JournalTarget> {
  const { target, found, id, number } = request;
  const { env: _, ...checkout } = checkoutOf(request);
  const hasFiles = found.root !== null;
  const flip =
    found.kind === 'link' && found.root !== null ? await planFlip(found.path, found.root, `${id}-${number}`) : null;
  return {
    workspaceId: target.workspaceId,
    workspace: target.workspace,
    base: target.base,
    commit: target.commit,
    place: {
      kind: found.kind,
      path: found.path,
      branch: found.branch,
      root: found.root,
      syncDirectory: found.sync?.directory ?? null,
    },
    checkout,
    ...(flip === null
      ? await stagingOf(checkoutOf(request), `${id}-${number}`, hasFiles)
      : { staging: `${flip.to}.steps`, gitStaging: null }),
    move: found.ref === null ? null : { ref: found.ref, from: found.head, to: found.head },
    steps: [],
    indexSteps: [],
    makes: [],
    removes: [],
    flip,
    insertions: 0,
    deletions: 0,
    state: { kind: 'pending' },
  };
}

/** Finds out what the target becomes, and what is in the way of it. */
export async function prepareTarget(
  request: TargetRequest,
  begun: JournalTarget,
  limits: SyncLimits,
): Promise<PreparedTarget> {
  const { target, found, plan } = request;
  const checkout = checkoutOf(request);
  await mkdir(checkout.directory, { recursive: true, mode: 0o700 });
  await ensureShadow(checkout);
  await takeIncoming(checkout, target, limits);
  const merged =
    found.ref === null
      ? await mergeIntoDirectory(checkout, target)
      : await mergeIntoBranch(checkout, target, { head: found.head, plan });
  const { conflicts, changes, commit, insertions, deletions } = merged;
  if (conflicts.length > 0) return { target: begun, conflicts, warnings: [] };
  if (changes.length === 0 && commit === null) {
    return { target: { ...begun, state: { kind: 'unchanged' } }, conflicts: [], warnings: [] };
  }
  const checked = await checkHostileChanges(checkout, changes, limits);
  const move = begun.move === null ? null : { ...begun.move, to: commit };
  const counted = { ...begun, move, insertions, deletions };
  // Submodules are left alone in a directory; a branch has them as commits name them.
  const indexSteps = found.ref === null ? [] : changes;
  const warnings = found.ref === null ? checked.warnings : [];
  if (found.root === null) return { target: { ...counted, indexSteps }, conflicts: [], warnings };
  const described = await describeFiles(checkout, { ...counted, indexSteps }, checked.changes);
  return { ...described, warnings };
}

/** The steps in the working tree, with what an undo will need, and what is in the way of them. */
export async function describeFiles(
  checkout: Checkout,
  target: JournalTarget,
  changes: readonly (TreeChange & { readonly becomes?: DiskFacts | null })[],
): Promise<{ readonly target: JournalTarget; readonly conflicts: readonly TargetConflict[] }> {
  const ordered = inOrder(changes);
  const { conflicts, stamps } = await findObstacles(checkout, ordered);
  const staged = target.move === null ? [] : await findStaged(checkout, target.indexSteps);
  const all = [...conflicts, ...staged.filter(({ path }) => !conflicts.some((conflict) => conflict.path === path))];
  const steps: FileStep[] = [];
  for (const [index, change] of ordered.entries()) {
    const was = change.from === null ? null : await factsOf(checkout, change.name);
    const becomes = change.becomes === undefined ? futureFacts(change, was) : change.becomes;
    steps.push({ name: change.name, from: change.from, to: change.to, stamp: stamps[index]!, was, becomes });
  }
  return { target: { ...target, steps, ...(await folderSteps(checkout, steps)) }, conflicts: all };
}

/** Writes what will be needed: a disk that is full or closed is found here. */
export async function stageTarget(checkout: Checkout, target: JournalTarget, names: RefNames): Promise<JournalTarget> {
  const { move, flip } = target;
  await makeStaging(target);
  await stageFiles(checkout, target);
  if (move?.to != null) await giveToUser(checkout, [move.to], move.from === null ? [] : [move.from]);
  if (move?.to != null) await setRef(checkout, names.after, move.to);
  if (move?.from != null) await setRef(checkout, names.before, move.from);
  if (flip === null) return target;
  await copyTree(flip);
  const stopped = await stepForward({ ...checkout, root: flip.to }, target, { beforeStep: async () => {} });
  return { ...target, flip: { ...flip, toStamp: stopped === undefined ? await treeStamp(flip.to) : 'stopped' } };
}

/** Locks it against every git, and looks again. False: it is not as it was prepared for. */
export async function lockTarget(checkout: Checkout, target: JournalTarget): Promise<boolean> {
  const { move, steps, flip, place } = target;
  if (flip !== null) return flip.toStamp !== 'stopped' && (await treeStamp(flip.from)) === flip.fromStamp;
  await holdLocks(target);
  if (move !== null && (await readRef(checkout, move.ref)) !== move.from) return false;
  if (move !== null && (await checkedOutAt(checkout, move.ref)) !== place.root) return false;
  for (const { name, stamp } of steps) {
    if (stampOf(find(diskPath(checkout, name))) !== stamp) return false;
  }
  if (move !== null && place.root !== null && (await findStaged(checkout, target.indexSteps)).length > 0) return false;
  await makeGitFiles(checkout, target);
  return true;
}

export interface RefNames {
  readonly before: string;
  readonly after: string;
}

/** Refs of our own in the user's repository, which keep both sides from being collected. */
export function refNames(id: string, number: number): RefNames {
  return { before: `refs/atoll/apply/${id}/${number}/before`, after: `refs/atoll/apply/${id}/${number}/after` };
}

function checkoutOf({ found, number, folder, env }: TargetRequest): Checkout {
  const directory = join(folder, String(number));
  return {
    root: found.root ?? found.commonDirectory ?? '',
    kind: found.ref === null ? 'plain' : 'git',
    gitDirectory: found.gitDirectory ?? undefined,
    commonDirectory: found.commonDirectory ?? undefined,
    directory,
    shadow: join(directory, 'repo.git'),
    isSparse: found.isSparse,
    isShallow: found.isShallow,
    env,
    excludes: '',
  };
}

async function factsOf(checkout: Checkout, name: string): Promise<DiskFacts | null> {
  const found = await lstat(diskPath(checkout, name)).catch(() => undefined);
  return found === undefined ? null : { perm: found.mode & 0o7777, owner: [found.uid, found.gid] };
}

/** A file that is replaced keeps who may read and write it; whether it can be executed is the plan's to say. */
function futureFacts({ to }: TreeChange, was: DiskFacts | null): DiskFacts | null {
  if (to === null) return null;
  const isExecutable = to.mode === '100755';
  if (was === null) return { perm: (isExecutable ? 0o777 : 0o666) & ~process.umask(), owner: null };
  const perm = was.perm & 0o666;
  return { perm: isExecutable ? perm | ((perm & 0o444) >> 2) : perm, owner: was.owner };
}
