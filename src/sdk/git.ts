/**
 * git in a sandbox: one stateless command each, no session and no state here. What a repository brings along is not trusted: its hooks, file-system
 * monitors and external programs for differences are not run. What git refuses is thrown as `git_failed`; `details.reason` says which failure it is.
 */
import { PlatformError } from '../protocol/index.ts';
import type { CallOptions } from './connection.ts';
import type { ExecOptions, ExecResult } from './exec.ts';
import { checkUrl, credentialEnvironment, type GitCredentials, withoutSecrets } from './git-credentials.ts';
import {
  branchFormat,
  failureOf,
  type GitBranch,
  type GitFailure,
  type GitStatus,
  parseBranches,
  parseStatus,
} from './git-output.ts';

export interface GitOptions extends Pick<CallOptions, 'leaseToken' | 'generation' | 'signal'> {
  readonly user?: string;
  readonly timeoutMs?: number;
}
export interface RepositoryOptions extends GitOptions {
  /** The repository's directory; /workspace without it. */
  readonly path?: string;
}
export interface RemoteOptions extends RepositoryOptions {
  readonly remote?: string;
  readonly branch?: string;
  /** For this command only. */
  readonly credentials?: GitCredentials;
}
export interface CloneOptions extends GitOptions {
  readonly branch?: string;
  readonly depth?: number;
  readonly credentials?: GitCredentials;
}
export interface CommitOptions extends RepositoryOptions {
  readonly author?: { readonly name: string; readonly email: string };
  readonly allowEmpty?: boolean;
  /** Everything that is tracked and changed. */
  readonly all?: boolean;
}
export interface DiffOptions extends RepositoryOptions {
  /** What `commit` would take, in place of what `add` would. */
  readonly staged?: boolean;
  /** Revisions: from one to the working tree, or to the other. */
  readonly from?: string;
  readonly to?: string;
  readonly paths?: readonly string[];
}

export type RunCommand = (command: readonly string[], options: ExecOptions) => Promise<ExecResult>;

const hardening = [
  'core.hooksPath=/dev/null',
  'core.fsmonitor=false',
  'core.askPass=',
  'protocol.ext.allow=never',
  'submodule.recurse=false',
  'fetch.recurseSubmodules=false',
  'commit.gpgSign=false',
  'tag.gpgSign=false',
  // Nothing of git goes on when the command has ended.
  'gc.auto=0',
  'maintenance.auto=false',
  'color.ui=false',
];
const environment = { GIT_TERMINAL_PROMPT: '0', GIT_ASKPASS: '', SSH_ASKPASS: '', GIT_EDITOR: 'true', LC_ALL: 'C' };
const shownOutputLength = 4_000;

export class Git {
  readonly #run: RunCommand;

  constructor(run: RunCommand) {
    this.#run = run;
  }

