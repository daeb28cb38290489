/**
 * The state of a checkout as commits in its shadow: the commit of HEAD, above it a commit of what is staged (if that differs), above it a commit
 * of the working tree. Whoever has the last has all three.
 *
 * The working tree is read through an index of our own that stays in the shadow: its stat data makes the next look cheap. The user's index is
 * copied and never written.
 */
import { existsSync } from 'node:fs';
import { copyFile, lstat, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Checkout, refused, shadowCall, stagingPrefix, userCall } from './checkout.ts';
import { git, gitLine, nameBytes, nameText, zeroSeparated } from './git-process.ts';
import { largeFilePointers } from './large-file-pointers.ts';
import { checkLimits, type SizedPath } from './limits.ts';
import type { SecretsPolicy, SyncLimits } from './options.ts';
import { looksSecret, refuseSecrets } from './secrets.ts';

export interface Snapshot {
  readonly head: string | null;
  /** Full name of the ref that HEAD points to; null: detached, or no git. */
  readonly branch: string | null;
  readonly indexTree: string | null;
  readonly tree: string;
  readonly commit: string;
  readonly warnings: readonly string[];
}

export interface SnapshotOptions {
  readonly limits: SyncLimits;
  readonly secretsPolicy: SecretsPolicy;
  readonly onFiles?: (files: number, bytes: number) => void;
}

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
}

export const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';
/** From here on new content goes into one pack: a file per object costs far more than the content. */
const manyFiles = 500;
/** What git takes for big it streams into a pack. */
const onePack = ['-c', 'core.bigFileThreshold=1'];
const identity = {
  GIT_AUTHOR_NAME: 'atoll',
  GIT_AUTHOR_EMAIL: 'sync@atoll.invalid',
  GIT_AUTHOR_DATE: '1000000000 +0000',
  GIT_COMMITTER_NAME: 'atoll',
  GIT_COMMITTER_EMAIL: 'sync@atoll.invalid',
  GIT_COMMITTER_DATE: '1000000000 +0000',
};

export async function takeSnapshot(checkout: Checkout, options: SnapshotOptions): Promise<Snapshot> {
  const memory = await remembered(checkout);
  const [{ head, branch }, index] = await Promise.all([headOf(checkout), stagedTree(checkout, memory)]);
  // What one policy let into our index another would not take out.
  if ((memory?.secretsPolicy === 'send') !== (options.secretsPolicy === 'send'))
    await rm(join(checkout.shadow, 'index'), { force: true });
  const isFirst = !existsSync(join(checkout.shadow, 'index'));
  const seed = index.tree ?? head;
  if (isFirst && seed !== null) await git(['read-tree', seed], shadowCall(checkout));
  const isIndexNew = index.stamp !== memory?.indexStamp;
  if (checkout.isSparse && (isFirst || isIndexNew)) await keepSparsePaths(checkout);
  const warnings = index.isUnmerged ? ['The index has unmerged paths; the sandbox sees nothing as staged.'] : [];
  if (existsSync(join(checkout.root, '.gitmodules')))
    warnings.push('Submodules are not synced: their folders are empty in the sandbox.');
  const changed = await recordChanges(checkout, options, warnings);
  const patternsChanged =
    memory?.excludes !== checkout.excludes || changed.some((name) => /(^|\/)\.gitignore$/.test(name));
  if (!isFirst && (isIndexNew || patternsChanged)) await alignIgnored(checkout);
  const isAsBefore = memory !== undefined && !isFirst && !isIndexNew && !patternsChanged && changed.length === 0;
  const tree = isAsBefore ? memory.tree : await gitLine(['write-tree'], shadowCall(checkout));
  const indexTree = checkout.kind === 'plain' ? null : (index.tree ?? (head === null ? emptyTree : null));
  const key = [head, branch, indexTree, tree].join(' ');
  const commit = memory?.key === key ? memory.commit : await commitSnapshot(checkout, { head, indexTree, tree });
  const next: Remembered = {
    indexStamp: index.stamp,
    indexTree: index.tree,
    isUnmerged: index.isUnmerged,
    excludes: checkout.excludes,
    secretsPolicy: options.secretsPolicy,
    key,
    tree,
    commit,
  };
  await writeFile(memoryPath(checkout), JSON.stringify(next));
  return { head, branch, indexTree, tree, commit, warnings };
}

