/** Sandboxes: create, look, change, stop, start, delete. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { networkPolicy } from '../network.ts';
import { defineRoute } from '../route.ts';
import { stateKinds } from '../sandbox-state.ts';
import { cursor, instant, limits, metadataMap, metadataPatch, none, pageLimit, text } from '../schemas.ts';
import { attachWanted, workspaceLimits } from './workspaces.ts';

export const sandboxParams = z.object({ sandboxId: idSchema('sandbox') });

const onExpiry = z.enum(['stop', 'pause']);
/** How many checkpoints of a sandbox are kept, the newest ones; null: all. */
const keepCheckpoints = z.int().min(1).max(1_000).nullable();

export const sandboxView = z.object({
  id: idSchema('sandbox'),
  name: z.string().nullable(),
  state: z.enum(stateKinds),
  /** Why it is in this state, where there is something to say: `expired`, `crashed`, a sentence for `failed`. */
  reason: z.string().nullable(),
  /** False: its node is out of reach, and what is shown is what was last known. */
  reachable: z.boolean(),
  generation: z.int(),
  version: z.int(),
  template: z.string(),
  metadata: z.record(z.string(), z.string()),
  metadataVersion: z.int(),
  env: z.record(z.string(), z.string()),
  limits: z.object({
    memoryBytes: z.int(),
    cpuMillis: z.int(),
    processes: z.int(),
    diskBytes: z.int().nullable(),
  }),
  expiresAt: z.iso.datetime().nullable(),
  network: networkPolicy,
  /** How and since when it is paused; null: it is not. `leftMs` is what was left of its time. */
  paused: z.object({ mode: z.enum(['memory', 'files']), since: instant, leftMs: z.int().nullable() }).nullable(),
  /** What happens at the deadline. */
  onExpiry: z.enum(['stop', 'pause']),
  /** Whether a command, a file operation or a preview resumes it. */
  autoResume: z.boolean(),
  /** How many of its checkpoints are kept; null: all. */
  keepCheckpoints: z.int().nullable(),
  lease: z.object({ holder: z.string(), reason: z.string(), token: z.int() }).nullable(),
  nodeId: idSchema('node'),
  createdAt: z.iso.datetime(),
  createdBy: idSchema('key'),
  userId: idSchema('user').nullable(),
  updatedAt: z.iso.datetime(),
});
export type SandboxView = z.output<typeof sandboxView>;

export const createSandbox = defineRoute({
  name: 'createSandbox',
  method: 'POST',
  path: '/v1/sandboxes',
  summary:
    'Creates a sandbox and answers when commands can run in it. With `ifExists: "get"` and a name, the sandbox that has the name is the answer, with status 200.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: z.strictObject({
    name: text({ maxLength: 100 })
      .regex(/^[a-zA-Z0-9][a-zA-Z0-9._-]*$/, 'A name is letters, digits, ".", "_" and "-".')
      .optional(),
    ifExists: z.enum(['refuse', 'get']).default('refuse'),
    /** Begins with the files of this checkpoint. What is not given below is then as the checkpoint has it, metadata included. */
    checkpoint: idSchema('checkpoint').optional(),
    /** Without it and without a checkpoint: `host`. */
    template: text({ maxLength: 100 }).optional(),
    metadata: metadataMap.optional(),
    env: z.record(z.string(), z.string()).optional(),
    limits: limits.default({}),
    /** null: it never ends by itself. */
    expiresInMs: z
      .int()
      .min(1)
      .max(365 * 24 * 3600 * 1000)
      .nullable()
      .default(null),
    /** At the deadline: `stop` (the default) ends it, `pause` lets it stand still in memory. */
    onExpiry: onExpiry.default('stop'),
    autoResume: z.boolean().default(false),
    keepCheckpoints: keepCheckpoints.default(null),
    noNewPrivileges: z.boolean().optional(),
    /** In place when it is there, each as a checkout in which git works. */
    workspaces: z.array(attachWanted).max(workspaceLimits.attachments).default([]),
    /** Default: the checkpoint's, or the server's, which is `full` unless its operator has set another. */
    network: networkPolicy.optional(),
  }),
  result: sandboxView,
  status: 201,
  errors: [
    'name_taken',
    'template_not_found',
    'checkpoint_not_found',
    'checkpoint_not_usable',
    'layer_incompatible',
    'storage_unsupported',
    'template_not_built',
    'template_start_failed',
    'limit_exceeded',
    'node_unavailable',
    'outcome_unknown',
    'isolation_failed',
    'network_unavailable',
    'workspace_not_found',
    'workspace_wrong_state',
    'file_exists',
  ],
});

