/**
 * Runs reading works one after another, each on one state of the database: the latest that was committed when it began. They
 * have a connection of their own and wait for no commit.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PlatformError } from '../../protocol/index.ts';
import { type Connection, Scope } from './connection.ts';
import type { Work } from './group-commit.ts';
import { settleInTurn } from './settle-in-turn.ts';

/** Reads that wait; one more is refused. */
const queueMax = 10_000;
/** After reading for this long without a pause, others get a turn. */
const stretchMaxMs = 10;

export class SnapshotReads {
  readonly #connection: Connection;
  readonly #queue: (() => Promise<void>)[] = [];
  /** Set while reads run. */
  #running: Promise<void> | undefined;
  #draining = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async run<Result>(work: Work<Result>): Promise<Result> {
    if (this.#queue.length >= queueMax) {
      throw new PlatformError('limit_exceeded', `${queueMax} reads wait for the database already.`);
    }
    const answer = Promise.withResolvers<Result>();
    this.#queue.push(() => this.#readOne(work).then(answer.resolve, answer.reject));
    if (!this.#draining) this.#running = this.#drain();
    return answer.promise;
  }

  get isIdle(): boolean {
    return !this.#draining;
  }

  /** Waits until every read that was asked for is answered. */
  async idle(): Promise<void> {
    while (this.#draining) await this.#running;
  }

  async #drain(): Promise<void> {
    this.#draining = true;
    let endsAt = performance.now() + stretchMaxMs;
    for (let read = this.#queue.shift(); read; read = this.#queue.shift()) {
      await read();
      if (performance.now() < endsAt) continue;
      await nextTurn();
      endsAt = performance.now() + stretchMaxMs;
    }
    this.#draining = false;
  }

  async #readOne<Result>(work: Work<Result>): Promise<Result> {
    const scope = new Scope(this.#connection);
    this.#connection.command('BEGIN');
    try {
      return await settleInTurn(() => work(scope));
    } finally {
      scope.end();
      this.#connection.rollback();
    }
  }
}
