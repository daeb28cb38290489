/**
 * The node's side of `atoll-init spawner`: a child process that makes sandboxes, removes trees and tries guards, so that the
 * node itself never forks on a hot path.
 *
 * Invariants:
 *  - At most one spawner runs. A dead one is replaced when the next request comes; sandboxes it made go on.
 *  - Every request is answered or refused exactly once: what was in flight when the spawner died gets `node_unavailable`, and the
 *    caller removes what the request may have left half-made.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants as osConstants } from 'node:os';
import type { Duplex } from 'node:stream';
import { getSystemErrorName } from 'node:util';
import { FrameReader } from '../base/index.ts';
import { type ErrorCode, PlatformError } from '../protocol/index.ts';
import {
  attachFrame,
  type CreateRequest,
  createFrame,
  helloFrame,
  layerFrame,
  type NetworkLink,
  parseSpawnerAnswer,
  probeFrame,
  protocolVersion,
  removeFrame,
  routerCloseFrame,
  routerFrame,
  type SpawnerAnswer,
  type ToolRequest,
  toolFrame,
} from './spawner-protocol.ts';

const answerLimitBytes = 64 * 1024;
const helloTimeoutMs = 10_000;
const stderrKeptBytes = 8 * 1024;

const noSpace: ReadonlySet<number> = new Set([osConstants.errno.ENOSPC, osConstants.errno.EDQUOT]);

type Answer = Exclude<SpawnerAnswer, { kind: 'hello' }>;

interface Running {
  readonly child: ChildProcess;
  readonly socket: Duplex;
  readonly waiting: Map<number, PromiseWithResolvers<Answer>>;
  readonly exited: Promise<void>;
  readonly state: { nextRequest: number; dead: Error | undefined };
}

export class Spawner {
  readonly #program: string;
  readonly #directory: string | undefined;
  #starting: Promise<Running> | undefined;
  #closed = false;

  /** `directory` (absolute, without links) is the only place that it removes trees from; absent: nowhere. */
  constructor(options: { readonly program: string; readonly directory?: string }) {
    this.#program = options.program;
    this.#directory = options.directory;
  }

  /** Starts the spawner if none runs, so that a wrong program is told at start and not at the first sandbox. */
  async ready(): Promise<void> {
    await this.#running();
  }

  /** Init's pid as this machine sees it. */
  async create(order: CreateRequest): Promise<number> {
    const answer = await this.#ask((request) => createFrame(request, order), `sandbox ${order.id} could not be made`);
    if (answer.kind !== 'created') throw new PlatformError('internal', 'The spawner answered another question.');
    return answer.pid;
  }

  /** Removes a tree at any depth without following anything in it. */
  async remove(path: string): Promise<void> {
    await this.#ask((request) => removeFrame(request, path), `${path} could not be removed`);
  }

  /** Tries one guard in a throw-away child; refuses with what went wrong. */
  async probe(guard: string): Promise<void> {
    await this.#ask((request) => probeFrame(request, guard), `the guard "${guard}" does not work`);
  }

  /** Makes the router's namespace, or finds it. */
  async openRouter(path: string): Promise<void> {
    await this.#ask((request) => routerFrame(request, path), 'the router of the sandboxes could not be made');
  }

  /** Lets go of the router's namespace; the kernel removes it with the last link of a sandbox. */
  async closeRouter(path: string): Promise<void> {
    await this.#ask((request) => routerCloseFrame(request, path), 'the router of the sandboxes could not be removed');
  }

  /** Gives a running sandbox its network. `cgroup` is where its init is found. */
  async attach(order: { readonly link: NetworkLink; readonly cgroup: string }): Promise<void> {
    const failure = `sandbox ${order.link.alias} could not be given a network`;
    await this.#ask((request) => attachFrame(request, order), failure);
  }

  async runTool(order: ToolRequest): Promise<void> {
    await this.#ask((request) => toolFrame(request, order), `${order.tool} could not do what it was asked`);
  }

  /** One operation on layers (native/PROTOCOL.md has the list), below `directory`; answers its short text. */
  async layer(operation: string, ...words: readonly string[]): Promise<string> {
    const frame = (request: number) => layerFrame(request, operation, words);
    const answer = await this.#ask(frame, `"${operation}" of layers failed`, 'storage_failed');
    if (answer.kind !== 'layer') throw new PlatformError('internal', 'The spawner answered another question.');
    return answer.result;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const running = await this.#starting?.catch(() => undefined);
    if (running === undefined) return;
    running.socket.end();
    await running.exited;
  }

  async #ask(
    frame: (request: number) => Buffer,
    failure: string,
    failureCode: ErrorCode = 'isolation_failed',
  ): Promise<Answer> {
    const running = await this.#running();
    const request = running.state.nextRequest++ >>> 0;
    const bytes = frame(request); // Refuses what is too long, and then nobody waits.
    const waiter = Promise.withResolvers<Answer>();
    running.waiting.set(request, waiter);
    running.socket.write(bytes);
    const answer = await waiter.promise;
    if (answer.kind !== 'failed') return answer;
    const reason = `${answer.step}: ${answer.message}${errnoSuffix(answer.errno)}`;
    const code = noSpace.has(answer.errno) ? 'insufficient_storage' : failureCode;
    throw new PlatformError(code, `On this machine ${failure} (${reason}).`, {
      details: { step: answer.step, errno: answer.errno },
    });
  }

  #running(): Promise<Running> {
    if (this.#closed) return Promise.reject(new PlatformError('shutting_down', 'The node is closing.'));
    if (this.#starting === undefined) {
      const starting = start(
        [this.#program, 'spawner', ...(this.#directory === undefined ? [] : [this.#directory])],
        () => {
          if (this.#starting === starting) this.#starting = undefined;
        },
      );
      this.#starting = starting;
    }
    return this.#starting;
  }
}

/** `onDead` is called before any waiting request is refused, so that a caller who asks again gets a new spawner. */
async function start([program, ...words]: readonly [string, ...string[]], onDead: () => void): Promise<Running> {
  // A group of its own: an interrupt typed at the node's terminal must not end it in the middle of a sandbox.
  const child = spawn(program, words, { stdio: ['ignore', 'ignore', 'pipe', 'pipe'], detached: true, env: {} });
  const exit = Promise.withResolvers<void>();
  const hello = Promise.withResolvers<void>();
  const socket = child.stdio[3] as Duplex;
  const running: Running = {
    child,
    socket,
    waiting: new Map(),
    exited: exit.promise,
    state: { nextRequest: 1, dead: undefined },
  };
  const stderr = keepTail(child);
  const die = (why: string) => {
    if (running.state.dead !== undefined) return;
    const told = stderr().trim();
    const message = `The spawner ${program} ${why}.${told === '' ? '' : ` It said: ${told}`}`;
    const dead = new PlatformError('node_unavailable', message);
    running.state.dead = dead;
    onDead();
    hello.reject(dead);
    for (const waiter of running.waiting.values()) waiter.reject(dead);
    running.waiting.clear();
    socket.destroy();
    child.kill('SIGKILL');
  };
  child.once('error', (error) => {
    die(`could not be started: ${error.message}`);
    exit.resolve();
  });
  child.once('exit', (code, signal) => {
    die(`ended (${signal ?? code})`);
    exit.resolve();
  });
  socket.on('error', (error) => die(`lost its connection: ${error.message}`));
  socket.on('close', () => die('closed its connection'));
  readAnswers(running, { onHello: hello.resolve, onViolation: (error) => die(`broke the protocol: ${error.message}`) });
  const timer = setTimeout(() => die('did not answer in time'), helloTimeoutMs);
  socket.write(helloFrame());
  try {
    await hello.promise;
    return running;
  } finally {
    clearTimeout(timer);
  }
}

function readAnswers(
  running: Running,
  options: { readonly onHello: () => void; readonly onViolation: (error: Error) => void },
): void {
  const reader = new FrameReader({ limitBytes: answerLimitBytes });
  running.socket.on('data', (chunk: Buffer) => {
    try {
      for (const frame of reader.push(chunk)) {
        const answer = parseSpawnerAnswer(frame);
        if (answer.kind === 'hello') {
          if (answer.version !== protocolVersion) throw new Error(`it speaks version ${answer.version}`);
          options.onHello();
          continue;
        }
        const waiter = running.waiting.get(answer.request);
        if (waiter === undefined) throw new Error(`it answered request ${answer.request}, which nobody made`);
        running.waiting.delete(answer.request);
        waiter.resolve(answer);
      }
    } catch (error) {
      options.onViolation(error as Error);
    }
  });
}

/** What the child said last on stderr. */
function keepTail(child: ChildProcess): () => string {
  let kept = '';
  child.stderr?.setEncoding('utf8');
  child.stderr?.on('data', (text: string) => {
    kept = (kept + text).slice(-stderrKeptBytes);
  });
  return () => kept;
}

function errnoSuffix(errno: number): string {
  if (errno === 0) return '';
  try {
    return `, ${getSystemErrorName(-errno)}`;
  } catch {
    return `, errno ${errno}`;
  }
}
