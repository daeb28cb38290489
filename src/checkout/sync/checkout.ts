/**
 * The user's directory as the sync engine sees it: where it is, what git knows of it, and the *shadow*: a repository of our own in the state
 * folder that borrows the objects of the user's. Snapshots are made in the shadow, so that the user's index, stash, refs and objects stay as
 * they are. A directory without git has a shadow too, with nothing to borrow.
 */
import { createHash, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { type GitCall, git, gitEnvironment, gitLine } from './git-process.ts';

export interface OpenCheckoutOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** 0700; made if missing. Everything that sync keeps is below `sync/` in it. */
  readonly stateDirectory: string;
}

export interface Checkout {
  /** The top of the working tree, without symlinks. */
  readonly root: string;
  readonly kind: 'git' | 'plain';
  /** Of the worktree; undefined for a plain directory. */
  readonly gitDirectory: string | undefined;
  readonly commonDirectory: string | undefined;
  /** Where sync keeps what it knows of this checkout. */
  readonly directory: string;
  readonly shadow: string;
  readonly isSparse: boolean;
  readonly isShallow: boolean;
  readonly env: Readonly<Record<string, string>>;
  /** Patterns of the user's that are in no file of the checkout; both sides use them. */
  readonly excludes: string;
}

/** At most this much of the user's own patterns goes to the sandbox. */
const excludesLimitBytes = 64 * 1024;
/** What sync itself leaves in a working tree while it applies something. */
export const stagingPrefix = '.atoll-sync-';
/** What an apply of a plan leaves there; its own journal leads to it. */
export const planStagingPrefix = `${stagingPrefix}plan-`;
/** Bytes are synced as they lie in the working tree: no conversion and no filter takes part on either side. */
export const rawAttributes = '* -text !eol !ident !filter !working-tree-encoding !diff\n';

export async function openCheckout(cwd: string, options: OpenCheckoutOptions): Promise<Checkout> {
  const env = gitEnvironment(options.env);
  const userEnv = { ...env, GIT_CONFIG_GLOBAL: options.env['GIT_CONFIG_GLOBAL'] ?? '' };
  if (userEnv.GIT_CONFIG_GLOBAL === '') delete (userEnv as Record<string, string>)['GIT_CONFIG_GLOBAL'];
  const here = await realpath(cwd);
  const asked = [
    '--show-toplevel',
    '--absolute-git-dir',
    '--git-common-dir',
    '--is-shallow-repository',
    '--show-object-format',
  ];
  const [found, config] = await Promise.all([
    git(['rev-parse', ...asked], { cwd: here, env: userEnv, accept: [128] }),
    userConfig(here, userEnv),
  ]);
  const lines = found.stdout.toString('utf8').split('\n');
  if (found.code !== 0) {
    const isBare = await git(['rev-parse', '--is-bare-repository'], { cwd: here, env: userEnv, accept: [128] });
    if (isBare.stdout.toString().startsWith('true')) {
      throw refused('This is a bare repository. Sync works in a working tree: make one with `git worktree add`.');
    }
    if (isBare.code === 0) throw refused('This is inside a .git directory. Go to the working tree.');
    // Taken for a plain directory it would arrive without its commits.
    if (hasGit(here)) throw refused('There is a .git here that git does not read; `git status` says why.');
    return await withShadow(options, { env, root: here, kind: 'plain', excludes: '' });
  }
  const [root, gitDirectory, common, shallow, format] = lines as [string, string, string, string, string];
  if (format !== 'sha1') throw refused(`The repository uses ${format} object names; sync knows sha1 only.`);
  const commonDirectory = isAbsolute(common) ? common : resolve(here, common);
  if (config.get('extensions.partialclone') !== undefined || config.get('remote.origin.promisor') === 'true') {
    throw refused(
      'The repository is a partial clone, whose objects are not all here. Fetch them (`git config --unset remote.origin.partialclonefilter; git config --unset remote.origin.promisor; git config --unset extensions.partialclone; git fetch --refetch`), or work in a clone made without --filter.',
    );
  }
  return await withShadow(options, {
    env,
    root: await realpath(root),
    kind: 'git',
    gitDirectory,
    commonDirectory,
    isShallow: shallow === 'true',
    isSparse: config.get('core.sparsecheckout') === 'true',
    excludes: await excludesOf(commonDirectory, config, options.env),
  });
}

function hasGit(directory: string): boolean {
  if (existsSync(join(directory, '.git'))) return true;
  return dirname(directory) !== directory && hasGit(dirname(directory));
}

/** For git on the shadow with the user's working tree. */
export function shadowCall(checkout: Checkout, more: Partial<GitCall> = {}): GitCall {
  const env = { ...checkout.env, GIT_DIR: checkout.shadow, GIT_WORK_TREE: checkout.root };
  return { cwd: checkout.root, ...more, env: { ...env, ...more.env } };
}

