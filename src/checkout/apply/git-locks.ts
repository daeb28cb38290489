/**
 * Locks of a user's repository, held from before the decision until a branch and its index have moved. They are the lock files that every git
 * respects, and no git process of ours takes part that could be killed with one in its hand: each is a hard link to a file in the staging folder
 * that the journal names, so that after a crash its inode proves whose it is. A lock of anybody else is never removed.
 */
import { appendFile, copyFile, link, lstat, mkdir, readFile, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { syncDirectory } from '../../base/index.ts';
import { isSameFile } from '../sync/apply-step.ts';
import { type Checkout, shadowCall, userCall } from '../sync/checkout.ts';
import { git, gitLine, nameBytes } from '../sync/git-process.ts';
import { copySharedIndex } from '../sync/local-snapshot.ts';
import type { TreeChange } from '../sync/trees.ts';
import { refuseLock } from './find-place.ts';
import type { JournalTarget } from './journal.ts';
import { syncFile } from './staging.ts';

const none = '0'.repeat(40);

interface GitPaths {
  /** The file that our locks are links to. */
  readonly held: string;
  readonly ref: string;
  readonly newRef: string;
  /** undefined: no working tree takes part. */
  readonly index: string | undefined;
  readonly newIndex: string;
}

function pathsOf({ checkout, gitStaging, move, place }: JournalTarget): GitPaths | undefined {
  if (move === null || gitStaging === null) return undefined;
  return {
    held: join(gitStaging, 'held'),
    ref: join(checkout.commonDirectory ?? '', move.ref),
    newRef: join(gitStaging, 'ref'),
    index: place.root === null ? undefined : join(checkout.gitDirectory ?? '', 'index'),
    newIndex: join(gitStaging, 'index'),
  };
}

export async function readRef(checkout: Checkout, ref: string): Promise<string | null> {
  const env = { GIT_DIR: checkout.commonDirectory ?? '' };
  const { code, stdout } = await git(
    ['rev-parse', '--verify', '-q', ref],
    userCall(checkout, { env, accept: [1, 128] }),
  );
  return code === 0 ? stdout.toString().trim() : null;
}

export async function isAncestor(checkout: Checkout, one: string, of: string): Promise<boolean> {
  const env = { GIT_DIR: checkout.commonDirectory ?? '' };
  const words = ['merge-base', '--is-ancestor', one, of];
  return (await git(words, userCall(checkout, { env, accept: [1, 128] }))).code === 0;
}

/** All locks of a target, or none. Answers whether the index was locked by us all the time. */
export async function holdLocks(target: JournalTarget): Promise<{ readonly wasHeld: boolean }> {
  const paths = pathsOf(target);
  if (paths === undefined) return { wasHeld: true };
  await writeFile(paths.held, `atoll plan apply: ${target.gitStaging}\n`, { flag: 'a' });
  await mkdir(dirname(paths.ref), { recursive: true });
  await hold(paths.held, `${paths.ref}.lock`);
  try {
    return { wasHeld: paths.index === undefined || !(await hold(paths.held, `${paths.index}.lock`)) };
  } catch (error) {
    await releaseLocks(target);
    throw error;
  }
}

export async function releaseLocks(target: JournalTarget): Promise<void> {
  const paths = pathsOf(target);
  if (paths === undefined) return;
  if (paths.index !== undefined) await release(paths.held, `${paths.index}.lock`);
  await release(paths.held, `${paths.ref}.lock`);
}

/** Writes what the branch and the index become. The locks are held: what is read here stays true. */
export async function makeGitFiles(checkout: Checkout, target: JournalTarget): Promise<void> {
  const paths = pathsOf(target);
  if (paths === undefined) return;
  if (target.move?.to != null) {
    await writeFile(paths.newRef, `${target.move.to}\n`);
    await syncFile(paths.newRef);
  }
  if (paths.index === undefined) return;
  await rm(paths.newIndex, { force: true });
  await copyFile(paths.index, paths.newIndex).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error; // Nothing was ever added there.
  });
  await copySharedIndex(checkout);
  // Through our own repository, so that no filter of the user's runs on what a sandbox wrote.
  const call = shadowCall(checkout, { env: { GIT_INDEX_FILE: paths.newIndex }, stdin: indexInfo(target.indexSteps) });
  await git(['update-index', '-z', '--index-info'], call);
  await syncFile(paths.newIndex);
}

/** The branch leads to the new commit; its lock is held, so nobody else has moved it. */
export async function moveRef(checkout: Checkout, target: JournalTarget): Promise<void> {
  const paths = pathsOf(target);
  const { move } = target;
  if (move === null || paths === undefined) return;
  if (move.to === null) {
    // git alone knows how to forget a branch that is packed.
    await release(paths.held, `${paths.ref}.lock`);
    const env = { GIT_DIR: checkout.commonDirectory ?? '' };
    await gitLine(['update-ref', '-d', move.ref, move.from ?? none], userCall(checkout, { env }));
    return;
  }
  await rename(paths.newRef, paths.ref);
  await syncDirectory(dirname(paths.ref));
}

/** As git tells it in the reflog. */
export async function logMove(
  checkout: Checkout,
  { move, place }: JournalTarget,
  { why, atMs }: { readonly why: string; readonly atMs: number },
): Promise<void> {
  if (move?.to == null) return;
  const line = `${move.from ?? none} ${move.to} atoll <plan@atoll.invalid> ${Math.floor(atMs / 1000)} +0000\t${why}\n`;
  await appendLog(join(checkout.commonDirectory ?? '', 'logs', move.ref), line, place.root !== null);
  if (place.root !== null) await appendLog(join(checkout.gitDirectory ?? '', 'logs/HEAD'), line, true);
}

/** Whether the index still has to be put in its place. */
export async function isIndexWaiting(target: JournalTarget): Promise<boolean> {
  const paths = pathsOf(target);
  return paths?.index !== undefined && (await lstat(paths.newIndex).catch(() => undefined)) !== undefined;
}

/** It has the touched paths as the branch has them, and the others as they were. Its lock is held. */
export async function moveIndex(target: JournalTarget): Promise<void> {
  const paths = pathsOf(target);
  if (paths?.index === undefined) return;
  await rename(paths.newIndex, paths.index);
  await syncDirectory(dirname(paths.index));
}

/** Answers whether it was taken just now. */
async function hold(held: string, lock: string): Promise<boolean> {
  if (isSameFile(held, lock)) return false;
  try {
    await link(held, lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') refuseLock(lock);
    throw error;
  }
}

async function release(held: string, lock: string): Promise<void> {
  if (isSameFile(held, lock)) await unlink(lock);
}

function indexInfo(changes: readonly TreeChange[]): Buffer {
  const removals = changes.filter(({ to }) => to === null);
  const lines = [...removals, ...changes.filter(({ to }) => to !== null)].map(({ name, to }) =>
    Buffer.concat([Buffer.from(to === null ? `0 ${none}\t` : `${to.mode} ${to.id}\t`), nameBytes(name), Buffer.of(0)]),
  );
  return Buffer.concat(lines);
}

/** Once, however often it is asked for. */
async function appendLog(path: string, line: string, mayMake: boolean): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => undefined);
  if (text === undefined && !mayMake) return;
  const last = text?.trimEnd().split('\n').at(-1) ?? '';
  if (last.startsWith(line.slice(0, 82))) return;
  await mkdir(dirname(path), { recursive: true });
  await appendFile(path, line);
}
