/**
 * Events as a stream (SSE): replay from where the reader was, then live, each with its sequence as id.
 *
 * A reader that is slow is waited for: the next event is asked for when the last one left this process. A silent stream
 * carries a comment now and then, so that both sides notice a dead connection. A server that stops ends the stream;
 * the reader connects again and goes on after the last id it saw.
 */
import type { Timers } from '../base/index.ts';
import type { Caller } from '../control/index.ts';
import { isPlatformError, PlatformError, type QueryOf, type routes } from '../protocol/index.ts';
import type { ControlPort } from './control-port.ts';
import type { Exchange } from './exchange.ts';
import { invalidRequest } from './invalid-request.ts';
import { streamed } from './route-binding.ts';

type EventsQuery = QueryOf<(typeof routes)['listEvents']>;

export interface EventStreamsOptions {
  readonly events: ControlPort['events'];
  readonly timers: Timers;
  readonly heartbeatMs: number;
}

export class EventStreams {
  readonly #options: EventStreamsOptions;

  constructor(options: EventStreamsOptions) {
    this.#options = options;
  }

  isWanted(exchange: Exchange): boolean {
    return exchange.request.headers.accept?.includes('text/event-stream') === true && exchange.method !== 'HEAD';
  }

  async answer(exchange: Exchange, caller: Caller, query: EventsQuery): Promise<typeof streamed> {
    const { events } = this.#options;
    const from = { ...query, ...lastEventId(exchange) };
    // Refuses here what is no longer kept, while an error can still be a status; and fixes where "from now on" begins.
    const { last } = await events.list(caller, { ...from, limit: 1 });
    const after = from.after ?? last;
    const start = { after, ...(from.sandboxId !== undefined && { sandboxId: from.sandboxId }) };
    this.#begin(exchange);
    // An id without data: a reader that loses the connection before the first event misses none.
    exchange.response.write(`id: ${after}\n\n`);
    return await this.#send(
      exchange,
      events.follow(caller, start, exchange.ending),
      (event) => `id: ${event.sequence}\n`,
    );
  }

  /** A stream of values that have no place to resume from; the first is waited for, so that a refusal is still a status. */
  async answerWith(exchange: Exchange, values: AsyncIterable<unknown>): Promise<typeof streamed> {
    const iterator = values[Symbol.asyncIterator]();
    const first = await iterator.next();
    this.#begin(exchange);
    const rest = { [Symbol.asyncIterator]: () => iterator };
    if (!first.done) exchange.response.write(`data: ${JSON.stringify(first.value)}\n\n`);
    return await this.#send(exchange, rest, () => '');
  }

  /** A stream that resumes: each value with the id to go on after. The first is waited for, as in `answerWith`. */
  async answerFrom<Value>(
    exchange: Exchange,
    values: AsyncIterable<Value>,
    idOf: (value: Value) => string,
  ): Promise<typeof streamed> {
    const iterator = values[Symbol.asyncIterator]();
    const first = await iterator.next();
    this.#begin(exchange);
    const rest = { [Symbol.asyncIterator]: () => iterator };
    const head = (value: Value) => `id: ${idOf(value)}\n`;
    if (!first.done) exchange.response.write(`${head(first.value)}data: ${JSON.stringify(first.value)}\n\n`);
    return await this.#send(exchange, rest, head);
  }

  #begin({ response, requestId }: Exchange): void {
    response.writeHead(200, {
      'Request-Id': requestId,
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      'X-Accel-Buffering': 'no',
    });
  }

  async #send<Value>(
    exchange: Exchange,
    values: AsyncIterable<Value>,
    head: (value: Value) => string,
  ): Promise<typeof streamed> {
    const { response } = exchange;
    const stopHeartbeat = this.#startHeartbeat(exchange);
    try {
      for await (const value of values) {
        if (exchange.isEnding) break;
        const isTaken = response.write(`${head(value)}data: ${JSON.stringify(value)}\n\n`);
        if (!isTaken) await drained(exchange);
      }
    } catch (error) {
      if (!exchange.isEnding) writeFailure(exchange, error);
    } finally {
      stopHeartbeat();
      response.end();
    }
    return streamed;
  }

  #startHeartbeat({ response }: Exchange): () => void {
    const { timers, heartbeatMs } = this.#options;
    let cancel: () => void;
    const beat = () => {
      if (!response.writableNeedDrain) response.write(': heartbeat\n\n');
      cancel = timers.after(heartbeatMs, beat);
    };
    cancel = timers.after(heartbeatMs, beat);
    return () => cancel();
  }
}

function lastEventId(exchange: Exchange): { after?: number } {
  const text = exchange.request.headers['last-event-id'];
  if (text === undefined || text === '') return {};
  if (typeof text === 'string' && /^\d{1,15}$/.test(text)) return { after: Number(text) };
  throw invalidRequest([{ in: 'header', path: 'Last-Event-ID', message: 'It is the sequence of an event.' }]);
}

function drained({ response, ending }: Exchange): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done);
      ending.removeEventListener('abort', done);
      resolve();
    };
    response.once('drain', done);
    ending.addEventListener('abort', done, { once: true });
    if (ending.aborted) done();
  });
}

/** The status is out already, so the last event tells the reader why there are no more; then the failure is logged. */
function writeFailure(exchange: Exchange, error: unknown): void {
  const refusal = isPlatformError(error)
    ? error
    : new PlatformError('internal', 'Something went wrong here. The request id finds it in the log.');
  const { code, message, details } = refusal;
  exchange.errorCode = code;
  const body = JSON.stringify({ error: { code, message, details, requestId: exchange.requestId } });
  exchange.response.write(`event: error\ndata: ${body}\n\n`);
  if (refusal !== error) throw error;
}