export const listSandboxes = defineRoute({
  name: 'listSandboxes',
  method: 'GET',
  path: '/v1/sandboxes',
  summary: 'Lists sandboxes, newest first.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({
    state: z.array(z.enum(stateKinds)).optional(),
    /** `key=value`; every one given must hold. */
    metadata: z.array(z.string().regex(/^[^=]+=/, 'A metadata filter is key=value.')).optional(),
    namePrefix: z.string().optional(),
    /** Only those made with this key's user (or, for a key without a user, with this key). */
    mine: z.enum(['true', 'false']).optional(),
    cursor: cursor.optional(),
    limit: pageLimit,
  }),
  body: none,
  result: z.object({ items: z.array(sandboxView), nextCursor: z.string().nullable() }),
  errors: [],
});

export const getSandbox = defineRoute({
  name: 'getSandbox',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId',
  summary: 'One sandbox.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: sandboxView,
  errors: ['sandbox_not_found'],
});

export const updateSandbox = defineRoute({
  name: 'updateSandbox',
  method: 'PATCH',
  path: '/v1/sandboxes/:sandboxId',
  summary:
    'Changes metadata, deadline, network and what happens by itself together, all or none. `If-Match` takes the version of the sandbox.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    metadata: metadataPatch.optional(),
    /** Keys that must have these values now (null: be absent), or nothing is changed. */
    expectMetadata: z.record(z.string(), z.string().nullable()).optional(),
    /** From now on; null: it never ends by itself. */
    expiresInMs: z
      .int()
      .min(1)
      .max(365 * 24 * 3600 * 1000)
      .nullable()
      .optional(),
    /** Replaces the whole policy; it holds for open connections too. */
    network: networkPolicy.optional(),
    onExpiry: onExpiry.optional(),
    autoResume: z.boolean().optional(),
    keepCheckpoints: keepCheckpoints.optional(),
  }),
  result: sandboxView,
  errors: [
    'sandbox_not_found',
    'sandbox_wrong_state',
    'stale_generation',
    'version_mismatch',
    'lease_held',
    'lease_lost',
    'node_unavailable',
    'outcome_unknown',
    'network_unavailable',
  ],
});

export const lifeErrors = [
  'sandbox_not_found',
  'sandbox_wrong_state',
  'stale_generation',
  'version_mismatch',
  'lease_held',
  'lease_lost',
  'node_unavailable',
  'outcome_unknown',
] as const;

export const stopSandbox = defineRoute({
  name: 'stopSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/stop',
  summary: 'Ends every process; the files stay. Stopping a stopped sandbox succeeds and changes nothing.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    /** Between TERM and KILL. */
    graceMs: z.int().min(0).max(60_000).default(2_000),
  }),
  result: sandboxView,
  errors: [...lifeErrors],
});

export const startSandbox = defineRoute({
  name: 'startSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/start',
  summary:
    'Begins a new generation on the files of a stopped sandbox. Starting a running sandbox succeeds and changes nothing.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    expiresInMs: z
      .int()
      .min(1)
      .max(365 * 24 * 3600 * 1000)
      .nullable()
      .optional(),
  }),
  result: sandboxView,
  errors: [...lifeErrors, 'isolation_failed', 'limit_exceeded', 'network_unavailable'],
});

export const deleteSandbox = defineRoute({
  name: 'deleteSandbox',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId',
  summary: 'Ends it and removes its files, in every state. With `force` also while somebody else holds its lease.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: z.strictObject({ force: z.enum(['true', 'false']).optional() }),
  body: none,
  result: none,
  status: 204,
  errors: [
    'sandbox_not_found',
    'plan_busy',
    'stale_generation',
    'version_mismatch',
    'lease_held',
    'lease_lost',
    'node_unavailable',
    'outcome_unknown',
  ],
});

// ---- metadata

export const metadataView = z.object({ metadata: z.record(z.string(), z.string()), version: z.int() });

export const getMetadata = defineRoute({
  name: 'getMetadata',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/metadata',
  summary: 'The metadata and its own version.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: metadataView,
  errors: ['sandbox_not_found'],
});

export const patchMetadata = defineRoute({
  name: 'patchMetadata',
  method: 'PATCH',
  path: '/v1/sandboxes/:sandboxId/metadata',
  summary: 'Merges: a text sets, null or "" removes, absent keys stay. `If-Match` takes the version of the metadata.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: metadataPatch,
  result: metadataView,
  errors: [...lifeErrors],
});

export const listMetadataHistory = defineRoute({
  name: 'listMetadataHistory',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/metadata/history',
  summary: 'Every change of the metadata that is kept (the newest 1,000), newest first.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({ cursor: cursor.optional(), limit: pageLimit }),
  body: none,
  result: z.object({
    items: z.array(
      z.object({
        version: z.int(),
        at: instant,
        by: z.string(),
        operationId: z.string().nullable(),
        changes: z.record(z.string(), z.string().nullable()),
      }),
    ),
    nextCursor: z.string().nullable(),
    /** How many changes are kept at most. */
    kept: z.int(),
  }),
  errors: ['sandbox_not_found'],
});
