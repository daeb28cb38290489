/**
 * Changes the user's working tree, all of it or nothing.
 *
 *   staged --journal written--> forward --every step done--> finished
 *                                  |
 *                                  +--a file changed meanwhile, or a step fails--> back --every step undone--> as before
 *
 * Invariants:
 *  - Before the journal is on disk, only files in the staging folder exist; a crash leaves those and nothing else.
 *  - A file appears under its name whole. What it replaces lies in the staging folder until the end, and is looked at once more then.
 *  - After a crash `recoverApply` goes on in the direction that the journal names. Each step can be repeated.
 *  - A path that was edited meanwhile stays as it was edited, whichever direction is taken.
 */
import { randomUUID } from 'node:crypto';
import { cp, mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as others } from 'node:timers/promises';
import { writeFileDurably } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { doStep, isDone, isUntouched, placeOf, type Seen, type Step, undoStep } from './apply-step.ts';
import { type BranchMove, moveBranch } from './branch-move.ts';
import type { Checkout } from './checkout.ts';
import { diskPath, filesBelow, find, isEntry, parentsOf, stampOf } from './disk-entries.ts';
import { nameText } from './git-process.ts';
import type { PullConflict } from './pull-merge.ts';
import { type SyncRecord, writeRecord } from './records.ts';
import { makeStaging, removeStaging, stage, stageAgain } from './staging.ts';
import type { TreeChange } from './trees.ts';
import { type UndoRecord, writeUndo } from './undo-record.ts';

export interface Finish {
  readonly sync: { readonly sandboxId: string; readonly record: SyncRecord } | null;
  readonly branch: BranchMove | null;
  /** What `undo` takes back from now on; null: nothing. */
  readonly undo: UndoRecord | null;
}

interface Journal {
  readonly version: 2;
  readonly direction: 'forward' | 'back';
  readonly staging: string;
  readonly steps: readonly TreeChange[];
  readonly finish: Finish;
}

export interface Applied {
  /** Empty: everything is changed. */
  readonly conflicts: readonly PullConflict[];
  readonly isBranchMoved: boolean;
  readonly warnings: readonly string[];
}

/** A write within this time of another may leave the same time at the file. */
const sameTimeNs = 100_000_000n;
/** Others in this process, such as whoever renews a lease, come to their turn after so many files. */
const turnEvery = 64;

export async function applyChanges(
  checkout: Checkout,
  changes: readonly TreeChange[],
  finish: Finish,
  onStep: (files: number) => void = () => {},
): Promise<Applied> {
  const steps = inOrder(changes);
  const staging = await makeStaging(checkout);
  const journal: Journal = { version: 2, direction: 'forward', staging, steps, finish };
  let seen: readonly Seen[];
  try {
    const verified = await verify(checkout, journal);
    if (verified.conflicts.length > 0) {
      await rm(staging, { recursive: true, force: true });
      return { conflicts: verified.conflicts, isBranchMoved: false, warnings: [] };
    }
    seen = verified.seen;
    await stage(
      checkout,
      staging,
      steps.map((change, index) => ({ index, change })),
    );
  } catch (error) {
    await rm(staging, { recursive: true, force: true });
    throw error;
  }
  onStep(0);
  await writeFileDurably(journalPath(checkout), JSON.stringify(journal));
  const conflict = await goForward(checkout, journal, { seen, onStep });
  if (conflict !== undefined) {
    return { conflicts: [conflict], isBranchMoved: false, warnings: await goBack(checkout, journal) };
  }
  onStep(steps.length);
  return { conflicts: [], ...(await finishApply(checkout, journal)) };
}

/** Whether a process was killed on the way. */
export async function isInterrupted(checkout: Checkout): Promise<boolean> {
  return find(journalPath(checkout)) !== undefined;
}

/** Ends what a killed process began. Answers whether there was something. */
export async function recoverApply(checkout: Checkout): Promise<{ readonly warnings: readonly string[] } | undefined> {
  const text = await readFile(journalPath(checkout), 'utf8').catch(() => undefined);
  if (text === undefined) {
    await removeStaging(checkout);
    return undefined;
  }
  const journal = JSON.parse(text) as Journal;
  if (journal.direction === 'back') {
    return { warnings: ['What was interrupted here was taken back.', ...(await goBack(checkout, journal))] };
  }
  const warnings = ['What was interrupted here was finished.'];
  await stageAgain(checkout, journal.staging, journal.steps);
  for (const step of stepsOf(checkout, journal)) {
    if (isDone(step)) continue;
    const obstacle = await orBack(checkout, journal, step, () => doStep(step, undefined));
    if (obstacle !== undefined) warnings.push(await rescue(step));
  }
  return { warnings: [...warnings, ...(await finishApply(checkout, journal)).warnings] };
}

/** Removals before what may take their place, and the deepest first. */
export function inOrder<Change extends TreeChange>(changes: readonly Change[]): Change[] {
  const removals = changes.filter(({ to }) => to === null).sort((a, b) => (a.name < b.name ? 1 : -1));
  return [...removals, ...changes.filter(({ to }) => to !== null)];
}

