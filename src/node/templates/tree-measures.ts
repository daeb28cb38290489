/** What a tree takes on disk, and what a file holds. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';

/** Follows nothing; hard links count once. */
export async function treeBytes(path: string): Promise<number> {
  const { stdout } = await promisify(execFile)('du', ['-s', '-x', '-B1', '--', path]);
  return Number(/^(\d+)/.exec(stdout)?.[1] ?? 0);
}

export async function fileDigest(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
