/** Checkpoints of sandboxes, and what is made from them: restore in place, forks, pause and resume. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { networkPolicy } from '../network.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, limits, metadataMap, none, pageLimit, text } from '../schemas.ts';
import { lifeErrors, sandboxParams, sandboxView } from './sandboxes.ts';

export const branchLimits = {
  /** Sandboxes of one fork. */
  forks: 100,
  /** Checkpoints of one team. */
  checkpoints: 10_000,
} as const;

const yearMs = 365 * 24 * 3600 * 1000;
const lifetime = z.int().min(1).max(yearMs).nullable();

export const checkpointStates = ['creating', 'ready', 'deleting', 'lost'] as const;

export const checkpointView = z.object({
  id: idSchema('checkpoint'),
  sandboxId: idSchema('sandbox'),
  name: z.string().nullable(),
  /** `lost`: its node does not have it any more. Only a `ready` one can be used. */
  state: z.enum(checkpointStates),
  /** Which life of the sandbox it is of. */
  generation: z.int(),
  template: z.string(),
  /** As of that instant. */
  metadata: z.record(z.string(), z.string()),
  /** What it refers to, what it shares with others included; null until it is ready. */
  sizeBytes: z.int().nullable(),
  /** How long the processes stood still, rounded up; 0 when none ran, null until it is ready. */
  frozenMs: z.int().nullable(),
  createdAt: instant,
  createdBy: idSchema('key'),
  /** null: it is kept until somebody deletes it. */
  expiresAt: instant.nullable(),
});
export type CheckpointView = z.output<typeof checkpointView>;

const checkpointParams = z.object({ checkpointId: idSchema('checkpoint') });
const storageErrors = ['limit_exceeded', 'storage_failed', 'sandbox_unavailable'] as const;
const sourceErrors = ['checkpoint_not_found', 'checkpoint_not_usable', 'layer_incompatible', 'layer_damaged'] as const;

export const createCheckpoint = defineRoute({
  name: 'createCheckpoint',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/checkpoints',
  summary:
    'Keeps the files of a running, paused or stopped sandbox as of one instant. Its processes stand still for that instant and go on.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    name: text({ maxLength: 100 }).optional(),
    /** null or absent: it is kept until somebody deletes it. */
    expiresInMs: lifetime.default(null),
  }),
  result: checkpointView,
  status: 201,
  errors: [...lifeErrors, ...storageErrors],
});

export const listCheckpoints = defineRoute({
  name: 'listCheckpoints',
  method: 'GET',
  path: '/v1/checkpoints',
  summary: 'Lists checkpoints, newest first; those of sandboxes that are gone too.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({
    sandboxId: idSchema('sandbox').optional(),
    name: z.string().optional(),
    cursor: cursor.optional(),
    limit: pageLimit,
  }),
  body: none,
  result: z.object({ items: z.array(checkpointView), nextCursor: z.string().nullable() }),
  errors: [],
});

export const getCheckpoint = defineRoute({
  name: 'getCheckpoint',
  method: 'GET',
  path: '/v1/checkpoints/:checkpointId',
  summary: 'One checkpoint.',
  scope: 'sandboxes:read',
  params: checkpointParams,
  query: none,
  body: none,
  result: checkpointView,
  errors: ['checkpoint_not_found'],
});

export const deleteCheckpoint = defineRoute({
  name: 'deleteCheckpoint',
  method: 'DELETE',
  path: '/v1/checkpoints/:checkpointId',
  summary:
    'Deletes a checkpoint, when nothing is being made from it any more. What was made from it goes on without it.',
  scope: 'sandboxes:write',
  params: checkpointParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['checkpoint_not_found', 'plan_busy', 'node_unavailable', 'outcome_unknown'],
});

export const restoreSandbox = defineRoute({
  name: 'restoreSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/restore',
  summary:
    "Puts the files of a checkpoint in place of the sandbox's own and begins a new generation on them, all or nothing. Id, name and metadata stay.",
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({ checkpoint: idSchema('checkpoint') }),
  result: sandboxView,
  errors: [...lifeErrors, ...sourceErrors, ...storageErrors, 'isolation_failed', 'network_unavailable'],
});

const forkResult = z.object({
  sandbox: sandboxView.nullable(),
  error: z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()) }).nullable(),
});

export const forkSandbox = defineRoute({
  name: 'forkSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/fork',
  summary:
    'Makes up to 100 sandboxes that begin with the files of this one as of one instant. Each succeeds or fails by itself; the sandbox goes on.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    count: z.int().min(1).max(branchLimits.forks).default(1),
    /** `inherit`, the default: the source's as of that instant. */
    metadata: z.union([z.literal('inherit'), metadataMap]).default('inherit'),
    /** Over the source's. */
    env: z.record(z.string(), z.string()).optional(),
    limits: limits.default({}),
    /** Default: the source's. */
    network: networkPolicy.optional(),
    expiresInMs: lifetime.default(null),
    onExpiry: z.enum(['stop', 'pause']).default('stop'),
    autoResume: z.boolean().default(false),
  }),
  result: z.object({ items: z.array(forkResult) }),
  status: 201,
  errors: [...lifeErrors, ...storageErrors, 'storage_unsupported'],
});

export const pauseSandbox = defineRoute({
  name: 'pauseSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/pause',
  summary:
    'Pauses a sandbox: with `memory` every process stands still and keeps its memory; with `files` every process ends and all memory is given back. The deadline waits. Pausing a paused sandbox succeeds and changes nothing.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  /** `image`, memory kept on disk, is refused with `pause_unsupported`. */
  body: z.strictObject({ mode: z.enum(['memory', 'files', 'image']).default('memory') }),
  result: sandboxView,
  errors: [...lifeErrors, 'pause_unsupported', 'sandbox_unavailable'],
});

export const resumeSandbox = defineRoute({
  name: 'resumeSandbox',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/resume',
  summary:
    'Resumes a paused sandbox; after a pause with `files` that begins a new generation. Resuming a running sandbox succeeds and changes nothing.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    /** Absent: what was left when it was paused, and five minutes where its deadline has paused it; null: it never ends by itself. */
    expiresInMs: lifetime.optional(),
  }),
  result: sandboxView,
  errors: [...lifeErrors, 'isolation_failed', 'limit_exceeded', 'network_unavailable', 'sandbox_unavailable'],
});
