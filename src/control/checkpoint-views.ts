/** How checkpoints are shown, and what is said when one cannot be used. */
import { type CheckpointId, type CheckpointView, PlatformError } from '../protocol/index.ts';
import type { CheckpointRecord } from '../store/index.ts';

export function checkpointViewOf(record: CheckpointRecord): CheckpointView {
  const { id, sandboxId, name, state, generation, sizeBytes, frozenMs, createdBy } = record;
  return {
    ...{ id, sandboxId, name, state, generation, sizeBytes, frozenMs, createdBy },
    template: record.spec.template,
    metadata: { ...record.metadata },
    createdAt: new Date(record.createdAtMs).toISOString(),
    expiresAt: record.expiresAtMs === null ? null : new Date(record.expiresAtMs).toISOString(),
  };
}

export function checkpointGone(checkpointId: CheckpointId): PlatformError {
  const details = { checkpointId };
  return new PlatformError('checkpoint_not_found', `There is no checkpoint ${checkpointId} in this team.`, { details });
}

export function notUsable(record: CheckpointRecord): PlatformError {
  const details = { checkpointId: record.id, state: record.state };
  return new PlatformError('checkpoint_not_usable', `The checkpoint ${record.id} is ${record.state}.`, { details });
}
