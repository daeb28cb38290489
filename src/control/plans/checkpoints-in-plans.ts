/** Checkpoints that a checkpoint of a plan is made of: they go with it, and not before. */
import { type CheckpointId, PlatformError } from '../../protocol/index.ts';
import type { Readers } from '../../store/index.ts';

export async function checkNotInPlan(tables: Readers, id: CheckpointId): Promise<void> {
  if (!(await tables.plans.isInCheckpoint(id))) return;
  throw new PlatformError('plan_busy', `The checkpoint ${id} is part of a checkpoint of a plan.`, { details: { id } });
}
