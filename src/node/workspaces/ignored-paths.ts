/**
 * Which paths a version's .gitignore files name. git itself says so, of an empty working tree that has these files alone: patterns that take
 * forever take the time of one bounded process.
 */

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nameBytes, zeroSeparated } from '../../base/index.ts';
import { filesOf, type GitProgram, type Staging, type WorkspaceLimits } from '../../layers/index.ts';

const ignoreFilesMax = 10_000;
const ignoreFileMaxBytes = 1024 * 1024;
const ignoreMs = 60_000;

export async function ignoredPaths(
  git: GitProgram,
  staging: Staging,
  base: string,
  paths: readonly string[],
  options: { readonly limits: WorkspaceLimits; readonly signal: AbortSignal | undefined },
): Promise<ReadonlySet<string>> {
  if (paths.length === 0) return new Set();
  const tree = join(staging.path, 'ignore-tree');
  if (!(await writeIgnoreFiles(git, staging, { base, tree }, options))) return new Set();
  // Behind "./" no name means anything else to git than itself.
  const stdin = Buffer.concat(paths.map((path) => nameBytes(`./${path}\0`)));
  const { stdout } = await git.run(staging.path, ['check-ignore', '--no-index', '-z', '--stdin'], {
    env: {
      GIT_WORK_TREE: tree,
      GIT_LITERAL_PATHSPECS: '0',
      ...{ GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'core.bare', GIT_CONFIG_VALUE_0: 'false' },
    },
    cwd: tree,
    stdin,
    accept: [1],
    signal: options.signal,
    timeoutMs: ignoreMs,
  });
  return new Set(zeroSeparated(stdout).map((path) => path.slice('./'.length)));
}

/** Only regular files: what a link leads to says nothing. */
async function writeIgnoreFiles(
  git: GitProgram,
  staging: Staging,
  { base, tree }: { readonly base: string; readonly tree: string },
  { limits, signal }: { readonly limits: WorkspaceLimits; readonly signal: AbortSignal | undefined },
): Promise<boolean> {
  let count = 0;
  for await (const file of filesOf(git, staging.path, base, limits, signal)) {
    const isIgnoreFile = file.path === '.gitignore' || file.path.endsWith('/.gitignore');
    if (!isIgnoreFile || file.mode === '120000' || file.sizeBytes > ignoreFileMaxBytes) continue;
    if (count++ >= ignoreFilesMax) break;
    const { stdout } = await git.run(staging.path, ['cat-file', 'blob', file.blob], { signal });
    const path = Buffer.concat([Buffer.from(`${tree}/`), nameBytes(file.path)]);
    await mkdir(path.subarray(0, path.lastIndexOf(0x2f)), { recursive: true });
    await writeFile(path, stdout);
  }
  return count > 0;
}
