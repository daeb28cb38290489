/**
 * Output over HTTP, as a stream of frames, each a JSON header with the bytes of the item behind it, so that output costs no more than its own
 * size. A stream that is over ends with a frame that says so; without it the connection broke.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { encodeFrame, type Frame, FrameReader } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { unreachable } from './call-failures.ts';
import { errorBodyOf, heartbeatMs, packBytes, parseErrorBody, unpackBytes, watchSilenceMs } from './node-wire.ts';
import { drained } from './serve-call.ts';

const frameTypes = { item: 1, error: 2, heartbeat: 3, end: 4 } as const;
/** An item has at most 64 KiB of output. */
const frameLimitBytes = 1024 * 1024;
const heartbeatFrame = encodeFrame(frameTypes.heartbeat);
const endFrame = encodeFrame(frameTypes.end);

type Item = { readonly kind: 'output'; readonly bytes: Uint8Array } | { readonly kind: string };

export async function sendItems(
  response: ServerResponse,
  items: AsyncIterable<Item>,
  options: { readonly over: AbortSignal; readonly asRefusal: (error: unknown) => PlatformError },
): Promise<void> {
  const { over, asRefusal } = options;
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  response.flushHeaders();
  const heartbeat = setInterval(() => {
    if (!response.writableNeedDrain) response.write(heartbeatFrame);
  }, heartbeatMs);
  try {
    for await (const item of items) {
      if (!response.write(itemFrame(item))) await drained(response);
    }
    // A node that closes has not read to the end: the caller must come back, not believe that this was all.
    if (!over.aborted) response.write(endFrame);
  } catch (error) {
    response.write(encodeFrame(frameTypes.error, packBytes(errorBodyOf(asRefusal(error)))));
  } finally {
    clearInterval(heartbeat);
    response.end();
  }
}

/** Opened when the first item is asked for. */
export async function* readItems<Received extends Item>(
  open: () => Promise<IncomingMessage>,
  signal: AbortSignal,
): AsyncGenerator<Received, void> {
  let response: IncomingMessage | undefined;
  try {
    response = await open();
    response.setTimeout(watchSilenceMs, () => response?.destroy(new Error('The node is silent.')));
    const reader = new FrameReader({ limitBytes: frameLimitBytes });
    for await (const chunk of response as AsyncIterable<Buffer>) {
      for (const frame of reader.push(chunk)) {
        const item = parseFrame(frame);
        if (item === 'end') return;
        if (item !== undefined) yield item as Received;
      }
    }
    throw new Error('The stream broke off.');
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof PlatformError) throw error;
    throw unreachable(error);
  } finally {
    response?.destroy();
  }
}

function itemFrame(item: Item): Buffer {
  if (!('bytes' in item) || item.kind !== 'output') return encodeFrame(frameTypes.item, packBytes(item));
  const { bytes, ...header } = item;
  return encodeFrame(frameTypes.item, packBytes(header, bytes));
}

/** `undefined` for a heartbeat, `end` for the end; throws the refusal that it carries. */
function parseFrame(frame: Frame): Item | 'end' | undefined {
  if (frame.type === frameTypes.heartbeat) return undefined;
  if (frame.type === frameTypes.end) return 'end';
  const { header, bytes } = unpackBytes(frame.body);
  if (frame.type === frameTypes.error) throw parseErrorBody(header) ?? new Error('The node failed without saying why.');
  const item = header as { readonly kind: string };
  return item.kind === 'output' ? ({ ...item, bytes } as Item) : item;
}