/** For git on the user's repository; what it writes goes to the user's objects unless `env` says otherwise. */
export function userCall(checkout: Checkout, more: Partial<GitCall> = {}): GitCall {
  const env = { ...checkout.env, GIT_DIR: checkout.gitDirectory ?? '', GIT_WORK_TREE: checkout.root };
  return { cwd: checkout.root, ...more, env: { ...env, ...more.env } };
}

export function refused(message: string, details: Readonly<Record<string, unknown>> = {}): PlatformError {
  return new PlatformError('sync_not_possible', message, { details });
}

interface Found {
  readonly env: Readonly<Record<string, string>>;
  readonly root: string;
  readonly kind: 'git' | 'plain';
  readonly gitDirectory?: string;
  readonly commonDirectory?: string;
  readonly isShallow?: boolean;
  readonly isSparse?: boolean;
  readonly excludes: string;
}

async function withShadow(options: OpenCheckoutOptions, found: Found): Promise<Checkout> {
  const { gitDirectory, commonDirectory, isShallow = false, isSparse = false, ...rest } = found;
  const name = createHash('sha256')
    .update(`${rest.kind}\0${rest.root}\0${gitDirectory ?? ''}`)
    .digest('hex')
    .slice(0, 24);
  const directory = join(options.stateDirectory, 'sync', name);
  const shadow = join(directory, 'repo.git');
  const checkout: Checkout = { ...rest, gitDirectory, commonDirectory, isShallow, isSparse, directory, shadow };
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await ensureShadow(checkout);
  return checkout;
}

/** The repository of our own at `shadow`; repeating is harmless. */
export async function ensureShadow(checkout: Checkout): Promise<void> {
  const { shadow, commonDirectory } = checkout;
  const ready = join(shadow, 'atoll-ready');
  if (!existsSync(ready)) {
    // Several may come here first; the second finds what the first has made.
    await withCheckoutLock(checkout, undefined, async () => {
      if (!existsSync(ready)) await makeShadow(checkout, ready);
    });
  }
  // Others may be syncing with these files now, so that each is whole at every moment and stays where it is right.
  const excludes = `/.git\n${stagingPrefix}*\n${checkout.excludes}`;
  await replaceFile(join(shadow, 'info/exclude'), excludes);
  if (checkout.isShallow && commonDirectory !== undefined) {
    await replaceFile(join(shadow, 'shallow'), await readFile(join(commonDirectory, 'shallow'), 'utf8'));
  } else {
    await rm(join(shadow, 'shallow'), { force: true });
  }
}

/** What an earlier one that died has left is thrown away. The lock is held. */
async function makeShadow(checkout: Checkout, ready: string): Promise<void> {
  const { shadow, commonDirectory } = checkout;
  await rm(shadow, { recursive: true, force: true });
  await gitLine(['init', '-q', '--bare', '--template=', shadow], { cwd: checkout.directory, env: checkout.env });
  await mkdir(join(shadow, 'info'), { recursive: true });
  await writeFile(join(shadow, 'info/attributes'), rawAttributes);
  await writeFile(
    join(shadow, 'config'),
    '[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tprotectHFS = true\n\tprotectNTFS = true\n[index]\n\tversion = 4\n',
  );
  if (commonDirectory !== undefined) {
    await mkdir(join(shadow, 'objects/info'), { recursive: true });
    await writeFile(join(shadow, 'objects/info/alternates'), `${join(commonDirectory, 'objects')}\n`);
  }
  await writeFile(ready, '');
}

async function replaceFile(path: string, text: string): Promise<void> {
  const before = await readFile(path, 'utf8').catch(() => undefined);
  if (before === text) return;
  const made = `${path}.${randomUUID()}`;
  await writeFile(made, text);
  await rename(made, path);
}

async function userConfig(cwd: string, env: Readonly<Record<string, string>>): Promise<Map<string, string>> {
  const { stdout } = await git(['config', '--list', '-z'], { cwd, env });
  const values = new Map<string, string>();
  for (const entry of stdout.toString('utf8').split('\0')) {
    const end = entry.indexOf('\n');
    if (end > 0) values.set(entry.slice(0, end), entry.slice(end + 1));
    else if (entry !== '') values.set(entry, 'true');
  }
  return values;
}

async function excludesOf(
  commonDirectory: string,
  config: ReadonlyMap<string, string>,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  const home = env['HOME'] ?? '/nonexistent';
  const configured = config.get('core.excludesfile')?.replace(/^~(?=\/)/, home);
  const common = configured ?? join(env['XDG_CONFIG_HOME'] ?? join(home, '.config'), 'git/ignore');
  const texts: string[] = [];
  for (const path of [
    isAbsolute(common) ? common : resolve(dirname(commonDirectory), common),
    join(commonDirectory, 'info/exclude'),
  ]) {
    texts.push(await readFile(path, 'utf8').catch(() => ''));
  }
  const text = texts.map((part) => (part === '' || part.endsWith('\n') ? part : `${part}\n`)).join('');
  if (Buffer.byteLength(text) > excludesLimitBytes) {
    throw refused(
      'The ignore patterns outside of the checkout (core.excludesFile, info/exclude) are more than 64 KiB.',
    );
  }
  return text;
}
