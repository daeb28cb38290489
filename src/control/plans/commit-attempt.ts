/** One attempt to commit a plan, from the lease to the decision. What fails on the way ends it; nothing of it is thrown but bugs. */
import { AtMost } from '../../base/index.ts';
import {
  isPlatformError,
  type PlanCommitView,
  PlatformError,
  type SandboxId,
  type WorkspaceId,
  workspaceLimits,
} from '../../protocol/index.ts';
import type { AttachmentRecord, PlanCommitRecord, PlanRecord, Tables } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import type { Combined, Contribution, PreparedVersion } from '../workspaces/workspace-changes.ts';
import type { CommitEnd, CommitRecording } from './commit-recording.ts';
import type { CommitParts, CommitWish } from './plan-commits.ts';
import type { PlanHold } from './plan-leases.ts';
import { type Member, membersOf, workspacesOf } from './plan-records.ts';
import type { CommitDraft, CommitTimings } from './plan-result.ts';
import { collectedAtOnce } from './plan-work.ts';
import { unfitError, unfitMembers } from './unfit-members.ts';

/** Targets that are merged at a time. */
const combinedAtOnce = 4;
/** How often a target may move under a commit before it is given up. */
const combinedMax = 5;

interface Begun {
  readonly record: PlanCommitRecord;
  readonly draft: CommitDraft;
  readonly plan: PlanRecord;
  readonly wish: CommitWish;
}

export class CommitAttempt {
  readonly #context: ControlContext;
  readonly #parts: CommitParts;
  readonly #recording: CommitRecording;
  readonly #begun: Begun;

  constructor(context: ControlContext, parts: CommitParts, recording: CommitRecording, begun: Begun) {
    this.#context = context;
    this.#parts = parts;
    this.#recording = recording;
    this.#begun = begun;
  }

