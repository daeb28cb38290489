/**
 * Checkpoints of a whole plan: every member stands still under the plan's lease while each of their files is kept, so that all are of one moment.
 *
 * Invariants:
 *  - It is recorded with the names of what it is made of before the first is made: whatever a crash leaves is found and removed.
 *  - Nothing that it is made of is removed while its record is there.
 */
import {
  type BodyOf,
  type Conditions,
  newId,
  type PlanCheckpointId,
  type PlanCheckpointView,
  PlatformError,
  planLimits,
  type routes,
  type SandboxId,
} from '../../protocol/index.ts';
import type { PlanCheckpointMember, PlanCheckpointRecord, PlanRecord, Readers } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { Checkpoints } from '../checkpoints.ts';
import type { ControlContext } from '../context.ts';
import { derivedId } from '../derived-ids.ts';
import type { Mutations } from '../mutations.ts';
import type { SandboxPauses } from '../sandbox-pauses.ts';
import { type PlanHold, type PlanLeases, planLeaseId } from './plan-leases.ts';
import { nextPlanState } from './plan-lifecycle.ts';
import { checkPlanVersion, getPlan, type Member, type PlanRecords, planNotFound, tellOf } from './plan-records.ts';
import type { PlanRuns } from './plan-runs.ts';
import { membersWithoutSandbox, unfitError } from './unfit-members.ts';

export interface PlanCheckpointParts {
  readonly plans: PlanRecords;
  readonly mutations: Mutations;
  readonly leases: PlanLeases;
  readonly runs: PlanRuns;
  readonly checkpoints: Checkpoints;
  readonly pauses: SandboxPauses;
}

export class PlanCheckpoints {
  readonly #context: ControlContext;
  readonly #parts: PlanCheckpointParts;

  constructor(context: ControlContext, parts: PlanCheckpointParts) {
    this.#context = context;
    this.#parts = parts;
  }

