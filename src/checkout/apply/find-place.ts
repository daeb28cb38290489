/**
 * Finds what a person named as the target of a workspace: a branch of a repository with the working tree that has it checked out, if one has, a
 * directory without git, or a symlink to one. Everything that would make an apply impossible is found here, before anything is prepared.
 */
import { existsSync } from 'node:fs';
import { lstat, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, openCheckout } from '../sync/checkout.ts';
import { type GitCall, git, gitEnvironment, gitLine } from '../sync/git-process.ts';
import type { TargetPlace } from './plan-target.ts';

export interface PlaceOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stateDirectory: string;
  /** Directories without git are exchanged whole, through a symlink. */
  readonly flip: boolean;
}

export interface FoundPlace {
  readonly kind: 'directory' | 'branch' | 'link';
  /** As it is shown: the working tree, the repository, the directory or the symlink. */
  readonly path: string;
  /** Short name; null: no git. */
  readonly branch: string | null;
  readonly ref: string | null;
  /** What the branch leads to; null: it has no commit, or there is no git. */
  readonly head: string | null;
  /** The working tree that takes part. */
  readonly root: string | null;
  readonly gitDirectory: string | null;
  readonly commonDirectory: string | null;
  readonly isSparse: boolean;
  readonly isShallow: boolean;
  /** As sync knows the working tree. */
  readonly sync: Checkout | null;
  /** The same for the same target, whatever path led there; targets are changed in its order. */
  readonly key: string;
}

/** What a git leaves while it is in the middle of something, and its name for people. */
const unfinished: readonly (readonly [file: string, what: string])[] = [
  ['MERGE_HEAD', 'a merge'],
  ['CHERRY_PICK_HEAD', 'a cherry-pick'],
  ['REVERT_HEAD', 'a revert'],
  ['rebase-merge', 'a rebase'],
  ['rebase-apply', 'a rebase'],
  ['sequencer', 'a sequence of picks'],
  ['BISECT_LOG', 'a bisect'],
];

export async function findPlace(place: TargetPlace, options: PlaceOptions): Promise<FoundPlace> {
  const path = await realpath(place.path).catch((cause: unknown) => {
    throw unusable(`${place.path} is not there. If it was moved, name its new place with --target.`, cause);
  });
  const env = gitEnvironment(options.env);
  const { GIT_CONFIG_GLOBAL: _, ...userEnv } = env;
  const call: GitCall = { cwd: path, env: userEnv };
  const asked = await git(['rev-parse', '--is-bare-repository', '--absolute-git-dir'], { ...call, accept: [128] });
  if (asked.code !== 0) return await findDirectory(place, path, options);
  const [isBare, gitDirectory] = asked.stdout.toString().split('\n') as [string, string];
  if (isBare === 'true') {
    if (gitDirectory !== path) throw unusable(`${place.path} is inside of a repository. Name ${gitDirectory}.`);
    await refuseUnsupported(call, path);
    return await findBranch(place, { call, gitDirectory: path, isShallow: existsSync(join(path, 'shallow')), options });
  }
  const checkout = await openCheckout(path, options);
  if (checkout.root !== path) {
    throw unusable(`${place.path} is inside of the repository ${checkout.root}. Name that one.`);
  }
  await refuseUnsupported(call, path);
  const { isShallow } = checkout;
  return await findBranch(place, { call, gitDirectory: checkout.gitDirectory ?? gitDirectory, isShallow, options });
}

/** Two names for one target, or one target inside of another, would be changed twice. */
export async function refuseOverlaps(found: readonly FoundPlace[]): Promise<Map<FoundPlace, PlatformError>> {
  const refusals = new Map<FoundPlace, PlatformError>();
  const refuse = (one: FoundPlace, other: FoundPlace, how: string) => {
    refusals.set(one, unusable(`${one.path} ${how} ${other.path}; a plan changes each target once.`));
    refusals.set(other, unusable(`${other.path} is named together with ${one.path}, which ${how} it.`));
  };
  const inodes = await Promise.all(found.map(({ root }) => (root === null ? undefined : stat(root))));
  for (const [at, one] of found.entries()) {
    for (const [before, other] of found.slice(0, at).entries()) {
      if (one.key === other.key) refuse(one, other, 'is the same target as');
      else if (one.root === null || other.root === null) continue;
      else if (inodes[at]?.dev === inodes[before]?.dev && inodes[at]?.ino === inodes[before]?.ino)
        refuse(one, other, 'is the same directory as');
      else if (one.root.startsWith(`${other.root}/`)) refuse(one, other, 'is inside of');
      else if (other.root.startsWith(`${one.root}/`)) refuse(other, one, 'is inside of');
    }
  }
  return refusals;
}

