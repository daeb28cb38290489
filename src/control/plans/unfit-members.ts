/** Which members cannot take part in something of the whole plan as they are, and why: all of them are told at once, before anything happens. */
import { type MemberFailure, type PlanId, PlatformError, type WorkspaceId } from '../../protocol/index.ts';
import type { WorkspaceRecord } from '../../store/index.ts';
import type { Member } from './plan-records.ts';

export function unfitMembers(
  members: readonly Member[],
  workspaces: ReadonlyMap<WorkspaceId, WorkspaceRecord>,
): MemberFailure[] {
  return members.flatMap((member) => {
    const why = withoutSandbox(member) ?? withoutTarget(member, workspaces) ?? nested(member);
    return why === undefined ? [] : [{ sandboxId: member.sandboxId, ...why }];
  });
}

/** Only what concerns the sandbox itself. */
export function membersWithoutSandbox(members: readonly Member[]): MemberFailure[] {
  return members.flatMap((member) => {
    const why = withoutSandbox(member);
    return why === undefined ? [] : [{ sandboxId: member.sandboxId, ...why }];
  });
}

/** One that is gone, or has nothing attached, has nothing to be put back. */
export function hasWork({ sandbox, attachments }: Member): boolean {
  return sandbox !== undefined && sandbox.state.kind !== 'deleting' && attachments.length > 0;
}

export function unfitError(planId: PlanId, unfit: readonly MemberFailure[]): PlatformError {
  const names = unfit.map(({ sandboxId, message }) => `${sandboxId}: ${message}`).join(' ');
  return new PlatformError('plan_members_unfit', `Members of ${planId} cannot take part. ${names}`, {
    details: { members: unfit },
  });
}

type Why = Omit<MemberFailure, 'sandboxId'>;

function withoutSandbox({ sandbox }: Member): Why | undefined {
  if (sandbox === undefined || sandbox.state.kind === 'deleting') {
    return { code: 'sandbox_not_found', message: 'It is gone, with what it had changed.' };
  }
  const { kind } = sandbox.state;
  if (kind === 'running' || kind === 'paused' || kind === 'stopped') return undefined;
  return { code: 'sandbox_wrong_state', message: `It is ${kind}: neither running, paused nor stopped.` };
}

/** What is outside of an attached workspace is published nowhere, and could not be taken back. */
function withoutTarget(
  { attachments }: Member,
  workspaces: ReadonlyMap<WorkspaceId, WorkspaceRecord>,
): Why | undefined {
  if (attachments.length === 0) {
    return {
      code: 'workspace_not_found',
      message: 'It has no workspace attached: what it changes cannot be published or taken back.',
    };
  }
  const unready = attachments.find(({ workspaceId }) => workspaces.get(workspaceId)?.state !== 'ready');
  if (unready === undefined) return undefined;
  return { code: 'workspace_wrong_state', message: `Its workspace ${unready.workspaceId} is not ready.` };
}

function nested({ attachments }: Member): Why | undefined {
  for (const outer of attachments) {
    const inner = attachments.find(
      (one) => one !== outer && (one.path === outer.path || one.path.startsWith(`${outer.path.replace(/\/$/, '')}/`)),
    );
    if (inner !== undefined) {
      return {
        code: 'workspace_wrong_state',
        message: `Its workspaces lie in each other: ${inner.path} in ${outer.path}.`,
      };
    }
  }
  return undefined;
}
