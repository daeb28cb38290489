/**
 * Settles what was interrupted on plans: when the server starts, in a loop, and when somebody asks. Before the decision a commit is given up;
 * a rollback or restore that was begun goes forward; what commits left behind is tidied up.
 *
 * Invariants:
 *  - One round at a time; who asks meanwhile gets the same round.
 *  - A plan is taken over by giving it the next fence: whoever had the earlier one changes nothing from then on. What this server does itself,
 *    right now, is left alone.
 *  - Every step is recorded by the step itself: a recovery that dies is recovered from like anything else.
 */
import {
  busyPlanStates,
  isPlatformError,
  type PlanCommitView,
  type PlanId,
  PlatformError,
  type ResultOf,
  type routes,
  type TeamId,
} from '../../protocol/index.ts';
import type { PlanCommitRecord, PlanRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { CommitRecording } from './commit-recording.ts';
import { missingMembers } from './missing-members.ts';
import { callerOf, type PlanCheckpoints } from './plan-checkpoints.ts';
import { type PlanLeases, planLeaseId } from './plan-leases.ts';
import { fenceOf, type PlanRecords } from './plan-records.ts';
import type { PlanRestores } from './plan-restores.ts';
import type { PlanRollbacks } from './plan-rollbacks.ts';
import type { PlanRuns } from './plan-runs.ts';
import type { PlanTidying } from './plan-tidying.ts';

type Report = ResultOf<typeof routes.recoverPlans>;
/** Of every team. */
interface Round {
  readonly actions: readonly (Report['actions'][number] & { readonly teamId: TeamId })[];
  readonly waiting: readonly (Report['waiting'][number] & { readonly teamId: TeamId })[];
}

const pageSize = 1_000;
/** How long members that others hold are waited for: the next round tries again. */
const leaseWaitMs = 5_000;
/** Leases of earlier turns that a takeover ends; what is older has ended by itself. */
const endedTurns = 16;

export interface RecoveryParts {
  readonly plans: PlanRecords;
  readonly leases: PlanLeases;
  readonly runs: PlanRuns;
  readonly tidying: PlanTidying;
  readonly checkpoints: PlanCheckpoints;
  readonly rollbacks: PlanRollbacks;
  readonly restores: PlanRestores;
}

export class PlanRecovery {
  readonly #context: ControlContext;
  readonly #parts: RecoveryParts;
  readonly #recording: CommitRecording;
  #round: Promise<Round> | undefined;

  constructor(context: ControlContext, parts: RecoveryParts) {
    this.#context = context;
    this.#parts = parts;
    this.#recording = new CommitRecording(context, parts.plans);
  }

  /** Everything, as the server does it by itself; who asks is told of the plans of their team. */
  async ask({ teamId }: Pick<Caller, 'teamId'>): Promise<Report> {
    const { actions, waiting } = await this.run();
    return {
      actions: actions
        .filter((one) => one.teamId === teamId)
        .map(({ kind, planId, outcome }) => ({ kind, planId, outcome })),
      waiting: waiting.filter((one) => one.teamId === teamId).map(({ planId, failures }) => ({ planId, failures })),
    };
  }

  /** Everything, once. */
  run(): Promise<Round> {
    this.#round ??= this.#run().finally(() => {
      this.#round = undefined;
    });
    return this.#round;
  }

  async #run(): Promise<Round> {
    const { tidying, checkpoints } = this.#parts;
    const { store } = this.#context;
    const actions: Round['actions'][number][] = [];
    const found = await store.read((tables) => tables.plans.list({ states: busyPlanStates }, { limit: pageSize }));
    for (const plan of found) {
      if (this.#parts.runs.find(plan.id) !== undefined) continue;
      const outcome = await this.#settleSafely(plan.id);
      actions.push({ kind: plan.state.kind, planId: plan.id, teamId: plan.teamId, outcome });
    }
    for (const { planId, teamId } of await checkpoints.settle())
      actions.push({ kind: 'checkpoint', planId, teamId, outcome: 'removed' });
    for (const { planId, teamId } of await tidying.run())
      actions.push({ kind: 'tidying', planId, teamId, outcome: 'done' });
    return { actions, waiting: await this.#waiting() };
  }

  /** Who is missing, of what goes forward. */
  async #waiting(): Promise<Round['waiting']> {
    return await this.#context.store.read(async (tables) => {
      const found = await tables.plans.list({ states: busyPlanStates }, { limit: pageSize });
      const waiting: Round['waiting'][number][] = [];
      for (const plan of found) {
        if (this.#parts.runs.find(plan.id) !== undefined) continue;
        const failures = await missingMembers(this.#context, tables, plan);
        waiting.push({ planId: plan.id, teamId: plan.teamId, failures });
      }
      return waiting;
    });
  }

  async #settleSafely(planId: PlanId): Promise<string> {
    try {
      await this.settle(planId);
      return 'settled';
    } catch (error) {
      this.#context.logger.warn('a plan could not be settled yet', { planId, error });
      return isPlatformError(error) ? error.code : 'internal';
    }
  }

  /** One plan, by whoever needs it settled. */
  async settle(planId: PlanId): Promise<void> {
    const { runs } = this.#parts;
    const plan = await this.#context.store.read((tables) => tables.plans.find(planId));
    if (plan === undefined || fenceOf(plan.state) === undefined) return;
    const present = runs.find(planId);
    // Somebody began meanwhile, and settles it as well as this would.
    if (present !== undefined) {
      await runs.waitFor(present, { waitMs: leaseWaitMs, signal: new AbortController().signal });
      return;
    }
    const what = { kind: 'recovery' as const, by: plan.createdBy, startedAtMs: this.#context.clock.nowMs() };
    await runs.begin(planId, what, async (run) => {
      const taken = await this.#takeOver(planId);
      if (taken === undefined) return;
      await this.#context.faults.hit('after-plan-taken-over');
      const how = { waitMs: leaseWaitMs, signal: run.stop.signal };
      if (taken.state.kind === 'rollingBack')
        await this.#parts.rollbacks.carryOut(taken, { ...how, by: taken.createdBy });
      if (taken.state.kind === 'restoring')
        await this.#parts.restores.carryOut(taken, callerOf(taken), { ...how, isFirst: false });
    });
  }

  /** From here on the earlier coordinator is refused. A commit is given up in the same transaction; undefined: nothing else is left to do. */
  async #takeOver(planId: PlanId): Promise<PlanRecord | undefined> {
    const { plans, leases } = this.#parts;
    const { store, events, faults } = this.#context;
    const { before, after } = await store.transact(async (tables) => {
      const before = await tables.plans.find(planId);
      if (before === undefined || fenceOf(before.state) === undefined) return { before: undefined, after: undefined };
      const event = (fence: number) => ({ kind: 'takenOver', fence }) as const;
      const after = await plans.apply(tables, planId, { event, tell: { kind: 'plan.taken_over' } });
      if (before.state.kind !== 'committing') return { before, after };
      const commit = await tables.plans.findCommit(before.state.commitId);
      const outcome = commit === undefined ? 'aborted' : this.#giveUp(before, commit);
      if (commit !== undefined && typeof outcome === 'object') await tables.plans.putCommit(outcome);
      const state = typeof outcome === 'object' ? outcome.state : outcome;
      const kind = `plan.${before.state.revertsId === null ? 'commit' : 'revert'}_${state}`;
      const data = { commitId: before.state.commitId, outcome: state };
      await plans.apply(tables, planId, { event: { kind: 'abandoned' }, tell: { kind, data } });
      return { before, after: undefined };
    });
    events.notify();
    await faults.hit('after-plan-fence-given');
    // The leases of those that were replaced: whoever took over before may have died before it ended the last one. Ending what is not held does nothing.
    for (let fence = before?.fence ?? 0, turn = 0; fence > 0 && turn < endedTurns; fence--, turn++) {
      await leases.end(planLeaseId(planId, fence));
    }
    return after;
  }

  /** As its callers are told of it; what `bestEffort` has published stays published. */
  #giveUp(plan: PlanRecord, commit: PlanCommitRecord): PlanCommitRecord {
    const view = this.#recording.viewOf(plan, commit);
    const isPartial = view.targets.some(({ state }) => state === 'published');
    const finishedAtMs = this.#context.clock.nowMs();
    const error = new PlatformError('plan_interrupted', 'The server stopped before the decision.');
    const { code, message } = error;
    const ended: PlanCommitView = {
      ...view,
      state: isPartial ? 'partial' : 'aborted',
      retryable: true,
      finishedAt: new Date(finishedAtMs).toISOString(),
      error: { code, message, details: {} },
    };
    return {
      ...commit,
      state: isPartial ? 'partial' : 'aborted',
      finishedAtMs,
      keptUntilMs: commit.isDryRun ? null : commit.startedAtMs + this.#context.settings.planRefsKeptMs,
      result: JSON.stringify(ended),
    };
  }
}