  create(
    caller: Caller,
    plan: string,
    conditions: Conditions,
    body: BodyOf<typeof routes.createPlanCheckpoint>,
  ): Promise<PlanCheckpointView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'createPlanCheckpoint',
      conditions,
      request: { plan, body },
      subject: () => newId('planCheckpoint', this.#context.random),
      effect: ({ subjectId }) => this.#create(caller, plan, conditions, subjectId as PlanCheckpointId, body),
      resume: async ({ subjectId }) => {
        const id = subjectId as PlanCheckpointId;
        const found = await this.#context.store.read((tables) => tables.plans.findCheckpoint(id));
        if (found?.state === 'ready') return await this.#view(found);
        // What was interrupted is removed; this makes it under names of its own.
        const another = newId('planCheckpoint', this.#context.random);
        return await this.#create(caller, plan, conditions, another, body);
      },
    });
  }

  async #create(
    caller: Caller,
    name: string,
    conditions: Conditions,
    id: PlanCheckpointId,
    body: BodyOf<typeof routes.createPlanCheckpoint>,
  ): Promise<PlanCheckpointView> {
    const { plans, runs, leases } = this.#parts;
    const plan = await plans.get(caller, name);
    const what = { kind: 'checkpoint' as const, by: caller.keyId, startedAtMs: this.#context.clock.nowMs() };
    return await runs.begin(plan.id, what, async (run) => {
      let record = await this.#record(caller, plan, conditions, id, body.name ?? null);
      await this.#context.faults.hit('after-plan-checkpoint-recorded');
      const wish = {
        plan,
        turn: id,
        keyId: caller.keyId,
        reason: `checkpoint ${id}`,
        members: record.members.map(({ sandboxId }) => sandboxId),
        targets: [],
        waitMs: body.waitMs,
        signal: run.stop.signal,
      };
      try {
        await leases.holding(wish, async (hold) => {
          record = await this.#asTheyAre(record);
          await this.#take(caller, record, hold);
        });
        return await this.#view(await this.#ready(record));
      } catch (error) {
        await this.#discard(record);
        throw error;
      }
    });
  }

  #record(
    caller: Caller,
    plan: PlanRecord,
    conditions: Conditions,
    id: PlanCheckpointId,
    name: string | null,
  ): Promise<PlanCheckpointRecord> {
    const { store, clock, serverRun } = this.#context;
    return store.transact(async (tables) => {
      const current = await getPlan(tables, caller, plan.id);
      checkPlanVersion(current, conditions);
      nextPlanState(current.state, { kind: 'change' });
      const kept = await tables.plans.checkpoints({ planId: plan.id });
      if (kept.length >= planLimits.checkpoints) {
        const message = `A plan has at most ${planLimits.checkpoints} checkpoints.`;
        throw new PlatformError('limit_exceeded', message, { details: { limit: planLimits.checkpoints } });
      }
      const members = await this.#fitMembers(tables, current);
      const record: PlanCheckpointRecord = {
        ...{ id, planId: plan.id, teamId: plan.teamId, name, state: 'creating', serverRun },
        members: members.map(({ sandboxId }) => ({
          sandboxId,
          checkpointId: derivedId('checkpoint', `${id} ${sandboxId}`),
          // Nobody stands still because of it before the lease is held.
          wasRunning: false,
        })),
        ...{ createdAtMs: clock.nowMs(), createdBy: caller.keyId },
      };
      await tables.plans.putCheckpoint(record);
      return record;
    });
  }

  /** A checkpoint of something that is not there is an error now, and not when it is wanted back. */
  async #fitMembers(tables: Readers, plan: PlanRecord): Promise<readonly Pick<Member, 'sandboxId' | 'sandbox'>[]> {
    const members: Member[] = [];
    for (const member of await tables.plans.members(plan.id)) {
      members.push({ ...member, sandbox: await tables.sandboxes.find(member.sandboxId), attachments: [] });
    }
    const unfit = membersWithoutSandbox(members);
    if (unfit.length > 0 || members.length === 0) throw unfitError(plan.id, unfit);
    return members;
  }

  /** Until the lease was held members could be paused, stopped or started: those that run now are those that go on afterwards. */
  #asTheyAre(record: PlanCheckpointRecord): Promise<PlanCheckpointRecord> {
    return this.#context.store.transact(async (tables) => {
      const members: PlanCheckpointMember[] = [];
      for (const member of record.members) {
        const sandbox = await tables.sandboxes.find(member.sandboxId);
        members.push({ ...member, wasRunning: sandbox?.state.kind === 'running' });
      }
      const present = { ...record, members };
      await tables.plans.putCheckpoint(present);
      return present;
    });
  }

  /** All stand still, then each is kept, then those that ran go on. */
  async #take(caller: Caller, record: PlanCheckpointRecord, hold: PlanHold): Promise<void> {
    const { pauses, checkpoints } = this.#parts;
    const running = record.members.filter(({ wasRunning }) => wasRunning);
    const conditionsOf = (sandboxId: SandboxId): Conditions => ({ leaseToken: hold.tokenOf(sandboxId) });
    try {
      await allOf(running, ({ sandboxId }) =>
        pauses.pause(caller, sandboxId, conditionsOf(sandboxId), { mode: 'memory' }),
      );
      await this.#context.faults.hit('after-plan-members-paused');
      await allOf(record.members, ({ sandboxId, checkpointId }) =>
        checkpoints.takeOf(caller, sandboxId, conditionsOf(sandboxId), {
          ...{ id: checkpointId, name: null, isHidden: true, expiresAtMs: null },
          ...{ leaseToken: hold.tokenOf(sandboxId), createdBy: caller.keyId },
        }),
      );
      await this.#context.faults.hit('after-plan-members-kept');
    } finally {
      await allOf(running, ({ sandboxId }) => pauses.resume(caller, sandboxId, conditionsOf(sandboxId), {}));
    }
  }

  async #ready(record: PlanCheckpointRecord): Promise<PlanCheckpointRecord> {
    const { store, events, clock } = this.#context;
    const ready: PlanCheckpointRecord = { ...record, state: 'ready' };
    await store.transact(async (tables) => {
      const plan = await tables.plans.find(record.planId);
      if (plan === undefined) throw planNotFound(record.planId);
      await tables.plans.putCheckpoint(ready);
      const data = { checkpointId: record.id, checkpointName: record.name };
      await tellOf(tables, { ...plan, updatedAtMs: clock.nowMs() }, { kind: 'plan.checkpoint_created', data });
    });
    events.notify();
    await this.#context.faults.hit('after-plan-checkpoint-ready');
    return ready;
  }

  async list(caller: Caller, plan: string): Promise<{ items: PlanCheckpointView[] }> {
    return await this.#context.store.read(async (tables) => {
      const { id: planId } = await getPlan(tables, caller, plan);
      const items: PlanCheckpointView[] = [];
      for (const one of await tables.plans.checkpoints({ planId })) items.push(await viewIn(tables, one));
      return { items };
    });
  }

  async delete(caller: Caller, plan: string, conditions: Conditions, id: PlanCheckpointId): Promise<void> {
    await this.#parts.mutations.run({
      caller,
      kind: 'deletePlanCheckpoint',
      conditions,
      request: { plan, id },
      effect: async () => {
        const found = await this.#context.store.transact(async (tables) => {
          const record = await getPlan(tables, caller, plan);
          const checkpoint = await tables.plans.findCheckpoint(id);
          if (checkpoint?.planId !== record.id) throw planNotFound(id);
          if (checkpoint.state === 'creating' || isRestored(record, id)) throw inUse(record, id);
          await tables.plans.putCheckpoint({ ...checkpoint, state: 'deleting' });
          return checkpoint;
        });
        await this.#discard(found);
      },
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** What a crash left of making or removing some; how many were settled. */
  async settle(): Promise<PlanCheckpointRecord[]> {
    const { store, serverRun } = this.#context;
    const left = await store.read((tables) => tables.plans.checkpoints({ states: ['creating', 'deleting'] }));
    const settled: PlanCheckpointRecord[] = [];
    for (const { id, planId, ...seen } of left) {
      // What this server makes right now is no concern of recovery.
      const isAtIt = seen.serverRun === serverRun && this.#parts.runs.find(planId)?.kind === 'checkpoint';
      if (seen.state === 'creating' && isAtIt) continue;
      // Nobody makes it any more, so what it is now is what it stays: it may have become ready while others were settled.
      const record = await store.read((tables) => tables.plans.findCheckpoint(id));
      if (record === undefined || record.state === 'ready') continue;
      if (await this.#discard(record)) settled.push(record);
    }
    return settled;
  }

  /** Removes it and what it is made of. Recorded first: what is interrupted is gone through with. Whether all of it is done. */
  async #discard(record: PlanCheckpointRecord): Promise<boolean> {
    const { store, faults, logger } = this.#context;
    try {
      // While the record says so: a crash in between must find again who stands still.
      if (record.state === 'creating') {
        await this.#parts.leases.end(planLeaseId(record.planId, record.id));
        await this.#letGoOn(record);
      }
      await store.transact((tables) => tables.plans.putCheckpoint({ ...record, state: 'deleting' }));
      await faults.hit('after-plan-checkpoint-deleting');
      for (const { checkpointId } of record.members) await this.#parts.checkpoints.remove(checkpointId);
      await store.transact((tables) => tables.plans.removeCheckpoint(record.id));
      return true;
    } catch (error) {
      logger.warn('a checkpoint of a plan could not be removed yet', { id: record.id, error });
      return false;
    }
  }

  /** Members that stand still because a server died while it made a checkpoint of them. */
  async #letGoOn(record: PlanCheckpointRecord): Promise<void> {
    for (const { sandboxId, wasRunning } of record.members) {
      const sandbox = await this.#context.store.read((tables) => tables.sandboxes.find(sandboxId));
      if (!wasRunning || sandbox?.state.kind !== 'paused') continue;
      if (sandbox.leaseHeld) {
        await this.#requireOthers(record, sandboxId);
        continue;
      }
      await this.#parts.pauses.resume(callerOf(record), sandboxId, {}, {});
    }
  }

  /** Whoever holds a member now decides about it, unless that is our own lease, which its node could not be told of yet: then it is tried again. */
  async #requireOthers({ id, planId, teamId }: PlanCheckpointRecord, sandboxId: SandboxId): Promise<void> {
    const row = await this.#context.store.read((tables) => tables.leases.find({ teamId, resource: sandboxId }));
    if (row?.holder?.leaseId !== planLeaseId(planId, id)) return;
    throw new PlatformError('lease_held', `The lease of ${planId} on ${sandboxId} has not ended yet.`);
  }

  #view(record: PlanCheckpointRecord): Promise<PlanCheckpointView> {
    return this.#context.store.read((tables) => viewIn(tables, record));
  }
}

