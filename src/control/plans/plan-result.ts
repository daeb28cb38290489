/** What callers are told of a commit, made from what is known when they are told. Pure. */
import {
  type CommitAuthor,
  type KeyId,
  type PlanCommitId,
  type PlanCommitView,
  type PlanId,
  type SandboxId,
  type WorkspaceId,
  workspaceLimits,
} from '../../protocol/index.ts';
import type { PlanCommitRecord, WorkspaceRecord, WorkspaceVersionRecord } from '../../store/index.ts';
import type { Combined, Contribution } from '../workspaces/workspace-changes.ts';
import type { Member } from './plan-records.ts';
import type { CheckOutcome } from './plan-work.ts';

export type TargetView = PlanCommitView['targets'][number];
type MemberView = PlanCommitView['members'][number];
export type CommitError = NonNullable<PlanCommitView['error']>;

export interface CommitTimings {
  waitMs: number;
  collectMs: number;
  combineMs: number;
  checksMs: number;
  publishMs: number;
}

/** Everything that is known of a commit so far; filled in step by step. */
export interface CommitDraft {
  readonly id: PlanCommitId;
  readonly planId: PlanId;
  readonly planName: string;
  readonly kind: PlanCommitRecord['kind'];
  readonly mode: PlanCommitRecord['mode'];
  readonly isDryRun: boolean;
  readonly message: string;
  readonly author: CommitAuthor;
  readonly by: KeyId;
  readonly startedAtMs: number;
  readonly startedAtBootMs: number;
  /** In the order of merging. */
  members: readonly Member[];
  workspaces: ReadonlyMap<WorkspaceId, WorkspaceRecord>;
  readonly hold: string;
  readonly timings: CommitTimings;
  readonly contributions: Map<SandboxId, readonly Contribution[]>;
  /** Of a revert: what takes each target back. */
  readonly inverses: Contribution[];
  readonly failures: Map<SandboxId, { readonly code: string; readonly message: string }>;
  combined: ReadonlyMap<WorkspaceId, Combined>;
  readonly published: Map<WorkspaceId, WorkspaceVersionRecord>;
  readonly targetErrors: Map<WorkspaceId, { readonly code: string; readonly message: string }>;
  checks: readonly CheckOutcome[];
}

export interface Ending {
  readonly state: PlanCommitRecord['state'];
  readonly error: CommitError | null;
  readonly retryable: boolean;
  readonly finishedAtMs: number | null;
  readonly finishedAtBootMs: number;
  readonly keptUntilMs: number | null;
}

export function commitViewOf(draft: CommitDraft, ending: Ending): PlanCommitView {
  const targets = targetsOf(draft, ending);
  const isKept = ending.keptUntilMs !== null && draft.contributions.size > 0;
  return {
    id: draft.id,
    planId: draft.planId,
    planName: draft.planName,
    kind: draft.kind,
    mode: draft.mode,
    dryRun: draft.isDryRun,
    state: ending.state,
    retryable: ending.retryable,
    message: draft.message,
    author: { ...draft.author },
    by: draft.by,
    startedAt: new Date(draft.startedAtMs).toISOString(),
    finishedAt: ending.finishedAtMs === null ? null : new Date(ending.finishedAtMs).toISOString(),
    targets,
    members: draft.members.map((member) => memberViewOf(draft, member, targets)),
    checks: [...draft.checks],
    retained: isKept ? targets.map(({ workspaceId }) => ({ workspaceId, hold: draft.hold })) : [],
    retainedUntil: isKept ? new Date(ending.keptUntilMs ?? 0).toISOString() : null,
    timings: { ...draft.timings, totalMs: ending.finishedAtBootMs - draft.startedAtBootMs },
    error: ending.error,
  };
}

