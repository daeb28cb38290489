/** The calls about terminals as they stand on HTTP: JSON both ways, with what is typed as base64; output is a stream of items. */
import { z } from 'zod';
import { idSchema } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import type { Call, Stream } from './process-server.ts';
import { parseOrder } from './serve-call.ts';

const count = z.int().nonnegative();
const size = { columns: z.int().positive().max(0xffff), rows: z.int().positive().max(0xffff) };
const terminalOrder = lifeOrder.extend({ terminal: z.string() });
const changeOrder = terminalOrder.extend({ leaseToken: count.nullable() });
const resizeOrder = changeOrder.extend(size);
const destroyOrder = changeOrder.extend({ graceMs: count.max(0xffff_ffff) });
const openOrder = lifeOrder.extend({
  ...size,
  terminalId: idSchema('terminal'),
  name: z.string().nullable(),
  leaseToken: count.nullable(),
  command: z.union([z.string(), z.array(z.string())]).nullable(),
  cwd: z.string().nullable(),
  env: z.record(z.string(), z.string().nullable()),
  user: z.string().nullable(),
  timeoutMs: z.number().positive().nullable(),
});
const followOrder = terminalOrder.extend({
  from: z.strictObject({ cursor: count, skip: count }).nullable(),
  replayBytes: count,
});
const writeOrder = changeOrder.extend({
  bytes: z.base64().transform((text): Uint8Array => Buffer.from(text, 'base64')),
});
const signalOrder = changeOrder.extend({
  signal: z.int().min(1).max(64),
  target: z.enum(['foreground', 'leader', 'tree']),
});

export const terminalCalls: Readonly<Record<string, Call>> = {
  openTerminal: ({ terminals }, order) => terminals.open(parseOrder(openOrder, order)),
  getTerminal: ({ terminals }, order) => terminals.get(parseOrder(terminalOrder, order)),
  listTerminals: ({ terminals }, order) => terminals.list(parseOrder(lifeOrder, order)),
  writeTerminal: ({ terminals }, order) => terminals.write(parseOrder(writeOrder, order)),
  resizeTerminal: ({ terminals }, order) => terminals.resize(parseOrder(resizeOrder, order)),
  signalTerminal: ({ terminals }, order) => terminals.signal(parseOrder(signalOrder, order)),
  destroyTerminal: ({ terminals }, order) => terminals.destroy(parseOrder(destroyOrder, order)),
};

export const terminalStreams: Readonly<Record<string, Stream>> = {
  followTerminal: ({ terminals }, order, over) => terminals.follow(parseOrder(followOrder, order), over),
};
