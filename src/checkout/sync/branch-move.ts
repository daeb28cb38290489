/**
 * Moves the user's branch to commits that were made in the sandbox, with the index that belongs to them. Only ever forward: whoever calls has seen
 * that the new commit descends from the present one, and a branch that moved meanwhile stays where it is.
 */
import { copyFile, link, lstat, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, userCall } from './checkout.ts';
import { git, gitLine } from './git-process.ts';

export interface BranchMove {
  /** Full name of the ref; null: HEAD itself, which is detached. */
  readonly ref: string | null;
  readonly from: string | null;
  readonly to: string;
  /** What is staged, before and after. */
  readonly indexFrom: string;
  readonly indexTo: string;
}

const none = '0'.repeat(40);

export async function moveBranch(checkout: Checkout, move: BranchMove, staging: string): Promise<void> {
  const present = await git(['rev-parse', '--verify', '-q', 'HEAD'], userCall(checkout, { accept: [1, 128] }));
  const now = present.code === 0 ? present.stdout.toString().trim() : null;
  if (now === move.to) return;
  if (now !== move.from) {
    await setRef(checkout, `refs/atoll/commits/${move.to.slice(0, 12)}`, move.to);
    return;
  }
  await moveIndex(checkout, move, staging);
  const words = ['-c', 'core.logAllRefUpdates=true', 'update-ref', '-m', 'atoll: commits from the sandbox'];
  const target = move.ref === null ? ['--no-deref', 'HEAD'] : [move.ref];
  await gitLine([...words, ...target, move.to, move.from ?? none], userCall(checkout, { env: committer }));
}

export async function setRef(checkout: Checkout, ref: string, commit: string): Promise<void> {
  await gitLine(['update-ref', ref, commit], userCall(checkout, { env: committer }));
}

const committer = { GIT_COMMITTER_NAME: 'atoll', GIT_COMMITTER_EMAIL: 'sync@atoll.invalid' };

/** Nobody else's lock is ever removed: one that is there is ours only if it is the very file that we made. */
export async function refuseLockedIndex(checkout: Checkout): Promise<void> {
  const lock = join(checkout.gitDirectory ?? '', 'index.lock');
  if ((await lstat(lock).catch(() => undefined)) !== undefined) {
    throw new PlatformError(
      'sync_failed',
      `Another git works in this repository (${lock} exists). Nothing was changed.`,
    );
  }
}

async function moveIndex(checkout: Checkout, move: BranchMove, staging: string): Promise<void> {
  const directory = checkout.gitDirectory ?? '';
  const [index, lock, made] = [join(directory, 'index'), join(directory, 'index.lock'), join(staging, 'index')];
  const [mine, locked] = await Promise.all([made, lock].map((path) => lstat(path).catch(() => undefined)));
  if (mine === undefined || locked === undefined || mine.ino !== locked.ino) {
    await rm(made, { force: true });
    await copyFile(index, made).catch(() => undefined);
    // Through the shadow, so that no filter of the user's runs on what the sandbox wrote.
    const env = { GIT_INDEX_FILE: made };
    const { code } = await git(
      ['read-tree', '-i', '-m', move.indexFrom, move.indexTo],
      shadowCall(checkout, { env, accept: [128] }),
    );
    if (code !== 0) await gitLine(['read-tree', move.indexTo], shadowCall(checkout, { env }));
    await link(made, lock);
  }
  await rename(lock, index);
}
