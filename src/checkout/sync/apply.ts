/**
 * Changes the user's working tree, all of it or nothing.
 *
 *   staged --journal written--> forward --every step done--> finished
 *                                  |
 *                                  +--a file changed meanwhile--> back --every step undone--> as before
 *
 * Invariants:
 *  - Before the journal is on disk, only files in the staging folder exist; a crash leaves those and nothing else.
 *  - A file appears under its name by rename, whole. What it replaces lies in the staging folder until the end.
 *  - After a crash `recoverApply` goes on in the direction that the journal names. Each step can be repeated.
 */
import { randomUUID } from 'node:crypto';
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { assert, writeFileDurably } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { type BranchMove, moveBranch } from './branch-move.ts';
import { type Checkout, planStagingPrefix, shadowCall, stagingPrefix } from './checkout.ts';
import { diskPath, filesBelow, findOnDisk, isOnDisk, parentsOf, stampOf } from './disk-entries.ts';
import { git, nameText } from './git-process.ts';
import type { PullConflict } from './pull-merge.ts';
import { type SyncRecord, writeRecord } from './records.ts';
import { sizesOfBlobs, type TreeChange } from './trees.ts';

export interface Finish {
  readonly sandboxId: string;
  readonly record: SyncRecord;
  readonly branch: BranchMove | null;
}

interface Journal {
  readonly version: 1;
  readonly direction: 'forward' | 'back';
  readonly staging: string;
  readonly steps: readonly TreeChange[];
  readonly finish: Finish;
}

/** How much content is read from git at once. */
const batchBytes = 32 * 1024 * 1024;

/** Answers the conflicts, with nothing changed, or none, with everything changed. */
export async function applyChanges(
  checkout: Checkout,
  changes: readonly TreeChange[],
  finish: Finish,
  onStep: (files: number) => void = () => {},
): Promise<readonly PullConflict[]> {
  const steps = inOrder(changes);
  const { conflicts, stamps } = await verify(checkout, steps);
  if (conflicts.length > 0) return conflicts;
  const staging = await stagingFolder(checkout);
  const journal: Journal = { version: 1, direction: 'forward', staging, steps, finish };
  try {
    await stage(checkout, journal);
  } catch (error) {
    await rm(staging, { recursive: true, force: true });
    throw error;
  }
  onStep(0);
  await writeFileDurably(journalPath(checkout), JSON.stringify(journal));
  for (const [index, step] of steps.entries()) {
    onStep(index);
    if (stampOf(await findOnDisk(checkout, step.name)) !== stamps[index] && !isReplacedDirectory(steps, step)) {
      await goBack(checkout, journal, index);
      return [{ path: nameText(step.name), reason: 'changed_meanwhile' }];
    }
    await doStep(checkout, journal, index);
  }
  onStep(steps.length);
  await finishApply(checkout, journal);
  return [];
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
    await goBack(checkout, journal, journal.steps.length);
    return { warnings: ['A pull that was interrupted was taken back.'] };
  }
  const warnings = ['A pull that was interrupted was finished.'];
  for (const [index, step] of journal.steps.entries()) {
    if (await isDone(checkout, journal, index)) continue;
    const isAsBefore =
      step.from === null
        ? (await findOnDisk(checkout, step.name)) === undefined
        : await isOnDisk(checkout, step.name, step.from);
    if (isAsBefore || isReplacedDirectory(journal.steps, step)) await doStep(checkout, journal, index);
    else warnings.push(await rescue(checkout, journal, index));
  }
  await finishApply(checkout, journal);
  return { warnings };
}

/** Removals before what may take their place, and the deepest first. */
export function inOrder<Change extends TreeChange>(changes: readonly Change[]): Change[] {
  const removals = changes.filter(({ to }) => to === null).sort((a, b) => (a.name < b.name ? 1 : -1));
  return [...removals, ...changes.filter(({ to }) => to !== null)];
}

