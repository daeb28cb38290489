/** How the calls about processes stand on HTTP: JSON both ways, with the bytes of an input as base64; output is a stream of items. */
import { z } from 'zod';
import { idSchema } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';

const count = z.int().nonnegative();
const leaseToken = count.nullable();
const signal = z.int().min(1).max(64);
const graceMs = z.int().nonnegative().max(0xffff_ffff);
export const processOrder = lifeOrder.extend({ process: z.string() });

export const startProcessOrder = lifeOrder.extend({
  processId: idSchema('process'),
  request: z.string().optional(),
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
