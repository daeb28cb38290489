/**
 * Restore of a whole plan: everything is looked at first, then the intent is recorded, and from there it goes forward only. Each member that has
 * its files is noted; those that fail are tried again, here a few times and by recovery for as long as it takes.
 */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  type MemberFailure,
  type PlanCheckpointId,
  type PlanId,
  type PlanView,
  type PlatformError,
  type routes,
  type SandboxId,
} from '../../protocol/index.ts';
import type { PlanCheckpointRecord, PlanRecord, Readers } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { findEvent } from '../find-event.ts';
import type { Mutations, Operation } from '../mutations.ts';
import { pause } from '../pause.ts';
import type { SandboxRestores } from '../sandbox-restores.ts';
import { missingMembers } from './missing-members.ts';
import type { PlanHold, PlanLeases } from './plan-leases.ts';
import { checkBegunOn, membersOf, type PlanRecords, planNotFound } from './plan-records.ts';
import type { PlanRuns } from './plan-runs.ts';
import type { PlanViews } from './plan-views.ts';
import { membersWithoutSandbox, unfitError } from './unfit-members.ts';

/** How often a member is tried while its caller waits, and how long in between. */
const triesAtOnce = 3;
const retryMs = 500;

export interface PlanRestoreParts {
  readonly plans: PlanRecords;
  readonly views: PlanViews;
  readonly mutations: Mutations;
  readonly leases: PlanLeases;
  readonly runs: PlanRuns;
  readonly restores: SandboxRestores;
  readonly recover: (planId: PlanId) => Promise<void>;
}

export class PlanRestores {
  readonly #context: ControlContext;
  readonly #parts: PlanRestoreParts;

  constructor(context: ControlContext, parts: PlanRestoreParts) {
    this.#context = context;
    this.#parts = parts;
  }

