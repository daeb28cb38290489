/**
 * Runs the machine's git on repositories of the platform. What git does here is decided by the arguments and by the repository's own
 * configuration, which is ours: no configuration, helper, hook, prompt or variable of the machine, of its user or of the content takes part.
 *
 * A git ends with the process that started it. What one that reads hostile bytes may use is bounded by the kernel, so that an object which claims to
 * be enormous ends git and nothing else.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { PlatformError } from '../../protocol/index.ts';

/** Of an answer that is held in memory. */
const outputMaxBytes = 256 * 1024 * 1024;
const saidMaxCharacters = 4_000;
/** Of a git that reads what others have made. */
const memoryMaxBytes = 4 * 1024 ** 3;
const programPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export interface GitCall {
  /** Added to the clean environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** Exit codes that are answers. */
  readonly accept?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  /** The longest it may take. */
  readonly timeoutMs?: number;
  /** It reads what others have made: no file of it grows beyond this. */
  readonly hostileBytes?: number;
  readonly outputMaxBytes?: number;
}

export interface GitAnswer {
  readonly code: number;
  readonly stdout: Buffer;
}

/** git refused or failed. The node decides what that means to a caller. */
export class GitFailure extends Error {
  readonly command: string;
  readonly code: number | null;
  readonly said: string;

  constructor(failure: { readonly command: string; readonly code: number | null; readonly said: string }) {
    super(`git ${failure.command} failed: ${failure.said || `exit ${failure.code}`}`);
    this.command = failure.command;
    this.code = failure.code;
    this.said = failure.said;
  }
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

export class GitProgram {
  /** An empty directory: git's HOME. */
  readonly #home: string;

  constructor(options: { readonly home: string }) {
    this.#home = options.home;
  }

  /** Runs to the end; what it says is held in memory. */
  async run(repository: string, words: readonly string[], call: GitCall = {}): Promise<GitAnswer> {
    const child = this.#start(repository, words, call);
    const chunks: Buffer[] = [];
    const limit = call.outputMaxBytes ?? outputMaxBytes;
    let bytes = 0;
    child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.byteLength;
      if (bytes > limit) child.kill('SIGKILL');
      else chunks.push(chunk);
    });
    const [code] = await Promise.all([ended(child, words, call), feed(child, call.stdin)]);
    if (bytes > limit) {
      throw new PlatformError('limit_exceeded', `git answers with more than ${limit} bytes.`, { details: { limit } });
    }
    return { code, stdout: Buffer.concat(chunks, bytes) };
  }

  async line(repository: string, words: readonly string[], call: GitCall = {}): Promise<string> {
    return (await this.run(repository, words, call)).stdout.toString('utf8').trim();
  }

  /** What it says as a stream; whoever reads it sets the pace, and whoever stops reading ends it. */
  async *stream(repository: string, words: readonly string[], call: GitCall = {}): AsyncGenerator<Buffer, void> {
    const child = this.#start(repository, words, call);
    const end = ended(child, words, call);
    end.catch(() => {}); // Told below, or nobody listens.
    try {
      const fed = feed(child, call.stdin);
      for await (const chunk of child.stdout as AsyncIterable<Buffer>) yield chunk;
      await Promise.all([end, fed]);
    } finally {
      child.kill('SIGKILL');
    }
  }

  #start(repository: string, words: readonly string[], call: GitCall): Child {
    call.signal?.throwIfAborted();
    const bounds = call.hostileBytes === undefined ? [] : boundsOf(call.hostileBytes);
    return spawn('setpriv', [...endsWithUs, ...bounds, 'git', ...words], {
      cwd: call.cwd ?? this.#home,
      env: { ...this.#environment(repository), ...call.env },
      stdio: ['pipe', 'pipe', 'pipe'],
      ...(call.signal !== undefined && { signal: call.signal }),
      ...(call.timeoutMs !== undefined && { timeout: call.timeoutMs }),
      killSignal: 'SIGKILL',
    });
  }

  #environment(repository: string): Record<string, string> {
    return {
      PATH: programPath,
      HOME: this.#home,
      LC_ALL: 'C',
      GIT_DIR: repository,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_SYSTEM: '/dev/null',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_ATTR_NOSYSTEM: '1',
      GIT_NO_REPLACE_OBJECTS: '1',
      GIT_NO_LAZY_FETCH: '1',
      GIT_OPTIONAL_LOCKS: '0',
      GIT_LITERAL_PATHSPECS: '1',
      GIT_TERMINAL_PROMPT: '0',
      GIT_ASKPASS: '/bin/false',
      SSH_ASKPASS: '/bin/false',
      GIT_ALLOW_PROTOCOL: 'none',
    };
  }
}

/** A git that outlives the node would write beside the next one. */
const endsWithUs = ['--pdeathsig', 'KILL'];

function boundsOf(fileBytes: number): readonly string[] {
  return ['prlimit', `--as=${memoryMaxBytes}`, `--fsize=${fileBytes}`, '--core=0', '--'];
}

/** git tells of a full disk in words. */
const diskFull = /No space left on device|Disk quota exceeded|Out of diskspace/;

function fullDisk(): PlatformError {
  const message = "The disk of the node's data directory is full; nothing was changed.";
  return new PlatformError('insufficient_storage', message);
}

function ended(child: Child, words: readonly string[], call: GitCall): Promise<number> {
  const command = words.find((word) => !word.startsWith('-')) ?? '';
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-saidMaxCharacters);
  });
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  child.on('error', (cause) => {
    if (call.signal?.aborted) reject(call.signal.reason);
    else
      reject(
        new PlatformError('storage_unsupported', 'git, setpriv or prlimit cannot be started on this node.', { cause }),
      );
  });
  child.on('close', (code) => {
    if (code === 0 || (code !== null && call.accept?.includes(code))) resolve(code);
    else if (diskFull.test(said)) reject(fullDisk());
    else reject(new GitFailure({ command, code, said: said.trim() }));
  });
  return promise;
}

/** What fails in the caller's bytes ends git and is told; a git that ends early tells why by itself. */
async function feed(child: Child, stdin: GitCall['stdin']): Promise<void> {
  child.stdin.on('error', () => {});
  if (stdin === undefined || typeof stdin === 'string' || stdin instanceof Uint8Array) {
    child.stdin.end(stdin ?? '');
    return;
  }
  try {
    for await (const chunk of stdin) {
      if (child.stdin.destroyed || child.exitCode !== null || child.signalCode !== null) return;
      if (child.stdin.write(chunk)) continue;
      await drainedOrGone(child);
    }
    child.stdin.end();
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }
}

async function drainedOrGone(child: Child): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  child.stdin.once('drain', resolve);
  child.stdin.once('close', resolve);
  await promise;
  child.stdin.off('drain', resolve);
  child.stdin.off('close', resolve);
}
