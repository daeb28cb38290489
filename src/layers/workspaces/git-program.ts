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
/** Of a git that works on what others have made. */
const defaultMemoryBytes = 4 * 1024 ** 3;
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
  /** It works on what others have made and maps packs of our own: what it takes of memory beyond those is bounded. */
  readonly isHostile?: boolean;
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

interface Running {
  readonly child: Child;
  /** Ends it and all that it has started; `end` then fails with this reason. */
  readonly kill: (why: unknown) => void;
  /** Its exit code, when it and all that holds its output have ended. */
  readonly end: Promise<number>;
}

export class GitProgram {
  /** An empty directory: git's HOME. */
  readonly #home: string;
  readonly #memoryBytes: number;

  constructor(options: { readonly home: string; readonly memoryBytes?: number }) {
    this.#home = options.home;
    this.#memoryBytes = options.memoryBytes ?? defaultMemoryBytes;
  }

  /** Runs to the end; what it says is held in memory. */
  async run(repository: string, words: readonly string[], call: GitCall = {}): Promise<GitAnswer> {
    const limit = call.outputMaxBytes ?? outputMaxBytes;
    const running = this.#start(repository, words, call);
    const chunks: Buffer[] = [];
    let bytes = 0;
    running.child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.byteLength;
      if (bytes <= limit) chunks.push(chunk);
      else running.kill(new PlatformError('limit_exceeded', `git answers with more than ${limit} bytes.`));
    });
    return { code: await running.end, stdout: Buffer.concat(chunks, bytes) };
  }

  async line(repository: string, words: readonly string[], call: GitCall = {}): Promise<string> {
    return (await this.run(repository, words, call)).stdout.toString('utf8').trim();
  }

  /** What it says as a stream; whoever reads it sets the pace, and whoever stops reading ends it. */
  async *stream(repository: string, words: readonly string[], call: GitCall = {}): AsyncGenerator<Buffer, void> {
    const { child, kill, end } = this.#start(repository, words, call);
    end.catch(() => {}); // Told below, or nobody listens.
    try {
      for await (const chunk of child.stdout as AsyncIterable<Buffer>) yield chunk;
      await end;
    } finally {
      kill(new Error('Nobody reads it any more.'));
    }
  }

  #start(repository: string, words: readonly string[], call: GitCall): Running {
    call.signal?.throwIfAborted();
    const child = spawn('setpriv', [...endsWithUs, ...boundsOf(call, this.#memoryBytes), 'git', ...words], {
      cwd: call.cwd ?? this.#home,
      env: { ...this.#environment(repository), ...call.env },
      stdio: ['pipe', 'pipe', 'pipe'],
      // A group of its own, so that what git starts ends with it.
      detached: true,
    });
    return follow(child, words, call);
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

function boundsOf({ hostileBytes, isHostile }: GitCall, memoryBytes: number): readonly string[] {
  if (hostileBytes !== undefined)
    return ['prlimit', `--as=${memoryBytes}`, `--fsize=${hostileBytes}`, '--core=0', '--'];
  return isHostile === true ? ['prlimit', `--data=${memoryBytes}`, '--core=0', '--'] : [];
}

/** So does it of memory. */
const outOfMemory = /Out of memory|mmap failed: Cannot allocate memory/;

function tooMuchMemory(command: string): PlatformError {
  const message = `git ${command} needs more memory than this node gives it: the files are too large for that.`;
  return new PlatformError('limit_exceeded', message);
}

/** git tells of a full disk in words. */
const diskFull = /No space left on device|Disk quota exceeded|Out of diskspace/;

function fullDisk(): PlatformError {
  const message = "The disk of the node's data directory is full; nothing was changed.";
  return new PlatformError('insufficient_storage', message);
}

function follow(child: Child, words: readonly string[], call: GitCall): Running {
  const command = words.find((word) => !word.startsWith('-')) ?? '';
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  let reason: unknown;
  let isClosed = false;
  // Until its output is closed somebody of its group is there, also when it has ended itself; after that the number may be another's.
  const kill = (why: unknown) => {
    if (child.pid === undefined || isClosed) return;
    reason ??= why;
    killGroup(child.pid);
  };
  const onAbort = () => kill(call.signal?.reason);
  const tooLong = () =>
    kill(new PlatformError('limit_exceeded', `git ${command} takes more than ${call.timeoutMs} ms.`));
  const timer = call.timeoutMs === undefined ? undefined : setTimeout(tooLong, call.timeoutMs);
  call.signal?.addEventListener('abort', onAbort, { once: true });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-saidMaxCharacters);
  });
  child.on('error', (cause) => {
    const message = 'git, setpriv or prlimit cannot be started on this node.';
    reject(new PlatformError('storage_unsupported', message, { cause }));
  });
  child.on('close', (code) => {
    isClosed = true;
    clearTimeout(timer);
    call.signal?.removeEventListener('abort', onAbort);
    if (reason !== undefined) reject(reason);
    else if (code === 0 || (code !== null && call.accept?.includes(code))) resolve(code);
    else if (diskFull.test(said)) reject(fullDisk());
    else if (call.isHostile === true && outOfMemory.test(said)) reject(tooMuchMemory(command));
    else reject(new GitFailure({ command, code, said: said.trim() }));
  });
  // What fails in the caller's bytes ends git and is told; a git that ends early tells why by itself.
  feed(child, call.stdin).catch(kill);
  return { child, kill, end: promise };
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error; // It has just ended.
  }
}

async function feed(child: Child, stdin: GitCall['stdin']): Promise<void> {
  child.stdin.on('error', () => {});
  if (stdin === undefined || typeof stdin === 'string' || stdin instanceof Uint8Array) {
    child.stdin.end(stdin ?? '');
    return;
  }
  for await (const chunk of stdin) {
    if (child.stdin.destroyed || child.exitCode !== null || child.signalCode !== null) return;
    if (!child.stdin.write(chunk)) await drainedOrGone(child);
  }
  child.stdin.end();
}

async function drainedOrGone(child: Child): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  child.stdin.once('drain', resolve);
  child.stdin.once('close', resolve);
  await promise;
  child.stdin.off('drain', resolve);
  child.stdin.off('close', resolve);
}
