/** Leases: rights to act that end by themselves. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { instant, none, text } from '../schemas.ts';

export const leaseLimits = {
  resources: 16,
  ttlMinMs: 100,
  ttlMaxMs: 24 * 3600 * 1000,
  waitMaxMs: 3600 * 1000,
  waitersPerResource: 1_000,
} as const;

const leaseParams = z.object({ leaseId: idSchema('lease') });
const ttlMs = z.int().min(leaseLimits.ttlMinMs).max(leaseLimits.ttlMaxMs);

/** A sandbox id, or `name:` and a name of the team's own. */
const resource = z.union([
  idSchema('sandbox'),
  z
    .string()
    .regex(
      /^name:[a-zA-Z0-9][a-zA-Z0-9._/-]{0,99}$/,
      'A resource is a sandbox id, or "name:" and letters, digits, ".", "_", "/", "-".',
    ),
]);

export const leaseView = z.object({
  id: idSchema('lease'),
  /** In the order given, each with its own token. */
  grants: z.array(z.object({ resource: z.string(), token: z.int() })),
  holder: z.string(),
  reason: z.string(),
  keyId: idSchema('key'),
  ttlMs: z.int(),
  grantedAt: instant,
  /** What is left of the term. */
  endsInMs: z.number(),
});
export type LeaseView = z.output<typeof leaseView>;

export const acquireLease = defineRoute({
  name: 'acquireLease',
  method: 'POST',
  path: '/v1/leases',
  summary:
    'Acquires an exclusive lease on all of the resources or none, waiting in a fair queue up to `waitMs`. The grant counts when the nodes have acknowledged its tokens, which is before the answer.',
  scope: 'leases:write',
  params: none,
  query: none,
  body: z.strictObject({
    resources: z.array(resource).min(1).max(leaseLimits.resources),
    holder: text({ maxLength: 100 }),
    reason: z.string().max(500).default(''),
    ttlMs: ttlMs.default(30_000),
    waitMs: z.int().min(0).max(leaseLimits.waitMaxMs).default(0),
  }),
  result: leaseView,
  status: 201,
  errors: [
    'sandbox_not_found',
    'sandbox_wrong_state',
    'lease_held',
    'lease_wait_timeout',
    'limit_exceeded',
    'node_unavailable',
    'outcome_unknown',
  ],
});

export const renewLease = defineRoute({
  name: 'renewLease',
  method: 'POST',
  path: '/v1/leases/:leaseId/renew',
  summary: 'Begins the term anew, from now. The token stays.',
  scope: 'leases:write',
  params: leaseParams,
  query: none,
  body: z.strictObject({ ttlMs: ttlMs.optional() }),
  result: leaseView,
  errors: ['lease_not_found'],
});

export const releaseLease = defineRoute({
  name: 'releaseLease',
  method: 'DELETE',
  path: '/v1/leases/:leaseId',
  summary: 'Gives it up; the next in the queue gets it. Of one that has ended: succeeds.',
  scope: 'leases:write',
  params: leaseParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: [],
});

export const holdLease = defineRoute({
  name: 'holdLease',
  method: 'GET',
  path: '/v1/leases/:leaseId/hold',
  summary:
    'Binds the lease to this connection (`text/event-stream`): it is renewed while the connection lives. When it drops, the holder has five seconds to come back with another `hold` or `renew`; then the lease is freed.',
  scope: 'leases:write',
  params: leaseParams,
  query: none,
  body: none,
  result: leaseView,
  errors: ['lease_not_found'],
});

export const listLeases = defineRoute({
  name: 'listLeases',
  method: 'GET',
  path: '/v1/leases',
  summary: 'The leases that are held, with holder, reason and age, and how many wait.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({ resource: z.string().optional() }),
  body: none,
  result: z.object({ items: z.array(leaseView.extend({ waiting: z.int() })) }),
  errors: [],
});
