/** The output of a process on the wire: as server-sent events, for whoever reads text, or as frames, which leave its bytes as they are. */
import { itemViewOf, type StartedItem } from '../control/index.ts';
import {
  type OutputFrameKind,
  outputFrameHeadBytes,
  outputFrameKinds,
  outputFramesType,
  writeOutputFrameHead,
} from '../protocol/index.ts';
import { accepts, serverEvents } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import type { ItemFormat } from './item-stream.ts';

/** `undefined`: no stream is wanted. */
export function outputFormatFor(
  exchange: Exchange,
  encoding: 'utf8' | 'base64' = 'utf8',
): ItemFormat<StartedItem> | undefined {
  if (accepts(exchange, outputFramesType)) return outputFrames;
  return accepts(exchange, 'text/event-stream') ? outputEvents(encoding) : undefined;
}

function outputEvents(encoding: 'utf8' | 'base64'): ItemFormat<StartedItem> {
  return serverEvents<StartedItem>(
    (item) => `${item.kind === 'process' ? 'event: process\n' : ''}id: ${item.cursor}\n`,
    (item) => (item.kind === 'process' ? item.process : itemViewOf(item, encoding)),
  );
}

const outputFrames: ItemFormat<StartedItem> = {
  contentType: outputFramesType,
  heartbeat: frameOf(outputFrameKinds.heartbeat, 0, ''),
  item: (item) => {
    const { position } = item;
    if (item.kind === 'process') return [frameOf(outputFrameKinds.process, position, JSON.stringify(item.process))];
    if (item.kind !== 'output') {
      return [frameOf(outputFrameKinds.item, position, JSON.stringify(itemViewOf(item, 'utf8')))];
    }
    const head = Buffer.allocUnsafe(outputFrameHeadBytes);
    writeOutputFrameHead(head, { kind: outputFrameKinds[item.stream], length: item.bytes.byteLength, position });
    return item.bytes.byteLength < copiedBytes ? [Buffer.concat([head, item.bytes])] : [head, item.bytes];
  },
  failure: (body) => frameOf(outputFrameKinds.error, 0, body),
};

/** What is smaller goes out as one piece. */
const copiedBytes = 16 * 1024;

function frameOf(kind: OutputFrameKind, position: number, text: string): Buffer {
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(outputFrameHeadBytes + length);
  writeOutputFrameHead(frame, { kind, length, position });
  frame.write(text, outputFrameHeadBytes);
  return frame;
}
