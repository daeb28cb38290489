/** The team's events, in order: a page at a time, or as an endless stream that takes up again where it broke off. */
import { type EventView, isPlatformError, PlatformError, type ResultOf, routes } from '../protocol/index.ts';
import type { Connection } from './connection.ts';
import { readServerEvents } from './server-events.ts';

export interface EventsFrom {
  /** The sequence of the last event already known. Without it: from now on. */
  readonly after?: number;
  readonly sandboxId?: string;
  readonly signal?: AbortSignal;
}

/** Longer than three heartbeats of the server: the connection is dead. */
const silenceMs = 50_000;
const reconnectFirstMs = 200;
const reconnectMaxMs = 10_000;

export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  list(options: EventsFrom & { readonly limit?: number } = {}): Promise<ResultOf<(typeof routes)['listEvents']>> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listEvents, { query, ...(signal && { signal }) });
  }

  /** Ends when the signal aborts; throws only what waiting cannot mend, `output_dropped` for one. */
  async *follow(options: EventsFrom = {}): AsyncGenerator<EventView, void, undefined> {
    const { sandboxId, signal } = options;
    let after = options.after;
    let failures = 0;
    while (!signal?.aborted) {
      try {
        for await (const message of this.#open({ after, sandboxId, signal })) {
          failures = 0;
          if (message.id !== undefined) after = Number(message.id);
          if (message.event === 'error') throw errorIn(message.data);
          if (message.data !== '') yield JSON.parse(message.data) as EventView;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (!isPlatformError(error) || error.retry === 'never') throw error;
      }
      const pauseMs = Math.min(reconnectMaxMs, reconnectFirstMs * 2 ** Math.min(failures++, 10));
      await this.#connection.clock.wait(pauseMs * (0.5 + Math.random() / 2), signal);
    }
  }

  async *#open(from: {
    readonly after: number | undefined;
    readonly sandboxId: string | undefined;
    readonly signal: AbortSignal | undefined;
  }) {
    const { after, sandboxId, signal } = from;
    const broken = new AbortController();
    const response = await this.#connection.open(
      routes.listEvents,
      {
        query: { ...(sandboxId !== undefined && { sandboxId }) },
        signal: signal ? AbortSignal.any([signal, broken.signal]) : broken.signal,
        timeoutMs: null,
      },
      { Accept: 'text/event-stream', ...(after !== undefined && { 'Last-Event-ID': String(after) }) },
    );
    try {
      yield* readServerEvents(response, { silenceMs });
    } finally {
      broken.abort();
    }
  }
}

function errorIn(data: string): PlatformError {
  const { error } = JSON.parse(data) as { error: { code: 'internal'; message: string; requestId: string } };
  return new PlatformError(error.code, error.message, { requestId: error.requestId });
}
