/**
 * Whom something that goes forward on a plan still waits for: members for which the last try failed, and members that cannot be had as things are
 * now, because their node is out of reach or somebody else holds them.
 */
import type { MemberFailure } from '../../protocol/index.ts';
import type { PlanRecord, Readers } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import { planHolder } from './plan-leases.ts';
import { type Member, membersOf } from './plan-records.ts';
import { hasWork } from './unfit-members.ts';

export async function missingMembers(
  { nodes }: Pick<ControlContext, 'nodes'>,
  tables: Readers,
  plan: PlanRecord,
): Promise<MemberFailure[]> {
  const { state } = plan;
  const failures = state.kind === 'restoring' ? [...state.failures] : [];
  for (const member of await membersOf(tables, plan.id)) {
    const { sandboxId, sandbox } = member;
    if (sandbox === undefined || !isWaitedFor(plan, member)) continue;
    if (failures.some((one) => one.sandboxId === sandboxId)) continue;
    if (!nodes.isReachable(sandbox.nodeId)) {
      failures.push({ sandboxId, code: 'node_unavailable', message: `Its node ${sandbox.nodeId} is out of reach.` });
      continue;
    }
    const holder = await holderOf(tables, plan, member);
    if (holder !== undefined) failures.push({ sandboxId, code: 'lease_held', message: `"${holder}" holds it.` });
  }
  return failures;
}

/** A commit that was interrupted is given up, and waits for nobody. */
function isWaitedFor({ state }: PlanRecord, member: Member): boolean {
  if (state.kind === 'rollingBack') return hasWork(member);
  return state.kind === 'restoring' && !state.done.includes(member.sandboxId);
}

/** Who has it, if not the plan itself. */
async function holderOf(
  tables: Readers,
  plan: PlanRecord,
  { sandboxId, sandbox }: Member,
): Promise<string | undefined> {
  if (!sandbox?.leaseHeld) return undefined;
  const lease = await tables.leases.find({ teamId: plan.teamId, resource: sandboxId });
  const name = lease?.holder?.name;
  return name === planHolder(plan.id) ? undefined : name;
}
