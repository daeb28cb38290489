/**
 * The file workers of one life of one sandbox. A worker is made when there is none to spare, kept a short while for the next request, and
 * given to one holder at a time. Transfers may take all but a few, so that a slow one does not keep a look waiting.
 *
 * Invariants:
 *  - #workers holds every worker that is open or being opened; its size, per user, is at most `perUserMax`.
 *  - A waiter is in #waiters until it is granted a place or refused; they are served in order, those that can be.
 */
import { PlatformError } from '../../protocol/index.ts';
import { refusalOfWorker } from './fault.ts';
import { type ConnectWorker, FileWorker, WorkerLost } from './worker.ts';

const perUserMax = 8;
const transfersMax = 6;
const perSandboxMax = 64;
const watchesMax = 64;
const waitersMax = 1_000;
const idleMs = 10_000;

export interface Want {
  readonly user: string | null;
  /** The token as the node has it now. */
  readonly token: number;
  /** A change needs a worker that was made under this very token; a look takes any. */
  readonly isChange: boolean;
  readonly isTransfer: boolean;
}

interface Place {
  readonly user: string | null;
  worker: FileWorker | undefined;
  isTransfer: boolean;
  /** Set exactly while it is idle. */
  idle: NodeJS.Timeout | undefined;
}

export interface Held {
  readonly worker: FileWorker;
  /** Gives it back; one that is over, or in the middle of something, is ended. May be called twice. */
  release(options?: { readonly isUsable: boolean }): void;
}

export interface FileWorkersOptions {
  readonly connect: ConnectWorker;
  readonly generation: number;
}

export class FileWorkers {
  readonly #options: FileWorkersOptions;
  readonly #places = new Set<Place>();
  readonly #waiters: { readonly want: Want; readonly grant: (place: Place) => void; readonly refuse: () => void }[] =
    [];
  readonly #watches = new Set<FileWorker>();
  #watchesOpening = 0;
  #closed = false;

  constructor(options: FileWorkersOptions) {
    this.#options = options;
  }

  /** Open ones, idle ones included. */
  get size(): number {
    return this.#places.size;
  }

  async acquire(want: Want): Promise<Held> {
    const place = this.#take(want) ?? (await this.#wait(want));
    if (place.worker === undefined) {
      try {
        place.worker = await this.#open(want);
        void place.worker.closed.then(() => this.#drop(place));
      } catch (error) {
        this.#drop(place);
        throw error;
      }
      if (this.#closed) {
        this.#drop(place);
        throw ending();
      }
    }
    return this.#hold(place, place.worker);
  }

  /** Released once: afterwards the place may be somebody else's. */
  #hold(place: Place, worker: FileWorker): Held {
    let isHeld = true;
    return {
      worker,
      release: (options) => {
        if (isHeld) this.#release(place, options?.isUsable ?? false);
        isHeld = false;
      },
    };
  }

  /** A worker for one watch, which never comes back. */
  async openWatch(want: Pick<Want, 'user' | 'token'>): Promise<FileWorker> {
    if (this.#watches.size + this.#watchesOpening >= watchesMax) {
      throw new PlatformError('limit_exceeded', `A sandbox has at most ${watchesMax} watches.`);
    }
    this.#watchesOpening++;
    try {
      const worker = await this.#open(want);
      this.#watches.add(worker);
      void worker.closed.then(() => this.#watches.delete(worker));
      return worker;
    } finally {
      this.#watchesOpening--;
    }
  }

  close(): void {
    this.#closed = true;
    for (const waiter of this.#waiters.splice(0)) waiter.refuse();
    for (const place of [...this.#places]) this.#drop(place);
    for (const worker of this.#watches) worker.close();
  }

  async #open(want: Pick<Want, 'user' | 'token'>): Promise<FileWorker> {
    if (this.#closed) throw ending();
    try {
      const { generation } = this.#options;
      return await FileWorker.open(this.#options.connect, { user: want.user, token: want.token, generation });
    } catch (error) {
      throw refusalOfWorker(error, want.user);
    }
  }

  #wait(want: Want): Promise<Place> {
    if (this.#waiters.length >= waitersMax) {
      throw new PlatformError('limit_exceeded', `${waitersMax} file operations wait in this sandbox already.`);
    }
    const { promise, resolve, reject } = Promise.withResolvers<Place>();
    this.#waiters.push({ want, grant: resolve, refuse: () => reject(ending()) });
    return promise;
  }

  /** A place for this, or `undefined` when it must wait. Changes nothing in that case. */
  #take(want: Want): Place | undefined {
    if (this.#closed) throw ending();
    const own = [...this.#places].filter(({ user }) => user === want.user);
    if (want.isTransfer && own.filter((place) => place.isTransfer && place.idle === undefined).length >= transfersMax) {
      return undefined;
    }
    const idle = own.filter((place) => place.idle !== undefined && place.worker?.isOver === false);
    const fitting = idle.find(({ worker }) => !want.isChange || worker?.token === want.token);
    if (fitting !== undefined) return this.#occupy(fitting, want);
    if (own.length >= perUserMax) {
      if (idle[0] === undefined) return undefined;
      this.#drop(idle[0]);
    } else if (this.#places.size >= perSandboxMax) {
      const other = [...this.#places].find((place) => place.idle !== undefined);
      if (other === undefined) return undefined;
      this.#drop(other);
    }
    const place: Place = { user: want.user, worker: undefined, isTransfer: want.isTransfer, idle: undefined };
    this.#places.add(place);
    return place;
  }

  #occupy(place: Place, want: Want): Place {
    clearTimeout(place.idle);
    place.idle = undefined;
    place.isTransfer = want.isTransfer;
    return place;
  }

  #release(place: Place, isUsable: boolean): void {
    if (!this.#places.has(place)) return;
    if (!isUsable || this.#closed || place.worker?.isOver !== false) {
      this.#drop(place);
      return;
    }
    place.worker.finish();
    place.isTransfer = false;
    place.idle = setTimeout(() => this.#drop(place), idleMs).unref();
    this.#serve();
  }

  #drop(place: Place): void {
    if (!this.#places.delete(place)) return;
    clearTimeout(place.idle);
    place.worker?.close();
    this.#serve();
  }

  #serve(): void {
    if (this.#closed) return;
    for (let at = 0; at < this.#waiters.length; ) {
      const waiter = this.#waiters[at]!;
      const place = this.#take(waiter.want);
      if (place === undefined) at++;
      else {
        this.#waiters.splice(at, 1);
        waiter.grant(place);
      }
    }
  }
}

function ending(): PlatformError {
  return new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing was done.', {
    cause: new WorkerLost('The node let go of the sandbox.'),
  });
}
