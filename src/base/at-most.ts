/**
 * Runs tasks a few at a time. A thousand that begin together share disk and threads so evenly that all of them end last; a few at a
 * time end one after another, and the last ends no later.
 *
 * Invariants:
 *  - At most `limit` tasks run; the rest wait in arrival order.
 *  - A failing task passes its turn on.
 */
import { assert } from './assert.ts';

export class AtMost {
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(limit: number) {
    assert(Number.isSafeInteger(limit) && limit > 0, 'At least one task runs at a time.');
    this.#limit = limit;
  }

  async run<Result>(task: () => Promise<Result>): Promise<Result> {
    await this.#turn();
    try {
      return await task();
    } finally {
      this.#pass();
    }
  }

  /** Tasks that run or wait; zero when idle. */
  get size(): number {
    return this.#running + this.#waiting.length;
  }

  async #turn(): Promise<void> {
    if (this.#running < this.#limit) {
      this.#running++;
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await promise;
  }

  /** A turn goes straight to the one that waits longest: nobody who comes meanwhile can take it. */
  #pass(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running--;
    else next();
  }
}
