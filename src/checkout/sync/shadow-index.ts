/**
 * The index of the shadow: it follows the working tree, untracked files included, and its stat data makes the next look cheap. A file is looked at
 * again when its stat data differ, or when it is as new as the index itself, as git always does: an edit of the same size in the same second is seen.
 */
import { lstat, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isPlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, stagingPrefix } from './checkout.ts';
import { git, nameBytes, nameText, zeroSeparated } from './git-process.ts';
import { largeFilePointers } from './large-file-pointers.ts';
import { checkLimits, type SizedPath } from './limits.ts';
import type { SecretsPolicy, SyncLimits } from './options.ts';
import { looksSecret, refuseSecrets } from './secrets.ts';

export interface RecordOptions {
  readonly limits: SyncLimits;
  readonly secretsPolicy: SecretsPolicy;
  readonly onFiles?: (files: number, bytes: number) => void;
}

export interface Listed {
  /** Tracked by our index, with other stat data than it has; deleted ones too. */
  readonly dirty: readonly string[];
  readonly untracked: readonly string[];
}

/** From here on new content goes into packs: a file per object costs far more than the content. */
const manyFiles = 500;
/** What git takes for big it streams into a pack, and looks through all that it has written before: so not too much at once. */
const onePack = ['-c', 'core.bigFileThreshold=1'];
const packFiles = 4_000;
/** That many with other stat data are rather touched than changed. */
const manyDirty = 64;
const statsAtOnce = 256;

export async function listChanges(checkout: Checkout): Promise<Listed> {
  const [dirty, untracked] = await Promise.all([
    git(['diff-files', '-z', '--name-only', '--ignore-submodules=dirty'], shadowCall(checkout)),
    git(['ls-files', '-z', '-o', '--exclude-standard'], shadowCall(checkout)),
  ]);
  return { dirty: [...new Set(zeroSeparated(dirty.stdout))], untracked: zeroSeparated(untracked.stdout) };
}

/** What only has other stat data gets them; with `isForced` the index is newer than every file afterwards. */
export async function refreshIndex(checkout: Checkout, isForced = false): Promise<void> {
  const words = ['update-index', '-q', '--refresh', ...(isForced ? ['--force-write-index'] : [])];
  await git(words, shadowCall(checkout, { accept: [1] }));
}

/** Takes what differs from our index into it, and answers the names. `beforeWrite` is called before the index is written. */
export async function recordChanges(
  checkout: Checkout,
  options: RecordOptions,
  given: {
    readonly listed: Listed | undefined;
    readonly warnings: string[];
    readonly beforeWrite: () => Promise<void>;
  },
): Promise<string[]> {
  const listed = given.listed ?? (await listChanges(checkout));
  if (listed.dirty.length > manyDirty) return await recordRefreshed(checkout, options, given);
  try {
    return await recordListed(checkout, options, { ...given, listed });
  } catch (error) {
    if (listed.dirty.length === 0 || !isPlatformError(error, 'sync_limit_exceeded')) throw error;
    return await recordRefreshed(checkout, options, given);
  }
}

async function recordRefreshed(
  checkout: Checkout,
  options: RecordOptions,
  given: { readonly warnings: string[]; readonly beforeWrite: () => Promise<void> },
): Promise<string[]> {
  await refreshIndex(checkout);
  return await recordListed(checkout, options, { ...given, listed: await listChanges(checkout) });
}

async function recordListed(
  checkout: Checkout,
  options: RecordOptions,
  given: { readonly listed: Listed; readonly warnings: string[]; readonly beforeWrite: () => Promise<void> },
): Promise<string[]> {
  const { listed } = given;
  const warnings: string[] = [];
  const tracked = new Set(listed.dirty);
  // Where a file became a directory, what was there has to go before what is there comes.
  const names = [...listed.dirty, ...listed.untracked.filter((name) => !tracked.has(name))];
  const nested = names.filter((name) => name.endsWith('/'));
  for (const name of nested) warnings.push(`${nameText(name)} is a repository of its own and is not synced.`);
  let wanted = names.filter((name) => !name.endsWith('/') && !isStaging(name));
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
  const bytes = sized.reduce((sum, file) => sum + file.bytes, 0);
  options.onFiles?.(sized.length, bytes);
  if (wanted.length > 0) {
    await given.beforeWrite();
    await addAll(checkout, wanted);
  }
  given.warnings.push(...warnings);
  return wanted;
}

