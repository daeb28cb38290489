/**
 * Checkpoints as recorded and as nodes report them, compared. A pure function, as `reconcile` is: the same input gives the same list, in the
 * same order, each with its reason.
 */
import type { CheckpointId, NodeCheckpoint, NodeId } from '../protocol/index.ts';
import type { CheckpointRecord } from '../store/index.ts';

export interface CheckpointReport {
  readonly nodeId: NodeId;
  /** undefined: out of reach. */
  readonly checkpoints: readonly Pick<NodeCheckpoint, 'checkpointId' | 'createdAtMs'>[] | undefined;
}

export type CheckpointActionKind =
  /** It was begun, and nobody works on it any more: it is confirmed, or given up. */
  | 'settle-checkpoint'
  /** Its node does not have it. */
  | 'lose-checkpoint'
  | 'finish-checkpoint-removal'
  /** Its time has come, or the fork that it was made for is over. */
  | 'expire-checkpoint'
  /** The node has it, and there is no record. */
  | 'remove-checkpoint';

export interface CheckpointAction {
  readonly kind: CheckpointActionKind;
  readonly checkpointId: CheckpointId;
  readonly nodeId: NodeId;
  readonly reason: string;
}

export interface CheckpointInput {
  readonly records: readonly CheckpointRecord[];
  readonly reports: readonly CheckpointReport[];
  readonly nowMs: number;
  /** Younger than this, a difference is left alone: somebody may be working on it. */
  readonly youngMs: number;
  /** A checkpoint that is still being made after this is settled. */
  readonly transitionMs: number;
}

export function reconcileCheckpoints(input: CheckpointInput): CheckpointAction[] {
  const actions: CheckpointAction[] = [];
  const known = new Set(input.records.map(({ id }) => id));
  for (const { nodeId, checkpoints } of input.reports) {
    if (checkpoints === undefined) continue;
    const present = new Set(checkpoints.map(({ checkpointId }) => checkpointId));
    for (const record of input.records) {
      if (record.nodeId === nodeId) actions.push(...compareOne(record, present.has(record.id), input));
    }
    for (const { checkpointId, createdAtMs } of checkpoints) {
      if (known.has(checkpointId) || createdAtMs > input.nowMs - input.youngMs) continue;
      actions.push({ kind: 'remove-checkpoint', checkpointId, nodeId, reason: 'It has no record.' });
    }
  }
  return actions.sort((a, b) => (a.checkpointId < b.checkpointId ? -1 : a.checkpointId > b.checkpointId ? 1 : 0));
}

function compareOne(record: CheckpointRecord, isPresent: boolean, input: CheckpointInput): CheckpointAction[] {
  const act = (kind: CheckpointActionKind, reason: string): CheckpointAction[] => [
    { kind, checkpointId: record.id, nodeId: record.nodeId, reason },
  ];
  const isExpired = record.expiresAtMs !== null && record.expiresAtMs <= input.nowMs;
  switch (record.state) {
    case 'creating':
      if (isPresent) return act('settle-checkpoint', 'The node has it.');
      if (record.createdAtMs > input.nowMs - input.transitionMs) return [];
      return act('settle-checkpoint', 'It was not made in time.');
    case 'deleting':
      return act('finish-checkpoint-removal', 'A removal was begun and not finished.');
    case 'ready':
      if (isExpired) return act('expire-checkpoint', 'Its time has come.');
      return isPresent ? [] : act('lose-checkpoint', 'The node does not have it.');
    case 'lost':
      return isExpired ? act('expire-checkpoint', 'Its time has come.') : [];
  }
}
