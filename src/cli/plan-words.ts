/** Plans and their commits for people. */
import type { PlanCheckpointView, PlanCommitView, PlanStatus, PlanView } from '../sdk/index.ts';
import { readableBytes, readableFields, readableTable, readableWhen } from './readable.ts';

export function planTable(plans: readonly PlanView[], nowMs: number): string {
  if (plans.length === 0) return 'No plans.\n';
  const rows = plans.map((plan) => [
    plan.id,
    plan.name,
    plan.state.kind,
    String(plan.members.length),
    readableWhen(plan.createdAt, nowMs),
  ]);
  return readableTable(['ID', 'NAME', 'STATE', 'MEMBERS', 'CREATED'], rows);
}

export function planText(plan: PlanView, nowMs: number): string {
  const { state } = plan;
  const failures = 'failures' in state ? state.failures : [];
  const facts = readableFields([
    ['Id', plan.id],
    ['Name', plan.name],
    ['State', state.kind],
    ['Commit', plan.commitId ?? '-'],
    ['Created', `${plan.createdAt} (${readableWhen(plan.createdAt, nowMs)}) by ${plan.createdBy}`],
  ]);
  const members = plan.members.map((member) => [
    String(member.position),
    member.sandboxId,
    member.sandbox?.name ?? '-',
    member.sandbox?.state ?? 'gone',
    member.attachments.map(({ workspace, path, base }) => `${workspace}@${base.number} ${path}`).join(', ') || '-',
  ]);
  const table =
    members.length === 0 ? '' : `\n${readableTable(['#', 'SANDBOX', 'NAME', 'STATE', 'WORKSPACES'], members)}`;
  return `${facts}${table}${failures.map(failureLine).join('')}`;
}

export function statusText({ members, files, commits }: PlanStatus): string {
  const rows = members.flatMap(({ sandboxId, changes, error }) =>
    error === null
      ? changes.map((one) => [sandboxId, one.workspace, String(one.files), `+${one.insertions} -${one.deletions}`])
      : [[sandboxId, '-', '?', error.message]],
  );
  const table = rows.length === 0 ? '' : readableTable(['SANDBOX', 'WORKSPACE', 'FILES', 'LINES'], rows);
  return `${table}${files} changed files in ${commits} checkouts are in no version.\n`;
}

export function commitText(commit: PlanCommitView): string {
  const what = commit.dryRun ? 'tried' : commit.state;
  const targets = commit.targets.map((target) => [
    target.workspace,
    target.state,
    `${target.before.number}${target.after === null ? '' : ` → ${target.after.number}`}`,
    String(target.files),
    `+${target.insertions} -${target.deletions}`,
  ]);
  const table = targets.length === 0 ? '' : readableTable(['WORKSPACE', 'STATE', 'VERSION', 'FILES', 'LINES'], targets);
  const conflicts = commit.members.flatMap(({ sandboxId, targets: ofMember }) =>
    ofMember.flatMap(({ workspace, conflicts: found }) =>
      found.map(
        ({ path, kind, withSandboxId }) =>
          `  ${workspace}:${path} (${kind}) ${sandboxId} against ${withSandboxId ?? 'the head'}\n`,
      ),
    ),
  );
  const failures = commit.members.flatMap(({ sandboxId, error }) => (error === null ? [] : [{ sandboxId, ...error }]));
  const why = commit.error === null ? '' : `${commit.error.message} (${commit.error.code})\n`;
  return `${commit.id} ${what}\n${table}${conflicts.join('')}${failures.map(failureLine).join('')}${why}`;
}

export function checkpointTable(checkpoints: readonly PlanCheckpointView[], nowMs: number): string {
  if (checkpoints.length === 0) return 'No checkpoints.\n';
  const rows = checkpoints.map(({ id, name, state, members, sizeBytes, createdAt }) => [
    ...[id, name ?? '-', state, String(members.length), readableBytes(sizeBytes), readableWhen(createdAt, nowMs)],
  ]);
  return readableTable(['ID', 'NAME', 'STATE', 'MEMBERS', 'SIZE', 'CREATED'], rows);
}

function failureLine({ sandboxId, code, message }: { sandboxId: string; code: string; message: string }): string {
  return `  ${sandboxId}: ${message} (${code})\n`;
}