function isStaging(name: string): boolean {
  return name.startsWith(stagingPrefix) || name.includes(`/${stagingPrefix}`);
}

async function addAll(checkout: Checkout, names: readonly string[]): Promise<void> {
  const words = ['--add', '--remove', '--replace'];
  if (names.length <= manyFiles) return await updateIndex(checkout, words, names);
  for (let at = 0; at < names.length; at += packFiles) {
    await updateIndex(checkout, words, names.slice(at, at + packFiles), onePack);
  }
}

async function sizesOf(checkout: Checkout, names: readonly string[]): Promise<SizedPath[]> {
  const sized: SizedPath[] = [];
  const root = Buffer.from(`${checkout.root}/`);
  for (let at = 0; at < names.length; at += statsAtOnce) {
    const part = names.slice(at, at + statsAtOnce).map(async (name) => {
      const found = await lstat(Buffer.concat([root, nameBytes(name)])).catch(() => undefined);
      return { path: nameText(name), bytes: found?.isFile() ? found.size : 0 };
    });
    sized.push(...(await Promise.all(part)));
  }
  return sized;
}

/** A path that is ignored belongs to the snapshot exactly if the user's index tracks it. */
export async function alignIgnored(checkout: Checkout): Promise<void> {
  const words = ['ls-files', '-z', '-c', '-i', '--exclude-standard'];
  const ours = zeroSeparated((await git(words, shadowCall(checkout))).stdout);
  const env = { GIT_INDEX_FILE: userIndexCopy(checkout) };
  const hasCopy = checkout.kind === 'git' && (await lstat(env.GIT_INDEX_FILE).catch(() => undefined)) !== undefined;
  const theirs = hasCopy ? zeroSeparated((await git(words, shadowCall(checkout, { env }))).stdout) : [];
  const tracked = new Set(theirs);
  const known = new Set(ours);
  const gone = ours.filter((name) => !tracked.has(name));
  const come = theirs.filter((name) => !known.has(name));
  await updateIndex(checkout, ['--force-remove'], gone);
  await updateIndex(checkout, ['--add', '--remove', '--replace'], come);
}

/** Paths outside of a sparse checkout are absent on purpose: they keep the content that the user's index has. */
export async function keepSparsePaths(checkout: Checkout): Promise<void> {
  const env = { GIT_INDEX_FILE: userIndexCopy(checkout) };
  const { stdout } = await git(['ls-files', '-z', '-t', '-s'], shadowCall(checkout, { env }));
  const skipped = zeroSeparated(stdout).filter((line) => line.startsWith('S '));
  if (skipped.length === 0) return;
  const stdin = zeroEnded(skipped.map((line) => line.slice(2)));
  await git(['update-index', '-z', '--index-info'], shadowCall(checkout, { stdin }));
  const names = skipped.map((line) => line.slice(line.indexOf('\t') + 1));
  await updateIndex(checkout, ['--skip-worktree'], names);
}

export function userIndexCopy(checkout: Checkout): string {
  return join(checkout.shadow, 'user-index');
}

export async function dropIndex(checkout: Checkout): Promise<void> {
  await rm(join(checkout.shadow, 'index'), { force: true });
}

async function updateIndex(
  checkout: Checkout,
  words: readonly string[],
  names: readonly string[],
  settings: readonly string[] = [],
): Promise<void> {
  if (names.length === 0) return;
  const call = shadowCall(checkout, { stdin: zeroEnded(names) });
  await git([...settings, 'update-index', ...words, '-z', '--stdin'], call);
}

function zeroEnded(names: readonly string[]): Buffer {
  return Buffer.from(names.map((name) => `${name}\0`).join(''), 'latin1');
}
