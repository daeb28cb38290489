/** What the server asks of control about plans. */
import type { Caller } from '../control/index.ts';
import type {
  BodyOf,
  Conditions,
  PlanCheckpointId,
  PlanCommitId,
  QueryOf,
  routes,
  SandboxId,
} from '../protocol/index.ts';
import type { ShownResult } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<ShownResult<Routes[Name]>>;

/** `plan` is an id or a name everywhere. */
export interface PlansPort {
  readonly plans: {
    create(caller: Caller, conditions: Conditions, body: Body<'createPlan'>): Result<'createPlan'>;
    add(caller: Caller, plan: string, conditions: Conditions, sandboxId: SandboxId): Result<'addPlanMember'>;
    remove(caller: Caller, plan: string, conditions: Conditions, sandboxId: SandboxId): Result<'removePlanMember'>;
    delete(caller: Caller, plan: string, conditions: Conditions, options: { discard: boolean }): Promise<void>;
    readonly views: {
      get(caller: Caller, plan: string): Result<'getPlan'>;
      list(caller: Caller, query: QueryOf<Routes['listPlans']>): Result<'listPlans'>;
      status(caller: Caller, plan: string, signal: AbortSignal): Result<'getPlanStatus'>;
    };
    readonly commits: {
      /** A signal that aborts ends the waiting for a commit that somebody else asked for, and never a commit. */
      commit(
        caller: Caller,
        plan: string,
        conditions: Conditions,
        body: Body<'commitPlan'>,
        signal: AbortSignal,
      ): Result<'commitPlan'>;
      revert(
        caller: Caller,
        plan: string,
        conditions: Conditions,
        body: Body<'revertPlan'>,
        signal: AbortSignal,
      ): Result<'revertPlan'>;
      get(caller: Caller, plan: string, commitId: PlanCommitId): Result<'getPlanCommit'>;
      list(caller: Caller, plan: string): Result<'listPlanCommits'>;
    };
    readonly rollbacks: {
      rollBack(
        caller: Caller,
        plan: string,
        conditions: Conditions,
        body: Body<'rollBackPlan'>,
      ): Result<'rollBackPlan'>;
    };
    readonly checkpoints: {
      create(
        caller: Caller,
        plan: string,
        conditions: Conditions,
        body: Body<'createPlanCheckpoint'>,
      ): Result<'createPlanCheckpoint'>;
      list(caller: Caller, plan: string): Result<'listPlanCheckpoints'>;
      delete(caller: Caller, plan: string, conditions: Conditions, id: PlanCheckpointId): Promise<void>;
    };
    readonly restores: {
      restore(caller: Caller, plan: string, conditions: Conditions, body: Body<'restorePlan'>): Result<'restorePlan'>;
    };
    readonly recovery: { ask(caller: Caller): Result<'recoverPlans'> };
  };
}
