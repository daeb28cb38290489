/**
 * The state of a checkout as commits in its shadow: the commit of HEAD, above it a commit of what is staged (if that differs), above it a commit
 * of the working tree. Whoever has the last has all three.
 *
 * The working tree is read through an index of our own that stays in the shadow: its stat data makes the next look cheap. The user's index is
 * copied and never written.
 */
import { existsSync } from 'node:fs';
import { copyFile, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Checkout, refused, shadowCall } from './checkout.ts';
import { git, gitLine, isObjectLost } from './git-process.ts';
import { localHead } from './local-head.ts';
import type { SecretsPolicy } from './options.ts';
import {
  alignIgnored,
  dropIndex,
  keepSparsePaths,
  listChanges,
  type RecordOptions,
  recordChanges,
  refreshIndex,
  userIndexCopy,
} from './shadow-index.ts';

export interface Snapshot {
  readonly head: string | null;
  /** Full name of the ref that HEAD points to; null: detached, or no git. */
  readonly branch: string | null;
  readonly indexTree: string | null;
  readonly tree: string;
  readonly commit: string;
  readonly warnings: readonly string[];
}

export type SnapshotOptions = RecordOptions;

/** What the last snapshot found, so that the next one asks git only for what may have changed. */
interface Remembered {
  readonly indexStamp: string;
  readonly indexTree: string | null;
  readonly isUnmerged: boolean;
  readonly excludes: string;
  readonly secretsPolicy: SecretsPolicy;
  readonly key: string;
  readonly tree: string;
  readonly commit: string;
  /** The commit of what is staged, and what it was made from. */
  readonly staged: string | null;
  readonly stagedKey: string;
  /** Many entries of our index may be as new as itself. */
  readonly isRacy: boolean;
}

export const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';
/** So many new files are worth writing the index once more. */
const racyFiles = 200;
const racyMs = 2_000;
const identity = {
  GIT_AUTHOR_NAME: 'atoll',
  GIT_AUTHOR_EMAIL: 'sync@atoll.invalid',
  GIT_AUTHOR_DATE: '1000000000 +0000',
  GIT_COMMITTER_NAME: 'atoll',
  GIT_COMMITTER_EMAIL: 'sync@atoll.invalid',
  GIT_COMMITTER_DATE: '1000000000 +0000',
};

export async function takeSnapshot(checkout: Checkout, options: SnapshotOptions): Promise<Snapshot> {
  try {
    return await snapshotOnce(checkout, options);
  } catch (error) {
    if (!isObjectLost(error)) throw error;
    // The index names content that is not kept anywhere any more: it is made anew, from the files.
    await forgetSnapshot(checkout);
    return await snapshotOnce(checkout, options);
  }
}

/** The next snapshot looks at every file. */
export async function forgetSnapshot(checkout: Checkout): Promise<void> {
  await rm(memoryPath(checkout), { force: true });
  await dropIndex(checkout);
}

/** What of the shadow's objects the next snapshot builds on. */
export async function rememberedObjects(checkout: Checkout): Promise<string[]> {
  const memory = await remembered(checkout);
  if (memory === undefined) return [];
  return [memory.commit, memory.tree, memory.staged, memory.indexTree].filter((id) => id !== null);
}

async function snapshotOnce(checkout: Checkout, options: SnapshotOptions): Promise<Snapshot> {
  await removeStaleLocks(checkout);
  const memory = await remembered(checkout);
  // What one policy let into our index another would not take out.
  if ((memory?.secretsPolicy === 'send') !== (options.secretsPolicy === 'send')) await dropIndex(checkout);
  const isFirst = !existsSync(join(checkout.shadow, 'index'));
  const isSettled = !isFirst && memory?.isRacy === true && (await isIndexOld(checkout));
  if (isSettled) await refreshIndex(checkout, true);
  const isListedNow = !isFirst && !checkout.isSparse;
  const [{ head, branch }, index, listed] = await Promise.all([
    localHead(checkout),
    stagedTree(checkout, memory),
    isListedNow ? listChanges(checkout) : undefined,
  ]);
  const seed = index.tree ?? head;
  if (isFirst && seed !== null) {
    await git(['read-tree', seed], shadowCall(checkout));
    await refreshIndex(checkout);
  }
  const isIndexNew = index.stamp !== memory?.indexStamp;
  if (checkout.isSparse && (isFirst || isIndexNew)) await keepSparsePaths(checkout);
  const warnings = index.isUnmerged ? ['The index has unmerged paths; the sandbox sees nothing as staged.'] : [];
  if (existsSync(join(checkout.root, '.gitmodules')))
    warnings.push('Submodules are not synced: their folders are empty in the sandbox.');
  // A kill after this must not leave an index that the memory does not know.
  const beforeWrite = () => rm(memoryPath(checkout), { force: true });
  const changed = await recordChanges(checkout, options, { listed, warnings, beforeWrite });
  const patternsChanged =
    memory?.excludes !== checkout.excludes || changed.some((name) => /(^|\/)\.gitignore$/.test(name));
  if (!isFirst && (isIndexNew || patternsChanged)) await alignIgnored(checkout);
  const isAsBefore = memory !== undefined && !isFirst && !isIndexNew && !patternsChanged && changed.length === 0;
  const tree = isAsBefore ? memory.tree : await gitLine(['write-tree'], shadowCall(checkout));
  const indexTree = checkout.kind === 'plain' ? null : (index.tree ?? (head === null ? emptyTree : null));
  const key = [head, branch, indexTree, tree].join(' ');
  const isSame = memory?.key === key;
  const made = isSame ? memory : await commitSnapshot(checkout, { head, indexTree, tree, memory });
  const next: Remembered = {
    indexStamp: index.stamp,
    indexTree: index.tree,
    isUnmerged: index.isUnmerged,
    excludes: checkout.excludes,
    secretsPolicy: options.secretsPolicy,
    key,
    tree,
    commit: made.commit,
    staged: made.staged,
    stagedKey: `${head} ${indexTree}`,
    isRacy: isFirst || changed.length > racyFiles || (memory?.isRacy === true && !isSettled),
  };
  if (JSON.stringify(next) !== JSON.stringify(memory)) await writeFile(memoryPath(checkout), JSON.stringify(next));
  return { head, branch, indexTree, tree, commit: made.commit, warnings };
}

