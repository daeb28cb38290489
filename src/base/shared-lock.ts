/**
 * Lets many use what a key names, or one change it.
 *
 * Invariants:
 *  - While a change runs nobody uses; a change waits for whoever uses already, and those who come after it wait for it.
 *  - A key is in #users exactly while somebody uses it, so the map cannot leak.
 *
 * Not reentrant: whoever uses a key and asks to change it waits for itself.
 */
import { KeyedMutex } from './keyed-mutex.ts';
import { askFor, type LockPlace, whileHeld } from './lock-order.ts';

interface Users {
  count: number;
  readonly gone: PromiseWithResolvers<void>;
}

export class SharedLock<Key> {
  /** Held for the whole of a change, and by a user only while it enters. */
  readonly #turn = new KeyedMutex<Key>();
  readonly #users = new Map<Key, Users>();
  readonly #place: LockPlace | undefined;

  constructor(place?: LockPlace) {
    this.#place = place;
  }

  async use<Result>(key: Key, work: () => Promise<Result>): Promise<Result> {
    const hold = askFor(this.#place, key);
    const users = await this.#turn.run(key, async () => this.#enter(key));
    try {
      return await whileHeld(hold, work);
    } finally {
      users.count--;
      if (users.count === 0) {
        this.#users.delete(key);
        users.gone.resolve();
      }
    }
  }

  async change<Result>(key: Key, work: () => Promise<Result>): Promise<Result> {
    const hold = askFor(this.#place, key);
    return await this.#turn.run(key, async () => {
      await this.#users.get(key)?.gone.promise;
      return await whileHeld(hold, work);
    });
  }

  /** Keys that are used, changed or waited for; zero when idle. */
  get size(): number {
    return this.#users.size + this.#turn.size;
  }

  #enter(key: Key): Users {
    const users = this.#users.get(key) ?? { count: 0, gone: Promise.withResolvers<void>() };
    users.count++;
    this.#users.set(key, users);
    return users;
  }
}