  async run(stop: AbortSignal): Promise<PlanCommitView> {
    const { record, draft, plan, wish } = this.#begun;
    const { clock, timers } = this.#context;
    const late = new AbortController();
    const cancel = timers.after(record.expiresAtBootMs - clock.bootMs(), () => late.abort());
    const lease = {
      plan,
      turn: record.fence,
      keyId: draft.by,
      reason: `commit ${record.id}`,
      members: record.members,
      targets: record.targets,
      waitMs: wish.waitMs,
      signal: AbortSignal.any([stop, late.signal]),
    };
    try {
      const askedAtMs = clock.bootMs();
      return await this.#parts.leases.holding(lease, async (hold) => {
        draft.timings.waitMs = clock.bootMs() - askedAtMs;
        await this.#context.faults.hit('after-plan-leases');
        try {
          return await this.#prepareAndDecide(hold);
        } catch (error) {
          // Whatever an abort looks like where it arrived, this is what it means.
          if (!isPlatformError(error)) checkGoing(hold);
          throw error;
        }
      });
    } catch (error) {
      return await this.#giveUp(error, late.signal.aborted);
    } finally {
      cancel();
    }
  }

  /** Whatever was in the way: the attempt is over, and says why. */
  async #giveUp(error: unknown, isLate: boolean): Promise<PlanCommitView> {
    const { record, draft } = this.#begun;
    const why = isLate
      ? new PlatformError('plan_commit_expired', 'It took longer than a commit may take.')
      : isPlatformError(error)
        ? error
        : new PlatformError('internal', 'A bug here; nothing was published.', { cause: error });
    const { code, message, details } = why;
    // Of an interrupted attempt of `bestEffort`, what is published stays.
    const state = draft.published.size > 0 ? 'partial' : 'aborted';
    const ending: CommitEnd = { state, error: { code, message, details }, retryable: why.retry === 'backoff' };
    const view = await this.#recording.end(record, draft, ending);
    if (why.code === 'internal') throw error;
    return view;
  }

  async #prepareAndDecide(hold: PlanHold): Promise<PlanCommitView> {
    const { faults } = this.#context;
    await this.#refresh();
    await this.#timed('collectMs', () => (this.#begun.wish.kind === 'commit' ? this.#collect(hold) : this.#invert()));
    await faults.hit('after-plan-collected');
    for (let round = 1; ; round++) {
      await this.#timed('combineMs', () => this.#combine(hold));
      await faults.hit('after-plan-combined');
      const early = await this.#endWithout();
      if (early !== undefined) return early;
      await this.#timed('checksMs', () => this.#check(hold));
      await faults.hit('after-plan-checked');
      try {
        return await this.#timed('publishMs', () => this.#decide(hold));
      } catch (error) {
        if (!isPlatformError(error, 'workspace_moved') || round === combinedMax) throw error;
        checkGoing(hold);
      }
    }
  }

  /** Between the beginning and the lease, sandboxes could still be attached elsewhere: what is committed is what they have now. */
  async #refresh(): Promise<void> {
    const { draft, record, wish } = this.#begun;
    if (wish.kind === 'revert') return;
    const { members, workspaces } = await this.#context.store.read(async (tables) => {
      const members = await membersOf(tables, record.planId);
      return { members, workspaces: await workspacesOf(tables, members) };
    });
    const unfit = unfitMembers(members, workspaces);
    if (unfit.length > 0 && wish.mode === 'atomic') throw unfitError(record.planId, unfit);
    const isAsRecorded = [...workspaces.keys()].sort().join() === record.targets.join();
    if (!isAsRecorded) {
      throw new PlatformError(
        'plan_interrupted',
        'A member was attached to another workspace while its lease was waited for.',
      );
    }
    draft.members = members;
    draft.workspaces = workspaces;
    for (const { sandboxId, code, message } of unfit) draft.failures.set(sandboxId, { code, message });
  }

  /** The files of every member at one instant each; the first that fails stops the others, unless each counts for itself. */
  async #collect(hold: PlanHold): Promise<void> {
    const { draft, record, wish } = this.#begun;
    const stop = new AbortController();
    const signal = AbortSignal.any([hold.signal, stop.signal]);
    const few = new AtMost(collectedAtOnce);
    let first: unknown;
    const collectOne = async ({ sandboxId }: Member) => {
      if (signal.aborted) return;
      try {
        const request = {
          teamId: record.teamId,
          sandboxId,
          leaseToken: hold.tokenOf(sandboxId),
          createdBy: draft.by,
          hold: draft.hold,
        };
        draft.contributions.set(sandboxId, await this.#parts.work.changes.collect(request, signal));
      } catch (error) {
        // Those that were stopped because of it have not failed by themselves.
        if (signal.aborted) return;
        draft.failures.set(sandboxId, failureOf(error));
        if (wish.mode === 'bestEffort') return;
        first = error;
        stop.abort();
      }
    };
    const fit = draft.members.filter(({ sandboxId }) => !draft.failures.has(sandboxId));
    await Promise.all(fit.map((member) => few.run(() => collectOne(member))));
    if (first !== undefined) throw first;
    checkGoing(hold);
  }

  /** Of a revert: what takes each target from what was published to what was there before. */
  async #invert(): Promise<void> {
    const { draft, record, plan } = this.#begun;
    const published = await this.#context.store.read((tables) => this.#recording.publishedBy(tables, plan));
    draft.inverses.length = 0;
    for (const { workspaceId, before, after } of published) {
      const tree = await this.#parts.work.treeOf({ workspaceId, commit: before.commit });
      const attachment: AttachmentRecord = {
        // No sandbox has this: what it stands for is the plan.
        sandboxId: record.planId as string as SandboxId,
        workspaceId,
        teamId: record.teamId,
        path: '/',
        baseNumber: after!.number,
        baseCommit: after!.commit,
        baseline: null,
        attachedAtMs: draft.startedAtMs,
        attachedBy: draft.by,
      };
      // It is merged as a sandbox's changes are; nobody has this checkout.
      const inverse = { attachment, tree, counts: { files: 1, insertions: 0, deletions: 0 }, leftOut: [] };
      draft.inverses.push(inverse);
    }
  }

  /** The first that fails stops the others, and is told when they have ended: nobody holds anything behind an attempt that is over. */
  async #combine(hold: PlanHold): Promise<void> {
    const { draft, record, plan } = this.#begun;
    const few = new AtMost(combinedAtOnce);
    const stop = new AbortController();
    const signal = AbortSignal.any([hold.signal, stop.signal]);
    const combineOne = async (workspaceId: WorkspaceId): Promise<[WorkspaceId, Combined] | undefined> => {
      const contributions = this.#contributionsTo(workspaceId);
      if (contributions.length === 0) return undefined;
      const trailers = [
        { name: 'Atoll-Plan', value: plan.id },
        { name: 'Atoll-Plan-Commit', value: record.id },
      ];
      const { author, message, startedAtMs: atMs } = draft;
      const request = { workspaceId, contributions, author, message, trailers, atMs, hold: draft.hold };
      return [workspaceId, await this.#parts.work.changes.combine(request, signal)];
    };
    let first: { readonly error: unknown } | undefined;
    const stopOthers = (error: unknown) => {
      first ??= { error };
      stop.abort();
      return undefined;
    };
    const orders = record.targets.map((id) =>
      few.run(async () => (signal.aborted ? undefined : await combineOne(id).catch(stopOthers))),
    );
    const combined = await Promise.all(orders);
    if (first !== undefined) throw first.error;
    draft.combined = new Map(combined.filter((one) => one !== undefined));
    checkGoing(hold);
  }

  /** Where nothing is to be decided: conflicts, nothing at all, and in `bestEffort` nobody who could be read. */
  async #endWithout(): Promise<PlanCommitView | undefined> {
    const { draft, record, wish } = this.#begun;
    const kinds = [...draft.combined.values()].map(({ kind }) => kind);
    const isStuck = wish.mode === 'atomic' || !kinds.includes('prepared');
    if (kinds.includes('conflicts') && isStuck) {
      return await this.#recording.end(record, draft, { state: 'conflict', error: conflictError(draft) });
    }
    const isEmpty = kinds.every((kind) => kind === 'nothing');
    if (!isEmpty || wish.allowEmpty) return undefined;
    if (draft.failures.size > 0) throw unfitError(record.planId, failuresOf(draft));
    return await this.#recording.end(record, draft, { state: 'nothing' });
  }

  async #check(hold: PlanHold): Promise<void> {
    const { draft, record, wish } = this.#begun;
    if (wish.checks.length === 0) return;
    const like = draft.members.find(({ sandbox }) => sandbox !== undefined)?.sandbox;
    if (like === undefined) return;
    const targets = record.targets.flatMap((workspaceId) => {
      const combined = draft.combined.get(workspaceId);
      const path = pathOf(draft.members, workspaceId);
      if (combined === undefined || combined.kind === 'conflicts' || path === undefined) return [];
      return [
        { workspaceId, path, commit: combined.kind === 'prepared' ? combined.version.commit : combined.onCommit },
      ];
    });
    const { teamId, id: commitId } = record;
    const request = { teamId, createdBy: draft.by, commitId, like, targets, checks: wish.checks };
    draft.checks = await this.#parts.work.runChecks(request, hold.signal);
    const failed = draft.checks.find(({ exitCode }) => exitCode !== 0);
    if (failed === undefined) return;
    const why = failed.timedOut ? 'ran out of time' : `ended with ${failed.exitCode}`;
    throw new PlatformError('plan_check_failed', `A check on the merged result ${why}.`, {
      details: { command: failed.command, exitCode: failed.exitCode, timedOut: failed.timedOut },
    });
  }

  async #decide(hold: PlanHold): Promise<PlanCommitView> {
    const { draft, record, wish } = this.#begun;
    checkGoing(hold);
    if (wish.dryRun) return await this.#recording.end(record, draft, { state: 'committed' });
    await this.#context.faults.hit('before-plan-decision');
    const view = wish.mode === 'atomic' ? await this.#decideAll() : await this.#decideEach(hold);
    await this.#context.faults.hit('after-plan-decision');
    return view;
  }

  async #decideAll(): Promise<PlanCommitView> {
    const { draft, record } = this.#begun;
    try {
      return await this.#recording.end(record, draft, { state: 'committed' }, async (tables) => {
        draft.published.clear();
        for (const version of this.#prepared()) await this.#publish(tables, version);
      });
    } catch (error) {
      // The transaction is undone, and so is what it noted here.
      draft.published.clear();
      throw error;
    }
  }

  /** Each target by itself; one that has moved is left for the next commit. */
  async #decideEach(hold: PlanHold): Promise<PlanCommitView> {
    const { draft, record } = this.#begun;
    // Those of an earlier round were about an earlier head.
    draft.targetErrors.clear();
    for (const version of this.#prepared()) {
      checkGoing(hold);
      try {
        await this.#context.store.transact(async (tables) => {
          await this.#recording.checkCoordinator(tables, record);
          await this.#publish(tables, version);
          await this.#recording.put(tables, record, draft, { state: 'preparing' });
        });
      } catch (error) {
        draft.published.delete(version.workspaceId);
        if (!isPlatformError(error)) throw error;
        draft.targetErrors.set(version.workspaceId, failureOf(error));
      }
      await this.#context.faults.hit('after-plan-target');
    }
    const kinds = [...draft.combined.values()].map(({ kind }) => kind);
    const isWhole = !kinds.includes('conflicts') && draft.targetErrors.size === 0 && draft.failures.size === 0;
    const isNothing = !isWhole && draft.published.size === 0;
    if (isNothing) throw new PlatformError('workspace_moved', 'Every target has moved; none was published.');
    return await this.#recording.end(record, draft, { state: isWhole ? 'committed' : 'partial' });
  }

  async #publish(tables: Tables, version: PreparedVersion): Promise<void> {
    const { draft, record } = this.#begun;
    const changed = this.#contributionsTo(version.workspaceId).filter(({ counts }) => counts.files > 0);
    const [one, another] = draft.kind === 'revert' ? [] : changed;
    const published = await this.#parts.work.changes.publish(tables, {
      version: draft.kind === 'revert' ? { ...version, kind: 'revert', bases: [] } : version,
      createdBy: draft.by,
      sandboxId: one !== undefined && another === undefined ? one.attachment.sandboxId : null,
      planId: record.planId,
      atMs: this.#context.clock.nowMs(),
    });
    draft.published.set(version.workspaceId, published);
  }

  #prepared(): PreparedVersion[] {
    const { draft, record } = this.#begun;
    return record.targets.flatMap((id) => {
      const combined = draft.combined.get(id);
      return combined?.kind === 'prepared' ? [combined.version] : [];
    });
  }

  /** In the order of members. */
  #contributionsTo(workspaceId: WorkspaceId): Contribution[] {
    const { draft } = this.#begun;
    const collected = draft.members.flatMap(({ sandboxId }) => draft.contributions.get(sandboxId) ?? []);
    return [...collected, ...draft.inverses].filter(({ attachment }) => attachment.workspaceId === workspaceId);
  }

  async #timed<Result>(name: keyof CommitTimings, work: () => Promise<Result>): Promise<Result> {
    const { clock } = this.#context;
    const startedAtMs = clock.bootMs();
    try {
      return await work();
    } finally {
      this.#begun.draft.timings[name] += clock.bootMs() - startedAtMs;
    }
  }
}