/** Acts for whoever asked, after they are gone. */
export function callerOf(record: { readonly teamId: Caller['teamId']; readonly createdBy: Caller['keyId'] }): Caller {
  const { teamId, createdBy: keyId } = record;
  return { keyId, teamId, userId: null, scopes: ['sandboxes:write'], sandboxId: null, name: 'recovery' };
}

/** Every one is tried, and the first error is told when all are done. */
async function allOf(
  members: readonly PlanCheckpointMember[],
  work: (member: PlanCheckpointMember) => Promise<unknown>,
): Promise<void> {
  const results = await Promise.allSettled(members.map(work));
  const failed = results.find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

async function viewIn(tables: Readers, record: PlanCheckpointRecord): Promise<PlanCheckpointView> {
  let sizeBytes = 0;
  for (const { checkpointId } of record.members) {
    sizeBytes += (await tables.checkpoints.find(checkpointId))?.sizeBytes ?? 0;
  }
  const { id, planId, name, state, createdBy } = record;
  const members = record.members.map(({ sandboxId, checkpointId }) => ({ sandboxId, checkpointId }));
  return {
    id,
    planId,
    name,
    state,
    members,
    sizeBytes,
    createdBy,
    createdAt: new Date(record.createdAtMs).toISOString(),
  };
}

function isRestored({ state }: PlanRecord, id: PlanCheckpointId): boolean {
  return state.kind === 'restoring' && state.checkpointId === id;
}

function inUse(plan: PlanRecord, id: PlanCheckpointId): PlatformError {
  const message = `The checkpoint ${id} of ${plan.id} is being made or restored.`;
  return new PlatformError('plan_busy', message, { details: { planId: plan.id, checkpointId: id } });
}
