/**
 * Whose turn it is in one session.
 *
 * Invariants:
 *  - At most one has its turn; the rest wait in the order in which they came, and each gets its turn whether or not the one before succeeded.
 *  - Whoever leaves before its turn never gets it: `work` is not called.
 *  - After `close` nobody gets a turn; what has its turn finishes by itself.
 */
import type { Clock } from '../base/index.ts';
import { PlatformError, sessionLimits } from '../protocol/index.ts';

export interface Turn {
  readonly runId: string;
  /** null: as long as it takes. 0: at once or not at all. */
  readonly timeoutMs: number | null;
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  readonly runId: string;
  readonly begin: () => void;
  readonly refuse: (error: Error) => void;
}

export class SessionQueue {
  readonly #clock: Clock;
  readonly #waiting = new Set<Waiter>();
  #current: { readonly runId: string; readonly sinceMs: number } | null = null;
  #over: (() => PlatformError) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get current(): { readonly runId: string; readonly sinceMs: number } | null {
    return this.#current;
  }

  /** How many wait. */
  get length(): number {
    return this.#waiting.size;
  }

  async run<Result>(turn: Turn, work: () => Promise<Result>): Promise<Result> {
    if (this.#over !== undefined) throw this.#over();
    if (turn.signal?.aborted) throw this.left();
    if (this.#current === null) this.#begin(turn.runId);
    else await this.#wait(turn);
    try {
      // Between the handing over of its turn and its waking.
      if (turn.signal?.aborted) throw this.left();
      return await work();
    } finally {
      this.#current = null;
      this.#next();
    }
  }

  /** Refuses who waits and who comes. */
  close(why: () => PlatformError): void {
    this.#over ??= why;
    for (const waiter of [...this.#waiting]) waiter.refuse(this.#over());
  }

  async #wait(turn: Turn): Promise<void> {
    if (this.#waiting.size >= sessionLimits.queue) {
      throw new PlatformError('limit_exceeded', `${sessionLimits.queue} wait in this session already; nothing ran.`);
    }
    if (turn.timeoutMs === 0) throw this.late(turn);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Out of the set in the same turn of the event loop: a turn must not be handed to one that has left.
    const leave = (error: Error) => {
      if (this.#waiting.delete(waiter)) reject(error);
    };
    const waiter: Waiter = { runId: turn.runId, begin: resolve, refuse: leave };
    const timer = turn.timeoutMs === null ? undefined : setTimeout(() => leave(this.late(turn)), turn.timeoutMs);
    const onAbort = () => leave(this.left());
    turn.signal?.addEventListener('abort', onAbort, { once: true });
    this.#waiting.add(waiter);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      turn.signal?.removeEventListener('abort', onAbort);
    }
  }

  /** The turn is handed over here, not when the waiter wakes: whoever comes in between finds it taken. */
  #next(): void {
    const [waiter] = this.#waiting;
    if (waiter === undefined) return;
    this.#waiting.delete(waiter);
    this.#begin(waiter.runId);
    waiter.begin();
  }

  #begin(runId: string): void {
    this.#current = { runId, sinceMs: this.#clock.nowMs() };
  }

  /** What is told to one whose time to wait is over. */
  late(turn: Turn): PlatformError {
    const message = `The session was busy for more than ${turn.timeoutMs} ms; nothing ran. Wait longer, or use another session.`;
    return this.#refusal(message);
  }

  /** What is told to one whose signal aborted before it began: a refusal and no result, so that its key stays free. */
  left(): PlatformError {
    return this.#refusal('The session was busy for longer than the caller would wait; nothing ran.');
  }

  #refusal(message: string): PlatformError {
    const details = { current: this.#current?.runId ?? null, queued: this.#waiting.size };
    return new PlatformError('session_queue_timeout', message, { details });
  }
}
