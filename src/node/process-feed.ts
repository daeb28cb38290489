/**
 * What init tells by itself, and what is waited for at init, on a connection of its own: an answer here may take as long as a process
 * lives, and the control connection counts that as silence.
 *
 * Invariants:
 *  - `onEvent` hears of every end after `onOpen` was called; a connection that is lost is opened again, and `onOpen` called again.
 *  - A reader that leaves while it waits leaves at most one question behind for each place, however many come and go.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ControlConnection, InitClient, InputOrder, RunEntry } from '../execution/index.ts';
import { PlatformError } from '../protocol/index.ts';

const reopenPauseMs = 50;
const lostPauseMs = 50;

export interface Follower {
  number: number;
}

interface Question {
  readonly follower: number;
  readonly answered: Promise<'answered'>;
  isAnswered: boolean;
}

export interface FeedHooks {
  /** A connection that hears of everything from now on: look at what happened before. */
  readonly onOpen: (connection: ControlConnection) => Promise<void>;
  readonly onEvent: (entry: RunEntry) => void;
}

export class ProcessFeed {
  readonly #client: InitClient;
  readonly #hooks: FeedHooks;
  /** Questions that init has not answered and whose reader has left, by run and offset. */
  readonly #left = new Map<string, Question>();
  #followers = 0;
  #connection: Promise<ControlConnection>;
  #isClosed = false;

  private constructor(client: InitClient, hooks: FeedHooks, connection: ControlConnection) {
    this.#client = client;
    this.#hooks = hooks;
    this.#connection = Promise.resolve(connection);
    this.#guard(connection);
  }

  static async open(client: InitClient, hooks: FeedHooks): Promise<ProcessFeed> {
    return new ProcessFeed(client, hooks, await subscribe(client, hooks));
  }

  /** A number of its own for one reader: init lets go of what it held when the same number asks further on. */
  newFollower(): Follower {
    return { number: ++this.#followers };
  }

  /** Resolves when the journal has more than `offset`, when its end is written, or when init is lost; look again. */
  async beyond(run: string, offset: number, options: { follower: Follower; signal: AbortSignal }): Promise<void> {
    const { follower, signal } = options;
    const place = `${run} ${offset}`;
    const left = this.#left.get(place);
    const question = left ?? this.#question(run, offset, follower.number);
    if (left !== undefined) this.#left.delete(place);
    follower.number = question.follower;
    const aborted = Promise.withResolvers<'aborted'>();
    const onAbort = () => aborted.resolve('aborted');
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    const ended = await Promise.race([question.answered, aborted.promise]);
    signal.removeEventListener('abort', onAbort);
    // Init cannot be told to stop waiting, and takes a limited number: the next reader that gets here takes it over.
    if (ended === 'aborted' && !question.isAnswered && !this.#left.has(place)) this.#left.set(place, question);
  }

  /** Tells init where a reader is that is busy with what it has. */
  async touch(run: string, offset: number, follower: Follower): Promise<void> {
    await this.#question(run, offset, follower.number).answered;
  }

  #question(run: string, offset: number, follower: number): Question {
    const answered = this.#ask((connection) => connection.follow({ run, offset, follower }))
      .catch(() => delay(lostPauseMs)) // Whoever waits looks for itself, but not in a tight loop.
      .then(() => {
        question.isAnswered = true;
        if (this.#left.get(`${run} ${offset}`) === question) this.#left.delete(`${run} ${offset}`);
        return 'answered' as const;
      });
    const question: Question = { follower, answered, isAnswered: false };
    return question;
  }

  input(order: InputOrder): Promise<void> {
    return this.#ask((connection) => connection.input(order));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const connection = await this.#connection.catch(() => undefined);
    connection?.close();
  }

  async #ask<Result>(ask: (connection: ControlConnection) => Promise<Result>): Promise<Result> {
    return await ask(await this.#connection);
  }

  #guard(connection: ControlConnection): void {
    void connection.closed.then(() => {
      if (this.#isClosed) return;
      this.#connection = this.#reopen();
      this.#connection.then(
        (next) => this.#guard(next),
        () => {}, // Init is gone; the node hears of that on its own.
      );
    });
  }

  async #reopen(): Promise<ControlConnection> {
    const gone = this.#client.gone.then(() => 'gone' as const);
    for (;;) {
      const pause = delay(reopenPauseMs).then(() => 'paused' as const);
      if (this.#isClosed || (await Promise.race([gone, pause])) === 'gone') {
        throw new PlatformError('sandbox_unavailable', 'The sandbox is ending.');
      }
      try {
        return await subscribe(this.#client, this.#hooks);
      } catch {
        // Tried again until it works or init is known to be gone.
      }
    }
  }
}

async function subscribe(client: InitClient, hooks: FeedHooks): Promise<ControlConnection> {
  const connection = await client.openControl();
  try {
    await connection.subscribe(hooks.onEvent);
    await hooks.onOpen(connection);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}
