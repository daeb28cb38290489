/**
 * The bytes that a worker sends for one request, handed out as they are asked for. It holds its worker until the end; whoever stops early, or never
 * begins, calls `return`, which ends the worker, because a request cannot be taken back.
 */

import type { Pieces } from '../../base/index.ts';
import { brokenProtocol, unavailable } from './call.ts';
import { errorOfFault } from './fault.ts';
import { WorkerLost } from './worker.ts';
import type { Held } from './worker-pool.ts';

export interface WorkerStreamOptions {
  readonly held: Held;
  readonly path: string;
  /** Exactly so many, when it is known; fewer is a failure, more are not handed out. */
  readonly length: number | null;
  /** Data that came before the stream was made. */
  readonly first?: Uint8Array | undefined;
  readonly isEnded?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export class WorkerStream implements AsyncIterableIterator<Uint8Array>, Pieces {
  readonly #options: WorkerStreamOptions;
  readonly #onAbort = () => void this.return();
  #first: Uint8Array | undefined;
  #left: number;
  #isOver = false;

  constructor(options: WorkerStreamOptions) {
    this.#options = options;
    this.#left = options.length ?? Number.POSITIVE_INFINITY;
    this.#first = options.first;
    options.signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (options.signal?.aborted) this.#stop({ isUsable: false });
    else if (options.isEnded && options.first === undefined) this.#stop({ isUsable: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#first !== undefined && !this.#isOver) {
      const value = this.#first;
      this.#first = undefined;
      return { done: false, value: this.#counted(value) };
    }
    if (this.#isOver) {
      this.#options.signal?.throwIfAborted();
      return { done: true, value: undefined };
    }
    try {
      return await this.#receive();
    } catch (error) {
      this.#stop({ isUsable: false });
      this.#options.signal?.throwIfAborted();
      throw error instanceof WorkerLost ? unavailable(error) : error;
    }
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#stop({ isUsable: false });
    return { done: true, value: undefined };
  }

  giveBack(piece: Uint8Array): void {
    this.#options.held.worker.giveBack(piece);
  }

  async #receive(): Promise<IteratorResult<Uint8Array, undefined>> {
    const { held, path, length } = this.#options;
    const answer = await held.worker.next();
    if (answer.kind === 'fault') {
      this.#stop({ isUsable: true });
      throw errorOfFault(answer.fault, path);
    }
    if (answer.kind === 'done') {
      if (length !== null && this.#left > 0) {
        this.#stop({ isUsable: true });
        throw new WorkerLost(`${path} became shorter while it was read.`);
      }
      this.#stop({ isUsable: true });
      return { done: true, value: undefined };
    }
    if (answer.kind !== 'data') throw brokenProtocol(answer);
    if (this.#left === 0) {
      // The file grew meanwhile; what was announced is complete.
      this.#stop({ isUsable: false });
      return { done: true, value: undefined };
    }
    return { done: false, value: this.#counted(answer.bytes) };
  }

  #counted(bytes: Uint8Array): Uint8Array {
    const taken = bytes.byteLength > this.#left ? bytes.subarray(0, this.#left) : bytes;
    this.#left -= taken.byteLength;
    return taken;
  }

  #stop(options: { readonly isUsable: boolean }): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    this.#options.held.release(options);
  }
}
