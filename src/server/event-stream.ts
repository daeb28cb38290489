/**
 * Events as a stream (SSE): replay from where the reader was, then live, each with its sequence as id. A reader whose stream ends connects
 * again and goes on after the last id it saw.
 */
import type { Timers } from '../base/index.ts';
import type { Caller } from '../control/index.ts';
import type { QueryOf, routes } from '../protocol/index.ts';
import type { ControlPort } from './control-port.ts';
import type { Exchange } from './exchange.ts';
import { invalidRequest } from './invalid-request.ts';
import { answerWithItems, type Beat, beginItems, type ItemFormat, sendItems } from './item-stream.ts';
import type { streamed } from './route-binding.ts';

type EventsQuery = QueryOf<(typeof routes)['listEvents']>;

export interface EventStreamsOptions {
  readonly events: ControlPort['events'];
  readonly timers: Timers;
  readonly heartbeatMs: number;
}

export class EventStreams {
  readonly #events: ControlPort['events'];
  readonly beat: Beat;

  constructor(options: EventStreamsOptions) {
    this.#events = options.events;
    this.beat = options;
  }

  isWanted(exchange: Exchange): boolean {
    return accepts(exchange, 'text/event-stream');
  }

  async answer(exchange: Exchange, caller: Caller, query: EventsQuery): Promise<typeof streamed> {
    const events = this.#events;
    const from = { ...query, ...lastEventId(exchange) };
    // Refuses here what is no longer kept, while an error can still be a status; and fixes where "from now on" begins.
    const { last } = await events.list(caller, { ...from, limit: 1 });
    const after = from.after ?? last;
    const start = { after, ...(from.sandboxId !== undefined && { sandboxId: from.sandboxId }) };
    const format = serverEvents<{ readonly sequence: number }>(({ sequence }) => `id: ${sequence}\n`);
    beginItems(exchange, format);
    // An id without data: a reader that loses the connection before the first event misses none.
    exchange.response.write(`id: ${after}\n\n`);
    return await sendItems(exchange, events.follow(caller, start, exchange.ending), format, this.beat);
  }

  /** A stream of values that have no place to resume from. */
  answerWith(exchange: Exchange, values: AsyncIterable<unknown>): Promise<typeof streamed> {
    return answerWithItems(
      exchange,
      values,
      serverEvents<unknown>(() => ''),
      this.beat,
    );
  }

  /** A stream that resumes: each value with the id to go on after. */
  answerFrom<Value>(
    exchange: Exchange,
    values: AsyncIterable<Value>,
    idOf: (value: Value) => string,
  ): Promise<typeof streamed> {
    return answerWithItems(
      exchange,
      values,
      serverEvents<Value>((value) => `id: ${idOf(value)}\n`),
      this.beat,
    );
  }
}

/** Whether the caller wants a stream of this type. */
export function accepts({ request, method }: Exchange, contentType: string): boolean {
  return request.headers.accept?.includes(contentType) === true && method !== 'HEAD';
}

/** `head`: the lines of a message before its data. */
export function serverEvents<Value>(
  head: (value: Value) => string,
  dataOf: (value: Value) => unknown = (value) => value,
): ItemFormat<Value> {
  return {
    contentType: 'text/event-stream',
    heartbeat: ': heartbeat\n\n',
    item: (value) => [`${head(value)}data: ${JSON.stringify(dataOf(value))}\n\n`],
    failure: (body) => `event: error\ndata: ${body}\n\n`,
  };
}

function lastEventId(exchange: Exchange): { after?: number } {
  const text = exchange.request.headers['last-event-id'];
  if (text === undefined || text === '') return {};
  if (typeof text === 'string' && /^\d{1,15}$/.test(text)) return { after: Number(text) };
  throw invalidRequest([{ in: 'header', path: 'Last-Event-ID', message: 'It is the sequence of an event.' }]);
}
