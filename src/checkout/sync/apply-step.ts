/**
 * One step of an apply: a path becomes what it is to be, and nothing that nobody has looked at is ever written over.
 *
 *   <index>        the new content; gone: it has its name in the working tree
 *   <index>.old    what had that name before
 *   <index>.same   instead of <index>: the working tree had the new content already
 *   <index>.new    while a step is taken back: what is removed
 *
 * A file that is replaced is first moved away, and looked at where its name does not lead any more. The new one is then linked to the name, which
 * fails where somebody has made a file of that name meanwhile. So an edit can come at any moment: it is found, or it comes after us.
 */
import {
  chmodSync,
  constants,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { type Checkout, stagingPrefix } from './checkout.ts';
import { type DiskPath, diskPath, find, isEntry, isErrno, parentsOf, stampOf } from './disk-entries.ts';
import { nameBytes } from './git-process.ts';
import type { PullConflict } from './pull-merge.ts';
import type { TreeChange } from './trees.ts';

/** What a path was when it was found to be as the tree says. */
export interface Seen {
  readonly stamp: string;
  /** Changed so shortly before that the next change may have the same stamp. */
  readonly isRecent: boolean;
}

export interface Step {
  readonly checkout: Checkout;
  readonly staging: string;
  readonly index: number;
  readonly change: TreeChange;
}

/** Does it, or what is left of it, and answers what stands in its way, with the path as it was found. */
export function doStep(
  step: Step,
  seen: Seen | undefined,
): Exclude<PullConflict['reason'], 'both_changed'> | undefined {
  const { checkout, change } = step;
  const { name, from, to } = change;
  const [target, kept] = [diskPath(checkout, name), placeOf(step, '.old')];
  if (isDone(step)) return undefined;
  if (!hasRealParents(checkout, name)) return 'exists_here';
  if (from !== null) {
    if (find(kept) === undefined && !moveAway(target, kept)) return to === null ? undefined : 'changed_meanwhile';
    if (!isUntouched(step, seen)) {
      putIn(kept, target);
      return 'changed_meanwhile';
    }
  }
  if (to === null) {
    removeEmptyParents(checkout, name);
    return undefined;
  }
  if (find(target)?.isDirectory() && !removeEmptyTree(target)) return 'exists_here';
  keepMode(step);
  mkdirSync(parentPath(checkout, name), { recursive: true });
  const staged = placeOf(step, '');
  if (putIn(staged, target)) return undefined;
  if (!isEntry(target, to)) return from === null ? 'exists_here' : 'changed_meanwhile';
  renameSync(staged, placeOf(step, '.same'));
  return undefined;
}

export function isDone(step: Step): boolean {
  if (step.change.to !== null) return find(placeOf(step, '')) === undefined;
  return find(placeOf(step, '.old')) !== undefined && find(diskPath(step.checkout, step.change.name)) === undefined;
}

/** What was moved away is still as it was: whoever had it open has not written into it. */
export function isUntouched(step: Step, seen: Seen | undefined): boolean {
  const { from } = step.change;
  const kept = placeOf(step, '.old');
  const found = find(kept);
  if (from === null || found === undefined) return true;
  return (seen !== undefined && !seen.isRecent && stampOf(found) === seen.stamp) || isEntry(kept, from);
}

/** Takes it back. False: the path has been edited since, and is left as it is. */
export function undoStep(step: Step): boolean {
  const { checkout, change } = step;
  const { name, to } = change;
  const [target, kept, removed] = [diskPath(checkout, name), placeOf(step, '.old'), placeOf(step, '.new')];
  const staged = placeOf(step, '');
  // It was linked to its name, and the process ended right then.
  if (isSameFile(staged, target)) unlinkSync(staged);
  const wasPut = to !== null && find(staged) === undefined && find(placeOf(step, '.same')) === undefined;
  if (wasPut && hasRealParents(checkout, name) && (find(removed) !== undefined || moveAway(target, removed))) {
    if (!isEntry(removed, to)) {
      putIn(removed, target);
      return false;
    }
    if (find(kept) === undefined) removeEmptyParents(checkout, name);
  }
  if (find(kept) === undefined) return true;
  if (!hasRealParents(checkout, name)) return false;
  mkdirSync(parentPath(checkout, name), { recursive: true });
  return putIn(kept, target);
}

export function placeOf(
  { staging, index }: Pick<Step, 'staging' | 'index'>,
  kind: '' | '.old' | '.same' | '.new',
): string {
  return join(staging, `${index}${kind}`);
}

/** A parent may have become a symlink since it was looked at, by another step too where names differ in case alone. */
export function hasRealParents(checkout: Checkout, name: string): boolean {
  for (const parent of parentsOf(name)) {
    const found = find(diskPath(checkout, parent));
    if (found === undefined) return true;
    if (!found.isDirectory()) return false;
  }
  return true;
}

/** A file that replaces another may be read and written by the same people. */
function keepMode(step: Step): void {
  const { to } = step.change;
  const old = find(placeOf(step, '.old'));
  if (to === null || to.mode === '120000' || !old?.isFile()) return;
  const mode = Number(old.mode) & 0o666;
  chmodSync(placeOf(step, ''), to.mode === '100755' ? mode | ((mode & 0o444) >> 2) : mode);
}

/** False: there is nothing. */
export function moveAway(from: DiskPath, to: string): boolean {
  try {
    if (find(from)?.isDirectory()) return false;
    renameSync(from, to);
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return false;
    if (!isErrno(error, 'EXDEV')) throw error;
    copyEntry(from, to);
    unlinkSync(from);
  }
  return true;
}

/** The name appears with its whole content. False: there is something already, which stays. */
export function putIn(from: DiskPath, to: Buffer): boolean {
  try {
    linkSync(from, to);
  } catch (error) {
    if (isErrno(error, 'EEXIST')) {
      if (!isSameFile(from, to)) return false;
    } else if (isErrno(error, 'EXDEV')) {
      const near = Buffer.concat([to.subarray(0, to.lastIndexOf(47) + 1), nameBytes(`${stagingPrefix}near`)]);
      rmSync(near, { force: true });
      copyEntry(from, near);
      const isPut = putIn(near, to);
      rmSync(near, { force: true });
      if (!isPut) return false;
    } else if (isErrno(error, 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK')) {
      // A file system without hard links.
      if (find(to) !== undefined) return false;
      renameSync(from, to);
      return true;
    } else throw error;
  }
  unlinkSync(from);
  return true;
}

export function isSameFile(a: DiskPath, b: DiskPath): boolean {
  const [one, other] = [find(a), find(b)];
  return one !== undefined && one.ino === other?.ino && one.dev === other.dev;
}

function copyEntry(from: DiskPath, to: DiskPath): void {
  if (find(from)?.isSymbolicLink()) symlinkSync(readlinkSync(from, { encoding: 'buffer' }), to);
  else copyFileSync(from, to, constants.COPYFILE_EXCL);
}

function parentPath(checkout: Checkout, name: string): Buffer {
  return diskPath(checkout, parentsOf(name).at(-1) ?? '.');
}

function removeEmptyParents(checkout: Checkout, name: string): void {
  for (const parent of parentsOf(name).reverse()) {
    try {
      rmdirSync(diskPath(checkout, parent));
    } catch (error) {
      // Not empty, or not ours to remove: an empty folder harms nobody.
      if (isErrno(error, 'ENOTEMPTY', 'EEXIST', 'ENOENT', 'ENOTDIR', 'EBUSY', 'EACCES', 'EPERM')) return;
      throw error;
    }
  }
}

/** False: something in it is no directory. */
function removeEmptyTree(path: Buffer): boolean {
  for (const entry of readdirSync(path, { encoding: 'buffer', withFileTypes: true })) {
    if (!entry.isDirectory()) return false;
    if (!removeEmptyTree(Buffer.concat([path, Buffer.from('/'), entry.name]))) return false;
  }
  try {
    rmdirSync(path);
  } catch (error) {
    if (isErrno(error, 'ENOTEMPTY', 'EEXIST')) return false;
    throw error;
  }
  return true;
}
