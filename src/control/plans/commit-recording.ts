/** Attempts to commit a plan as the store has them: how each begins, how it ends, and what its callers are told. */
import { type PlanCommitView, type PlanId, PlatformError, planLimits, type WorkspaceId } from '../../protocol/index.ts';
import type { PlanCommitRecord, PlanRecord, Readers, Tables, WorkspaceRecord } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import { checkLeaseHeld, planLeaseId } from './plan-leases.ts';
import type { PlanEvent } from './plan-lifecycle.ts';
import type { PlanRecords } from './plan-records.ts';
import { type CommitDraft, type CommitError, commitViewOf } from './plan-result.ts';

/** What was prepared is given up after this long, with the time for checks and waiting on top. */
const preparedMaxMs = 30 * 60_000;

export interface CommitEnd {
  readonly state: PlanCommitRecord['state'];
  readonly error?: CommitError;
  readonly retryable?: boolean;
}

export class CommitRecording {
  readonly #context: ControlContext;
  readonly #plans: PlanRecords;

  constructor(context: ControlContext, plans: PlanRecords) {
    this.#context = context;
    this.#plans = plans;
  }

  /** Of an attempt that begins now. */
  recordOf(plan: PlanRecord, draft: CommitDraft, fingerprint: string, extraMs: number): PlanCommitRecord {
    const { clock, serverRun } = this.#context;
    return {
      ...{ id: draft.id, planId: plan.id, teamId: plan.teamId, kind: draft.kind, mode: draft.mode },
      ...{ isDryRun: draft.isDryRun, state: 'preparing', fingerprint, fence: plan.fence, serverRun },
      leaseId: planLeaseId(plan.id, plan.fence),
      members: draft.members.map(({ sandboxId }) => sandboxId),
      targets: [...draft.workspaces.keys()].sort(),
      left: 'everything',
      keptUntilMs: null,
      result: null,
      createdBy: draft.by,
      startedAtMs: draft.startedAtMs,
      finishedAtMs: null,
      bootId: clock.bootId,
      expiresAtBootMs: draft.startedAtBootMs + preparedMaxMs + extraMs,
    };
  }

