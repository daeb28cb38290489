/** The shapes of orders and records, checked where they come from outside this process: the network and the disk. */
import { z } from 'zod';
import { idSchema, networkPolicy, noNetwork } from '../protocol/index.ts';

const count = z.int().nonnegative();
const texts = z.record(z.string(), z.string());

export const lifeOrder = z.strictObject({ sandboxId: idSchema('sandbox'), generation: z.int().positive() });

export const settingsSchema = z.strictObject({
  metadata: texts,
  metadataVersion: count,
  expiresAtMs: count.nullable(),
  leaseToken: count,
  leaseHeld: z.boolean(),
  /** Records of before there was a choice have none. */
  network: networkPolicy.default(noNetwork),
  onExpiry: z.enum(['end', 'pause']),
  autoResume: z.boolean(),
  keepCheckpoints: z.int().positive().nullable(),
  change: z.strictObject({ by: z.string(), atMs: count, operationId: z.string().nullable() }),
});

export const specSchema = z.strictObject({
  template: z.string(),
  limits: z.strictObject({
    memoryBytes: z.int().positive(),
    cpuMillis: z.int().positive(),
    processes: z.int().positive(),
    diskBytes: z.int().positive().nullable(),
  }),
  env: texts,
  noNewPrivileges: z.boolean(),
});

export const markSchema = z.strictObject({
  sandboxId: idSchema('sandbox'),
  teamId: z.string(),
  name: z.string().nullable(),
  createdAtMs: count,
  createdBy: z.string(),
  isHidden: z.literal(true).optional(),
});

export const startOrder = lifeOrder.extend({ version: count, settings: settingsSchema });
export const applySettingsOrder = startOrder;
export const createOrder = startOrder.extend({
  fromCheckpoint: idSchema('checkpoint').nullable(),
  mark: markSchema,
  spec: specSchema,
});
export const stopOrder = lifeOrder.extend({ graceMs: z.int().nonnegative().max(0xffff_ffff) });
export const findRunOrder = lifeOrder.extend({ runId: z.string() });

/** An exec without its stdin, which travels as bytes behind it. */
export const execOrder = lifeOrder.extend({
  runId: z.string(),
  leaseToken: count.nullable(),
  command: z.union([z.string(), z.array(z.string())]),
  cwd: z.string().nullable(),
  env: z.record(z.string(), z.string().nullable()),
  user: z.string().nullable(),
  timeoutMs: z.int().positive().nullable(),
  outputLimitBytes: count,
});

/** Of a sandbox on its node. */
export const lifeSchema = z.union([
  z.strictObject({ kind: z.literal('running') }),
  z.strictObject({ kind: z.literal('paused'), atMs: z.int().nonnegative() }),
  z.strictObject({
    kind: z.literal('ended'),
    reason: z.enum(['requested', 'expired', 'crashed', 'machine_rebooted']),
    atMs: z.int().nonnegative(),
  }),
]);
