/**
 * git remotes: fetch one ref with its history into a staging, and move a remote's branch. Credentials travel in the environment of that one git,
 * through a helper that only echoes them to the origin they are for; they are on no command line, in no configuration and in no message.
 */
import { PlatformError } from '../../protocol/index.ts';
import { isObjectId } from './commits.ts';
import { unsafe, type WorkspaceLimits } from './content-limits.ts';
import { type GitCall, GitFailure, type GitProgram } from './git-program.ts';
import { commitOf } from './import-bundle.ts';
import type { JudgedRemote } from './remote-address.ts';
import type { Staging } from './staging.ts';

export interface RemoteCredentials {
  readonly username: string;
  readonly password: string;
}

interface RemoteCall {
  readonly remote: JudgedRemote;
  readonly credentials: RemoteCredentials | null;
  readonly limits: WorkspaceLimits;
  readonly signal?: AbortSignal | undefined;
}

const fetched = 'refs/heads/fetched';
/** A server that sends less than so much for so long is given up. */
const silence = { bytesPerSecond: 1, seconds: 60 };
const echoHelper =
  '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$ATOLL_USERNAME" "$ATOLL_PASSWORD"; }; f';

/** The commit that the remote's ref leads to, in the staging, with its whole history. */
export async function fetchRemote(
  git: GitProgram,
  staging: Staging,
  ref: string | null,
  call: RemoteCall,
): Promise<string> {
  const name = ref === null ? 'HEAD' : checkRef(ref);
  const words = ['fetch', '--quiet', '--no-tags', '--no-write-fetch-head', '--no-auto-maintenance', '--'];
  try {
    await git.run(staging.path, [...words, call.remote.url, `+${name}:${fetched}`], {
      ...gitCall(call),
      hostileBytes: call.limits.incomingBytes,
    });
  } catch (error) {
    throw remoteFailure(error, 'fetch');
  }
  return await commitOf(git, staging, fetched);
}

/** Only forward, and only from what the branch was when it was looked at. */
export async function pushToRemote(
  git: GitProgram,
  repository: string,
  order: { readonly ref: string | null; readonly commit: string },
  call: RemoteCall,
): Promise<void> {
  const { branch, before } = await lookAt(git, repository, order.ref, call);
  if (before === order.commit) return;
  if (before !== null && !(await isAncestor(git, repository, before, order.commit))) throw moved(branch);
  const lease = `--force-with-lease=${branch}:${before ?? ''}`;
  const words = ['push', '--porcelain', '--no-verify', '--recurse-submodules=no', lease, '--'];
  try {
    const target = [call.remote.url, `${order.commit}:${branch}`];
    const { code, stdout } = await git.run(repository, [...words, ...target], { ...gitCall(call), accept: [1] });
    if (code === 0) return;
    // What became of each ref is told on stdout, a line that begins with "!" for one that was refused.
    const said = /^!\t.*$/m.exec(stdout.toString('utf8'))?.[0] ?? '';
    if (/stale info|non-fast-forward|fetch first|remote rejected.*(?:lock|fetch)/.test(said)) throw moved(branch);
    throw new GitFailure({ command: 'push', code, said });
  } catch (error) {
    throw remoteFailure(error, 'push');
  }
}

/** The branch by its full name, and where it is; null: it is not there yet. */
async function lookAt(
  git: GitProgram,
  repository: string,
  ref: string | null,
  call: RemoteCall,
): Promise<{ readonly branch: string; readonly before: string | null }> {
  const branch = ref === null ? 'HEAD' : `refs/heads/${checkRef(ref).replace(/^refs\/heads\//, '')}`;
  try {
    const words = ['ls-remote', '--quiet', '--symref', '--', call.remote.url, branch];
    const lines = (await git.run(repository, words, gitCall(call))).stdout.toString('utf8').split('\n');
    const symbolic = /^ref: (refs\/heads\/\S+)\tHEAD$/.exec(lines[0] ?? '')?.[1];
    if (ref === null && symbolic === undefined) {
      throw new PlatformError('workspace_remote_failed', 'The remote does not say which branch is its HEAD; name one.');
    }
    const full = ref === null ? symbolic! : branch;
    const found = lines.map((line) => line.split('\t')).find(([id, name]) => name === branch && isObjectId(id ?? ''));
    return { branch: full, before: found?.[0] ?? null };
  } catch (error) {
    throw remoteFailure(error, 'push');
  }
}

async function isAncestor(git: GitProgram, repository: string, before: string, commit: string): Promise<boolean> {
  const known = await git.run(repository, ['cat-file', '-e', `${before}^{commit}`], { accept: [1, 128] });
  if (known.code !== 0) return false;
  return (await git.run(repository, ['merge-base', '--is-ancestor', before, commit], { accept: [1] })).code === 0;
}

function gitCall({ remote, credentials, limits, signal }: RemoteCall): GitCall {
  const settings: (readonly [name: string, value: string])[] = [
    ['http.lowSpeedLimit', String(silence.bytesPerSecond)],
    ['http.lowSpeedTime', String(silence.seconds)],
    ...(remote.resolve === null ? [] : [['http.curloptResolve', remote.resolve] as const]),
    ...(credentials === null ? [] : [[`credential.${remote.origin}.helper`, echoHelper] as const]),
  ];
  const numbered = settings.flatMap(([name, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, name],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return {
    signal,
    timeoutMs: limits.transferMs,
    isHostile: true,
    env: {
      GIT_ALLOW_PROTOCOL: remote.protocol,
      GIT_CONFIG_COUNT: String(settings.length),
      ...Object.fromEntries(numbered),
      ...(credentials !== null && { ATOLL_USERNAME: credentials.username, ATOLL_PASSWORD: credentials.password }),
    },
  };
}

/** A name that git reads as nothing but a ref. */
function checkRef(ref: string): string {
  const isPlain = /^[A-Za-z0-9_][A-Za-z0-9_./+@=-]*$/.test(ref) && ref.length <= 200;
  const isOdd = /\.\.|\/\/|@\{|\.lock(?:\/|$)|\/\.|[./]$/.test(ref);
  if (isPlain && !isOdd) return ref;
  throw new PlatformError('invalid_request', 'This is no name of a branch or tag.', { details: { path: 'ref' } });
}

function moved(branch: string): PlatformError {
  return new PlatformError('workspace_remote_moved', `${branch} of the remote is no ancestor of this version.`);
}

/** Damage is the content's fault and final; the rest is the remote's and may pass. What git says never has credentials, which it does not print. */
function remoteFailure(error: unknown, doing: 'fetch' | 'push'): unknown {
  if (!(error instanceof GitFailure)) return error;
  if (doing === 'fetch' && /fsck|index-pack failed|invalid index-pack|unresolved delta|bad pack/i.test(error.said)) {
    return unsafe('damaged or forbidden objects', [], error);
  }
  const said = error.said.split('\n').slice(-3).join(' ').slice(0, 500);
  return new PlatformError('workspace_remote_failed', `The remote could not be used: ${said || 'it fell silent'}.`, {
    cause: error,
  });
}
