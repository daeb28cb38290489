/**
 * The life of a plan as it is recorded. `nextPlanState` (control/plans/plan-lifecycle.ts) decides every change of it.
 *
 *   open ──commit──► committing ──decided──► committed ──revert──► committing ──decided──► reverted
 *    │ ▲                 └──abandoned──► open (or committed, where a revert was abandoned)
 *    │ └──restored── restoring ◄──restore── open
 *    └──rollback──► rollingBack ──done──► rolledBack
 *                        └──failed──► rollbackIncomplete ──rollback──► rollingBack
 *
 *   open                 Members come and go. Nothing of it is in a workspace that was not there before.
 *   committing           Its members are fixed, and pinned by a lease of the plan. Nothing is visible until it is committed.
 *   committed            Every target has its version, in one transaction. Final but for a revert.
 *   reverted             Every target has a version that takes the commit back. Final.
 *   rollingBack          Members are put back to their bases, each as a whole. It goes forward only.
 *   rolledBack           Every member that is there stands on its base. Final.
 *   rollbackIncomplete   Those that are named could not be put back; the others are. It can be asked for again.
 *   restoring            Members get the files of one checkpoint of the plan. It goes forward only; where it waits for somebody it can be deleted.
 */
import { z } from 'zod';
import { idSchema } from './ids.ts';

/** A member for which a step did not succeed, and why. */
export const memberFailure = z.object({
  sandboxId: idSchema('sandbox'),
  code: z.string(),
  message: z.string(),
});
export type MemberFailure = z.output<typeof memberFailure>;

const fence = z.int();

export const planState = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('open') }),
  z.object({
    kind: z.literal('committing'),
    commitId: idSchema('planCommit'),
    /** Grows with everything that begins on a plan: whoever comes with an earlier one is refused. */
    fence,
    /** The commit that it takes back; null: it is a commit of the members. */
    revertsId: idSchema('planCommit').nullable(),
  }),
  z.object({ kind: z.literal('committed'), commitId: idSchema('planCommit') }),
  z.object({ kind: z.literal('reverted'), commitId: idSchema('planCommit'), revertId: idSchema('planCommit') }),
  z.object({
    kind: z.literal('rollingBack'),
    fence,
    /** What it goes back to if it is refused before it has changed anything. */
    before: z.array(memberFailure).nullable(),
  }),
  z.object({ kind: z.literal('rolledBack') }),
  z.object({ kind: z.literal('rollbackIncomplete'), failures: z.array(memberFailure) }),
  z.object({
    kind: z.literal('restoring'),
    checkpointId: idSchema('planCheckpoint'),
    fence,
    /** Those that have their files. */
    done: z.array(idSchema('sandbox')),
    /** Those that are tried again. */
    failures: z.array(memberFailure),
  }),
]);
export type PlanState = z.output<typeof planState>;
export const planStateKinds = [
  'open',
  'committing',
  'committed',
  'reverted',
  'rollingBack',
  'rolledBack',
  'rollbackIncomplete',
  'restoring',
] as const satisfies readonly PlanState['kind'][];

/** In these something is under way, and whoever does it holds the plan. */
export const busyPlanStates = [
  'committing',
  'rollingBack',
  'restoring',
] as const satisfies readonly PlanState['kind'][];
/** In these a sandbox belongs to the plan, and to no other. */
export const livePlanStates = [
  'open',
  ...busyPlanStates,
  'rollbackIncomplete',
] as const satisfies readonly PlanState['kind'][];
