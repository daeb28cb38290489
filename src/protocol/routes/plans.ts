/** Plans: sandboxes whose changes are committed to their workspaces together, or not at all. */
import { z } from 'zod';
import { idSchema, isId } from '../ids.ts';
import { memberFailure, planState, planStateKinds } from '../plan-state.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, none, pageLimit, text } from '../schemas.ts';

export const planLimits = {
  /** Of one team. */
  plans: 1_000,
  members: 64,
  /** Attempts to commit that are remembered of one plan; the one that was published always is. */
  commits: 100,
  checkpoints: 20,
  checks: 4,
  checkMaxMs: 10 * 60 * 1000,
  waitMaxMs: 3600 * 1000,
} as const;

const name = z
  .string()
  .regex(/^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$/, 'A name is up to 100 letters, digits, ".", "_" and "-".')
  .refine((value) => !isId('plan', value), 'A name does not look like an id.');
/** An id, or a name in this team. */
const planParams = z.object({ plan: text({ maxLength: 100 }) });
const commitParams = planParams.extend({ commitId: idSchema('planCommit') });
const checkpointParams = planParams.extend({ checkpointId: idSchema('planCheckpoint') });
const waitMs = z.int().min(0).max(planLimits.waitMaxMs).default(30_000);

const versionRef = z.object({ number: z.int(), commit: z.string() });
const failure = z.object({ code: z.string(), message: z.string() });
const counts = { files: z.int(), insertions: z.int(), deletions: z.int() };

const conflictSide = z.object({ mode: z.string(), blob: z.string(), sizeBytes: z.int() }).nullable();
const planConflict = z.object({
  path: z.string(),
  kind: z.enum(['content', 'modifyDelete', 'addAdd', 'type', 'rename', 'binary']),
  base: conflictSide,
  ours: conflictSide,
  theirs: conflictSide,
  /** Whose changes are in the way: another member's, or null for the workspace's own head. */
  withSandboxId: idSchema('sandbox').nullable(),
});

const memberTarget = z.object({
  workspaceId: idSchema('workspace'),
  workspace: z.string(),
  path: z.string(),
  /** What its checkout stands on. */
  base: versionRef,
  before: versionRef.nullable(),
  after: versionRef.nullable(),
  /** Between the base and what the sandbox has. */
  ...counts,
  /** What a version cannot hold: sockets, nested repositories and the like. */
  leftOut: z.array(z.string()),
  conflicts: z.array(planConflict),
});

export const planCommitView = z.object({
  id: idSchema('planCommit'),
  planId: idSchema('plan'),
  planName: z.string(),
  /** `revert`: it takes an earlier commit back. */
  kind: z.enum(['commit', 'revert']),
  mode: z.enum(['atomic', 'bestEffort']),
  dryRun: z.boolean(),
  /** Only `committed` and `partial` have moved a workspace. */
  state: z.enum(['preparing', 'committed', 'partial', 'nothing', 'conflict', 'aborted']),
  /** Of one that was aborted: asking again, with a new id, may succeed. */
  retryable: z.boolean(),
  message: z.string(),
  author: z.object({ name: z.string(), email: z.string() }),
  by: idSchema('key'),
  startedAt: instant,
  finishedAt: instant.nullable(),
  /** By workspace id. */
  targets: z.array(
    z.object({
      workspaceId: idSchema('workspace'),
      workspace: z.string(),
      state: z.enum(['published', 'wouldPublish', 'unchanged', 'conflict', 'notPublished']),
      /** The earliest that a member's checkout stands on. */
      base: versionRef,
      /** The head that the result stands on. */
      before: versionRef,
      after: versionRef.nullable(),
      /** The commit that was made ready. */
      prepared: z.string().nullable(),
      /** Between `before` and the result. */
      ...counts,
      error: failure.nullable(),
    }),
  ),
  /** In the order of merging. */
  members: z.array(
    z.object({
      position: z.int(),
      sandboxId: idSchema('sandbox'),
      sandboxName: z.string().nullable(),
      state: z.enum(['committed', 'unchanged', 'conflict', 'failed', 'notCommitted']),
      /** Whether what it changed can be taken back. */
      undoable: z.boolean(),
      targets: z.array(memberTarget),
      error: failure.nullable(),
    }),
  ),
  checks: z.array(
    z.object({
      command: z.union([z.string(), z.array(z.string())]),
      exitCode: z.int().nullable(),
      timedOut: z.boolean(),
      /** The end of what it wrote. */
      output: z.string(),
      durationMs: z.number(),
    }),
  ),
  /** What is kept at the homes of workspaces, for recovery. */
  retained: z.array(z.object({ workspaceId: idSchema('workspace'), hold: z.string() })),
  retainedUntil: instant.nullable(),
  timings: z.object({
    waitMs: z.number(),
    collectMs: z.number(),
    combineMs: z.number(),
    checksMs: z.number(),
    publishMs: z.number(),
    totalMs: z.number(),
  }),
  /** Why nothing was published. */
  error: failure.extend({ details: z.record(z.string(), z.unknown()) }).nullable(),
});
export type PlanCommitView = z.output<typeof planCommitView>;