export function unusable(message: string, cause?: unknown): PlatformError {
  return new PlatformError('plan_target_unusable', message, cause === undefined ? {} : { cause });
}

export function busy(message: string): PlatformError {
  return new PlatformError('plan_target_busy', message);
}

/** What another git has under way here. A lock file stays where it is, even one that its process has left behind. */
export function refuseUnfinished(gitDirectory: string, shown: string): void {
  const found = unfinished.find(([file]) => existsSync(join(gitDirectory, file)));
  if (found !== undefined) throw busy(`${shown} is in the middle of ${found[1]}. Finish or abort it first.`);
  refuseLock(join(gitDirectory, 'index.lock'));
}

export function refuseLock(lock: string): void {
  if (existsSync(lock)) {
    throw busy(`Another git is at work (${lock} exists). If none is, it was left behind: look, then remove it.`);
  }
}

async function findDirectory(place: TargetPlace, path: string, options: PlaceOptions): Promise<FoundPlace> {
  if (!(await stat(path)).isDirectory()) throw unusable(`${place.path} is no directory.`);
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    if (existsSync(join(at, '.git')))
      throw unusable(`git does not open the repository ${at}; see what "git status" says there.`);
  }
  if (place.branch !== undefined)
    throw unusable(`${place.path} is no git repository and has no branch ${place.branch}.`);
  const sync = await openCheckout(path, options);
  const none = { branch: null, ref: null, head: null, gitDirectory: null, commonDirectory: null };
  const shared = { ...none, root: path, isSparse: false, isShallow: false, sync };
  if (!options.flip) return { ...shared, kind: 'directory', path, key: `directory ${path}` };
  const named = join(await realpath(dirname(resolve(place.path))), basename(resolve(place.path)));
  if (!(await lstat(named)).isSymbolicLink()) {
    throw unusable(
      `${place.path} is a directory; only a symlink to one can be flipped. Make it one: mv ${named} ${named}.1 && ln -s ${basename(named)}.1 ${named}`,
    );
  }
  if (resolve(dirname(named), await readlink(named)) !== path)
    throw unusable(
      `${place.path} leads through further symlinks; only a symlink that names a directory can be flipped.`,
    );
  return { ...shared, kind: 'link', path: named, key: `directory ${path}` };
}

interface Repository {
  readonly call: GitCall;
  readonly gitDirectory: string;
  readonly isShallow: boolean;
  readonly options: PlaceOptions;
}

async function findBranch(place: TargetPlace, repository: Repository): Promise<FoundPlace> {
  const { call, isShallow, options } = repository;
  const common = await gitLine(['rev-parse', '--git-common-dir'], call);
  const commonDirectory = await realpath(isAbsolute(common) ? common : resolve(call.cwd, common));
  const ref = await refOf(place, repository);
  const branch = ref.slice('refs/heads/'.length);
  const { code, stdout } = await git(['rev-parse', '--verify', '-q', `${ref}^{commit}`], { ...call, accept: [1, 128] });
  const head = code === 0 ? stdout.toString().trim() : null;
  const symbolic = await git(['symbolic-ref', '-q', ref], { ...call, accept: [1, 128] });
  if (symbolic.code === 0)
    throw unusable(`The branch ${branch} of ${place.path} is another name for another branch. Name that one.`);
  const worktree = await worktreeOf(call, ref);
  if (head === null && worktree === undefined && (await unbornRef(repository)) !== ref) {
    throw unusable(
      `${place.path} has no branch ${branch}. If it was renamed, name it: --target …=${place.path}#BRANCH`,
    );
  }
  refuseLock(join(commonDirectory, `${ref}.lock`));
  const shared = {
    kind: 'branch',
    branch,
    ref,
    head,
    commonDirectory,
    isShallow,
    key: `repository ${commonDirectory} ${ref}`,
  } as const;
  if (worktree === undefined) {
    const bare = { root: null, gitDirectory: commonDirectory, isSparse: false, sync: null };
    return { ...shared, ...bare, path: call.cwd };
  }
  if (!existsSync(worktree)) {
    throw unusable(
      `${branch} is checked out in ${worktree}, which is not there. If it is gone, run "git worktree prune".`,
    );
  }
  const checkout = await openCheckout(worktree, options);
  refuseUnfinished(checkout.gitDirectory ?? '', worktree);
  const { root, isSparse } = checkout;
  return { ...shared, root, isSparse, gitDirectory: checkout.gitDirectory ?? null, sync: checkout, path: root };
}