/** What is in the way of the steps, and how each path looked. */
export async function verify(checkout: Checkout, { steps, staging }: Pick<Journal, 'steps' | 'staging'>) {
  const removed = new Set(steps.filter(({ to }) => to === null).map(({ name }) => name));
  // The clock of the file system itself.
  const nowNs = find(staging)?.mtimeNs ?? 0n;
  const conflicts: PullConflict[] = [];
  const seen: Seen[] = [];
  for (const [index, step] of steps.entries()) {
    if (index % turnEvery === 0) await others();
    const found = find(diskPath(checkout, step.name));
    seen.push({ stamp: stampOf(found), isRecent: (found?.mtimeNs ?? 0n) > nowNs - sameTimeNs });
    const reason = obstacle(checkout, step, removed);
    if (reason !== undefined) conflicts.push({ path: nameText(step.name), reason });
  }
  return { conflicts, seen };
}

function obstacle(
  checkout: Checkout,
  { name, from, to }: TreeChange,
  removed: ReadonlySet<string>,
): PullConflict['reason'] | undefined {
  for (const parent of parentsOf(name)) {
    const found = find(diskPath(checkout, parent));
    if (found === undefined || removed.has(parent)) break;
    if (!found.isDirectory()) return 'exists_here';
  }
  const path = diskPath(checkout, name);
  if (from !== null) return isEntry(path, from) ? undefined : 'changed_meanwhile';
  const found = parentsOf(name).some((parent) => removed.has(parent)) ? undefined : find(path);
  if (found === undefined || (to !== null && isEntry(path, to))) return undefined;
  if (!found.isDirectory()) return 'exists_here';
  return filesBelow(checkout, name).every((below) => removed.has(below)) ? undefined : 'exists_here';
}

async function goForward(
  checkout: Checkout,
  journal: Journal,
  { seen, onStep }: { readonly seen: readonly Seen[]; readonly onStep: (files: number) => void },
): Promise<PullConflict | undefined> {
  const steps = stepsOf(checkout, journal);
  for (const step of steps) {
    if (step.index % turnEvery === 0) await others();
    onStep(step.index);
    const reason = await orBack(checkout, journal, step, () => doStep(step, seen[step.index]));
    if (reason !== undefined) return { path: nameText(step.change.name), reason };
  }
  // Whoever had a file open may have written into what was moved away.
  const late = steps.find((step) => !isUntouched(step, seen[step.index]));
  return late === undefined ? undefined : { path: nameText(late.change.name), reason: 'changed_meanwhile' };
}

/** A step that cannot be done at all takes everything back. */
async function orBack<Result>(checkout: Checkout, journal: Journal, step: Step, act: () => Result): Promise<Result> {
  try {
    return act();
  } catch (cause) {
    const path = nameText(step.change.name);
    const warnings = await goBack(checkout, journal);
    throw new PlatformError(
      'sync_failed',
      `${path} cannot be changed here (${(cause as Error).message}). ${warnings.join(' ') || 'Everything is as it was before.'}`,
      { details: { paths: [path] }, cause },
    );
  }
}

async function goBack(checkout: Checkout, journal: Journal): Promise<string[]> {
  if (journal.direction !== 'back') {
    await writeFileDurably(journalPath(checkout), JSON.stringify({ ...journal, direction: 'back' }));
  }
  const warnings: string[] = [];
  for (const step of stepsOf(checkout, journal).reverse()) {
    if (!undoStep(step)) {
      warnings.push(`${nameText(step.change.name)} was edited on the way and is left as it is.`);
    }
  }
  await endJournal(checkout, journal);
  return warnings;
}

/** After a crash a path may have been edited: the edit stays, and what should have been written lies beside the records. */
async function rescue(step: Step): Promise<string> {
  const path = nameText(step.change.name);
  if (step.change.to === null) return `${path} was changed after an interruption and was not removed.`;
  const folder = join(step.checkout.directory, 'rescued');
  await mkdir(folder, { recursive: true });
  const target = join(folder, `${randomUUID()}-${path.replaceAll(/[/\0]/g, '_').slice(-100)}`);
  await cp(placeOf(step, ''), target, { verbatimSymlinks: true });
  return `${path} was changed after an interruption and is left as it is; what should have been written is ${target}.`;
}

async function finishApply(checkout: Checkout, journal: Journal): Promise<Omit<Applied, 'conflicts'>> {
  const { finish, staging } = journal;
  const moved = finish.branch === null ? undefined : await moveBranch(checkout, finish.branch, staging);
  if (finish.sync !== null) await writeRecord(checkout, finish.sync.sandboxId, finish.sync.record);
  await writeUndo(checkout, finish.undo);
  await endJournal(checkout, journal);
  return { isBranchMoved: moved?.isMoved ?? false, warnings: moved?.warnings ?? [] };
}

async function endJournal(checkout: Checkout, { staging }: Journal): Promise<void> {
  await rm(journalPath(checkout), { force: true });
  await rm(staging, { recursive: true, force: true });
}

function stepsOf(checkout: Checkout, { steps, staging }: Journal): Step[] {
  return steps.map((change, index) => ({ checkout, staging, index, change }));
}

function journalPath(checkout: Checkout): string {
  return join(checkout.directory, 'journal.json');
}
