/** Finds the checkout that a directory belongs to. Only looks; the same for every directory of one checkout. */
import { existsSync, realpathSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { PlatformError } from '../protocol/index.ts';
import { type CheckoutIdentity, machineIdentity, noConfig, repositoryIdentity, worktreeIdentity } from './identity.ts';
import { type Environment, LocalGit } from './local-git.ts';

export interface FoundCheckout {
  readonly root: string;
  readonly kind: 'git' | 'plain';
  readonly identity: CheckoutIdentity;
  readonly machineId: string;
  /** Of HEAD; absent in a repository without a commit, and in a plain directory. */
  readonly commit: string | undefined;
  readonly git: LocalGit;
}

export interface FindOptions {
  readonly cwd: string;
  readonly env: Environment;
  /** A definition other than the one that is looked for, from `cwd`. */
  readonly config?: string;
  /** Absent: of this machine. Containers that share a machine id can be told apart with it. */
  readonly machineId?: string;
}

export const definitionNames: readonly string[] = ['atoll.yml', 'atoll.yaml', '.atoll/atoll.yml'];
const machineFile = '/etc/machine-id';

export async function findCheckout(options: FindOptions): Promise<FoundCheckout> {
  const cwd = realpathSync(options.cwd);
  const git = new LocalGit({ cwd, env: options.env });
  const machineId = options.machineId ?? (await thisMachine());
  const root = await gitRoot(git, cwd);
  if (root === undefined) return plainCheckout({ cwd, git, machineId, options });
  const [shallow, branch, commit, remotes] = await Promise.all([
    git.line('rev-parse', '--is-shallow-repository'),
    git.line('symbolic-ref', '-q', 'HEAD'),
    git.line('rev-parse', '-q', '--verify', 'HEAD^{commit}'),
    git.ask('config', '--null', '--get-regexp', '^remote\\..*\\.url$'),
  ]);
  const roots = commit === undefined || shallow === 'true' ? [] : await rootsOf(git);
  const worktree = worktreeIdentity(machineId, root);
  const repository = repositoryIdentity({ rootCommit: roots[0], remote: chosenRemote(remotes.stdout), worktree });
  const ref = branch === undefined ? `commit:${commit ?? ''}` : `branch:${branch.replace(/^refs\/heads\//, '')}`;
  const configPath = configPathOf(root, cwd, options.config);
  return { root, kind: 'git', identity: { repository, worktree, ref, configPath }, machineId, commit, git };
}

async function gitRoot(git: LocalGit, cwd: string): Promise<string | undefined> {
  let answer: Awaited<ReturnType<LocalGit['ask']>>;
  try {
    answer = await git.ask('rev-parse', '--show-toplevel');
  } catch (cause) {
    throw new PlatformError('checkout_unusable', 'The program git cannot be run here.', { cause });
  }
  if (answer.code === 0) return realpathSync(answer.stdout.replace(/\n$/, ''));
  if (/not a git repository/i.test(answer.stderr)) return undefined;
  // A repository that git refuses is not "no repository".
  throw new PlatformError('checkout_unusable', `git cannot use ${cwd}: ${answer.stderr.trim()}`);
}

/** The nearest directory with a definition; without one, the directory itself. */
function plainCheckout(given: { cwd: string; git: LocalGit; machineId: string; options: FindOptions }): FoundCheckout {
  const { cwd, git, machineId, options } = given;
  let root = cwd;
  while (!definitionNames.some((name) => existsSync(join(root, name)))) {
    const parent = dirname(root);
    if (parent === root) break;
    root = parent;
  }
  if (!definitionNames.some((name) => existsSync(join(root, name)))) root = cwd;
  const worktree = worktreeIdentity(machineId, root);
  const configPath = configPathOf(root, cwd, options.config);
  const identity = { repository: `plain:${worktree}`, worktree, ref: 'branch:-', configPath };
  return { root, kind: 'plain', identity, machineId, commit: undefined, git };
}

function configPathOf(root: string, cwd: string, given: string | undefined): string {
  if (given === undefined) return definitionNames.find((name) => existsSync(join(root, name))) ?? noConfig;
  const path = join(cwd, given);
  if (!existsSync(path)) throw new PlatformError('definition_invalid', `There is no file ${given}.`);
  const inside = relative(root, realpathSync(path));
  if (inside.startsWith('..')) {
    throw new PlatformError('definition_invalid', `${given} is outside of the checkout ${root}.`);
  }
  return inside;
}

/** Of several histories that were joined, the first by name: every clone says the same. */
async function rootsOf(git: LocalGit): Promise<readonly string[]> {
  const { code, stdout } = await git.ask('rev-list', '--max-parents=0', 'HEAD');
  return code === 0
    ? stdout
        .split('\n')
        .filter((line) => line !== '')
        .sort()
    : [];
}

/** `origin`, else the first by name. */
function chosenRemote(output: string): string | undefined {
  const remotes = output
    .split('\0')
    .map((entry) => entry.split('\n'))
    .filter(([name, url]) => name !== undefined && name !== '' && url !== undefined)
    .map(([name, url]) => ({ name: name!, url: url! }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  return (remotes.find(({ name }) => name === 'remote.origin.url') ?? remotes[0])?.url;
}

async function thisMachine(): Promise<string> {
  const file = await readFile(machineFile, 'utf8').catch(() => '');
  return machineIdentity(file, hostname());
}
