/**
 * Plans: sandboxes that are committed or rolled back together. This class makes them and changes who belongs to them; what is done on a plan as a
 * whole has a class of its own each, put together here.
 *
 * Members change only in a transaction that finds the plan open: whoever commits has fixed them in the transaction that said so.
 */
import {
  type BodyOf,
  type Conditions,
  livePlanStates,
  newId,
  type PlanId,
  type PlanView,
  PlatformError,
  planLimits,
  type routes,
  type SandboxId,
} from '../../protocol/index.ts';
import type { PlanRecord, Tables } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { Checkpoints } from '../checkpoints.ts';
import type { ControlContext } from '../context.ts';
import type { LeaseKeeper } from '../lease-keeper.ts';
import type { Leases } from '../leases.ts';
import type { Mutations } from '../mutations.ts';
import type { SandboxPauses } from '../sandbox-pauses.ts';
import { notFound } from '../sandbox-records.ts';
import type { SandboxRestores } from '../sandbox-restores.ts';
import { PlanCheckpoints } from './plan-checkpoints.ts';
import { PlanCommits } from './plan-commits.ts';
import { PlanLeases } from './plan-leases.ts';
import { nextPlanState } from './plan-lifecycle.ts';
import { checkPlanVersion, getPlan, PlanRecords, tellOf } from './plan-records.ts';
import { PlanRecovery } from './plan-recovery.ts';
import { PlanRestores } from './plan-restores.ts';
import { PlanRollbacks } from './plan-rollbacks.ts';
import { busy, PlanRuns } from './plan-runs.ts';
import { PlanTidying } from './plan-tidying.ts';
import { PlanViews, planViewOf } from './plan-views.ts';
import type { PlanWork } from './plan-work.ts';

export interface PlanParts {
  readonly mutations: Mutations;
  readonly leases: Leases;
  readonly keeper: LeaseKeeper;
  readonly checkpoints: Checkpoints;
  readonly pauses: SandboxPauses;
  readonly restores: SandboxRestores;
  readonly work: PlanWork;
}

export class Plans {
  readonly commits: PlanCommits;
  readonly rollbacks: PlanRollbacks;
  readonly checkpoints: PlanCheckpoints;
  readonly restores: PlanRestores;
  readonly recovery: PlanRecovery;
  readonly views: PlanViews;
  readonly #context: ControlContext;
  readonly #mutations: Mutations;
  readonly #runs: PlanRuns;
  readonly #tidying: PlanTidying;

  constructor(context: ControlContext, parts: PlanParts) {
    const { mutations, work } = parts;
    const plans = new PlanRecords(context);
    const runs = new PlanRuns(context.timers);
    const leases = new PlanLeases(context, parts);
    const tidying = new PlanTidying(context, { leases, work });
    const views = new PlanViews(context, work);
    const recover = (planId: PlanId) => this.recovery.settle(planId);
    const shared = { plans, runs, leases, mutations, recover };
    this.#context = context;
    this.#mutations = mutations;
    this.#runs = runs;
    this.#tidying = tidying;
    this.views = views;
    this.commits = new PlanCommits(context, { ...shared, work, tidying });
    this.rollbacks = new PlanRollbacks(context, { ...shared, work, views });
    this.checkpoints = new PlanCheckpoints(context, {
      ...shared,
      checkpoints: parts.checkpoints,
      pauses: parts.pauses,
    });
    this.restores = new PlanRestores(context, { ...shared, views, restores: parts.restores });
    this.recovery = new PlanRecovery(context, {
      ...shared,
      tidying,
      checkpoints: this.checkpoints,
      rollbacks: this.rollbacks,
      restores: this.restores,
    });
  }

  /** Commits, rollbacks and the like that this server is at. */
  get running(): number {
    return this.#runs.size;
  }

  /** What runs is told to stop, before the decision; what is left of it is for the next start. */
  close(): Promise<void> {
    return this.#runs.close();
  }

