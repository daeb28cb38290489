/** A member cannot go away while something is done on its plan, whoever asks and by whatever force. */
import { busyPlanStates, PlatformError, type SandboxId } from '../../protocol/index.ts';
import type { Readers } from '../../store/index.ts';

export async function checkNotPinned(tables: Readers, sandboxId: SandboxId): Promise<void> {
  const plans = await tables.plans.plansOf(sandboxId);
  const plan = plans.find(({ state }) => busyPlanStates.some((kind) => kind === state.kind));
  if (plan === undefined) return;
  const details = { sandboxId, planId: plan.id, plan: plan.name, state: plan.state.kind };
  const message = `Sandbox ${sandboxId} is a member of plan ${plan.name}, which is ${plan.state.kind}.`;
  throw new PlatformError('plan_busy', message, { details });
}
