/**
 * One control connection to an init: numbered requests, answers in any order.
 *
 * Invariants:
 *  - Every request is answered or refused exactly once. One that was sent when the connection ended gets `outcome_unknown`.
 *  - Any violation by init ends the connection; nothing received after it is looked at.
 */
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { FrameReader } from '../base/index.ts';
import { PlatformError, type TerminalSize } from '../protocol/index.ts';
import {
  type ControlAnswer,
  connectionKinds,
  controlFrames,
  helloFrame,
  type InitStatus,
  type InputOrder,
  initFrameLimitBytes,
  type JournalState,
  parseControlAnswer,
  type Refusal,
  type RunEntry,
  type SignalTarget,
} from './init-protocol.ts';

const answerTimeoutMs = 30_000;
/** Init remembers 10,000 ended runs and holds 1,024 live ones. */
const listLimit = 12_000;

interface Waiter {
  readonly entries: RunEntry[];
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout | undefined;
}

type Answer = Extract<ControlAnswer, { kind: 'ok' | 'error' | 'status' | 'journal' }>;

/** Init said no. */
export class InitRefusal extends Error {
  override readonly name = 'InitRefusal';
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(`Init refused with code ${refusal.code}: ${refusal.text}`);
    this.refusal = refusal;
  }
}

export class ControlConnection {
  readonly #socket: Socket;
  readonly #reader = new FrameReader({ limitBytes: initFrameLimitBytes });
  readonly #waiting = new Map<number, Waiter>();
  readonly #hello = Promise.withResolvers<number>();
  readonly #closed = Promise.withResolvers<void>();
  #next = 1;
  #onEvent: (entry: RunEntry) => void = () => {};
  #over: Error | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#hello.promise.catch(() => {}); // Looked at by `open` only.
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('error', (error) => this.#end(error));
    socket.on('close', () => this.#end(new Error('Init closed the connection.')));
    socket.write(helloFrame(connectionKinds.control));
  }

  /** Refuses when nobody listens, when init speaks another version, or when it is another life of the sandbox. */
  static async open(socket: Socket, options: { readonly generation: number }): Promise<ControlConnection> {
    const connection = new ControlConnection(socket);
    const timer = setTimeout(() => connection.#end(new Error('Init did not answer in time.')), answerTimeoutMs);
    try {
      const generation = await connection.#hello.promise;
      if (generation !== options.generation) {
        throw new Error(`Init is of generation ${generation}, not ${options.generation}.`);
      }
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Resolves when the connection is over, whoever ended it. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  async status(): Promise<InitStatus> {
    const { answer } = await this.#ask(controlFrames.status);
    if (answer.kind !== 'status') throw this.#violation('a question for its status got another answer');
    return answer.status;
  }

  async listRuns(): Promise<RunEntry[]> {
    return (await this.#ask(controlFrames.list)).entries;
  }

  async setDeadline(bootMs: number): Promise<void> {
    await this.#ask((request) => controlFrames.deadline(request, bootMs));
  }

  async setFence(token: number): Promise<void> {
    await this.#ask((request) => controlFrames.fence(request, token));
  }

  /** Ends every process of a run; no other frame waits in front of it. */
  async killTree(run: string): Promise<void> {
    await this.signal({ run, signal: constants.signals.SIGKILL, target: 'tree' });
  }

  async signal(order: { readonly run: string; readonly signal: number; readonly target: SignalTarget }): Promise<void> {
    await this.#ask((request) => controlFrames.signal(request, order));
  }

  /** Drops what init remembers of a run that has ended. */
  async forget(run: string): Promise<void> {
    await this.#ask((request) => controlFrames.forget(request, run));
  }

  /** From its answer on, `onEvent` hears of every end of a leader and of a tree. */
  async subscribe(onEvent: (entry: RunEntry) => void): Promise<void> {
    this.#onEvent = onEvent;
    await this.#ask(controlFrames.subscribe);
  }

  /** Answers when the journal of the run has more than `offset`, or its tree has ended: as late as that is. */
  async follow(order: { readonly run: string; readonly offset: number; readonly follower: number }): Promise<void> {
    await this.#ask((request) => controlFrames.follow(request, order), { isPatient: true });
  }

  /** Answers when the command's pipe has taken all of it: as late as that is. No bytes: the input ends here. */
  async input(order: InputOrder): Promise<void> {
    await this.#ask((request) => controlFrames.input(request, order), { isPatient: true });
  }

  async resize(order: TerminalSize & { readonly run: string }): Promise<void> {
    await this.#ask((request) => controlFrames.resize(request, order));
  }

  async journalState(run: string): Promise<JournalState> {
    const { answer } = await this.#ask((request) => controlFrames.journalState(request, run));
    if (answer.kind !== 'journal') throw this.#violation('a question for a journal got another answer');
    return answer.journal;
  }

  async shutDown(graceMs: number): Promise<void> {
    await this.#ask((request) => controlFrames.shutdown(request, graceMs));
  }

  close(): void {
    this.#end(new Error('The node closed the connection.'));
  }

  async #ask(
    frame: (request: number) => Buffer,
    options: { readonly isPatient?: boolean } = {},
  ): Promise<{ answer: Answer; entries: RunEntry[] }> {
    if (this.#over !== undefined) {
      throw new PlatformError('sandbox_unavailable', 'The sandbox does not answer.', { cause: this.#over });
    }
    const request = this.#next++ >>> 0;
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const late = () => this.#end(new Error('Init did not answer in time.'));
    const timer = options.isPatient ? undefined : setTimeout(late, answerTimeoutMs);
    const waiter: Waiter = { entries: [], resolve, reject, timer };
    this.#waiting.set(request, waiter);
    this.#socket.write(frame(request));
    const answer = await promise;
    if (answer.kind === 'error') throw new InitRefusal(answer.refusal);
    return { answer, entries: waiter.entries };
  }

  #read(chunk: Buffer): void {
    if (this.#over !== undefined) return;
    try {
      for (const frame of this.#reader.push(chunk)) this.#take(parseControlAnswer(frame));
    } catch (error) {
      this.#end(error as Error);
    }
  }

  #take(answer: ControlAnswer): void {
    if (answer.kind === 'hello') {
      this.#hello.resolve(answer.generation);
      return;
    }
    if (answer.kind === 'event') {
      this.#onEvent(answer.entry);
      return;
    }
    if (answer.kind === 'wrong version') throw new Error('Init speaks another version of the protocol.');
    const waiter = this.#waiting.get(answer.request);
    if (waiter === undefined) throw new Error(`Init answered request ${answer.request}, which nobody made.`);
    if (answer.kind === 'run') {
      if (waiter.entries.length >= listLimit) throw new Error('Init lists more runs than it can hold.');
      waiter.entries.push(answer.entry);
      return;
    }
    this.#waiting.delete(answer.request);
    clearTimeout(waiter.timer);
    waiter.resolve(answer);
  }

  #violation(what: string): Error {
    const error = new PlatformError('outcome_unknown', `Init broke the protocol: ${what}.`);
    this.#end(error);
    return error;
  }

  #end(error: Error): void {
    if (this.#over !== undefined) return;
    this.#over = error;
    this.#socket.destroy();
    this.#hello.reject(error);
    for (const waiter of this.#waiting.values()) {
      clearTimeout(waiter.timer);
      waiter.reject(
        new PlatformError('outcome_unknown', 'The connection to the sandbox was lost midway.', { cause: error }),
      );
    }
    this.#waiting.clear();
    this.#closed.resolve();
  }
}