/** What is in the way of the steps, and how each path looked. */
export async function verify(checkout: Checkout, steps: readonly TreeChange[]) {
  const removed = new Set(steps.filter(({ to }) => to === null).map(({ name }) => name));
  const conflicts: PullConflict[] = [];
  const stamps: string[] = [];
  for (const step of steps) {
    const found = await findOnDisk(checkout, step.name);
    stamps.push(stampOf(found));
    const reason = await obstacle(checkout, step, removed);
    if (reason !== undefined) conflicts.push({ path: nameText(step.name), reason });
  }
  return { conflicts, stamps };
}

async function obstacle(
  checkout: Checkout,
  step: TreeChange,
  removed: ReadonlySet<string>,
): Promise<PullConflict['reason'] | undefined> {
  for (const parent of parentsOf(step.name)) {
    const found = await findOnDisk(checkout, parent);
    if (found === undefined || removed.has(parent)) break;
    if (!found.isDirectory()) return 'exists_here';
  }
  if (step.from !== null) return (await isOnDisk(checkout, step.name, step.from)) ? undefined : 'changed_meanwhile';
  const found = parentsOf(step.name).some((parent) => removed.has(parent))
    ? undefined
    : await findOnDisk(checkout, step.name);
  if (found === undefined || (step.to !== null && (await isOnDisk(checkout, step.name, step.to)))) return undefined;
  if (!found.isDirectory()) return 'exists_here';
  return (await filesBelow(checkout, step.name)).every((name) => removed.has(name)) ? undefined : 'exists_here';
}

/** The step puts a file where a directory was, or under what was a file: its own stamp has changed by an earlier step. */
function isReplacedDirectory(steps: readonly TreeChange[], step: TreeChange): boolean {
  if (step.from !== null || step.to === null) return false;
  const parents = new Set(parentsOf(step.name));
  return steps.some(({ name, to }) => to === null && (name.startsWith(`${step.name}/`) || parents.has(name)));
}

async function stagingFolder(checkout: Checkout): Promise<string> {
  const { gitDirectory, root } = checkout;
  const isNear = gitDirectory !== undefined && (await stat(gitDirectory)).dev === (await stat(root)).dev;
  const folder = join(isNear ? gitDirectory : root, `${stagingPrefix}${randomUUID()}`);
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/** Writes what the steps bring as files of the staging folder, named by the numbers of the steps. */
export async function stage(checkout: Checkout, { steps, staging }: Pick<Journal, 'steps' | 'staging'>): Promise<void> {
  const written = steps.flatMap(({ to }, index) => (to === null ? [] : [{ index, ...to }]));
  const sizes = await sizesOfBlobs(
    checkout,
    written.map(({ id }) => id),
  );
  for (let at = 0; at < written.length; ) {
    const part: typeof written = [];
    for (let bytes = 0; at < written.length && (part.length === 0 || bytes < batchBytes); at++) {
      part.push(written[at]!);
      bytes += sizes.get(written[at]!.id) ?? 0;
    }
    const { stdout } = await git(
      ['cat-file', '--batch'],
      shadowCall(checkout, { stdin: `${part.map(({ id }) => id).join('\n')}\n` }),
    );
    let offset = 0;
    for (const { index, mode, id } of part) {
      const end = stdout.indexOf(10, offset);
      const [name, type, size] = stdout.toString('latin1', offset, end).split(' ');
      assert(name === id && type === 'blob');
      const content = stdout.subarray(end + 1, end + 1 + Number(size));
      offset = end + 2 + Number(size);
      await stageOne(join(staging, String(index)), mode, content);
    }
  }
}

async function stageOne(path: string, mode: string, content: Buffer): Promise<void> {
  if (mode === '120000') return await symlink(content, path);
  await writeFile(path, content, { mode: 0o666, flag: 'wx' });
  if (mode === '100755') await chmod(path, 0o777 & ~process.umask());
}

async function doStep(checkout: Checkout, { steps, staging }: Journal, index: number): Promise<void> {
  const { name, to } = steps[index]!;
  const target = diskPath(checkout, name);
  const kept = join(staging, `${index}.old`);
  await rm(kept, { force: true });
  if (to === null) {
    await moveFile(target, kept);
    await removeEmptyParents(checkout, name);
    return;
  }
  const found = await findOnDisk(checkout, name);
  if (found?.isDirectory()) await removeEmptyTree(target);
  else if (found !== undefined) await link(target, kept).catch(() => copyFile(target, kept));
  await mkdir(diskPath(checkout, parentsOf(name).at(-1) ?? '.'), { recursive: true });
  await moveFile(join(staging, String(index)), target);
}

/** Also between file systems, where the new name still appears whole. */
async function moveFile(from: string | Buffer, to: string | Buffer): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    const near = Buffer.concat([Buffer.from(to), Buffer.from(`${stagingPrefix}tmp`)]);
    await copyFile(from, near);
    await rename(near, to);
    await unlink(from);
  }
}

