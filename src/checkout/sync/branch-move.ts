/**
 * Moves the user's branch to another commit, with the index that belongs to it: to commits that were made in the sandbox, or back where it was
 * before. A branch that moved meanwhile stays where it is, and so does one whose staged changes cannot go along: the commit is then on a ref.
 */
import { copyFile, link, lstat, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, userCall } from './checkout.ts';
import { isErrno } from './disk-entries.ts';
import { git, gitLine } from './git-process.ts';
import { headCommit } from './local-head.ts';

export interface BranchMove {
  /** Full name of the ref; null: HEAD itself, which is detached. */
  readonly ref: string | null;
  /** null: there is no commit yet. */
  readonly from: string | null;
  readonly to: string | null;
  /** What is staged, before and after. */
  readonly indexFrom: string;
  readonly indexTo: string;
}

const none = '0'.repeat(40);
const committer = { GIT_COMMITTER_NAME: 'atoll', GIT_COMMITTER_EMAIL: 'sync@atoll.invalid' };

export async function moveBranch(
  checkout: Checkout,
  move: BranchMove,
  staging: string,
): Promise<{ readonly isMoved: boolean; readonly warnings: readonly string[] }> {
  const release = await lockIndex(checkout, staging);
  try {
    const now = await headCommit(checkout);
    // A process may have been killed between the two: the branch is there, and the index follows.
    const isThere = now === move.to;
    const index = isThere || now === move.from ? await nextIndex(checkout, move, staging) : undefined;
    if (!isThere && (index === undefined || !(await moveRef(checkout, move)))) {
      return { isMoved: false, warnings: await keepCommit(checkout, move) };
    }
    if (index !== undefined) await rename(index, join(checkout.gitDirectory ?? '', 'index'));
    return { isMoved: true, warnings: [] };
  } finally {
    await release();
  }
}

export async function setRef(checkout: Checkout, ref: string, commit: string): Promise<void> {
  await gitLine(['update-ref', ref, commit], userCall(checkout, { env: committer }));
}

/** Where commits of the sandbox lie when no branch leads to them. */
export function commitsRef(head: string): string {
  return `refs/atoll/commits/${head.slice(0, 12)}`;
}

export async function refuseLockedIndex(checkout: Checkout): Promise<void> {
  const lock = indexLock(checkout);
  if ((await lstat(lock).catch(() => undefined)) !== undefined) throw anotherGit(lock, 'Nothing was changed.');
}

/** As git itself does, and held until the answer is called. Nobody else's lock is removed: ours is the very file that we made. */
async function lockIndex(checkout: Checkout, staging: string): Promise<() => Promise<void>> {
  const [lock, mine] = [indexLock(checkout), join(staging, 'lock')];
  await writeFile(mine, '');
  try {
    await link(mine, lock);
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error;
    const [ours, theirs] = await Promise.all([lstat(mine), lstat(lock).catch(() => undefined)]);
    if (theirs === undefined || ours.ino !== theirs.ino) throw anotherGit(lock, 'The next sync goes on from here.');
  }
  return () => rm(lock, { force: true });
}

/** The user's index with the staged changes carried over; undefined when they do not fit. */
async function nextIndex(checkout: Checkout, move: BranchMove, staging: string): Promise<string | undefined> {
  const made = join(staging, 'index');
  await rm(made, { force: true });
  await copyFile(join(checkout.gitDirectory ?? '', 'index'), made).catch(() => undefined);
  // Through the shadow, so that no filter of the user's runs on what the sandbox wrote.
  const call = shadowCall(checkout, { env: { GIT_INDEX_FILE: made }, accept: [128] });
  const { code } = await git(['read-tree', '-i', '-m', move.indexFrom, move.indexTo], call);
  return code === 0 ? made : undefined;
}

/** False: somebody else moved it. */
async function moveRef(checkout: Checkout, move: BranchMove): Promise<boolean> {
  const words = ['-c', 'core.logAllRefUpdates=true', 'update-ref', '-m', 'atoll: commits of the sandbox'];
  const target = move.ref === null ? ['--no-deref', 'HEAD'] : [move.ref];
  const change = move.to === null ? ['-d', ...target, move.from ?? none] : [...target, move.to, move.from ?? none];
  const { code } = await git([...words, ...change], userCall(checkout, { env: committer, accept: [1, 128] }));
  return code === 0;
}

async function keepCommit(checkout: Checkout, { to }: BranchMove): Promise<string[]> {
  if (to === null) return ['The branch was moved by somebody else and stays where it is.'];
  await setRef(checkout, commitsRef(to), to);
  return [`The branch was moved by somebody else and stays where it is; the commits are on ${commitsRef(to)}.`];
}

function anotherGit(lock: string, whatNow: string): PlatformError {
  return new PlatformError('sync_failed', `Another git works in this repository (${lock} exists). ${whatNow}`);
}

function indexLock(checkout: Checkout): string {
  return join(checkout.gitDirectory ?? '', 'index.lock');
}
