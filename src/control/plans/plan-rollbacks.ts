/**
 * Rollback: every member's checkouts go back to what they stand on. It is decided by the state of the plan, and goes forward from there: one
 * member that fails stops no other, and what is left is listed and can be asked for again. A member that is gone counts as done; what was ever
 * read from it stays in the refs of that commit.
 */
import { AtMost } from '../../base/index.ts';
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  type KeyId,
  type MemberFailure,
  type PlanId,
  type PlanView,
  PlatformError,
  type routes,
} from '../../protocol/index.ts';
import type { PlanRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import type { Mutations } from '../mutations.ts';
import type { PlanLeases } from './plan-leases.ts';
import { checkBegunOn, type Member, type PlanRecords } from './plan-records.ts';
import type { PlanRuns } from './plan-runs.ts';
import type { PlanViews } from './plan-views.ts';
import type { PlanWork } from './plan-work.ts';
import { hasWork, membersWithoutSandbox } from './unfit-members.ts';

const droppedAtOnce = 4;

export interface RollbackParts {
  readonly plans: PlanRecords;
  readonly views: PlanViews;
  readonly mutations: Mutations;
  readonly leases: PlanLeases;
  readonly runs: PlanRuns;
  readonly work: PlanWork;
  readonly recover: (planId: PlanId) => Promise<void>;
}

export class PlanRollbacks {
  readonly #context: ControlContext;
  readonly #parts: RollbackParts;

  constructor(context: ControlContext, parts: RollbackParts) {
    this.#context = context;
    this.#parts = parts;
  }

  rollBack(
    caller: Caller,
    plan: string,
    conditions: Conditions,
    body: BodyOf<typeof routes.rollBackPlan>,
  ): Promise<PlanView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'rollBackPlan',
      conditions,
      request: { plan, body },
      effect: () => this.#run(caller, plan, conditions, body.waitMs),
    });
  }

  async #run(caller: Caller, name: string, conditions: Conditions, waitMs: number): Promise<PlanView> {
    const { plans, views, runs, recover } = this.#parts;
    const plan = await plans.get(caller, name);
    if (plan.state.kind === 'rolledBack') return await views.get(caller, plan.id);
    const run = runs.find(plan.id);
    const signal = new AbortController().signal;
    // Begun by a server that is gone: it is gone through with, by this one or whoever is at it already.
    if (plan.state.kind !== 'rollingBack') await this.#begin(caller, plan, conditions, waitMs);
    else if (run === undefined) await recover(plan.id);
    else await runs.waitFor(run, { waitMs, signal });
    return await views.get(caller, plan.id);
  }

  async #begin(caller: Caller, plan: PlanRecord, conditions: Conditions, waitMs: number): Promise<void> {
    const { runs, plans } = this.#parts;
    const what = { kind: 'rollback' as const, by: caller.keyId, startedAtMs: this.#context.clock.nowMs() };
    await runs.begin(plan.id, what, async (run) => {
      const event = (fence: number) => ({ kind: 'rollBack', fence }) as const;
      const tell = { kind: 'plan.rolling_back', data: { by: caller.keyId } };
      const begun = await plans.change(plan.id, { event, tell }, async (_tables, begun) => {
        checkBegunOn(begun, conditions);
        return begun;
      });
      await this.#context.faults.hit('after-plan-rolling-back');
      try {
        await this.carryOut(begun, { by: caller.keyId, waitMs, signal: run.stop.signal });
      } catch (error) {
        await this.#refuse(begun, error);
        throw error;
      }
    });
  }

  /** The members could not be had, and nothing was changed: the plan is as it was. */
  async #refuse(plan: PlanRecord, error: unknown): Promise<void> {
    if (!isPlatformError(error, 'lease_held') && !isPlatformError(error, 'lease_wait_timeout')) return;
    const change = {
      event: { kind: 'rollBackRefused' } as const,
      fence: plan.fence,
      tell: { kind: 'plan.rollback_refused', data: { why: error.message } },
    };
    await this.#parts.plans.change(plan.id, change, async () => {});
  }

  /** All that is left of it, also for whoever took it over. */
  async carryOut(
    plan: PlanRecord,
    how: { readonly by: KeyId; readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<void> {
    const { plans, leases } = this.#parts;
    const members = (await plans.members(plan.id)).filter(hasWork);
    const unfit = membersWithoutSandbox(members);
    const fit = members.filter((member) => !unfit.some(({ sandboxId }) => sandboxId === member.sandboxId));
    const wish = {
      plan,
      turn: plan.fence,
      keyId: how.by,
      reason: 'rollback',
      members: fit.map(({ sandboxId }) => sandboxId),
      targets: [],
      waitMs: how.waitMs,
      signal: how.signal,
    };
    await leases.holding(wish, async (hold) => {
      const few = new AtMost(droppedAtOnce);
      const results = await Promise.all(
        fit.map((member) => few.run(() => this.#drop(member, how.by, hold.tokenOf(member.sandboxId), hold.signal))),
      );
      if (how.signal.aborted) {
        throw new PlatformError('plan_interrupted', 'The server stops; the rollback goes on when it is back.');
      }
      await this.#context.faults.hit('before-plan-rolled-back');
      await this.#finish(plan, [...unfit, ...results.filter((one) => one !== undefined)]);
    });
    await this.#context.faults.hit('after-plan-rolled-back');
  }

  async #drop(
    { sandboxId, sandbox }: Member,
    createdBy: KeyId,
    leaseToken: number,
    signal: AbortSignal,
  ): Promise<MemberFailure | undefined> {
    try {
      await this.#parts.work.drop({ teamId: sandbox!.teamId, sandboxId, leaseToken, createdBy }, signal);
      await this.#context.faults.hit('after-plan-member-dropped');
      return undefined;
    } catch (error) {
      if (isPlatformError(error, 'sandbox_not_found')) return undefined;
      const { code, message } = isPlatformError(error) ? error : { code: 'internal', message: String(error) };
      return { sandboxId, code, message };
    }
  }

  async #finish(plan: PlanRecord, failures: readonly MemberFailure[]): Promise<void> {
    const kind = failures.length === 0 ? 'plan.rolled_back' : 'plan.rollback_incomplete';
    const change = {
      event: { kind: 'rolledBack', failures } as const,
      fence: plan.fence,
      tell: { kind, data: { failures } },
    };
    await this.#parts.plans.change(plan.id, change, async () => {});
  }
}
