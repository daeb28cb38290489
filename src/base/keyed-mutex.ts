/**
 * Runs tasks one at a time per key; different keys run concurrently.
 *
 * Invariants:
 *  - At most one task per key is running; the rest wait in arrival order.
 *  - A key is in #tails exactly while a task runs or waits for it, so the map cannot leak.
 *  - A failing task passes the turn on; it neither stalls nor fails the tasks behind it.
 *
 * Not reentrant: a task that asks for the key it holds waits for itself.
 */
import { askFor, type LockPlace, whileHeld } from './lock-order.ts';

export class KeyedMutex<Key> {
  readonly #tails = new Map<Key, Promise<void>>();
  readonly #place: LockPlace | undefined;

  /** With its place in the order of locks, what takes it in another order is found by tests. */
  constructor(place?: LockPlace) {
    this.#place = place;
  }

  async run<Result>(key: Key, task: () => Promise<Result>): Promise<Result> {
    const hold = askFor(this.#place, key);
    const previous = this.#tails.get(key);
    const { promise: tail, resolve: release } = Promise.withResolvers<void>();
    // Join the queue before the first await: two callers must never read the same tail.
    this.#tails.set(key, tail);
    try {
      await previous;
      return await whileHeld(hold, task);
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
      release();
    }
  }

  /** Keys held or waited for; zero when idle. */
  get size(): number {
    return this.#tails.size;
  }
}
