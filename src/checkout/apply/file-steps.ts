/**
 * Changes files, one step at a time. Whatever lies at a path is first moved aside as it is, and looked at only then: an edit that was saved in
 * between is in our hand and goes back, it is never written over. What is new then takes the free name, unless somebody else has taken it.
 *
 * For a step with number n the staging folder tells how far it is:
 *   `n`      what is new; gone when it is in its place
 *   `n.old`  what was there
 */
import { chmod, link, lstat, mkdir, readdir, rename, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../base/index.ts';
import type { Checkout } from '../sync/checkout.ts';
import { diskPath, findOnDisk, isEntry, isOnDisk, parentsOf, stampOf } from '../sync/disk-entries.ts';
import type { TreeEntry } from '../sync/trees.ts';
import { isSameFile } from './git-locks.ts';
import type { DirectoryStep, FileStep, JournalTarget } from './journal.ts';

export interface StepHooks {
  /** Before each step; refuses to go on when somebody else has taken over. */
  beforeStep(): Promise<void>;
}

/** Answers the path that was changed meanwhile, or undefined when every step is done. Repeating it changes nothing. */
export async function stepForward(
  checkout: Checkout,
  target: JournalTarget,
  hooks: StepHooks,
): Promise<string | undefined> {
  const { steps, makes, removes } = target;
  const firstWrite = steps.findIndex(({ to }) => to !== null);
  for (const [index, step] of steps.entries()) {
    if (index === firstWrite) await changeFolders(checkout, removes, makes);
    await hooks.beforeStep();
    if (!(await doStep(checkout, target, index))) return step.name;
  }
  if (firstWrite === -1) await changeFolders(checkout, removes, makes);
  // A program that had the old file open may have written to it until now.
  for (const [index, step] of steps.entries()) {
    if (step.from !== null && !(await isStill(keptPath(target, index), step))) return step.name;
  }
  return undefined;
}

/** Takes every step back that was done. What was edited since stays as it is. */
export async function stepBack(checkout: Checkout, target: JournalTarget, hooks: StepHooks): Promise<void> {
  const { steps, makes, removes } = target;
  const firstWrite = steps.findIndex(({ to }) => to !== null);
  if (firstWrite === -1) await changeFolders(checkout, makes, removes);
  for (let index = steps.length - 1; index >= 0; index--) {
    await hooks.beforeStep();
    await undoStep(checkout, target, index);
    if (index === firstWrite) await changeFolders(checkout, makes, removes);
  }
}

async function doStep(checkout: Checkout, target: JournalTarget, index: number): Promise<boolean> {
  const step = target.steps[index]!;
  const path = diskPath(checkout, step.name);
  const [fresh, kept] = [freshPath(target, index), keptPath(target, index)];
  if (step.to !== null && !(await isThere(fresh))) return true;
  if (step.from !== null) {
    if (!(await isThere(kept)) && !(await moveAside(path, kept))) return false;
    if (!(await isStill(kept, step))) return false;
  }
  if (step.to === null) return true;
  return (await makeParent(checkout, step.name)) && (await takeName(fresh, path));
}

async function undoStep(checkout: Checkout, target: JournalTarget, index: number): Promise<void> {
  const step = target.steps[index]!;
  const path = diskPath(checkout, step.name);
  const [fresh, kept] = [freshPath(target, index), keptPath(target, index)];
  if (step.to !== null) {
    if (await isSameFile(fresh, path)) await unlink(path);
    else if (!(await isThere(fresh)) && (await isOnDisk(checkout, step.name, step.to)))
      await takeOut(path, fresh, step.to);
  }
  if (!(await isThere(kept))) return;
  // A name that was taken meanwhile stays taken; what we hold is what everybody had before.
  if (await makeParent(checkout, step.name)) await takeName(kept, path);
}

/** False: a file is in the place of a folder. */
async function makeParent(checkout: Checkout, name: string): Promise<boolean> {
  try {
    await mkdir(diskPath(checkout, parentsOf(name).at(-1) ?? '.'), { recursive: true });
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' || code === 'ENOTDIR') return false;
    throw error;
  }
}

/** Moves our own file out of the way, unless it was edited at the last moment. */
async function takeOut(path: Buffer, to: string, entry: TreeEntry): Promise<void> {
  await rename(path, to);
  if (!(await isEntry(Buffer.from(to), entry))) await takeName(to, path);
}

/** False: there is nothing to move. */
async function moveAside(path: Buffer, to: string): Promise<boolean> {
  try {
    await rename(path, to);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return false;
    throw error;
  }
}

/** Gives a file a name that nobody has. False: somebody has it. */
async function takeName(from: string, path: Buffer): Promise<boolean> {
  try {
    await link(from, path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTDIR') return false;
    if (code === 'EEXIST') {
      if (!(await isSameFile(from, path))) return false;
    } else {
      // A directory, or a file system without hard links.
      if (code !== 'EPERM' && code !== 'ENOTSUP' && code !== 'EMLINK' && code !== 'ENOSYS') throw error;
      if (await isThere(path)) return false;
      await rename(from, path);
      return true;
    }
  }
  await unlink(from);
  return true;
}

/** Whether what was moved aside is what was prepared for. */
async function isStill(kept: string, { from, stamp }: FileStep): Promise<boolean> {
  assert(from !== null);
  const found = await lstat(kept, { bigint: true }).catch(() => undefined);
  return found !== undefined && (stampOf(found) === stamp || (await isEntry(Buffer.from(kept), from)));
}

/** Folders go while they are empty, the deepest first, and come with the permissions that they had. */
async function changeFolders(
  checkout: Checkout,
  removes: readonly DirectoryStep[],
  makes: readonly DirectoryStep[],
): Promise<void> {
  for (const { name } of [...removes].sort((a, b) => (a.name < b.name ? 1 : -1))) {
    await rmdir(diskPath(checkout, name)).catch((error: NodeJS.ErrnoException) => {
      if (!['ENOTEMPTY', 'EEXIST', 'ENOENT', 'ENOTDIR'].includes(error.code ?? '')) throw error;
    });
  }
  for (const { name, perm } of [...makes].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = diskPath(checkout, name);
    try {
      await mkdir(path);
      await chmod(path, perm);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** Which folders the steps make and which they empty. */
export async function folderSteps(
  checkout: Checkout,
  steps: readonly Pick<FileStep, 'name' | 'to'>[],
): Promise<Pick<JournalTarget, 'makes' | 'removes'>> {
  const gone = new Set(steps.filter(({ to }) => to === null).map(({ name }) => name));
  const written = steps.filter(({ to }) => to !== null).map(({ name }) => name);
  const needed = new Set(written.flatMap(parentsOf));
  const perm = 0o777 & ~process.umask();
  const makes: DirectoryStep[] = [];
  for (const name of needed) {
    if (!(await findOnDisk(checkout, name))?.isDirectory()) makes.push({ name, perm });
  }
  const candidates = new Set([...gone].flatMap(parentsOf));
  for (const name of written) for (const folder of await foldersAt(checkout, name)) candidates.add(folder);
  const removes: DirectoryStep[] = [];
  for (const name of [...candidates].sort((a, b) => (a < b ? 1 : -1))) {
    const found = await findOnDisk(checkout, name);
    if (!found?.isDirectory() || needed.has(name)) continue;
    const entries = await readdir(diskPath(checkout, name), { encoding: 'buffer' });
    if (!entries.every((entry) => gone.has(`${name}/${entry.toString('latin1')}`))) continue;
    gone.add(name);
    removes.push({ name, perm: Number(found.mode & 0o7777n) });
  }
  return { makes, removes };
}

/** The directory in the place of a file, and every one below it. */
async function foldersAt(checkout: Checkout, name: string): Promise<string[]> {
  if (!(await findOnDisk(checkout, name))?.isDirectory()) return [];
  const below: string[] = [name];
  for (const entry of await readdir(diskPath(checkout, name), { withFileTypes: true, encoding: 'buffer' })) {
    if (entry.isDirectory()) below.push(...(await foldersAt(checkout, `${name}/${entry.name.toString('latin1')}`)));
  }
  return below;
}

function freshPath({ staging }: JournalTarget, index: number): string {
  return join(staging ?? '', String(index));
}

function keptPath({ staging }: JournalTarget, index: number): string {
  return join(staging ?? '', `${index}.old`);
}

function isThere(path: string | Buffer): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