const planMember = z.object({
  sandboxId: idSchema('sandbox'),
  position: z.int(),
  addedAt: instant,
  addedBy: idSchema('key'),
  /** null: it is gone. */
  sandbox: z.object({ name: z.string().nullable(), state: z.string(), leaseHolder: z.string().nullable() }).nullable(),
  attachments: z.array(
    z.object({ workspaceId: idSchema('workspace'), workspace: z.string(), path: z.string(), base: versionRef }),
  ),
});

export const planView = z.object({
  id: idSchema('plan'),
  name: z.string(),
  state: planState,
  /** Of what is published; null: nothing is. */
  commitId: idSchema('planCommit').nullable(),
  version: z.int(),
  members: z.array(planMember),
  createdAt: instant,
  createdBy: idSchema('key'),
  updatedAt: instant,
});
export type PlanView = z.output<typeof planView>;

export const planCheckpointView = z.object({
  id: idSchema('planCheckpoint'),
  planId: idSchema('plan'),
  name: z.string().nullable(),
  state: z.enum(['creating', 'ready', 'deleting']),
  members: z.array(z.object({ sandboxId: idSchema('sandbox'), checkpointId: idSchema('checkpoint') })),
  /** Of all its members' together; what they share is counted for each. */
  sizeBytes: z.int(),
  createdAt: instant,
  createdBy: idSchema('key'),
});
export type PlanCheckpointView = z.output<typeof planCheckpointView>;

/** What a plan has not committed. */
export const planStatus = z.object({
  plan: planView,
  /** In order; `error`: it could not be looked at. */
  members: z.array(
    z.object({
      sandboxId: idSchema('sandbox'),
      changes: z.array(z.object({ workspaceId: idSchema('workspace'), workspace: z.string(), ...counts })),
      error: failure.nullable(),
    }),
  ),
  files: z.int(),
  /** How many versions' worth of changes: one for each checkout that differs from its base. */
  commits: z.int(),
});
export type PlanStatus = z.output<typeof planStatus>;

const found = ['plan_not_found'] as const;
const changed = [...found, 'plan_wrong_state', 'plan_busy', 'version_mismatch'] as const;
const held = ['lease_held', 'lease_wait_timeout', 'node_unavailable', 'outcome_unknown'] as const;

export const createPlan = defineRoute({
  name: 'createPlan',
  method: 'POST',
  path: '/v1/plans',
  summary: 'Makes a plan of these sandboxes, or of none yet. A sandbox belongs to one plan at a time.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: z.strictObject({ name, members: z.array(idSchema('sandbox')).max(planLimits.members).default([]) }),
  result: planView,
  status: 201,
  errors: ['name_taken', 'limit_exceeded', 'sandbox_not_found', 'plan_member_taken'],
});

export const listPlans = defineRoute({
  name: 'listPlans',
  method: 'GET',
  path: '/v1/plans',
  summary: 'Lists plans, newest first.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({ state: z.enum(planStateKinds).optional(), cursor: cursor.optional(), limit: pageLimit }),
  body: none,
  result: z.object({ items: z.array(planView), nextCursor: z.string().nullable() }),
  errors: [],
});