  /** Into `path`, whose parents are made; refused unless it is missing or empty. */
  async clone(url: string, path: string, options: CloneOptions = {}): Promise<{ readonly commit: string | null }> {
    const { branch, depth, credentials, ...rest } = options;
    const words = [
      ...['clone', '--quiet'],
      ...(branch === undefined ? [] : ['--branch', named(branch)]),
      ...(depth === undefined ? [] : ['--depth', String(depth)]),
    ];
    await this.#git([...words, '--', checkUrl(url), path], rest, { credentials, url });
    return { commit: await this.#head({ ...rest, path }) };
  }

  async status(options: RepositoryOptions = {}): Promise<GitStatus> {
    return parseStatus(await this.#git(['status', '--porcelain=v2', '--branch', '-z'], options));
  }

  async branches(options: RepositoryOptions = {}): Promise<GitBranch[]> {
    const words = ['for-each-ref', `--format=${branchFormat}`, 'refs/heads', 'refs/remotes'];
    return parseBranches(await this.#git(words, options));
  }

  /** Everything below the repository's directory without `paths`. */
  async add(paths: readonly string[] = ['.'], options: RepositoryOptions = {}): Promise<void> {
    await this.#git(['add', '--', ...paths], options);
  }

  async commit(message: string, options: CommitOptions = {}): Promise<{ readonly commit: string }> {
    const { author, allowEmpty, all, ...rest } = options;
    const flags = [...(allowEmpty ? ['--allow-empty'] : []), ...(all ? ['--all'] : [])];
    await this.#git(['commit', '--quiet', ...flags, '--message', message], rest, { env: identityOf(author) });
    return { commit: (await this.#head(rest)) ?? '' };
  }

  /** Fast-forward only: branches that went apart are a `conflict` to decide about, nothing is merged. */
  async pull(options: RemoteOptions = {}): Promise<{ readonly commit: string | null; readonly isChanged: boolean }> {
    const { remote = 'origin', branch, credentials, ...rest } = options;
    const before = await this.#head(rest);
    const words = ['pull', '--quiet', '--ff-only', named(remote), ...(branch === undefined ? [] : [named(branch)])];
    await this.#git(words, rest, await this.#secret(remote, credentials, rest));
    const commit = await this.#head(rest);
    return { commit, isChanged: commit !== before };
  }

  async push(options: RemoteOptions & { readonly setUpstream?: boolean } = {}): Promise<void> {
    const { remote = 'origin', branch = 'HEAD', credentials, setUpstream, ...rest } = options;
    const words = ['push', '--quiet', ...(setUpstream ? ['--set-upstream'] : []), named(remote), named(branch)];
    await this.#git(words, rest, await this.#secret(remote, credentials, rest));
  }

  /** As a patch. */
  async diff(options: DiffOptions = {}): Promise<string> {
    const { staged, from, to, paths = [], ...rest } = options;
    const words = ['diff', '--no-ext-diff', '--no-textconv', ...(staged ? ['--cached'] : [])];
    const revisions = [from, to].filter((revision) => revision !== undefined).map(named);
    return await this.#git([...words, ...revisions, '--', ...paths], rest);
  }

  async #head(options: RepositoryOptions): Promise<string | null> {
    try {
      return (await this.#git(['rev-parse', '--verify', 'HEAD'], options)).trim();
    } catch (error) {
      // Nothing is committed yet.
      if (error instanceof PlatformError && /needed a single revision/i.test(error.message)) return null;
      throw error;
    }
  }

  async #secret(remote: string, credentials: GitCredentials | undefined, options: RepositoryOptions) {
    if (credentials === undefined) return {};
    const url = (await this.#git(['remote', 'get-url', named(remote)], options)).trim();
    return { credentials, url };
  }

  async #git(words: readonly string[], options: RepositoryOptions, own: OwnEnvironment = {}): Promise<string> {
    const { path, ...rest } = options;
    const { credentials, url = '', env } = own;
    const settings = hardening.flatMap((setting) => ['-c', setting]);
    const result = await this.#run(['git', '--no-pager', ...settings, ...words], {
      ...rest,
      ...(path !== undefined && { cwd: path }),
      env: { ...environment, ...env, ...(credentials && credentialEnvironment(credentials, url)) },
    });
    if (result.exitCode === 0) return result.stdout;
    throw gitFailed(words, result, credentials);
  }
}

/** What one command has in its environment beyond what all have. */
interface OwnEnvironment {
  readonly credentials?: GitCredentials | undefined;
  /** Where the credentials are for. */
  readonly url?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Variables, not settings: git prefers them, so the call's author goes before one in the sandbox's environment. */
function identityOf(author: CommitOptions['author']): Record<string, string> {
  if (author === undefined) return {};
  const { name, email } = author;
  return { GIT_AUTHOR_NAME: name, GIT_AUTHOR_EMAIL: email, GIT_COMMITTER_NAME: name, GIT_COMMITTER_EMAIL: email };
}

/** A name from the caller that could be taken for an option is refused. */
function named(name: string): string {
  if (name !== '' && !name.startsWith('-') && !/[\0\n]/.test(name)) return name;
  throw new PlatformError('invalid_request', 'A name of a branch, remote or revision is not empty and no option.');
}

function gitFailed(words: readonly string[], result: ExecResult, credentials: GitCredentials | undefined) {
  const { exitCode, timedOut } = result;
  const output = withoutSecrets(`${result.stderr}${result.stdout}`, credentials).slice(0, shownOutputLength).trim();
  const reason: GitFailure = failureOf(output, exitCode);
  const verb = words.find((word, at) => !word.startsWith('-') && words[at - 1] !== '-c') ?? '';
  const why = timedOut
    ? 'it took too long'
    : (output.split('\n').findLast((line) => line !== '') ?? `exit code ${exitCode}`);
  return new PlatformError('git_failed', `git ${verb} failed: ${why}`, {
    details: { reason, exitCode, timedOut, output },
  });
}
