/** Whether this machine's git can do what workspaces need: `merge-tree --write-tree` is of 2.38. */
import { tmpdir } from 'node:os';
import { PlatformError } from '../../protocol/index.ts';
import { GitProgram } from './git-program.ts';

const least = { major: 2, minor: 38 };

/** Says which it is; throws what is missing. */
export async function probeGit(): Promise<string> {
  const git = new GitProgram({ home: tmpdir() });
  // Through everything that a git here is started with.
  const text = await git.line('/nonexistent', ['version'], { hostileBytes: 1024 });
  const [, major, minor] = /(\d+)\.(\d+)/.exec(text) ?? [];
  const isNewEnough = Number(major) > least.major || (Number(major) === least.major && Number(minor) >= least.minor);
  if (isNewEnough) return `${text}: workspaces can be kept here.`;
  throw new Error(`${text} is too old for workspaces: it takes ${least.major}.${least.minor}.`);
}

export async function requireGit(): Promise<void> {
  await probeGit().catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PlatformError('storage_unsupported', `This node cannot keep workspaces. ${why}`, { cause });
  });
}
