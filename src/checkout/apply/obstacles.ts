/**
 * What is in the way of a change: paths that are edited or staged, files that git does not track, folders that belong to another repository or
 * another file system. Dirt that the change does not touch is not looked at.
 */
import { existsSync } from 'node:fs';
import { access, constants, copyFile, lstat, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { verify } from '../sync/apply.ts';
import { type Checkout, shadowCall } from '../sync/checkout.ts';
import { diskPath, find, parentsOf } from '../sync/disk-entries.ts';
import { git, nameText, zeroSeparated } from '../sync/git-process.ts';
import { copySharedIndex } from '../sync/local-snapshot.ts';
import type { TreeChange } from '../sync/trees.ts';
import { unusable } from './find-place.ts';
import type { TargetConflict } from './plan-target.ts';

/** Compares the paths of the steps with the disk. The stamps tell whether one changes later. */
export async function findObstacles(
  checkout: Checkout,
  steps: readonly TreeChange[],
): Promise<{ readonly conflicts: readonly TargetConflict[]; readonly stamps: readonly string[] }> {
  await refuseForeign(checkout, steps);
  const { conflicts, seen } = await verify(checkout, { steps, staging: '' });
  const stamps = seen.map(({ stamp }) => stamp);
  const found: TargetConflict[] = conflicts.map(({ path, reason }) =>
    reason === 'exists_here' ? { path, reason } : { path, reason: 'edited' },
  );
  for (const [index, { name, from }] of steps.entries()) {
    // Even one that is the same: an undo would remove what the user had.
    if (from === null && stamps[index] !== 'absent' && !find(diskPath(checkout, name))?.isDirectory()) {
      const path = nameText(name);
      if (!found.some((conflict) => conflict.path === path)) found.push({ path, reason: 'exists_here' });
    }
  }
  return { conflicts: found, stamps };
}

/** Touched paths that the index has otherwise than the branch: staged, unmerged, or only meant to be added. */
export async function findStaged(checkout: Checkout, changes: readonly TreeChange[]): Promise<TargetConflict[]> {
  const entries = await readIndex(checkout);
  const removed = new Set(changes.filter(({ to }) => to === null).map(({ name }) => name));
  const below = new Map(changes.filter(({ to }) => to !== null).map(({ name }) => [name, [] as string[]]));
  for (const name of entries.keys()) for (const parent of parentsOf(name)) below.get(parent)?.push(name);
  const dirty = new Set<string>();
  const sparse: string[] = [];
  for (const { name, from, to } of changes) {
    const found = entries.get(name) ?? [];
    const wanted = from === null ? [] : [`${from.mode} ${from.id} 0`];
    if (found.map(({ entry }) => entry).join() !== wanted.join()) dirty.add(name);
    if (found.some(({ tag }) => tag === 'S')) sparse.push(nameText(name));
    if (to === null) continue;
    const around = [...parentsOf(name).filter((parent) => entries.has(parent)), ...(below.get(name) ?? [])];
    for (const other of around) if (!removed.has(other)) dirty.add(other);
  }
  if (sparse.length > 0) {
    throw unusable(
      `${checkout.root} is a sparse checkout without ${sparse.slice(0, 10).join(', ')}, which the plan changes.`,
    );
  }
  return [...dirty].map((name) => ({ path: nameText(name), reason: 'edited' }));
}

interface IndexEntry {
  readonly tag: string;
  /** Mode, id and stage. */
  readonly entry: string;
}

async function readIndex(checkout: Checkout): Promise<Map<string, IndexEntry[]>> {
  const copy = join(checkout.shadow, 'user-index');
  await rm(copy, { force: true });
  const path = join(checkout.gitDirectory ?? '', 'index');
  const entries = new Map<string, IndexEntry[]>();
  if (!existsSync(path)) return entries;
  await copyFile(path, copy);
  await copySharedIndex(checkout);
  const { stdout } = await git(['ls-files', '-z', '-t', '-s'], shadowCall(checkout, { env: { GIT_INDEX_FILE: copy } }));
  for (const line of zeroSeparated(stdout)) {
    const tab = line.indexOf('\t');
    const name = line.slice(tab + 1);
    entries.set(name, [...(entries.get(name) ?? []), { tag: line.slice(0, 1), entry: line.slice(2, tab) }]);
  }
  return entries;
}

/** A change below a mount point, in a repository of its own, or where nothing can be written, could not be made whole or taken back. */
async function refuseForeign(checkout: Checkout, steps: readonly TreeChange[]): Promise<void> {
  const { dev } = await lstat(checkout.root, { bigint: true });
  const mounts = await mountPoints();
  const folders = new Set(steps.flatMap(({ name }) => parentsOf(name)));
  const isForeign = (name: string) => {
    const found = find(diskPath(checkout, name));
    return found !== undefined && (found.dev !== dev || mounts.has(diskPath(checkout, name).toString('latin1')));
  };
  for (const name of [...folders, ...steps.map((step) => step.name)]) {
    if (isForeign(name))
      throw unusable(
        `${nameText(name)} in ${checkout.root} is a mount of its own; changes there could not be taken back.`,
      );
  }
  await refuseClosed(checkout.root, '.');
  for (const name of folders) {
    if (!find(diskPath(checkout, name))?.isDirectory()) continue;
    if (find(diskPath(checkout, `${name}/.git`)) !== undefined)
      throw unusable(
        `${nameText(name)} in ${checkout.root} is a repository of its own. Name it as a target of its own.`,
      );
    await refuseClosed(diskPath(checkout, name), nameText(name));
  }
  for (const { name, from } of steps) if (from !== null) await refuseImmutable(checkout, name);
}

/** A file that nobody may write is replaced in a folder that one may; one that is immutable is not, whoever asks. */
async function refuseImmutable(checkout: Checkout, name: string): Promise<void> {
  const path = diskPath(checkout, name);
  if (!find(path)?.isFile()) return;
  await access(path, constants.W_OK).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'EPERM') return;
    throw unusable(`${nameText(name)} in ${checkout.root} is immutable (see lsattr); it could not be replaced.`, cause);
  });
}

async function refuseClosed(path: string | Buffer, shown: string): Promise<void> {
  await access(path, constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    throw unusable(`Nothing can be written in ${shown === '.' ? path : shown}: ${(cause as Error).message}.`, cause);
  });
}

/** Also those of the same file system; empty where the kernel does not tell. */
async function mountPoints(): Promise<Set<string>> {
  const text = await readFile('/proc/self/mountinfo', 'latin1').catch(() => '');
  const unescaped = (path: string) =>
    path.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
  return new Set(text.split('\n').map((line) => unescaped(line.split(' ')[4] ?? '')));
}