async function isDone(checkout: Checkout, { steps, staging }: Journal, index: number): Promise<boolean> {
  const { name, to } = steps[index]!;
  if (to === null) return (await findOnDisk(checkout, name)) === undefined;
  return !(await isThere(join(staging, String(index))));
}

async function goBack(checkout: Checkout, journal: Journal, doneSteps: number): Promise<void> {
  if (journal.direction !== 'back') {
    await writeFileDurably(journalPath(checkout), JSON.stringify({ ...journal, direction: 'back' }));
  }
  for (let index = doneSteps - 1; index >= 0; index--) {
    const { name, to } = journal.steps[index]!;
    const kept = join(journal.staging, `${index}.old`);
    if (await isThere(kept)) {
      await mkdir(diskPath(checkout, parentsOf(name).at(-1) ?? '.'), { recursive: true });
      await moveFile(kept, diskPath(checkout, name));
    } else if (
      to !== null &&
      !(await isThere(join(journal.staging, String(index)))) &&
      (await isOnDisk(checkout, name, to))
    ) {
      await unlink(diskPath(checkout, name));
      await removeEmptyParents(checkout, name);
    }
  }
  await endJournal(checkout, journal);
}

/** After a crash a path may have been edited: the edit stays, and what should have been written lies beside the records. */
async function rescue(checkout: Checkout, { steps, staging }: Journal, index: number): Promise<string> {
  const path = nameText(steps[index]!.name);
  if (steps[index]!.to === null) return `${path} was changed after an interrupted pull and was not removed.`;
  const folder = join(checkout.directory, 'rescued');
  await mkdir(folder, { recursive: true });
  const target = join(folder, `${randomUUID()}-${path.replaceAll('/', '_').slice(-100)}`);
  await moveFile(join(staging, String(index)), target);
  return `${path} was changed after an interrupted pull and is left as it is; the sandbox's version is ${target}.`;
}

async function finishApply(checkout: Checkout, journal: Journal): Promise<void> {
  const { finish, staging } = journal;
  if (finish.branch !== null) await moveBranch(checkout, finish.branch, staging);
  await writeRecord(checkout, finish.sandboxId, finish.record);
  await endJournal(checkout, journal);
}

async function endJournal(checkout: Checkout, { staging }: Journal): Promise<void> {
  await rm(journalPath(checkout), { force: true });
  await rm(staging, { recursive: true, force: true });
}

/** Without a journal a staging folder is what a killed process had prepared and not begun. */
async function removeStaging({ gitDirectory, root }: Checkout): Promise<void> {
  for (const folder of gitDirectory === undefined ? [root] : [root, gitDirectory]) {
    const left = (await readdir(folder)).filter(
      (name) => name.startsWith(stagingPrefix) && !name.startsWith(planStagingPrefix),
    );
    for (const name of left) await rm(join(folder, name), { recursive: true, force: true });
  }
}

function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

async function removeEmptyParents(checkout: Checkout, name: string): Promise<void> {
  for (const parent of parentsOf(name).reverse()) {
    try {
      await rmdir(diskPath(checkout, parent));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOTEMPTY' || code === 'EEXIST' || code === 'ENOENT') return;
      throw new PlatformError('sync_failed', `The folder ${nameText(parent)} cannot be removed.`, { cause: error });
    }
  }
}

async function removeEmptyTree(path: Buffer): Promise<void> {
  for (const entry of await readdir(path, { encoding: 'buffer' })) {
    await removeEmptyTree(Buffer.concat([path, Buffer.from('/'), entry]));
  }
  await rmdir(path);
}

function journalPath(checkout: Checkout): string {
  return join(dirname(checkout.shadow), 'journal.json');
}