/** A commit in the shadow with a fixed author and time: the same content has the same name. */
export function commitTree(checkout: Checkout, tree: string, parents: readonly string[]): Promise<string> {
  const words = ['commit-tree', ...parents.flatMap((parent) => ['-p', parent]), '-m', 'atoll snapshot', tree];
  return gitLine(words, shadowCall(checkout, { env: identity }));
}

export async function headOf(checkout: Checkout): Promise<Pick<Snapshot, 'head' | 'branch'>> {
  if (checkout.kind === 'plain') return { head: null, branch: null };
  const { code, stdout } = await git(['rev-parse', '--verify', '-q', 'HEAD'], userCall(checkout, { accept: [1, 128] }));
  const symbolic = await readFile(join(checkout.gitDirectory ?? '', 'HEAD'), 'utf8');
  const branch = symbolic.startsWith('ref: ') ? symbolic.slice(5).trim() : null;
  return { head: code === 0 ? stdout.toString().trim() : null, branch };
}

async function stagedTree(checkout: Checkout, memory: Remembered | undefined) {
  if (checkout.kind === 'plain') return { tree: null, stamp: '', isUnmerged: false };
  const path = join(checkout.gitDirectory ?? '', 'index');
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  if (found === undefined) return { tree: emptyTree, stamp: 'none', isUnmerged: false };
  const stamp = `${found.ino} ${found.size} ${found.mtimeNs} ${found.ctimeNs}`;
  if (memory?.indexStamp === stamp) return { tree: memory.indexTree, stamp, isUnmerged: memory.isUnmerged };
  const copy = join(checkout.shadow, 'user-index');
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

/** Takes what differs from our index into it, and answers the names. */
async function recordChanges(checkout: Checkout, options: SnapshotOptions, warnings: string[]): Promise<string[]> {
  const listed = await git(['ls-files', '-z', '-o', '-m', '-d', '--exclude-standard'], shadowCall(checkout));
  const tracked = new Set(zeroSeparated((await untrackedFree(checkout, listed.stdout.length > 0)).stdout));
  // Where a file became a directory, what was there has to go before what is there comes.
  const all = [...new Set(zeroSeparated(listed.stdout))];
  const names = [...all.filter((name) => tracked.has(name)), ...all.filter((name) => !tracked.has(name))];
  const nested = names.filter((name) => name.endsWith('/'));
  for (const name of nested) warnings.push(`${nameText(name)} is a repository of its own and is not synced.`);
  let wanted = names.filter((name) => !name.endsWith('/') && !name.startsWith(stagingPrefix));
  const secret = wanted.filter((name) => !tracked.has(name) && looksSecret(name));
  if (secret.length > 0 && options.secretsPolicy !== 'send') {
    if (options.secretsPolicy === 'refuse') throw refuseSecrets(secret.map(nameText));
    for (const name of secret)
      warnings.push(`${nameText(name)} looks like a secret and is not sent (it is neither tracked nor ignored).`);
    const unwanted = new Set(secret);
    wanted = wanted.filter((name) => !unwanted.has(name));
  }
  const pointers = await largeFilePointers(checkout, wanted);
  wanted = wanted.filter((name) => !pointers.has(name));
  const sized = await sizesOf(checkout, wanted);
  checkLimits(sized, options.limits, 'here');
  options.onFiles?.(
    sized.length,
    sized.reduce((sum, { bytes }) => sum + bytes, 0),
  );
  if (wanted.length > 0) {
    const stdin = Buffer.concat(wanted.flatMap((name) => [nameBytes(name), Buffer.of(0)]));
    // A kill after this must not leave an index that the memory does not know.
    await rm(memoryPath(checkout), { force: true });
    const words = ['update-index', '--add', '--remove', '--replace', '-z', '--stdin'];
    await git(wanted.length > manyFiles ? [...onePack, ...words] : words, shadowCall(checkout, { stdin }));
  }
  return wanted;
}

/** What our index holds already; asked only when there is something to tell apart. */
function untrackedFree(checkout: Checkout, isNeeded: boolean) {
  if (!isNeeded) return Promise.resolve({ stdout: Buffer.alloc(0) });
  return git(['ls-files', '-z', '-c'], shadowCall(checkout));
}

async function sizesOf(checkout: Checkout, names: readonly string[]): Promise<SizedPath[]> {
  const sized: SizedPath[] = [];
  const root = Buffer.from(`${checkout.root}/`);
  for (let at = 0; at < names.length; at += 256) {
    const part = names.slice(at, at + 256).map(async (name) => {
      const found = await lstat(Buffer.concat([root, nameBytes(name)])).catch(() => undefined);
      return { path: nameText(name), bytes: found?.isFile() ? found.size : 0 };
    });
    sized.push(...(await Promise.all(part)));
  }
  return sized;
}

/** A path that is ignored belongs to the snapshot exactly if the user's index tracks it. */
async function alignIgnored(checkout: Checkout): Promise<void> {
  const words = ['ls-files', '-z', '-c', '-i', '--exclude-standard'];
  const ours = zeroSeparated((await git(words, shadowCall(checkout))).stdout);
  const env = { GIT_INDEX_FILE: join(checkout.shadow, 'user-index') };
  const theirs =
    checkout.kind === 'git' && existsSync(env.GIT_INDEX_FILE)
      ? zeroSeparated((await git(words, shadowCall(checkout, { env }))).stdout)
      : [];
  const tracked = new Set(theirs);
  const known = new Set(ours);
  await updateIndex(
    checkout,
    ['--force-remove'],
    ours.filter((name) => !tracked.has(name)),
  );
  await updateIndex(
    checkout,
    ['--add', '--remove', '--replace'],
    theirs.filter((name) => !known.has(name)),
  );
}

/** Paths outside of a sparse checkout are absent on purpose: they keep the content that the user's index has. */
async function keepSparsePaths(checkout: Checkout): Promise<void> {
  const env = { GIT_INDEX_FILE: join(checkout.shadow, 'user-index') };
  const { stdout } = await git(['ls-files', '-z', '-t', '-s'], shadowCall(checkout, { env }));
  const skipped = zeroSeparated(stdout).filter((line) => line.startsWith('S '));
  if (skipped.length === 0) return;
  const stdin = Buffer.concat(skipped.flatMap((line) => [nameBytes(line.slice(2)), Buffer.of(0)]));
  await git(['update-index', '-z', '--index-info'], shadowCall(checkout, { stdin }));
  await updateIndex(
    checkout,
    ['--skip-worktree'],
    skipped.map((line) => line.slice(line.indexOf('\t') + 1)),
  );
}

async function updateIndex(checkout: Checkout, words: readonly string[], names: readonly string[]): Promise<void> {
  if (names.length === 0) return;
  const stdin = Buffer.concat(names.flatMap((name) => [nameBytes(name), Buffer.of(0)]));
  await git(['update-index', ...words, '-z', '--stdin'], shadowCall(checkout, { stdin }));
}

async function commitSnapshot(
  checkout: Checkout,
  state: { readonly head: string | null; readonly indexTree: string | null; readonly tree: string },
): Promise<string> {
  const { head, indexTree, tree } = state;
  const above = head === null ? [] : [head];
  if (indexTree === null || indexTree === emptyTree) return await commitTree(checkout, tree, above);
  const staged = await commitTree(checkout, indexTree, above);
  return await commitTree(checkout, tree, [staged]);
}

async function remembered(checkout: Checkout): Promise<Remembered | undefined> {
  await removeStaleLocks(checkout);
  try {
    return JSON.parse(await readFile(memoryPath(checkout), 'utf8')) as Remembered;
  } catch {
    return undefined;
  }
}

/** Whoever takes a snapshot holds the checkout's lock, so a lock file of git's here is from a process that was killed. */
async function removeStaleLocks(checkout: Checkout): Promise<void> {
  for (const name of await readdir(checkout.shadow)) {
    if (name.endsWith('.lock')) await rm(join(checkout.shadow, name), { force: true });
  }
}

function memoryPath(checkout: Checkout): string {
  return join(dirname(checkout.shadow), 'snapshot.json');
}