export const getPlan = defineRoute({
  name: 'getPlan',
  method: 'GET',
  path: '/v1/plans/:plan',
  summary: 'One plan, by id or name, with its members and what they have attached.',
  scope: 'sandboxes:read',
  params: planParams,
  query: none,
  body: none,
  result: planView,
  errors: [...found],
});

export const getPlanStatus = defineRoute({
  name: 'getPlanStatus',
  method: 'GET',
  path: '/v1/plans/:plan/status',
  summary: 'What the members of a plan have changed and not committed, counted in their files as they are now.',
  scope: 'sandboxes:read',
  params: planParams,
  query: none,
  body: none,
  result: planStatus,
  errors: [...found],
});

export const addPlanMember = defineRoute({
  name: 'addPlanMember',
  method: 'PUT',
  path: '/v1/plans/:plan/members/:sandboxId',
  summary: 'Adds a sandbox as the last in order. One that is a member already stays where it is.',
  scope: 'sandboxes:write',
  params: planParams.extend({ sandboxId: idSchema('sandbox') }),
  query: none,
  body: none,
  result: planView,
  errors: [...changed, 'sandbox_not_found', 'plan_member_taken', 'limit_exceeded'],
});

export const removePlanMember = defineRoute({
  name: 'removePlanMember',
  method: 'DELETE',
  path: '/v1/plans/:plan/members/:sandboxId',
  summary: 'Takes a sandbox out of a plan; its files stay as they are. Of one that is no member: succeeds.',
  scope: 'sandboxes:write',
  params: planParams.extend({ sandboxId: idSchema('sandbox') }),
  query: none,
  body: none,
  result: planView,
  errors: [...changed],
});

export const commitPlan = defineRoute({
  name: 'commitPlan',
  method: 'POST',
  path: '/v1/plans/:plan/commit',
  summary:
    'Publishes the changes of every member to their workspaces, all or nothing. What came of it is the answer: conflicts and aborts too. The same commit id gives the same answer.',
  scope: 'sandboxes:write',
  params: planParams,
  query: none,
  body: z.strictObject({
    /** Chosen by the caller to be able to ask again; absent: a new one, or the one that is under way. */
    commitId: idSchema('planCommit').optional(),
    mode: z.enum(['atomic', 'bestEffort']).default('atomic'),
    message: text({ maxLength: 10_000 }).optional(),
    author: z.strictObject({ name: text({ maxLength: 200 }), email: text({ maxLength: 200 }) }).optional(),
    /** Commands that must succeed on the merged result, in a sandbox made for it. */
    checks: z
      .array(
        z.strictObject({
          command: z.union([z.array(z.string()).min(1).max(1_000), text({ maxLength: 100_000 })]),
          cwd: text({ maxLength: 4_095 }).optional(),
          timeoutMs: z.int().min(1).max(planLimits.checkMaxMs).default(600_000),
        }),
      )
      .max(planLimits.checks)
      .default([]),
    /** Everything but the publishing. */
    dryRun: z.boolean().default(false),
    /** Where nobody changed anything, the plan is committed all the same. */
    allowEmpty: z.boolean().default(false),
    /** The commit whose check asks this: a commit of the same plan would wait for itself, and is refused. */
    withinCommitId: idSchema('planCommit').optional(),
    /** For leases that others hold, and for a commit of the plan that is under way. */
    waitMs,
  }),
  result: planCommitView,
  errors: [...changed, 'plan_members_unfit', ...held],
});

export const getPlanCommit = defineRoute({
  name: 'getPlanCommit',
  method: 'GET',
  path: '/v1/plans/:plan/commits/:commitId',
  summary: 'What became of one attempt to commit a plan.',
  scope: 'sandboxes:read',
  params: commitParams,
  query: none,
  body: none,
  result: planCommitView,
  errors: [...found],
});

export const listPlanCommits = defineRoute({
  name: 'listPlanCommits',
  method: 'GET',
  path: '/v1/plans/:plan/commits',
  summary: 'The attempts to commit a plan, newest first.',
  scope: 'sandboxes:read',
  params: planParams,
  query: none,
  body: none,
  result: z.object({ items: z.array(planCommitView) }),
  errors: [...found],
});

