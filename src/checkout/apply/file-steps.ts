/**
 * Changes files, one step at a time. Whatever lies at a path is first moved aside as it is, and looked at only then: an edit that was saved in
 * between is in our hand and goes back, it is never written over. What is new then takes the free name, unless somebody else has taken it.
 *
 * For a step with number n the staging folder tells how far it is:
 *   `n`      what is new; gone when it is in its place
 *   `n.old`  what was there
 */
import { mkdirSync, unlinkSync } from 'node:fs';
import { chmod, mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { hasRealParents, isSameFile, moveAway, putIn } from '../sync/apply-step.ts';
import type { Checkout } from '../sync/checkout.ts';
import { diskPath, find, isEntry, isErrno, parentsOf } from '../sync/disk-entries.ts';
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
    if (!doStep(checkout, target, index)) return step.name;
  }
  if (firstWrite === -1) await changeFolders(checkout, removes, makes);
  // A program that had the old file open may have written to it until now.
  for (const [index, step] of steps.entries()) {
    if (step.from !== null && !isEntry(keptPath(target, index), step.from)) return step.name;
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
    undoStep(checkout, target, index);
    if (index === firstWrite) await changeFolders(checkout, makes, removes);
  }
}

function doStep(checkout: Checkout, target: JournalTarget, index: number): boolean {
  const { name, from, to } = target.steps[index]!;
  const path = diskPath(checkout, name);
  const [fresh, kept] = [freshPath(target, index), keptPath(target, index)];
  if (to !== null && find(fresh) === undefined) return true;
  if (!hasRealParents(checkout, name)) return false;
  if (from !== null) {
    if (find(kept) === undefined && !moveAway(path, kept)) return false;
    if (!isEntry(kept, from)) return false;
  }
  return to === null || (makeParent(checkout, name) && putIn(fresh, path));
}

function undoStep(checkout: Checkout, target: JournalTarget, index: number): void {
  const { name, to } = target.steps[index]!;
  const path = diskPath(checkout, name);
  const [fresh, kept] = [freshPath(target, index), keptPath(target, index)];
  if (!hasRealParents(checkout, name)) return;
  if (to !== null) {
    if (isSameFile(fresh, path)) unlinkSync(path);
    else if (find(fresh) === undefined) moveAway(path, fresh);
    // Our own file goes out of the way; one that was edited at the last moment goes back.
    if (find(fresh) !== undefined && !isEntry(fresh, to)) putIn(fresh, path);
  }
  // A name that was taken meanwhile stays taken; what we hold is what everybody had before.
  if (find(kept) !== undefined && makeParent(checkout, name)) putIn(kept, path);
}

/** False: a file is in the place of a folder. */
function makeParent(checkout: Checkout, name: string): boolean {
  try {
    mkdirSync(diskPath(checkout, parentsOf(name).at(-1) ?? '.'), { recursive: true });
    return true;
  } catch (error) {
    if (isErrno(error, 'EEXIST', 'ENOTDIR')) return false;
    throw error;
  }
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
    if (!find(diskPath(checkout, name))?.isDirectory()) makes.push({ name, perm });
  }
  const candidates = new Set([...gone].flatMap(parentsOf));
  for (const name of written) for (const folder of await foldersAt(checkout, name)) candidates.add(folder);
  const removes: DirectoryStep[] = [];
  for (const name of [...candidates].sort((a, b) => (a < b ? 1 : -1))) {
    const found = find(diskPath(checkout, name));
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
  if (!find(diskPath(checkout, name))?.isDirectory()) return [];
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
