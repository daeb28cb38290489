/** What lies at a path of the working tree, compared with an entry of a tree. Symlinks are never followed, parents included. */
import { createHash } from 'node:crypto';
import { type BigIntStats, createReadStream } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { Checkout } from './checkout.ts';
import { nameBytes } from './git-process.ts';
import type { TreeEntry } from './trees.ts';

export function diskPath(checkout: Checkout, name: string): Buffer {
  return Buffer.concat([Buffer.from(`${checkout.root}/`), nameBytes(name)]);
}

export function parentsOf(name: string): string[] {
  const parts = name.split('/');
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'));
}

export function findOnDisk(checkout: Checkout, name: string): Promise<BigIntStats | undefined> {
  return findAt(diskPath(checkout, name));
}

async function findAt(path: Buffer): Promise<BigIntStats | undefined> {
  try {
    return await lstat(path, { bigint: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw error;
  }
}

/** Changes whenever the file does. */
export function stampOf(found: BigIntStats | undefined): string {
  return found === undefined ? 'absent' : `${found.dev} ${found.ino} ${found.size} ${found.mtimeNs}`;
}

export function isOnDisk(checkout: Checkout, name: string, entry: TreeEntry): Promise<boolean> {
  return isEntry(diskPath(checkout, name), entry);
}

/** Whether this very file is what the entry of a tree says. */
export async function isEntry(path: Buffer, entry: TreeEntry): Promise<boolean> {
  const found = await findAt(path);
  if (found === undefined) return false;
  if (entry.mode === '120000') {
    return found.isSymbolicLink() && blobName(await readlink(path, { encoding: 'buffer' })) === entry.id;
  }
  if (!found.isFile() || (found.mode & 0o100n) !== (entry.mode === '100755' ? 0o100n : 0n)) return false;
  const hash = createHash('sha1').update(`blob ${found.size}\0`);
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex') === entry.id;
}

/** Names of everything below a directory that is no directory itself. */
export async function filesBelow(checkout: Checkout, name: string): Promise<string[]> {
  const files: string[] = [];
  for (const entry of await readdir(diskPath(checkout, name), { withFileTypes: true, encoding: 'buffer' })) {
    const below = `${name}/${entry.name.toString('latin1')}`;
    if (entry.isDirectory()) files.push(...(await filesBelow(checkout, below)));
    else files.push(below);
  }
  return files;
}

function blobName(content: Uint8Array): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}