  create(caller: Caller, conditions: Conditions, body: BodyOf<typeof routes.createPlan>): Promise<PlanView> {
    if (caller.sandboxId !== null) {
      throw new PlatformError('forbidden', 'A token of one sandbox makes no plans: they are about several.');
    }
    const { teamId, keyId: createdBy } = caller;
    return this.#mutations.run({
      caller,
      kind: 'createPlan',
      conditions,
      request: body,
      subject: () => newId('plan', this.#context.random),
      effect: ({ subjectId }) =>
        this.#change(async (tables) => {
          const id = subjectId as PlanId;
          const made = await tables.plans.find(id);
          if (made !== undefined) return made;
          if ((await tables.plans.count(teamId)) >= planLimits.plans) throw tooMany('plans', planLimits.plans);
          const nowMs = this.#context.clock.nowMs();
          const plan: PlanRecord = {
            ...{ id, teamId, name: body.name, state: { kind: 'open' }, fence: 0, version: 1 },
            ...{ createdAtMs: nowMs, createdBy, updatedAtMs: nowMs },
          };
          await tables.plans.insert(plan);
          await tellOf(tables, plan, { kind: 'plan.created', data: { by: createdBy } });
          for (const sandboxId of new Set(body.members)) await this.#addIn(tables, caller, plan, sandboxId);
          return plan;
        }),
    });
  }

  add(caller: Caller, plan: string, conditions: Conditions, sandboxId: SandboxId): Promise<PlanView> {
    const asked = { caller, plan, conditions, sandboxId };
    return this.#changeMember('addPlanMember', asked, async (tables, found, isMember) => {
      if (isMember) return found;
      const changed = await this.#touch(tables, found);
      await this.#addIn(tables, caller, changed, sandboxId);
      return changed;
    });
  }

  remove(caller: Caller, plan: string, conditions: Conditions, sandboxId: SandboxId): Promise<PlanView> {
    const asked = { caller, plan, conditions, sandboxId };
    return this.#changeMember('removePlanMember', asked, async (tables, found, isMember) => {
      if (!isMember) return found;
      await tables.plans.removeMember({ planId: found.id, sandboxId });
      const changed = await this.#touch(tables, found);
      await tellOf(tables, changed, { kind: 'plan.member_removed', data: { sandboxId, by: caller.keyId } });
      return changed;
    });
  }

  /** One transaction that finds the plan open. */
  #changeMember(
    kind: string,
    asked: {
      readonly caller: Caller;
      readonly plan: string;
      readonly conditions: Conditions;
      readonly sandboxId: SandboxId;
    },
    work: (tables: Tables, found: PlanRecord, isMember: boolean) => Promise<PlanRecord>,
  ): Promise<PlanView> {
    const { caller, plan, conditions, sandboxId } = asked;
    return this.#mutations.run({
      caller,
      kind,
      conditions,
      request: { plan, sandboxId },
      effect: () =>
        this.#change(async (tables) => {
          const found = await this.#openPlan(tables, caller, plan, conditions);
          const members = await tables.plans.members(found.id);
          return await work(
            tables,
            found,
            members.some((member) => member.sandboxId === sandboxId),
          );
        }),
    });
  }

  async delete(caller: Caller, plan: string, conditions: Conditions, options: { discard: boolean }): Promise<void> {
    await this.#mutations.run({
      caller,
      kind: 'deletePlan',
      conditions,
      request: { plan, options },
      effect: () => this.#delete(caller, plan, conditions, options),
      keep: () => null,
      restore: () => undefined,
    });
  }

  async #delete(caller: Caller, name: string, conditions: Conditions, options: { discard: boolean }): Promise<void> {
    const { store, events } = this.#context;
    const seen = await store.read((tables) => getPlan(tables, caller, name));
    checkPlanVersion(seen, conditions);
    const run = this.#runs.find(seen.id);
    if (run !== undefined) throw busy(run);
    const hasOpenWork = ['open', 'rollbackIncomplete', 'restoring'].includes(seen.state.kind);
    if (hasOpenWork && !options.discard) await this.#checkMerged(caller, seen);
    await store.transact(async (tables) => {
      const plan = await getPlan(tables, caller, seen.id);
      nextPlanState(plan.state, { kind: 'delete' });
      // A checkpoint leaves the state as it is; one that was begun since would go on without its plan.
      const begun = this.#runs.find(plan.id);
      if (begun !== undefined) throw busy(begun);
      // What was looked at is what goes: a member that came since has not been counted.
      if (plan.version !== seen.version) throw changedMeanwhile(plan);
      for (const checkpoint of await tables.plans.checkpoints({ planId: plan.id })) {
        await tables.plans.putCheckpoint({ ...checkpoint, state: 'deleting' });
      }
      for (const commit of await tables.plans.commits(plan.id, { limit: planLimits.commits * 2 })) {
        if (commit.left === 'nothing') await tables.plans.removeCommit(commit.id);
      }
      await tables.plans.remove(plan.id);
      await tellOf(tables, plan, { kind: 'plan.deleted', data: { by: caller.keyId } });
    });
    events.notify();
    await this.#context.faults.hit('after-plan-deleted');
    await this.checkpoints.settle();
    await this.#tidying.run();
  }

  async #checkMerged(caller: Caller, plan: PlanRecord): Promise<void> {
    const { files, commits, members } = await this.views.status(caller, plan.id, new AbortController().signal);
    const unknown = members.filter(({ error }) => error !== null);
    if (files === 0 && unknown.length === 0) return;
    const message =
      `Members of ${plan.name} have ${files} changed files in ${commits} checkouts that are in no version` +
      (unknown.length === 0 ? '.' : `, and ${unknown.length} could not be looked at.`);
    const details = { files, commits, members: members.filter((one) => one.error !== null || one.changes.length > 0) };
    throw new PlatformError('plan_unmerged', message, { details });
  }

  async #change(work: (tables: Tables) => Promise<PlanRecord>): Promise<PlanView> {
    const view = await this.#context.store.transact(async (tables) => planViewOf(tables, await work(tables)));
    this.#context.events.notify();
    return view;
  }

  /** Refuses while something is done on it: members are fixed then. */
  async #openPlan(tables: Tables, caller: Caller, plan: string, conditions: Conditions): Promise<PlanRecord> {
    const found = await getPlan(tables, caller, plan);
    checkPlanVersion(found, conditions);
    nextPlanState(found.state, { kind: 'change' });
    return found;
  }

  async #touch(tables: Tables, plan: PlanRecord): Promise<PlanRecord> {
    const next = { ...plan, version: plan.version + 1, updatedAtMs: this.#context.clock.nowMs() };
    await tables.plans.update(next);
    return next;
  }

  async #addIn(tables: Tables, caller: Caller, plan: PlanRecord, sandboxId: SandboxId): Promise<void> {
    const sandbox = await tables.sandboxes.find(sandboxId);
    if (sandbox === undefined || sandbox.teamId !== plan.teamId) throw notFound(sandboxId);
    const others = await tables.plans.plansOf(sandboxId);
    const other = others.find(({ id, state }) => id !== plan.id && livePlanStates.some((kind) => kind === state.kind));
    if (other !== undefined) {
      const details = { sandboxId, planId: other.id, plan: other.name };
      throw new PlatformError('plan_member_taken', `Sandbox ${sandboxId} belongs to plan ${other.name}.`, { details });
    }
    const members = await tables.plans.members(plan.id);
    if (members.length >= planLimits.members) throw tooMany('members', planLimits.members);
    const position = (members.at(-1)?.position ?? 0) + 1;
    const { id: planId, updatedAtMs: addedAtMs } = plan;
    await tables.plans.putMember({ planId, sandboxId, position, addedAtMs, addedBy: caller.keyId });
    await tellOf(tables, plan, { kind: 'plan.member_added', data: { sandboxId, position, by: caller.keyId } });
  }
}

function tooMany(what: string, limit: number): PlatformError {
  return new PlatformError('limit_exceeded', `There are at most ${limit} ${what}.`, { details: { limit } });
}

function changedMeanwhile(plan: PlanRecord): PlatformError {
  const details = { version: plan.version };
  return new PlatformError('version_mismatch', `The plan ${plan.name} was changed meanwhile.`, { details });
}