  restore(
    caller: Caller,
    plan: string,
    conditions: Conditions,
    body: BodyOf<typeof routes.restorePlan>,
  ): Promise<PlanView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'restorePlan',
      conditions,
      request: { plan, body },
      effect: (operation) => this.#run(caller, plan, conditions, body, operation),
      resume: async (operation) => {
        const { id } = await this.#parts.plans.get(caller, plan);
        if (!(await this.#isBegun(caller, id, operation))) {
          return await this.#run(caller, plan, conditions, body, operation);
        }
        // It goes forward only, and members may have new work since it was done: never a second time.
        await this.#parts.recover(id);
        return await this.#parts.views.get(caller, id);
      },
    });
  }

  /** Whether an operation that was interrupted has begun it, and nobody has refused it since: events say so. */
  async #isBegun(caller: Caller, planId: PlanId, operation: Pick<Operation, 'id'>): Promise<boolean> {
    const begun = await findEvent(this.#context, caller, ({ kind, data }) => {
      return kind === 'plan.restoring' && data['operationId'] === operation.id;
    });
    if (begun === undefined) return false;
    const next = await findEvent(
      this.#context,
      caller,
      ({ kind, data }) => ['plan.restored', 'plan.restore_refused'].includes(kind) && data['planId'] === planId,
      begun.sequence,
    );
    return next?.kind !== 'plan.restore_refused';
  }

  async #run(
    caller: Caller,
    name: string,
    conditions: Conditions,
    body: BodyOf<typeof routes.restorePlan>,
    operation: Pick<Operation, 'id'>,
  ): Promise<PlanView> {
    const { plans, runs, views } = this.#parts;
    const plan = await plans.get(caller, name);
    const what = { kind: 'restore' as const, by: caller.keyId, startedAtMs: this.#context.clock.nowMs() };
    await runs.begin(plan.id, what, async (run) => {
      const { checkpoint: checkpointId } = body;
      const event = (fence: number) => ({ kind: 'restore', checkpointId, fence }) as const;
      const tell = { kind: 'plan.restoring', data: { checkpointId, by: caller.keyId, operationId: operation.id } };
      const begun = await plans.change(plan.id, { event, tell }, async (tables, begun) => {
        checkBegunOn(begun, conditions);
        await checkAll(tables, begun, checkpointId);
        return begun;
      });
      await this.#context.faults.hit('after-plan-restoring');
      await this.carryOut(begun, caller, { waitMs: body.waitMs, signal: run.stop.signal, isFirst: true });
    });
    return await views.get(caller, plan.id);
  }

  /** All that is left of it, also for whoever took it over. */
  async carryOut(
    plan: PlanRecord,
    caller: Caller,
    how: { readonly waitMs: number; readonly signal: AbortSignal; readonly isFirst: boolean },
  ): Promise<void> {
    const { state } = plan;
    const { waitMs, signal } = how;
    if (state.kind !== 'restoring') return;
    const checkpoint = await this.#context.store.read((tables) => tables.plans.findCheckpoint(state.checkpointId));
    if (checkpoint === undefined) throw planNotFound(state.checkpointId);
    const memberIds = (await this.#parts.plans.members(plan.id)).map(({ sandboxId }) => sandboxId);
    const left = checkpoint.members.filter(
      ({ sandboxId }) => memberIds.includes(sandboxId) && !state.done.includes(sandboxId),
    );
    const wish = {
      plan,
      turn: plan.fence,
      keyId: caller.keyId,
      reason: `restore of ${checkpoint.id}`,
      members: left.map(({ sandboxId }) => sandboxId),
      targets: [],
      waitMs,
      signal,
    };
    let isBegun = false;
    try {
      await this.#parts.leases.holding(wish, async (hold) => {
        isBegun = true;
        await this.#restoreAll(plan, caller, { ...checkpoint, members: left }, hold);
      });
    } catch (error) {
      // Whoever took it over cannot know that nothing was changed: one that has its files may not have been noted.
      if (!isBegun && isPlatformError(error))
        await (how.isFirst ? this.#refuse(plan, error) : this.#delay(plan, error));
      throw error;
    }
    await this.#context.faults.hit('after-plan-restored');
  }

  async #restoreAll(plan: PlanRecord, caller: Caller, checkpoint: PlanCheckpointRecord, hold: PlanHold): Promise<void> {
    const { plans } = this.#parts;
    const results = await Promise.all(checkpoint.members.map((member) => this.#restoreOne(plan, caller, member, hold)));
    const failures = results.filter((one) => one !== undefined);
    await this.#context.faults.hit('before-plan-restored');
    const { fence } = plan;
    const data = { checkpointId: checkpoint.id, failures };
    const change =
      failures.length === 0
        ? { event: { kind: 'restored' } as const, fence, tell: { kind: 'plan.restored', data } }
        : { event: { kind: 'restoreDelayed', failures } as const, fence, tell: { kind: 'plan.restore_delayed', data } };
    await plans.change(plan.id, change, async () => {});
  }

  async #restoreOne(
    plan: PlanRecord,
    caller: Caller,
    member: PlanCheckpointRecord['members'][number],
    hold: PlanHold,
  ): Promise<MemberFailure | undefined> {
    const { sandboxId, checkpointId: checkpoint } = member;
    for (let attempt = 1; ; attempt++) {
      try {
        const conditions = { leaseToken: hold.tokenOf(sandboxId) };
        await this.#parts.restores.restore(caller, sandboxId, conditions, { checkpoint });
        await this.#context.faults.hit('after-plan-member-restored');
        await this.#note(plan, sandboxId);
        return undefined;
      } catch (error) {
        if (!isPlatformError(error)) throw error;
        // One that is gone has no files to put back.
        if (error.code === 'sandbox_not_found') return undefined;
        const isLast = attempt === triesAtOnce || error.retry === 'never' || hold.signal.aborted;
        if (isLast) return { sandboxId, code: error.code, message: error.message };
      }
      await pause(this.#context.timers, retryMs, hold.signal);
    }
  }

  async #note(plan: PlanRecord, sandboxId: SandboxId): Promise<void> {
    const event = { kind: 'memberRestored', sandboxId } as const;
    const tell = { kind: 'plan.member_restored', data: { sandboxId } };
    await this.#parts.plans.change(plan.id, { event, fence: plan.fence, tell }, async () => {});
  }

  /** The members could not be had: whom it waits for is in the state, once. */
  async #delay(plan: PlanRecord, error: PlatformError): Promise<void> {
    const { state } = plan;
    if (state.kind !== 'restoring') return;
    const unnamed = { ...plan, state: { ...state, failures: [] } };
    const failures = await this.#context.store.read((tables) => missingMembers(this.#context, tables, unnamed));
    if (failures.length === 0 || JSON.stringify(failures) === JSON.stringify(state.failures)) return;
    const tell = {
      kind: 'plan.restore_delayed',
      data: { checkpointId: state.checkpointId, failures, why: error.message },
    };
    const event = { kind: 'restoreDelayed', failures } as const;
    await this.#parts.plans.change(plan.id, { event, fence: plan.fence, tell }, async () => {});
  }

  /** The members could not be had, and nothing was changed: the plan is as it was. */
  async #refuse(plan: PlanRecord, error: PlatformError): Promise<void> {
    const tell = { kind: 'plan.restore_refused', data: { why: error.message } };
    await this.#parts.plans.change(
      plan.id,
      { event: { kind: 'restoreRefused' }, fence: plan.fence, tell },
      async () => {},
    );
  }
}

/** Refuses unless every member is there, is in the checkpoint, and has its own checkpoint ready on its own node. */
async function checkAll(tables: Readers, plan: PlanRecord, id: PlanCheckpointId): Promise<void> {
  const checkpoint = await tables.plans.findCheckpoint(id);
  if (checkpoint?.planId !== plan.id || checkpoint.state !== 'ready') throw planNotFound(id);
  const members = await membersOf(tables, plan.id);
  const unfit = membersWithoutSandbox(members);
  for (const { sandboxId, sandbox } of members) {
    if (sandbox === undefined) continue;
    const own = checkpoint.members.find((one) => one.sandboxId === sandboxId);
    const record = own === undefined ? undefined : await tables.checkpoints.find(own.checkpointId);
    if (own === undefined) {
      unfit.push({ sandboxId, code: 'checkpoint_not_found', message: `It became a member after ${id} was made.` });
    } else if (record?.state !== 'ready' || record.nodeId !== sandbox.nodeId) {
      unfit.push({ sandboxId, code: 'checkpoint_not_usable', message: `Its checkpoint ${own.checkpointId} is gone.` });
    }
  }
  if (unfit.length > 0) throw unfitError(plan.id, unfit);
}
