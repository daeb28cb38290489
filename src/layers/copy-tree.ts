/**
 * Copies part of the host into a template. It never follows a link: links are copied as they are, and a path that leads through one
 * is left out. Only what every user of the host may read is taken, so that no key or password file gets in by a wide entry of the list.
 * Owners become root, set-id bits are dropped; devices, sockets and pipes are left out.
 */
import { constants, type Stats } from 'node:fs';
import { chmod, copyFile, lchown, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises';
import { join } from 'node:path';

const readableByAll = 0o004;
const searchableByAll = 0o005;
/** Files copied at once. */
const concurrency = 32;

/** Copies `from/path` to `to/path`; a `*` at the end of the path stands for any ending of the name. */
export async function copyEntry(options: {
  readonly from: string;
  readonly to: string;
  readonly path: string;
}): Promise<void> {
  const parts = options.path.split('/');
  const last = parts.pop()!;
  let from = options.from;
  let to = options.to;
  for (const part of parts) {
    from = join(from, part);
    to = join(to, part);
    const stats = await find(from);
    if (stats === undefined || !stats.isDirectory() || !allows(stats, searchableByAll)) return;
    await makeDirectory(to);
  }
  for (const name of await matchingNames(from, last)) await copyTree(join(from, name), join(to, name));
}

async function copyTree(from: string, to: string): Promise<void> {
  const stats = await find(from);
  if (stats === undefined) return;
  if (stats.isSymbolicLink()) {
    await symlink(await readlink(from), to);
    await lchown(to, 0, 0);
  } else if (stats.isDirectory() && allows(stats, searchableByAll)) {
    await makeDirectory(to);
    await forEach(await readdir(from), (name) => copyTree(join(from, name), join(to, name)));
  } else if (stats.isFile() && allows(stats, readableByAll)) {
    await copyFile(from, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await lchown(to, 0, 0);
    await chmod(to, stats.mode & 0o755);
  }
}

async function matchingNames(directory: string, pattern: string): Promise<string[]> {
  if (!pattern.endsWith('*')) return [pattern];
  const start = pattern.slice(0, -1);
  return (await readdir(directory)).filter((name) => name.startsWith(start));
}

async function makeDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await chmod(path, 0o755);
}

async function find(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw error;
  }
}

function allows(stats: Stats, bits: number): boolean {
  return (stats.mode & bits) === bits;
}

async function forEach<Item>(items: readonly Item[], run: (item: Item) => Promise<void>): Promise<void> {
  const left = items.values();
  const worker = async () => {
    for (const item of left) await run(item);
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, worker));
}
