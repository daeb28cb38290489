/**
 * Runs works one after another and commits many at once, because a commit waits for the disk and a work does not.
 *
 *   transact ─┐                     ┌ savepoint, work, release ┐
 *   transact ─┼─ queue ─► BEGIN ──► ┼ savepoint, work, undo    ┼ ──► COMMIT ──► answers
 *   transact ─┘                     └ savepoint, work, release ┘
 *
 * Invariants:
 *  - One batch at a time, one work at a time, in the order they arrived. Arrivals meanwhile wait for the next batch.
 *  - A work that fails undoes its own writes only.
 *  - Nobody is answered before the commit, not even a work that failed: it may have failed because of what another work
 *    of its batch wrote. If the commit fails, the whole batch hears that, and nothing of it is kept.
 *  - A commit is synced unless every work of it needs to be written only.
 *  - Between two batches the event loop takes a turn.
 */
import { askFor, type FaultPoints, whileHeld } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { Durability } from '../store.ts';
import { type Connection, Scope } from './connection.ts';
import { settleInTurn } from './settle-in-turn.ts';

/** Works that wait; one more is refused. */
const queueMax = 10_000;
const batchMax = 256;
/** A batch takes no further work after this long, so that others get their turn. */
const batchMaxMs = 10;

/** Ranks last: nothing is taken inside. */
const storeLock = { name: 'store transaction', rank: 9 };

export type Work<Result> = (scope: Scope) => Promise<Result>;

interface Entry {
  readonly work: Work<unknown>;
  readonly durability: Durability;
  readonly answer: PromiseWithResolvers<unknown>;
}

type Outcome =
  | { readonly kind: 'done'; readonly result: unknown }
  | { readonly kind: 'failed'; readonly error: unknown };

export class GroupCommit {
  readonly #connection: Connection;
  readonly #faults: FaultPoints;
  readonly #onBatchOver: () => void;
  #queue: Entry[] = [];
  /** Set while batches run or one is about to. */
  #running: Promise<void> | undefined;

  /** `onBatchOver`: called when what a batch wrote is committed or undone, before anybody hears of it. */
  constructor(options: {
    readonly connection: Connection;
    readonly faults: FaultPoints;
    readonly onBatchOver?: () => void;
  }) {
    this.#connection = options.connection;
    this.#faults = options.faults;
    this.#onBatchOver = options.onBatchOver ?? (() => {});
  }

  async run<Result>(work: Work<Result>, durability: Durability): Promise<Result> {
    if (this.#queue.length >= queueMax) {
      throw new PlatformError('limit_exceeded', `${queueMax} transactions wait for the database already.`);
    }
    const answer = Promise.withResolvers<unknown>();
    this.#queue.push({ work, durability, answer });
    this.#running ??= this.#runBatches();
    return (await answer.promise) as Result;
  }

  /** Waits until every work that was given is answered. */
  async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  async #runBatches(): Promise<void> {
    do {
      await new Promise((resolve) => setImmediate(resolve)); // What one turn of the event loop produces goes together.
      await this.#runBatch();
    } while (this.#queue.length > 0);
    this.#running = undefined;
  }

  async #runBatch(): Promise<void> {
    const batch = this.#queue.splice(0, batchMax);
    const outcomes: Outcome[] = [];
    try {
      this.#connection.commitAs(batch.every(({ durability }) => durability === 'written') ? 'written' : 'synced');
      this.#connection.command('BEGIN IMMEDIATE');
      await this.#runWorks(batch, outcomes);
      await this.#faults.hit('store-before-commit');
      this.#connection.command('COMMIT');
      this.#onBatchOver();
      await this.#faults.hit('store-after-commit');
      for (const [index, outcome] of outcomes.entries()) answerWith(batch[index]!, outcome);
    } catch (error) {
      this.#connection.rollback();
      this.#onBatchOver();
      // Works that had not begun are no part of the failure, unless not even the first could begin.
      if (outcomes.length === 0) outcomes.length = batch.length;
      for (const { answer } of batch.slice(0, outcomes.length)) answer.reject(error);
    }
    this.#queue.unshift(...batch.slice(outcomes.length));
  }

  /** As many as fit into the time of a batch. Throws when the transaction is lost, and with it every work in it. */
  async #runWorks(batch: readonly Entry[], outcomes: Outcome[]): Promise<void> {
    const endsAt = performance.now() + batchMaxMs;
    for (const { work } of batch) {
      if (outcomes.length > 0 && performance.now() > endsAt) return;
      const outcome = await this.#runWork(work);
      outcomes.push(outcome);
      if (!this.#connection.isTransaction) throw lostTransaction(outcome);
    }
  }

  async #runWork(work: Work<unknown>): Promise<Outcome> {
    const scope = new Scope(this.#connection);
    this.#connection.command('SAVEPOINT work');
    try {
      const result = await whileHeld(askFor(storeLock, 'store'), () => settleInTurn(() => work(scope)));
      if (scope.failure !== undefined) throw scope.failure; // The work may have caught it; its writes are not whole.
      this.#connection.command('RELEASE work');
      return { kind: 'done', result };
    } catch (error) {
      if (this.#connection.isTransaction) {
        this.#connection.command('ROLLBACK TO work');
        this.#connection.command('RELEASE work');
      }
      return { kind: 'failed', error: scope.failure ?? error };
    } finally {
      scope.end();
    }
  }
}

function lostTransaction(outcome: Outcome): unknown {
  return outcome.kind === 'failed' ? outcome.error : new PlatformError('internal', 'The database ended a transaction.');
}

function answerWith({ answer }: Entry, outcome: Outcome): void {
  if (outcome.kind === 'done') answer.resolve(outcome.result);
  else answer.reject(outcome.error);
}
