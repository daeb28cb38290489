/**
 * What lies at a path of the working tree, compared with an entry of a tree. Symlinks are never followed, parents included.
 *
 * The calls are synchronous: nothing of ours happens between a look and what follows from it, so an editor has the least room to come between.
 */
import { createHash } from 'node:crypto';
import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
} from 'node:fs';
import type { Checkout } from './checkout.ts';
import { nameBytes } from './git-process.ts';
import type { TreeEntry } from './trees.ts';

export type DiskPath = string | Buffer;

const pieceBytes = 1024 * 1024;

export function diskPath(checkout: Checkout, name: string): Buffer {
  return Buffer.concat([Buffer.from(`${checkout.root}/`), nameBytes(name)]);
}

export function parentsOf(name: string): string[] {
  const parts = name.split('/');
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'));
}

export function find(path: DiskPath): BigIntStats | undefined {
  try {
    return lstatSync(path, { bigint: true });
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

/** Changes whenever the content does, unless it is `isRecent`; a rename leaves it as it is. */
export function stampOf(found: BigIntStats | undefined): string {
  return found === undefined ? 'absent' : `${found.dev} ${found.ino} ${found.size} ${found.mtimeNs}`;
}

export function isEntry(path: DiskPath, entry: TreeEntry): boolean {
  const found = find(path);
  if (found === undefined) return false;
  if (entry.mode === '120000') {
    return found.isSymbolicLink() && blobName(readlinkSync(path, { encoding: 'buffer' })) === entry.id;
  }
  if (!found.isFile() || (found.mode & 0o100n) !== (entry.mode === '100755' ? 0o100n : 0n)) return false;
  return fileBlobName(path) === entry.id;
}

/** Names of everything below a directory that is no directory itself. */
export function filesBelow(checkout: Checkout, name: string): string[] {
  const files: string[] = [];
  for (const entry of readdirSync(diskPath(checkout, name), { withFileTypes: true, encoding: 'buffer' })) {
    const below = `${name}/${entry.name.toString('latin1')}`;
    if (entry.isDirectory()) files.push(...filesBelow(checkout, below));
    else files.push(below);
  }
  return files;
}

export function isErrno(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}

function fileBlobName(path: DiskPath): string {
  // A name that became a symlink or a FIFO since it was looked at is neither followed nor waited for.
  const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const hash = createHash('sha1').update(`blob ${fstatSync(file).size}\0`);
    const piece = Buffer.allocUnsafe(pieceBytes);
    for (let got = readSync(file, piece); got > 0; got = readSync(file, piece)) hash.update(piece.subarray(0, got));
    return hash.digest('hex');
  } finally {
    closeSync(file);
  }
}

function blobName(content: Uint8Array): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}
