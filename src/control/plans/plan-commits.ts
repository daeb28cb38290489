/**
 * Commit of a plan: everything is prepared where nobody sees it, and one transaction decides.
 *
 *   begin ──► leases ──► collect ──► combine ──► checks ──► decide ──► tidy
 *     │                                 ▲                     │
 *     │                                 └── a target moved ───┘  (a few times)
 *     └ plan `committing`, its members fixed, the attempt recorded
 *
 * Invariants:
 *  - A target moves only in the decision, and in `atomic` mode all of them do, or none. A crash is before it or after it.
 *  - Every transaction checks the fence: a coordinator that was replaced changes nothing.
 *  - What fails before the decision leaves the plan as it was and an attempt that says why. What fails after it is tidied up later, and the
 *    commit stands.
 */
import { createHash } from 'node:crypto';
import {
  type BodyOf,
  type CommitAuthor,
  type Conditions,
  newId,
  type PlanCommitId,
  type PlanCommitView,
  type PlanId,
  PlatformError,
  planLimits,
  type routes,
} from '../../protocol/index.ts';
import type { PlanCommitRecord, PlanRecord, Tables } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { canonicalJson, type Mutations } from '../mutations.ts';
import { CommitAttempt } from './commit-attempt.ts';
import { CommitRecording } from './commit-recording.ts';
import type { PlanLeases } from './plan-leases.ts';
import {
  checkBegunOn,
  getPlan,
  type Member,
  membersOf,
  type PlanRecords,
  planNotFound,
  workspacesOf,
} from './plan-records.ts';
import type { CommitDraft } from './plan-result.ts';
import { busy, type PlanRuns, type Run } from './plan-runs.ts';
import type { PlanTidying } from './plan-tidying.ts';
import type { PlanWork } from './plan-work.ts';
import { unfitError, unfitMembers } from './unfit-members.ts';

type CommitBody = BodyOf<typeof routes.commitPlan>;
type RevertBody = BodyOf<typeof routes.revertPlan>;

/** What both a commit and a revert are asked for with. */
export interface CommitWish {
  readonly kind: 'commit' | 'revert';
  readonly commitId: PlanCommitId;
  readonly mode: CommitBody['mode'];
  readonly message: string | undefined;
  readonly author: CommitAuthor | undefined;
  readonly checks: CommitBody['checks'];
  readonly dryRun: boolean;
  readonly allowEmpty: boolean;
  readonly waitMs: number;
}

export interface CommitParts {
  readonly plans: PlanRecords;
  readonly mutations: Mutations;
  readonly leases: PlanLeases;
  readonly runs: PlanRuns;
  readonly work: PlanWork;
  readonly tidying: PlanTidying;
  /** Settles what an earlier coordinator left on this plan. */
  readonly recover: (planId: PlanId) => Promise<void>;
}

export class PlanCommits {
  readonly #context: ControlContext;
  readonly #parts: CommitParts;
  readonly #recording: CommitRecording;

  constructor(context: ControlContext, parts: CommitParts) {
    this.#context = context;
    this.#parts = parts;
    this.#recording = new CommitRecording(context, parts.plans);
  }

