/**
 * Runs git on the user's machine. No hook, prompt, signature, file monitor, pager or configuration of the user takes part: what is needed of the
 * configuration is read once, in `openCheckout`, and given as options.
 */
import { spawn } from 'node:child_process';
import { PlatformError } from '../../protocol/index.ts';

export { nameBytes, nameText, zeroSeparated } from '../../base/index.ts';

/** Of an answer that is held in memory. */
const outputLimitBytes = 512 * 1024 * 1024;
const stderrKeptBytes = 4_000;

export interface GitCall {
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly stdin?: string | Uint8Array;
  /** Exit codes that are answers. */
  readonly accept?: readonly number[];
  /** Takes stdout piece by piece; `stdout` is then empty. */
  readonly onStdout?: (chunk: Buffer) => void;
}

export interface GitAnswer {
  readonly code: number;
  readonly stdout: Buffer;
}

const guards = [
  'core.hooksPath=/dev/null',
  'core.fsmonitor=false',
  'core.quotePath=false',
  'core.autocrlf=false',
  'core.logAllRefUpdates=false',
  'core.splitIndex=false',
  'protocol.allow=never',
  'commit.gpgSign=false',
  'gc.auto=0',
  'maintenance.auto=false',
].flatMap((setting) => ['-c', setting]);

/** The environment of every git: the caller's, without what would point git elsewhere. */
export function gitEnvironment(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (value !== undefined && !name.startsWith('GIT_')) kept[name] = value;
  }
  return {
    ...kept,
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_OPTIONAL_LOCKS: '0',
    GIT_NO_LAZY_FETCH: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
  };
}

export async function git(words: readonly string[], call: GitCall): Promise<GitAnswer> {
  const child = spawn('git', [...guards, ...words], { cwd: call.cwd, env: call.env, stdio: ['pipe', 'pipe', 'pipe'] });
  const chunks: Buffer[] = [];
  let bytes = 0;
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => {
    if (call.onStdout !== undefined) return call.onStdout(chunk);
    bytes += chunk.length;
    if (bytes > outputLimitBytes) child.kill('SIGKILL');
    else chunks.push(chunk);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-stderrKeptBytes);
  });
  child.stdin.on('error', () => {}); // A git that ends early tells why by its exit code.
  child.stdin.end(call.stdin ?? '');
  const code = await new Promise<number>((resolve, reject) => {
    child.on('error', (cause) =>
      reject(new PlatformError('sync_not_possible', 'git cannot be started here.', { cause })),
    );
    child.on('close', (exitCode) => resolve(exitCode ?? 128));
  });
  if (code !== 0 && !call.accept?.includes(code)) {
    throw new PlatformError('sync_failed', `git ${words[0]} failed: ${said.trim() || `exit ${code}`}`, {
      details: { command: words[0], exitCode: code },
    });
  }
  return { code, stdout: Buffer.concat(chunks) };
}

export async function gitLine(words: readonly string[], call: GitCall): Promise<string> {
  return (await git(words, call)).stdout.toString('utf8').trim();
}