/** A server that stops, or a lease that is lost: before the decision both mean that it does not happen. */
function checkGoing({ signal }: PlanHold): void {
  if (!signal.aborted) return;
  const message = 'The server stops, or the lease of the plan was lost; nothing was published.';
  throw new PlatformError('plan_interrupted', message);
}

/** Of every target, whoever they concern. */
function conflictError(draft: CommitDraft): NonNullable<CommitEnd['error']> {
  const conflicts = [...draft.combined].flatMap(([workspaceId, combined]) =>
    combined.kind === 'conflicts' ? combined.conflicts.map(({ path, kind }) => ({ workspaceId, path, kind })) : [],
  );
  const message = `${conflicts.length} paths were changed on both sides; nothing was published.`;
  const details = { count: conflicts.length, conflicts: conflicts.slice(0, workspaceLimits.conflicts) };
  return { code: 'workspace_conflict', message, details };
}

function failureOf(error: unknown): { code: string; message: string } {
  return isPlatformError(error)
    ? { code: error.code, message: error.message }
    : { code: 'internal', message: 'A bug here.' };
}

function failuresOf(draft: CommitDraft): { sandboxId: SandboxId; code: string; message: string }[] {
  return [...draft.failures].map(([sandboxId, failure]) => ({ sandboxId, ...failure }));
}

function pathOf(members: readonly Member[], workspaceId: WorkspaceId): string | undefined {
  for (const { attachments } of members) {
    const found = attachments.find((one) => one.workspaceId === workspaceId);
    if (found !== undefined) return found.path;
  }
  return undefined;
}