async function refOf(place: TargetPlace, repository: Repository): Promise<string> {
  if (place.branch !== undefined) {
    const ref = `refs/heads/${place.branch}`;
    const { code } = await git(['check-ref-format', ref], { ...repository.call, accept: [1, 128] });
    if (code !== 0) throw unusable(`"${place.branch}" cannot be the name of a branch.`);
    return ref;
  }
  refuseUnfinished(repository.gitDirectory, place.path);
  const ref = await unbornRef(repository);
  if (ref === undefined)
    throw unusable(`${place.path} has no branch checked out. Name one: --target …=${place.path}#BRANCH`);
  return ref;
}

/** The branch that HEAD names, whether it has a commit or not. */
async function unbornRef({ gitDirectory }: Repository): Promise<string | undefined> {
  const [, ref] = /^ref: (refs\/heads\/.+)\n?$/.exec(await readFile(join(gitDirectory, 'HEAD'), 'utf8')) ?? [];
  return ref;
}

/** The working tree that has a branch checked out; null: none has. */
export async function checkedOutAt(checkout: Checkout, ref: string): Promise<string | null> {
  const { GIT_CONFIG_GLOBAL: _, ...env } = checkout.env;
  const found = await worktreeOf({ cwd: checkout.root, env }, ref);
  return found === undefined ? null : await realpath(found).catch(() => found);
}

/** Refuses a branch that an unfinished rebase or bisect of any working tree will come back to. */
async function worktreeOf(call: GitCall, ref: string): Promise<string | undefined> {
  const { stdout } = await git(['worktree', 'list', '--porcelain', '-z'], call);
  const having: string[] = [];
  for (const entry of stdout.toString('utf8').split('\0\0')) {
    const lines = entry.split('\0').filter((line) => line !== '');
    const path = lines.find((line) => line.startsWith('worktree '))?.slice('worktree '.length);
    if (path === undefined || lines.includes('bare')) continue;
    if (lines.includes(`branch ${ref}`)) having.push(path);
    else if (lines.includes('detached') && existsSync(path)) await refuseReturning(call, path, ref);
  }
  if (having.length > 1) throw unusable(`${ref.slice(11)} is checked out in several places: ${having.join(', ')}.`);
  return having[0];
}

async function refuseReturning(call: GitCall, worktree: string, ref: string): Promise<void> {
  const directory = await gitLine(['rev-parse', '--absolute-git-dir'], { ...call, cwd: worktree });
  for (const file of ['rebase-merge/head-name', 'rebase-apply/head-name', 'BISECT_START']) {
    const name = await readFile(join(directory, file), 'utf8').catch(() => '');
    if (name.trim() === ref || `refs/heads/${name.trim()}` === ref) {
      throw busy(
        `${worktree} is in the middle of a ${file.startsWith('BISECT') ? 'bisect' : 'rebase'} of this branch.`,
      );
    }
  }
}

async function refuseUnsupported(call: GitCall, path: string): Promise<void> {
  for (const setting of ['extensions.partialclone', 'extensions.refstorage']) {
    const { code } = await git(['config', '--get', setting], { ...call, accept: [1, 5] });
    if (code === 0) throw unusable(`${path} sets ${setting}, which is not supported.`);
  }
  const format = await gitLine(['rev-parse', '--show-object-format'], call);
  if (format !== 'sha1') throw unusable(`${path} uses ${format} object names; only sha1 is known.`);
}