  /** Ends an attempt together with the state of its plan; `also` is what it decides. */
  async end(
    record: PlanCommitRecord,
    draft: CommitDraft,
    ending: CommitEnd,
    also: (tables: Tables) => Promise<void> = async () => {},
  ): Promise<PlanCommitView> {
    const isDecided = ending.state === 'committed' && !record.isDryRun;
    const event: PlanEvent = { kind: isDecided ? 'decided' : 'abandoned' };
    const data = { commitId: record.id, mode: record.mode, dryRun: record.isDryRun, outcome: ending.state };
    const change = { event, fence: record.fence, tell: { kind: toldKind(record, ending), data } };
    return await this.#plans.change(record.planId, change, async (tables) => {
      await this.#checkOurs(tables, record, { isDecision: isDecided });
      await also(tables);
      return await this.put(tables, record, draft, ending);
    });
  }

  /** Writes what is known now; the plan stays as it is. */
  async put(tables: Tables, record: PlanCommitRecord, draft: CommitDraft, ending: CommitEnd): Promise<PlanCommitView> {
    const { clock, settings } = this.#context;
    const finishedAtMs = ending.state === 'preparing' ? null : clock.nowMs();
    const isKept = !record.isDryRun && ending.state !== 'nothing' && draft.contributions.size > 0;
    const keptUntilMs = isKept ? draft.startedAtMs + settings.planRefsKeptMs : null;
    const view = commitViewOf(draft, {
      state: ending.state,
      error: ending.error ?? null,
      retryable: ending.retryable ?? false,
      finishedAtMs,
      finishedAtBootMs: clock.bootMs(),
      keptUntilMs,
    });
    const { state } = ending;
    await tables.plans.putCommit({ ...record, state, keptUntilMs, finishedAtMs, result: JSON.stringify(view) });
    return view;
  }

  /** Inside the transaction that publishes one target of several: whoever asks is still the one. */
  async checkCoordinator(tables: Tables, record: PlanCommitRecord): Promise<void> {
    const plan = await tables.plans.find(record.planId);
    if (plan?.state.kind !== 'committing' || plan.state.fence !== record.fence) throw replaced(record);
    await this.#checkOurs(tables, record, { isDecision: true });
  }

  async #checkOurs(tables: Tables, record: PlanCommitRecord, options: { isDecision: boolean }): Promise<void> {
    const { clock } = this.#context;
    const found = await tables.plans.findCommit(record.id);
    if (found?.state !== 'preparing' || found.fence !== record.fence) throw replaced(record);
    if (!options.isDecision) return;
    if (record.bootId !== clock.bootId || record.expiresAtBootMs <= clock.bootMs()) throw expired(record);
    const { leaseId, members, targets } = record;
    if (leaseId !== null)
      await checkLeaseHeld(tables, { id: record.planId, teamId: record.teamId }, { leaseId, members, targets });
  }

  viewOf(plan: PlanRecord, record: PlanCommitRecord): PlanCommitView {
    if (record.result !== null) return JSON.parse(record.result) as PlanCommitView;
    const { startedAtMs, createdBy: by } = record;
    return {
      ...{ id: record.id, planId: plan.id, planName: plan.name, kind: record.kind, mode: record.mode },
      ...{ dryRun: record.isDryRun, state: record.state, retryable: false, message: '', by },
      author: { name: '', email: '' },
      startedAt: new Date(startedAtMs).toISOString(),
      finishedAt: null,
      ...{ targets: [], members: [], checks: [], retained: [], retainedUntil: null },
      timings: { waitMs: 0, collectMs: 0, combineMs: 0, checksMs: 0, publishMs: 0, totalMs: 0 },
      error: null,
    };
  }

  /** The targets that the commit of this plan has moved. */
  async targetsOf(tables: Readers, plan: PlanRecord): Promise<ReadonlyMap<WorkspaceId, WorkspaceRecord>> {
    const found = new Map<WorkspaceId, WorkspaceRecord>();
    for (const { workspaceId } of await this.publishedBy(tables, plan)) {
      const workspace = await tables.workspaces.find(workspaceId);
      if (workspace === undefined) {
        const details = { workspaceId };
        throw new PlatformError('workspace_not_found', `The workspace ${workspaceId} is gone.`, { details });
      }
      found.set(workspaceId, workspace);
    }
    return found;
  }

  /** What a plan that reverts itself has published. */
  async publishedBy(tables: Readers, plan: PlanRecord): Promise<PlanCommitView['targets']> {
    const commitId = plan.state.kind === 'committing' ? plan.state.revertsId : null;
    const commit = commitId === null ? undefined : await tables.plans.findCommit(commitId);
    const view = commit === undefined ? undefined : this.viewOf(plan, commit);
    return view?.targets.filter(({ state }) => state === 'published') ?? [];
  }

  /** Attempts beyond what is remembered go, but for those that published or have something to tidy. */
  async trim(tables: Tables, planId: PlanId): Promise<void> {
    const commits = await tables.plans.commits(planId, { limit: planLimits.commits * 2 });
    for (const commit of commits.slice(planLimits.commits)) {
      if (commit.state === 'committed' || commit.state === 'partial' || commit.left !== 'nothing') continue;
      await tables.plans.removeCommit(commit.id);
    }
  }
}

function toldKind(record: PlanCommitRecord, ending: CommitEnd): string {
  const what = record.kind === 'commit' ? 'commit' : 'revert';
  if (record.isDryRun) return 'plan.tried';
  if (ending.state === 'committed') return what === 'commit' ? 'plan.committed' : 'plan.reverted';
  return `plan.${what}_${ending.state}`;
}

function replaced({ id }: PlanCommitRecord): PlatformError {
  return new PlatformError('plan_commit_expired', `The commit ${id} was taken over or given up.`, { details: { id } });
}

function expired({ id }: PlanCommitRecord): PlatformError {
  return new PlatformError('plan_commit_expired', `What ${id} has prepared is too old to be decided.`, {
    details: { id },
  });
}
