/**
 * git's index, version 2, for files that are about to be unpacked: it says of each what its size and time will be, so that the first `git status`
 * has nothing to read. With `core.checkStat=minimal` git compares these two alone; what an unpacked file's inode will be nobody can know.
 */

import { createHash } from 'node:crypto';
import { nameBytes } from '../../base/index.ts';

import type { TreeFile } from './verify-tree.ts';

const fixedBytes = 62;
const nameLengthMax = 0xfff;

/** `files` in the order of their names' bytes, as `ls-tree -r` has them. */
export function indexFile(files: readonly TreeFile[], modifiedAtSeconds: number): Buffer {
  const head = Buffer.alloc(12);
  head.write('DIRC', 0, 'latin1');
  head.writeUInt32BE(2, 4);
  head.writeUInt32BE(files.length, 8);
  const body = Buffer.concat([head, ...files.map((file) => entryOf(file, modifiedAtSeconds))]);
  return Buffer.concat([body, createHash('sha1').update(body).digest()]);
}

function entryOf(file: TreeFile, modifiedAtSeconds: number): Buffer {
  const name = nameBytes(file.path);
  // One to eight NULs, so that the next entry begins at a multiple of eight.
  const entry = Buffer.alloc((fixedBytes + name.byteLength + 8) & ~7);
  entry.writeUInt32BE(modifiedAtSeconds >>> 0, 0);
  entry.writeUInt32BE(modifiedAtSeconds >>> 0, 8);
  entry.writeUInt32BE(Number.parseInt(file.mode, 8), 24);
  entry.writeUInt32BE(file.sizeBytes >>> 0, 36);
  entry.write(file.blob, 40, 'hex');
  entry.writeUInt16BE(Math.min(name.byteLength, nameLengthMax), 60);
  entry.set(name, fixedBytes);
  return entry;
}