  commit(
    caller: Caller,
    plan: string,
    conditions: Conditions,
    body: CommitBody,
    signal: AbortSignal,
  ): Promise<PlanCommitView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'commitPlan',
      conditions,
      request: { plan, body },
      subject: () => body.commitId ?? newId('planCommit', this.#context.random),
      effect: ({ subjectId }) => {
        const { withinCommitId, commitId: _, ...asked } = body;
        const wish = { ...asked, kind: 'commit' as const, commitId: subjectId as PlanCommitId };
        return this.#run(
          caller,
          plan,
          conditions,
          { ...wish, author: body.author, message: body.message },
          signal,
          withinCommitId,
        );
      },
    });
  }

  revert(
    caller: Caller,
    plan: string,
    conditions: Conditions,
    body: RevertBody,
    signal: AbortSignal,
  ): Promise<PlanCommitView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'revertPlan',
      conditions,
      request: { plan, body },
      subject: () => body.commitId ?? newId('planCommit', this.#context.random),
      effect: ({ subjectId }) => {
        const fixed = { mode: 'atomic' as const, checks: [], dryRun: false, allowEmpty: true, author: undefined };
        const { message, waitMs } = body;
        const commitId = subjectId as PlanCommitId;
        return this.#run(caller, plan, conditions, { ...fixed, kind: 'revert', commitId, message, waitMs }, signal);
      },
    });
  }

  async get(caller: Caller, plan: string, commitId: PlanCommitId): Promise<PlanCommitView> {
    const { record, commit } = await this.#context.store.read(async (tables) => {
      const record = await getPlan(tables, caller, plan);
      return { record, commit: await tables.plans.findCommit(commitId) };
    });
    if (commit?.planId !== record.id) throw planNotFound(commitId);
    return this.#recording.viewOf(record, commit);
  }

  async list(caller: Caller, plan: string): Promise<{ items: PlanCommitView[] }> {
    return await this.#context.store.read(async (tables) => {
      const record = await getPlan(tables, caller, plan);
      const commits = await tables.plans.commits(record.id, { limit: planLimits.commits });
      return { items: commits.map((commit) => this.#recording.viewOf(record, commit)) };
    });
  }

  /** Runs it, joins the one that runs, or gives the answer of one that is over. */
  async #run(
    caller: Caller,
    name: string,
    conditions: Conditions,
    wish: CommitWish,
    signal: AbortSignal,
    withinCommitId?: PlanCommitId,
  ): Promise<PlanCommitView> {
    const { plans, runs, recover } = this.#parts;
    const untilBootMs = this.#context.clock.bootMs() + wish.waitMs;
    for (;;) {
      const plan = await plans.get(caller, name);
      const known = await this.#known(plan, wish);
      if (known !== undefined) return known;
      const run = runs.find(plan.id);
      if (run === undefined) {
        // Nobody works on it here, and its state says that somebody did.
        if (plan.state.kind === 'committing') await recover(plan.id);
        else return await this.#begin(caller, plan, conditions, wish);
        continue;
      }
      // A check that asks for the commit it is part of would wait for itself.
      if (withinCommitId !== undefined && withinCommitId === run.commitId) throw busy(run);
      await runs.waitFor(run, { waitMs: Math.max(0, untilBootMs - this.#context.clock.bootMs()), signal });
      const joined = await this.#joined(plan, run, wish);
      if (joined !== undefined) return joined;
    }
  }

  /** The answer that this id, or this plan, has already. */
  #known(plan: PlanRecord, wish: CommitWish): Promise<PlanCommitView | undefined> {
    return this.#context.store.read(async (tables) => {
      const found = await tables.plans.findCommit(wish.commitId);
      if (found !== undefined && (found.planId !== plan.id || found.fingerprint !== fingerprintOf(wish))) {
        throw idReused(wish.commitId);
      }
      if (found !== undefined && found.state !== 'preparing') return this.#recording.viewOf(plan, found);
      const { state } = plan;
      const doneId =
        wish.kind === 'commit' && (state.kind === 'committed' || state.kind === 'reverted')
          ? state.commitId
          : wish.kind === 'revert' && state.kind === 'reverted'
            ? state.revertId
            : undefined;
      const done = doneId === undefined ? undefined : await tables.plans.findCommit(doneId);
      return done === undefined ? undefined : this.#recording.viewOf(plan, done);
    });
  }

  /** What came of the run that was waited for, where that is an answer to this wish. */
  async #joined(plan: PlanRecord, run: Run, wish: CommitWish): Promise<PlanCommitView | undefined> {
    const { commitId, kind } = run;
    if (commitId === undefined || kind !== wish.kind) return undefined;
    const commit = await this.#context.store.read((tables) => tables.plans.findCommit(commitId));
    if (commit === undefined || commit.state === 'preparing' || commit.isDryRun !== wish.dryRun) return undefined;
    return this.#recording.viewOf(plan, commit);
  }

  #begin(caller: Caller, plan: PlanRecord, conditions: Conditions, wish: CommitWish): Promise<PlanCommitView> {
    const { runs, tidying } = this.#parts;
    const { kind, commitId } = wish;
    const what = { kind, commitId, by: caller.keyId, startedAtMs: this.#context.clock.nowMs() };
    return runs.begin(plan.id, what, async (run) => {
      const begun = await this.#record(caller, plan, conditions, wish);
      await this.#context.faults.hit('after-plan-committing');
      const attempt = new CommitAttempt(this.#context, this.#parts, this.#recording, { ...begun, wish });
      const view = await attempt.run(run.stop.signal);
      await tidying.tidyCommit(commitId);
      return view;
    });
  }

  /** One transaction: the plan commits from here on, with these members. */
  async #record(
    caller: Caller,
    plan: PlanRecord,
    conditions: Conditions,
    wish: CommitWish,
  ): Promise<{ readonly record: PlanCommitRecord; readonly draft: CommitDraft; readonly plan: PlanRecord }> {
    const { plans } = this.#parts;
    const { commitId, kind } = wish;
    const event = (fence: number) =>
      kind === 'commit'
        ? ({ kind: 'commit', commitId, fence } as const)
        : ({ kind: 'revert', revertId: commitId, fence } as const);
    const data = { commitId, mode: wish.mode, dryRun: wish.dryRun, by: caller.keyId };
    const tell = { kind: kind === 'commit' ? 'plan.committing' : 'plan.reverting', data };
    return await plans.change(plan.id, { event, tell }, async (tables, begun) => {
      checkBegunOn(begun, conditions);
      // Another plan may have begun with it since it was looked for.
      if ((await tables.plans.findCommit(commitId)) !== undefined) throw idReused(commitId);
      const members = kind === 'commit' ? await this.#fitMembers(tables, plan.id, wish) : [];
      const draft = await this.#draftOf(tables, caller, begun, wish, members);
      const record = this.#recording.recordOf(begun, draft, fingerprintOf(wish), extraMsOf(wish));
      await tables.plans.putCommit(record);
      await this.#recording.trim(tables, plan.id);
      return { record, draft, plan: begun };
    });
  }

  async #fitMembers(tables: Tables, planId: PlanId, wish: CommitWish): Promise<readonly Member[]> {
    const members = await membersOf(tables, planId);
    const workspaces = await workspacesOf(tables, members);
    const unfit = unfitMembers(members, workspaces);
    if (unfit.length > 0 && (wish.mode === 'atomic' || unfit.length === members.length))
      throw unfitError(planId, unfit);
    return members;
  }

  async #draftOf(
    tables: Tables,
    caller: Caller,
    plan: PlanRecord,
    wish: CommitWish,
    members: readonly Member[],
  ): Promise<CommitDraft> {
    const { clock } = this.#context;
    const workspaces =
      wish.kind === 'commit' ? await workspacesOf(tables, members) : await this.#recording.targetsOf(tables, plan);
    return {
      id: wish.commitId,
      planId: plan.id,
      planName: plan.name,
      kind: wish.kind,
      mode: wish.mode,
      isDryRun: wish.dryRun,
      message: wish.message ?? (wish.kind === 'commit' ? `Plan ${plan.name}` : `Revert plan ${plan.name}`),
      author: wish.author ?? { name: caller.name, email: `${caller.keyId}@atoll` },
      by: caller.keyId,
      startedAtMs: clock.nowMs(),
      startedAtBootMs: clock.bootMs(),
      members,
      workspaces,
      hold: `plan/${plan.id}/${wish.commitId}`,
      timings: { waitMs: 0, collectMs: 0, combineMs: 0, checksMs: 0, publishMs: 0 },
      contributions: new Map(),
      inverses: [],
      failures: new Map(),
      combined: new Map(),
      published: new Map(),
      targetErrors: new Map(),
      checks: [],
    };
  }
}

function idReused(commitId: PlanCommitId): PlatformError {
  const message = 'This commit id was used with another request. Use a new one for a new request.';
  return new PlatformError('idempotency_key_reused', message, { details: { commitId } });
}

/** What waiting and checks may add to the time that an attempt may take. */
function extraMsOf(wish: CommitWish): number {
  return wish.waitMs + wish.checks.reduce((total, { timeoutMs }) => total + timeoutMs, 0);
}

/** What an id stands for: how long to wait for it is no part of it. */
function fingerprintOf(wish: CommitWish): string {
  const { waitMs: _, ...asked } = wish;
  return createHash('sha256').update(canonicalJson(asked)).digest('hex');
}
