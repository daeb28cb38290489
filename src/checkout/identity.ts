/**
 * Which checkout this is. Two calls mean the same sandbox exactly when their keys are equal.
 *
 *   repository   root commit and normalised remote: the same in every clone, different for every project
 *   worktree     this directory on this machine: two of them never share a sandbox
 *   ref          `branch:NAME`, or `commit:SHA` where HEAD is detached
 *   configPath   of the definition, from the root of the repository; `-` where there is none
 */
import { createHash } from 'node:crypto';

export interface CheckoutIdentity {
  readonly repository: string;
  readonly worktree: string;
  readonly ref: string;
  readonly configPath: string;
}

/** Where there is no definition. */
export const noConfig = '-';
const hashLength = 24;

export function repositoryIdentity(options: {
  /** Absent: no commit yet, or a shallow clone, whose oldest commit is not the root. */
  readonly rootCommit: string | undefined;
  readonly remote: string | undefined;
  readonly worktree: string;
}): string {
  const { rootCommit = '', remote, worktree } = options;
  const normalised = remote === undefined ? '' : normaliseRemote(remote);
  // With neither there is nothing that another clone would share.
  if (rootCommit === '' && normalised === '') return `local:${worktree}`;
  return `${rootCommit}:${normalised}`;
}

/** One machine is told from another, and one directory on it from another, without telling their names. */
export function worktreeIdentity(machineId: string, path: string): string {
  return shortHash('worktree', machineId, path);
}

export function machineIdentity(machineFile: string, hostName: string): string {
  return shortHash('machine', machineFile.trim(), hostName);
}

/** The key of the local cache. The server belongs to it: a session of one server says nothing about another. */
export function checkoutKey(identity: CheckoutIdentity, serverUrl: string): string {
  const { repository, worktree, ref, configPath } = identity;
  return shortHash('checkout', serverUrl, repository, worktree, ref, configPath);
}

/**
 * The name that decides which of many callers creates. The worktree is not in it, so that another machine finds the same sandbox; a second
 * worktree of one machine takes the next `place`.
 */
export function sandboxName(identity: CheckoutIdentity, options: { readonly owner: string; readonly place: number }) {
  const { repository, ref, configPath } = identity;
  const hash = shortHash('sandbox', repository, ref, configPath, options.owner);
  const readable = ref.replace(/^(branch|commit):/, '').replaceAll(/[^a-zA-Z0-9._-]+/g, '-');
  return `checkout-${hash}-${options.place}-${readable.slice(0, 40)}`.replace(/[.-]+$/, '');
}

/** The same for `git@Host:a/b.git`, `ssh://git@host:22/a/b` and `https://me:secret@host/a/b/`. Secrets do not come through. */
export function normaliseRemote(remote: string): string {
  const text = remote.trim();
  const scp = /^(?:[^@/]+@)?([^:/]+):(?!\/\/)(.*)$/.exec(text);
  if (scp && !text.startsWith('/') && !text.startsWith('.')) return joined(scp[1]!, scp[2]!);
  if (!URL.canParse(text)) return `file/${trimmedPath(text)}`;
  const { hostname, port, pathname, protocol } = new URL(text);
  if (protocol === 'file:') return `file/${trimmedPath(pathname)}`;
  const isUsualPort = port === '' || (protocol === 'ssh:' && port === '22') || (protocol === 'git:' && port === '9418');
  return joined(isUsualPort ? hostname : `${hostname}:${port}`, pathname);
}

export function shortHash(...parts: readonly string[]): string {
  const hash = createHash('sha256');
  // Lengths keep ("ab", "c") and ("a", "bc") apart.
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:${part}`);
  return hash.digest('hex').slice(0, hashLength);
}

function joined(host: string, path: string): string {
  return `${host.toLowerCase()}/${trimmedPath(path)}`;
}

function trimmedPath(path: string): string {
  return path
    .replace(/^\/+/, '')
    .replace(/\/+$/, '')
    .replace(/\.git$/, '');
}