/** Files as new as the index are read whole at every look; once it is written again, later than that, they are not. */
async function isIndexOld(checkout: Checkout): Promise<boolean> {
  const clock = join(checkout.directory, 'clock');
  await writeFile(clock, '');
  const [now, index] = await Promise.all([stat(clock), stat(join(checkout.shadow, 'index'))]);
  return now.mtimeMs - index.mtimeMs > racyMs;
}

/** A commit in the shadow with a fixed author and time: the same content has the same name. */
export function commitTree(checkout: Checkout, tree: string, parents: readonly string[]): Promise<string> {
  const words = ['commit-tree', ...parents.flatMap((parent) => ['-p', parent]), '-m', 'atoll snapshot', tree];
  return gitLine(words, shadowCall(checkout, { env: identity }));
}

async function stagedTree(checkout: Checkout, memory: Remembered | undefined) {
  if (checkout.kind === 'plain') return { tree: null, stamp: '', isUnmerged: false };
  const path = join(checkout.gitDirectory ?? '', 'index');
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  if (found === undefined) return { tree: emptyTree, stamp: 'none', isUnmerged: false };
  const stamp = `${found.ino} ${found.size} ${found.mtimeNs} ${found.ctimeNs}`;
  if (memory?.indexStamp === stamp) return { tree: memory.indexTree, stamp, isUnmerged: memory.isUnmerged };
  const copy = userIndexCopy(checkout);
  await rm(`${copy}.lock`, { force: true });
  await copyFile(path, copy);
  await copySharedIndex(checkout);
  // Through the shadow: where git writes an index it may look at files again, and the user's filters must not run on them.
  const call = shadowCall(checkout, { env: { GIT_INDEX_FILE: copy }, accept: [128] });
  const { code, stdout } = await git(['write-tree'], call);
  if (code === 0) return { tree: stdout.toString().trim(), stamp, isUnmerged: false };
  const unmerged = await git(['ls-files', '-z', '--unmerged'], call);
  if (unmerged.stdout.length === 0) throw refused('The index of the repository cannot be read.');
  return { tree: null, stamp, isUnmerged: true };
}

/** A split index has its other part beside it. */
export async function copySharedIndex({ gitDirectory = '', shadow }: Checkout): Promise<void> {
  const names = (await readdir(gitDirectory)).filter((name) => name.startsWith('sharedindex.'));
  for (const name of names) await copyFile(join(gitDirectory, name), join(shadow, name));
}

/** The commit of what is staged stays the same while only files change. */
async function commitSnapshot(
  checkout: Checkout,
  state: {
    readonly head: string | null;
    readonly indexTree: string | null;
    readonly tree: string;
    readonly memory: Remembered | undefined;
  },
): Promise<Pick<Remembered, 'commit' | 'staged'>> {
  const { head, indexTree, tree, memory } = state;
  const above = head === null ? [] : [head];
  if (indexTree === null || indexTree === emptyTree) {
    return { staged: null, commit: await commitTree(checkout, tree, above) };
  }
  const isKnown = memory?.staged != null && memory.stagedKey === `${head} ${indexTree}`;
  const staged = isKnown ? memory.staged : await commitTree(checkout, indexTree, above);
  return { staged, commit: await commitTree(checkout, tree, [staged]) };
}

async function remembered(checkout: Checkout): Promise<Remembered | undefined> {
  try {
    return JSON.parse(await readFile(memoryPath(checkout), 'utf8')) as Remembered;
  } catch {
    return undefined;
  }
}

/** Whoever takes a snapshot holds the checkout's lock, so a lock file of git's here is from a process that was killed. */
async function removeStaleLocks(checkout: Checkout): Promise<void> {
  const refs = await readdir(join(checkout.shadow, 'refs'), { recursive: true });
  const names = [...(await readdir(checkout.shadow)), ...refs.map((name) => join('refs', name))];
  for (const name of names) {
    if (name.endsWith('.lock')) await rm(join(checkout.shadow, name), { force: true });
  }
}

function memoryPath(checkout: Checkout): string {
  return join(checkout.directory, 'snapshot.json');
}