function targetsOf(draft: CommitDraft, ending: Ending): TargetView[] {
  const ids = [...draft.workspaces.keys()].sort();
  return ids.map((workspaceId) => {
    const workspace = draft.workspaces.get(workspaceId)!;
    const combined = draft.combined.get(workspaceId);
    const published = draft.published.get(workspaceId);
    const prepared = combined?.kind === 'prepared' ? combined.version : undefined;
    const head = { number: workspace.headNumber, commit: workspace.headCommit ?? '' };
    const before = prepared
      ? { number: prepared.onNumber, commit: prepared.onCommit }
      : combined?.kind === 'nothing'
        ? { number: combined.onNumber, commit: combined.onCommit }
        : head;
    const { files, insertions, deletions } = prepared?.counts ?? { files: 0, insertions: 0, deletions: 0 };
    return {
      workspaceId,
      workspace: workspace.name,
      state: targetState(draft, ending, workspaceId),
      base: earliestBase(draft, workspaceId) ?? before,
      before,
      after: published ? { number: published.number, commit: published.commit } : null,
      prepared: prepared?.commit ?? null,
      ...{ files, insertions, deletions },
      error: draft.targetErrors.get(workspaceId) ?? null,
    };
  });
}

function targetState(draft: CommitDraft, ending: Ending, workspaceId: WorkspaceId): TargetView['state'] {
  if (draft.published.has(workspaceId)) return 'published';
  const kind = draft.combined.get(workspaceId)?.kind;
  if (kind === 'conflicts') return 'conflict';
  if (kind === 'nothing') return 'unchanged';
  return kind === 'prepared' && draft.isDryRun && ending.state === 'committed' ? 'wouldPublish' : 'notPublished';
}

function earliestBase(draft: CommitDraft, workspaceId: WorkspaceId): TargetView['base'] | undefined {
  const bases = draft.members.flatMap(({ attachments }) =>
    attachments.filter((one) => one.workspaceId === workspaceId).map((one) => baseOf(one)),
  );
  return bases.reduce<TargetView['base'] | undefined>(
    (least, base) => (least === undefined || base.number < least.number ? base : least),
    undefined,
  );
}

function baseOf(attachment: { readonly baseNumber: number; readonly baseCommit: string }): TargetView['base'] {
  return { number: attachment.baseNumber, commit: attachment.baseCommit };
}

function memberViewOf(draft: CommitDraft, member: Member, targets: readonly TargetView[]): MemberView {
  const contributions = draft.contributions.get(member.sandboxId) ?? [];
  const views = member.attachments.map((attachment): MemberView['targets'][number] => {
    const contribution = contributions.find((one) => one.attachment.workspaceId === attachment.workspaceId);
    const target = targets.find((one) => one.workspaceId === attachment.workspaceId);
    const { files, insertions, deletions } = contribution?.counts ?? { files: 0, insertions: 0, deletions: 0 };
    return {
      workspaceId: attachment.workspaceId,
      workspace: target?.workspace ?? attachment.workspaceId,
      path: attachment.path,
      base: baseOf(attachment),
      before: target?.before ?? null,
      after: target?.after ?? null,
      ...{ files, insertions, deletions },
      leftOut: [...(contribution?.leftOut ?? [])],
      conflicts: conflictsOf(draft, member.sandboxId, attachment.workspaceId),
    };
  });
  const error = draft.failures.get(member.sandboxId) ?? null;
  return {
    position: member.position,
    sandboxId: member.sandboxId,
    sandboxName: member.sandbox?.name ?? null,
    state: memberState(views, { error, isRead: draft.contributions.has(member.sandboxId) }),
    undoable: member.attachments.length > 0,
    targets: views,
    error,
  };
}

function memberState(
  views: MemberView['targets'],
  known: { readonly error: MemberView['error']; readonly isRead: boolean },
): MemberView['state'] {
  if (known.error !== null) return 'failed';
  if (views.some(({ conflicts }) => conflicts.length > 0)) return 'conflict';
  const changed = views.filter(({ files }) => files > 0);
  if (changed.length > 0 && changed.every(({ after }) => after !== null)) return 'committed';
  return changed.length === 0 && known.isRead ? 'unchanged' : 'notCommitted';
}

function conflictsOf(
  draft: CommitDraft,
  sandboxId: SandboxId,
  workspaceId: WorkspaceId,
): MemberView['targets'][number]['conflicts'] {
  const combined = draft.combined.get(workspaceId);
  if (combined?.kind !== 'conflicts') return [];
  return combined.conflicts
    .filter((conflict) => conflict.sandboxId === sandboxId)
    .slice(0, workspaceLimits.conflicts)
    .map(({ path, kind, base, ours, theirs, withSandboxId }) => ({
      ...{ path, kind, withSandboxId },
      ...{ base: base && { ...base }, ours: ours && { ...ours }, theirs: theirs && { ...theirs } },
    }));
}
