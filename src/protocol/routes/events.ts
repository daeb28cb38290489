/** What happened, in order; what was asked under an idempotency key; what reconcile would do. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { instant, none, pageLimit, text } from '../schemas.ts';

export const eventView = z.object({
  /** Grows; resume a stream after the last one seen. */
  sequence: z.int(),
  kind: z.string(),
  sandboxId: idSchema('sandbox').nullable(),
  at: instant,
  data: z.record(z.string(), z.unknown()),
});
export type EventView = z.output<typeof eventView>;

export const listEvents = defineRoute({
  name: 'listEvents',
  method: 'GET',
  path: '/v1/events',
  summary:
    'Events after `after`, in order. With `Accept: text/event-stream` they are streamed, replay then live, each with its sequence as id; `Last-Event-ID` resumes. Events that are no longer kept are `output_dropped`.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({
    after: z.coerce.number().int().min(0).optional(),
    sandboxId: idSchema('sandbox').optional(),
    limit: pageLimit,
  }),
  body: none,
  result: z.object({ items: z.array(eventView), last: z.int() }),
  errors: ['output_dropped'],
});

export const operationView = z.object({
  id: idSchema('operation'),
  kind: z.string(),
  subjectId: z.string().nullable(),
  state: z.enum(['started', 'finished', 'interrupted']),
  startedAt: instant,
  finishedAt: instant.nullable(),
  /** What the request was answered with, once finished. */
  answer: z.unknown().nullable(),
});

export const getOperation = defineRoute({
  name: 'getOperation',
  method: 'GET',
  path: '/v1/operations/:operation',
  summary: 'What became of a mutation, by its operation id or by `key:` and its idempotency key. Kept for 24 hours.',
  scope: 'sandboxes:read',
  params: z.object({ operation: text({ maxLength: 300 }) }),
  query: none,
  body: none,
  result: operationView,
  errors: ['operation_not_found'],
});

export const webhookView = z.object({
  id: idSchema('webhook'),
  url: z.string(),
  kinds: z.array(z.string()),
  createdAt: instant,
  /** The last event delivered. */
  cursor: z.int(),
  failures: z.int(),
  lastError: z.string().nullable(),
});

export const createWebhook = defineRoute({
  name: 'createWebhook',
  method: 'POST',
  path: '/v1/webhooks',
  summary:
    'Delivers events by POST, in order, each at least once, with retries. `Atoll-Signature: t=…,v1=…` is the HMAC-SHA256 of `t.body` with the secret, which is in this answer only.',
  scope: 'webhooks:write',
  params: none,
  query: none,
  body: z.strictObject({
    url: z.url({ protocol: /^https?$/ }).max(2_000),
    kinds: z
      .array(text({ maxLength: 100 }))
      .max(50)
      .default([]),
  }),
  result: webhookView.extend({ secret: z.string() }),
  status: 201,
  errors: ['limit_exceeded'],
});

export const listWebhooks = defineRoute({
  name: 'listWebhooks',
  method: 'GET',
  path: '/v1/webhooks',
  summary: "The team's webhooks and how delivery goes.",
  scope: 'webhooks:write',
  params: none,
  query: none,
  body: none,
  result: z.object({ items: z.array(webhookView) }),
  errors: [],
});

export const deleteWebhook = defineRoute({
  name: 'deleteWebhook',
  method: 'DELETE',
  path: '/v1/webhooks/:webhookId',
  summary: 'Ends delivery.',
  scope: 'webhooks:write',
  params: z.object({ webhookId: idSchema('webhook') }),
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['webhook_not_found'],
});

export const reconcileActionView = z.object({
  kind: z.string(),
  sandboxId: z.string().nullable(),
  nodeId: z.string(),
  reason: z.string(),
});

export const reconcile = defineRoute({
  name: 'reconcile',
  method: 'POST',
  path: '/v1/reconcile',
  summary: 'Compares records with what the nodes report and settles the differences; with `dryRun` it only tells.',
  scope: 'admin',
  params: none,
  query: none,
  body: z.strictObject({ dryRun: z.boolean().default(false) }),
  result: z.object({
    actions: z.array(reconcileActionView),
    checkpoints: z.array(
      z.object({ kind: z.string(), checkpointId: idSchema('checkpoint'), nodeId: z.string(), reason: z.string() }),
    ),
    quarantined: z.array(z.object({ nodeId: z.string(), directory: z.string(), why: z.string() })),
    unreachable: z.array(z.string()),
  }),
  errors: [],
});