export const revertPlan = defineRoute({
  name: 'revertPlan',
  method: 'POST',
  path: '/v1/plans/:plan/revert',
  summary: 'Takes a committed plan back with a new version of every target, all or nothing.',
  scope: 'sandboxes:write',
  params: planParams,
  query: none,
  body: z.strictObject({
    commitId: idSchema('planCommit').optional(),
    message: text({ maxLength: 10_000 }).optional(),
    waitMs,
  }),
  result: planCommitView,
  errors: [...changed, ...held],
});

export const rollBackPlan = defineRoute({
  name: 'rollBackPlan',
  method: 'POST',
  path: '/v1/plans/:plan/rollback',
  summary:
    "Puts every member's checkouts back to what they stand on, and ends the plan. Members that could not be put back are listed, and it can be asked for again.",
  scope: 'sandboxes:write',
  params: planParams,
  query: none,
  body: z.strictObject({ waitMs }),
  result: planView,
  errors: [...changed, ...held],
});

export const createPlanCheckpoint = defineRoute({
  name: 'createPlanCheckpoint',
  method: 'POST',
  path: '/v1/plans/:plan/checkpoints',
  summary: 'Keeps the files of every member while nobody may run anything in one of them.',
  scope: 'sandboxes:write',
  params: planParams,
  query: none,
  body: z.strictObject({ name: text({ maxLength: 100 }).optional(), waitMs }),
  result: planCheckpointView,
  status: 201,
  errors: [...changed, ...held, 'plan_members_unfit', 'limit_exceeded'],
});

export const listPlanCheckpoints = defineRoute({
  name: 'listPlanCheckpoints',
  method: 'GET',
  path: '/v1/plans/:plan/checkpoints',
  summary: 'The checkpoints of a plan, newest first.',
  scope: 'sandboxes:read',
  params: planParams,
  query: none,
  body: none,
  result: z.object({ items: z.array(planCheckpointView) }),
  errors: [...found],
});

export const deletePlanCheckpoint = defineRoute({
  name: 'deletePlanCheckpoint',
  method: 'DELETE',
  path: '/v1/plans/:plan/checkpoints/:checkpointId',
  summary: 'Deletes a checkpoint of a plan, unless it is being restored.',
  scope: 'sandboxes:write',
  params: checkpointParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: [...changed],
});

export const restorePlan = defineRoute({
  name: 'restorePlan',
  method: 'POST',
  path: '/v1/plans/:plan/restore',
  summary:
    'Puts the files of a checkpoint of the plan into every member, all or nothing: what was begun is finished, by the server itself if need be.',
  scope: 'sandboxes:write',
  params: planParams,
  query: none,
  body: z.strictObject({ checkpoint: idSchema('planCheckpoint'), waitMs }),
  result: planView,
  errors: [...changed, ...held, 'plan_members_unfit'],
});

export const recoverPlans = defineRoute({
  name: 'recoverPlans',
  method: 'POST',
  path: '/v1/plans/recover',
  summary: 'Finishes or gives up what was interrupted, and tidies up after commits, as the server does by itself.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: none,
  result: z.object({
    actions: z.array(z.object({ kind: z.string(), planId: idSchema('plan'), outcome: z.string() })),
    /** Those that are not finished yet, and what they wait for. */
    waiting: z.array(z.object({ planId: idSchema('plan'), failures: z.array(memberFailure) })),
  }),
  errors: [],
});

export const deletePlan = defineRoute({
  name: 'deletePlan',
  method: 'DELETE',
  path: '/v1/plans/:plan',
  summary:
    'Deletes a plan; its sandboxes and versions stay. Refused while members have changes that are in no version, unless `discard`.',
  scope: 'sandboxes:write',
  params: planParams,
  query: z.strictObject({ discard: z.enum(['true', 'false']).optional() }),
  body: none,
  result: none,
  status: 204,
  errors: [...changed, 'plan_unmerged', 'node_unavailable'],
});
