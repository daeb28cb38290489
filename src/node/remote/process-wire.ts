/**
 * How the calls about processes stand on HTTP: JSON both ways, with the bytes of an input as base64; and output as a stream of frames, each a
 * JSON header with the bytes behind it, so that output costs no more than its own size.
 */
import { z } from 'zod';
import { encodeFrame, type Frame } from '../../base/index.ts';
import { idSchema, type PlatformError, type ProcessItem } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import { errorBodyOf, packBytes, parseErrorBody, unpackBytes } from './node-wire.ts';

const count = z.int().nonnegative();
const leaseToken = count.nullable();
const signal = z.int().min(1).max(64);
const graceMs = z.int().nonnegative().max(0xffff_ffff);
export const processOrder = lifeOrder.extend({ process: z.string() });

export const startProcessOrder = lifeOrder.extend({
  processId: idSchema('process'),
  name: z.string().nullable(),
  leaseToken,
  command: z.union([z.string(), z.array(z.string())]),
  cwd: z.string().nullable(),
  env: z.record(z.string(), z.string().nullable()),
  user: z.string().nullable(),
  stdinOpen: z.boolean(),
  timeoutMs: z.int().positive().nullable(),
  graceMs,
  keepBytes: z.int().positive(),
  autoCleanup: z.boolean(),
});
export const listProcessesOrder = lifeOrder.extend({
  sessionId: idSchema('session').nullable(),
  after: z.string().nullable(),
  limit: z.int().positive(),
});
export const followProcessOrder = processOrder.extend({ cursor: count, live: z.boolean() });
export const writeStdinOrder = processOrder.extend({
  leaseToken,
  bytes: z.base64().transform((text): Uint8Array => Buffer.from(text, 'base64')),
  offset: count.nullable(),
  close: z.boolean(),
});
export const signalProcessOrder = processOrder.extend({
  leaseToken,
  signal,
  target: z.enum(['leader', 'tree']),
  graceMs: graceMs.nullable(),
});
export const killProcessesOrder = lifeOrder.extend({ leaseToken, signal, graceMs: graceMs.nullable() });
export const waitProcessOrder = processOrder.extend({ for: z.enum(['exit', 'tree']), timeoutMs: count });
export const removeProcessOrder = processOrder.extend({ leaseToken });
export const probePortOrder = lifeOrder.extend({
  port: z.int().min(1).max(65_535),
  family: z.union([z.literal(4), z.literal(6)]).nullable(),
  httpPath: z.string().nullable(),
  timeoutMs: z.int().positive(),
});

const frameTypes = { item: 1, error: 2, heartbeat: 3, end: 4 } as const;
/** An item has at most 64 KiB of output. */
export const outputFrameLimitBytes = 1024 * 1024;

export const heartbeatFrame = encodeFrame(frameTypes.heartbeat);
/** Tells a stream that is over from a connection that broke. */
export const endFrame = encodeFrame(frameTypes.end);

export function itemFrame(item: ProcessItem): Buffer {
  if (item.kind !== 'output') return encodeFrame(frameTypes.item, packBytes(item));
  const { bytes, ...header } = item;
  return encodeFrame(frameTypes.item, packBytes(header, bytes));
}

export function errorFrame(error: PlatformError): Buffer {
  return encodeFrame(frameTypes.error, packBytes(errorBodyOf(error)));
}

/** `undefined` for a heartbeat, `end` for the end; throws the refusal that it carries. */
export function parseOutputFrame(frame: Frame): ProcessItem | 'end' | undefined {
  if (frame.type === frameTypes.heartbeat) return undefined;
  if (frame.type === frameTypes.end) return 'end';
  const { header, bytes } = unpackBytes(frame.body);
  if (frame.type === frameTypes.error) throw parseErrorBody(header) ?? new Error('The node failed without saying why.');
  const item = header as ProcessItem;
  return item.kind === 'output' ? { ...item, bytes } : item;
}
