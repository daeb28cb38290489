/**
 * One file worker: a process in the sandbox that does file work over one connection, one request at a time.
 *
 * Invariants:
 *  - At most one request is open; `begin` and `next` belong to it. The pool hands a worker to one holder.
 *  - A frame that belongs to no open request, or to another one, ends the connection: nothing after it is looked at.
 *  - What was received and not taken is bounded; beyond it the kernel holds the worker back.
 */
import type { Socket } from 'node:net';
import type { ConnectOptions } from '../init-address.ts';
import type { Refusal } from '../init-protocol.ts';
import { ReadMemory } from './read-memory.ts';
import { openWorkerFrames, requestFrames, type WorkerAnswer } from './wire.ts';
import { WorkerFrames } from './worker-frames.ts';

/** Received and not yet taken: above it the connection is not read. */
const heldBytesMax = 1024 * 1024;
/** Sent and not yet taken by the kernel: above it `send` has no room. */
const unsentBytesMax = 512 * 1024;
/** How long a worker may take to be there, and how long it may be silent: the removal of a large tree says nothing until its end. */
const openTimeoutMs = 30_000;
const silenceMs = 10 * 60_000;

export type RequestAnswer = Exclude<WorkerAnswer, { kind: 'hello' | 'wrong version' | 'refused' | 'worker ok' }>;

/** The worker is gone. `wasSent`: a request may have reached it. */
export class WorkerLost extends Error {
  override readonly name = 'WorkerLost';
}

/** Init did not make a worker. */
export class WorkerRefused extends Error {
  override readonly name = 'WorkerRefused';
  readonly refusal: Refusal;
  constructor(refusal: Refusal) {
    super(`Init refused a file worker with code ${refusal.code}: ${refusal.text}`);
    this.refusal = refusal;
  }
}

export interface WorkerChoice {
  readonly user: string | null;
  readonly generation: number;
  /** The lease token init must have. */
  readonly token: number;
}

export type ConnectWorker = (options: ConnectOptions) => Socket;

export class FileWorker {
  readonly user: string | null;
  readonly token: number;
  readonly #socket: Socket;
  readonly #generation: number;
  readonly #frames = new WorkerFrames();
  readonly #memory: ReadMemory;
  readonly #opened = Promise.withResolvers<void>();
  readonly #closed = Promise.withResolvers<void>();
  readonly #held: RequestAnswer[] = [];
  #heldBytes = 0;
  #state: 'connecting' | 'greeted' | 'ready' = 'connecting';
  /** The open request, 0 between two. */
  #request = 0;
  #lastRequest = 0;
  #waiting: { resolve: (answer: RequestAnswer) => void; reject: (error: Error) => void } | undefined;
  #over: Error | undefined;

