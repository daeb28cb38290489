/**
 * Removes what nothing holds and is old, and packs the rest. What is young stays, and so does everything that it stands on: whoever has just made
 * an object has until then to hold it.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { FaultPoints } from '../../base/index.ts';
import type { GitProgram } from './git-program.ts';

export async function tidyObjects(
  git: GitProgram,
  repository: string,
  options: { readonly olderThanMs: number; readonly timeoutMs: number; readonly faults: FaultPoints },
): Promise<{ readonly bytes: number }> {
  const { timeoutMs } = options;
  const before = `${Math.ceil(options.olderThanMs / 1_000)}.seconds.ago`;
  await git.run(repository, ['pack-refs', '--all', '--prune'], { timeoutMs });
  const words = ['repack', '-q', '-d', '-l', '--cruft', `--cruft-expiration=${before}`];
  await git.run(repository, words, { timeoutMs });
  await options.faults.hit('workspace-tidy-packed');
  await git.run(repository, ['prune', `--expire=${before}`], { timeoutMs });
  return { bytes: await bytesBelow(join(repository, 'objects')) };
}

async function bytesBelow(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) bytes += await bytesBelow(path);
    else if (entry.isFile()) bytes += (await stat(path)).blocks * 512;
  }
  return bytes;
}
