/**
 * Repeats a tick: at once when started, then `intervalMs` after the end of the one before, and when somebody wakes it.
 *
 * Invariants:
 *  - At most one tick runs at a time.
 *  - A wake is answered by a tick that began after it; wakes that come while one runs share the next.
 *  - A failing tick is told to `onError` and stops nothing.
 *  - After `close` resolves no tick runs and no timer waits.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { assert } from './assert.ts';
import { systemTimers, type Timers } from './clock.ts';
import { apartFromLocks } from './lock-order.ts';

export interface BackgroundLoopOptions {
  readonly intervalMs: number;
  /** The signal aborts when the loop is closed; a long tick should end then. */
  readonly tick: (signal: AbortSignal) => Promise<void>;
  readonly onError: (error: unknown) => void;
  readonly timers?: Timers;
}

export class BackgroundLoop {
  readonly #options: BackgroundLoopOptions;
  readonly #timers: Timers;
  readonly #closing = new AbortController();
  /** The tick that is wanted and has not begun. */
  #wanted: PromiseWithResolvers<void> | undefined;
  /** Set while ticks run. */
  #running: Promise<void> | undefined;
  #started = false;
  #cancelTimer = () => {};

  constructor(options: BackgroundLoopOptions) {
    assert(options.intervalMs > 0, 'A loop needs an interval above zero.');
    this.#options = options;
    this.#timers = options.timers ?? systemTimers;
  }

  start(): void {
    assert(!this.#started, 'A loop is started once.');
    this.#started = true;
    void this.wake();
  }

  /** Resolves when a tick that began after this call has ended, well or not, or when the loop is closed. */
  wake(): Promise<void> {
    if (this.#closing.signal.aborted) return Promise.resolve();
    this.#wanted ??= Promise.withResolvers<void>();
    const { promise } = this.#wanted;
    // The tick begins in a later turn: were it to run here, a tick that wakes its loop would find it idle and nest.
    // Whoever starts or wakes it may hold a lock; the tick does not.
    if (this.#started) this.#running ??= apartFromLocks(() => Promise.resolve().then(() => this.#runWanted()));
    return promise;
  }

  /** Waits for the running tick. May be called twice. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#cancelTimer();
    await this.#running;
    this.#wanted?.resolve();
    this.#wanted = undefined;
  }

  async #runWanted(): Promise<void> {
    this.#cancelTimer();
    while (this.#wanted && !this.#closing.signal.aborted) {
      const wanted = this.#wanted;
      this.#wanted = undefined;
      await this.#tickOnce();
      wanted.resolve();
      // A tick that causes its own wake must not keep everything else from running.
      await nextTurn();
    }
    this.#running = undefined;
    if (!this.#closing.signal.aborted) {
      this.#cancelTimer = this.#timers.after(this.#options.intervalMs, () => void this.wake());
    }
  }

  async #tickOnce(): Promise<void> {
    try {
      await this.#options.tick(this.#closing.signal);
    } catch (error) {
      this.#options.onError(error);
    }
  }
}