  private constructor(connect: ConnectWorker, choice: WorkerChoice) {
    this.user = choice.user;
    this.token = choice.token;
    const memory = new ReadMemory();
    const onread = {
      buffer: () => memory.now,
      callback: (count: number) => this.#read(count),
    };
    const socket = connect({ onread, writableHighWaterMark: unsentBytesMax });
    this.#memory = memory;
    this.#socket = socket;
    this.#generation = choice.generation;
    this.#opened.promise.catch(() => {}); // Looked at by `open` only.
    socket.on('error', (error) => this.#end(error));
    socket.on('close', () => this.#end(new Error('The file worker closed the connection.')));
    socket.on('timeout', () => this.#end(new Error('The file worker is silent.')));
    socket.setTimeout(openTimeoutMs);
    socket.write(openWorkerFrames(choice));
  }

  static async open(connect: ConnectWorker, choice: WorkerChoice): Promise<FileWorker> {
    const worker = new FileWorker(connect, choice);
    await worker.#opened.promise;
    worker.#socket.setTimeout(0);
    return worker;
  }

  get isOver(): boolean {
    return this.#over !== undefined;
  }

  /** Resolves when it is gone, whoever ended it. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Opens a request with its first frame; its number goes into the frames that follow. */
  begin(frame: (request: number) => Buffer): number {
    if (this.#over !== undefined) throw new WorkerLost('The file worker is gone.', { cause: this.#over });
    this.#lastRequest = (this.#lastRequest % 0x7fff_ffff) + 1;
    this.#request = this.#lastRequest;
    this.#socket.setTimeout(silenceMs);
    this.#socket.write(frame(this.#request));
    return this.#request;
  }

  /** Sends more of the open request. */
  send(...parts: readonly Uint8Array[]): void {
    if (this.#over !== undefined) throw new WorkerLost('The file worker is gone.', { cause: this.#over });
    this.#socket.cork();
    for (const part of parts) this.#socket.write(part);
    this.#socket.uncork();
  }

  sendData(bytes: Uint8Array): void {
    this.send(requestFrames.dataHead(this.#request, bytes.byteLength), bytes);
  }

  /** Whether what was sent is to be taken first. */
  get isFull(): boolean {
    return this.#over === undefined && this.#socket.writableNeedDrain;
  }

  /** Resolves when there is room for more, or the worker is gone. */
  async room(): Promise<void> {
    if (!this.isFull) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const settle = () => {
      this.#socket.off('drain', settle);
      this.#socket.off('close', settle);
      resolve();
    };
    this.#socket.once('drain', settle);
    this.#socket.once('close', settle);
    await promise;
  }

  /** The next frame of the open request. A fault or `done` ends it. */
  next(): Promise<RequestAnswer> {
    const held = this.#held.shift();
    if (held !== undefined) {
      this.#heldBytes -= sizeOf(held);
      if (this.#heldBytes < heldBytesMax / 2 && this.#socket.isPaused()) this.#socket.resume();
      return Promise.resolve(held);
    }
    if (this.#over !== undefined) {
      return Promise.reject(new WorkerLost('The file worker is gone.', { cause: this.#over }));
    }
    const { promise, resolve, reject } = Promise.withResolvers<RequestAnswer>();
    this.#waiting = { resolve, reject };
    return promise;
  }

  /** Whether a frame has come that nobody has taken: an answer before the request was sent whole. */
  get hasAnswer(): boolean {
    return this.#held.length > 0 || this.#over !== undefined;
  }

  /** The open request is over; whatever still comes for it is a violation. */
  finish(): void {
    this.#request = 0;
    this.#memory.shrink();
    this.#socket.setTimeout(0);
  }

  /** No time limit on silence: a watch says nothing while nothing happens. */
  waitLong(): void {
    this.#socket.setTimeout(0);
  }

  close(): void {
    this.#end(new Error('The node closed the connection.'));
  }

  /** Takes back a piece of data that nobody looks at any more. */
  giveBack(piece: Uint8Array): void {
    this.#memory.giveBack(piece);
  }

  /** So many bytes have come. Always true: whether to read on is said by `pause`. */
  #read(count: number): true {
    if (this.#over !== undefined) return true;
    let pieces = 0;
    let isKept = false;
    try {
      for (const answer of this.#frames.push(this.#memory.now.subarray(0, count))) {
        if (answer.kind === 'data') pieces++;
        else isKept = true;
        this.#take(answer);
      }
    } catch (error) {
      this.#end(error as Error);
    }
    this.#memory.filled(count, { pieces, isKept });
    return true;
  }

  #take(answer: WorkerAnswer): void {
    if (this.#over !== undefined) return;
    switch (answer.kind) {
      case 'wrong version':
        throw new Error('Init speaks another version of the protocol.');
      case 'hello':
        if (this.#state !== 'connecting') throw new Error('Init greeted twice.');
        if (answer.generation !== this.#generation) throw new Error(`Init is of generation ${answer.generation}.`);
        this.#state = 'greeted';
        return;
      case 'refused':
        throw new WorkerRefused(answer.refusal);
      case 'worker ok':
        if (this.#state !== 'greeted') throw new Error('A worker was there before it was asked for, or twice.');
        this.#state = 'ready';
        this.#opened.resolve();
        return;
      default:
        this.#takeAnswer(answer);
    }
  }

  #takeAnswer(answer: RequestAnswer): void {
    if (answer.request !== this.#request || this.#request === 0) {
      throw new Error(`The file worker answered request ${answer.request}, which is not open.`);
    }
    const waiting = this.#waiting;
    if (waiting !== undefined) {
      this.#waiting = undefined;
      waiting.resolve(answer);
      return;
    }
    this.#held.push(answer);
    this.#heldBytes += sizeOf(answer);
    if (this.#heldBytes > heldBytesMax) this.#socket.pause();
  }

  #end(error: Error): void {
    if (this.#over !== undefined) return;
    this.#over = error;
    this.#socket.destroy();
    this.#opened.reject(error);
    this.#waiting?.reject(new WorkerLost('The file worker is gone.', { cause: error }));
    this.#waiting = undefined;
    this.#closed.resolve();
  }
}

/** Each counts for something, so that many empty frames are bounded too. */
function sizeOf(answer: RequestAnswer): number {
  return 128 + (answer.kind === 'data' ? answer.bytes.byteLength : 0);
}
