/**
 * An answer that is a stream of items, each as the format of the answer writes it.
 *
 * A reader that is slow is waited for: the next item is asked for when the last one left this process. A silent stream carries a
 * heartbeat now and then, so that both sides notice a dead connection. A server that stops ends the stream.
 */
import type { Timers } from '../base/index.ts';
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Exchange } from './exchange.ts';
import { streamed } from './route-binding.ts';

export type Piece = string | Uint8Array;

export interface ItemFormat<Item> {
  readonly contentType: string;
  readonly heartbeat: Piece;
  item(item: Item): readonly Piece[];
  /** The last one: why there is no more. `body` is JSON. */
  failure(body: string): Piece;
}

export interface Beat {
  readonly timers: Timers;
  readonly heartbeatMs: number;
}

/** The first item is waited for, so that a refusal is still a status. */
export async function answerWithItems<Item>(
  exchange: Exchange,
  items: AsyncIterable<Item>,
  format: ItemFormat<Item>,
  beat: Beat,
  status = 200,
): Promise<typeof streamed> {
  const iterator = items[Symbol.asyncIterator]();
  const first = await iterator.next();
  beginItems(exchange, format, status);
  if (!first.done) write(exchange, format.item(first.value));
  return await sendItems(exchange, { [Symbol.asyncIterator]: () => iterator }, format, beat);
}

export function beginItems(
  { response, requestId }: Exchange,
  { contentType }: Pick<ItemFormat<never>, 'contentType'>,
  status = 200,
): void {
  response.writeHead(status, {
    'Request-Id': requestId,
    'Content-Type': contentType,
    'Cache-Control': 'no-store',
    'X-Accel-Buffering': 'no',
  });
}

export async function sendItems<Item>(
  exchange: Exchange,
  items: AsyncIterable<Item>,
  format: ItemFormat<Item>,
  beat: Beat,
): Promise<typeof streamed> {
  const { response } = exchange;
  const stopHeartbeat = startHeartbeat(exchange, format.heartbeat, beat);
  try {
    for await (const item of items) {
      if (exchange.isEnding) break;
      if (!write(exchange, format.item(item))) await drained(exchange);
    }
  } catch (error) {
    if (!exchange.isEnding) writeFailure(exchange, format, error);
  } finally {
    stopHeartbeat();
    response.end();
  }
  return streamed;
}

/** Whether there is room for more. */
function write({ response }: Exchange, pieces: readonly Piece[]): boolean {
  let hasRoom = true;
  for (const piece of pieces) hasRoom = response.write(piece);
  return hasRoom;
}

function startHeartbeat({ response }: Exchange, heartbeat: Piece, { timers, heartbeatMs }: Beat): () => void {
  let cancel: () => void;
  const beat = () => {
    if (!response.writableNeedDrain) response.write(heartbeat);
    cancel = timers.after(heartbeatMs, beat);
  };
  cancel = timers.after(heartbeatMs, beat);
  return () => cancel();
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

/** The status is out already, so the last item tells the reader why there are no more; then the failure is logged. */
function writeFailure<Item>(exchange: Exchange, format: ItemFormat<Item>, error: unknown): void {
  const refusal = isPlatformError(error)
    ? error
    : new PlatformError('internal', 'Something went wrong here. The request id finds it in the log.');
  const { code, message, details } = refusal;
  exchange.errorCode = code;
  exchange.response.write(
    format.failure(JSON.stringify({ error: { code, message, details, requestId: exchange.requestId } })),
  );
  if (refusal !== error) throw error;
}
