/** The files of a writable layer as they are at its beginning. */
import { lstat, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { treeNames, workNames } from './layer-driver.ts';

export async function makeEmptyTrees(directory: string): Promise<void> {
  await Promise.all([...treeNames, ...workNames].map((name) => mkdir(join(directory, name), { mode: 0o755 })));
}

export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}
