/**
 * The order of calls that one handle makes: HTTP requests overtake each other, so each is sent when the one before it is answered.
 *
 * Invariants:
 *  - Calls are sent in the order in which they were made, whether or not the one in front succeeds.
 *  - One that gives up while it waits is never sent, and passes its place on.
 *  - No answer is kept: a handle lives as long as its owner likes, and answers may be large.
 */
import { PlatformError } from '../protocol/index.ts';
import type { ClientClock } from './connection.ts';

export interface Patience {
  /** How long it may wait for its turn, here and at the server together. */
  readonly queueTimeoutMs?: number;
  readonly signal?: AbortSignal;
}

export class CallOrder {
  readonly #clock: ClientClock;
  #last: Promise<unknown> = Promise.resolve();

  constructor(clock: ClientClock) {
    this.#clock = clock;
  }

  /** `send` gets what is left of the queue timeout. */
  run<Result>(
    patience: Patience,
    send: (left: { readonly queueTimeoutMs?: number }) => Promise<Result>,
  ): Promise<Result> {
    const before = this.#last;
    const result = this.#sendAfter(before, patience, send);
    // Behind both: one that gives up does not let those behind it overtake what is in front of it.
    this.#last = Promise.allSettled([before, result]).then(() => undefined);
    return result;
  }

  async #sendAfter<Result>(
    before: Promise<unknown>,
    { queueTimeoutMs, signal }: Patience,
    send: (left: { readonly queueTimeoutMs?: number }) => Promise<Result>,
  ): Promise<Result> {
    const beganMs = this.#clock.nowMs();
    const over = new AbortController();
    const waits: Promise<'turn' | 'late' | 'aborted'>[] = [before.then(() => 'turn' as const)];
    if (queueTimeoutMs !== undefined) {
      waits.push(this.#clock.wait(queueTimeoutMs, over.signal).then(() => 'late' as const));
    }
    if (signal !== undefined) waits.push(aborted(signal, over.signal));
    const first = await Promise.race(waits);
    over.abort();
    signal?.throwIfAborted();
    if (first === 'late') {
      const message = `The session was busy for more than ${queueTimeoutMs} ms; nothing ran.`;
      throw new PlatformError('session_queue_timeout', message);
    }
    if (queueTimeoutMs === undefined) return await send({});
    const leftMs = Math.max(0, Math.round(queueTimeoutMs - (this.#clock.nowMs() - beganMs)));
    return await send({ queueTimeoutMs: leftMs });
  }
}

function aborted(signal: AbortSignal, over: AbortSignal): Promise<'aborted'> {
  const { promise, resolve } = Promise.withResolvers<'aborted'>();
  if (signal.aborted) resolve('aborted');
  signal.addEventListener('abort', () => resolve('aborted'), { once: true, signal: over });
  return promise;
}
