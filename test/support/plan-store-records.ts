/** Records of plans for tests of the store: whole and plausible, with what matters to the test given. */
import { newId } from '../../src/protocol/index.ts';
import type { PlanCheckpointRecord, PlanCommitRecord, PlanRecord } from '../../src/store/index.ts';

const atMs = 1_900_000_000_000;

export function planRecord(given: Partial<PlanRecord> = {}): PlanRecord {
  const id = newId('plan');
  return {
    ...{ id, teamId: newId('team'), name: `plan of ${id}`, state: { kind: 'open' }, fence: 0, version: 1 },
    ...{ createdAtMs: atMs, createdBy: newId('key'), updatedAtMs: atMs },
    ...given,
  };
}

export function planCommitRecord(given: Partial<PlanCommitRecord> = {}): PlanCommitRecord {
  return {
    ...{ id: newId('planCommit'), planId: newId('plan'), teamId: newId('team'), kind: 'commit', mode: 'atomic' },
    ...{ isDryRun: false, state: 'preparing', fingerprint: 'f', fence: 1, serverRun: 'run', leaseId: null },
    ...{ members: [], targets: [], left: 'everything', keptUntilMs: null, result: null, createdBy: newId('key') },
    ...{ startedAtMs: atMs, finishedAtMs: null, bootId: 'boot', expiresAtBootMs: 7 },
    ...given,
  };
}

export function planCheckpointRecord(given: Partial<PlanCheckpointRecord> = {}): PlanCheckpointRecord {
  const member = { sandboxId: newId('sandbox'), checkpointId: newId('checkpoint'), wasRunning: true };
  return {
    ...{ id: newId('planCheckpoint'), planId: newId('plan'), teamId: newId('team'), name: null, state: 'ready' },
    ...{ serverRun: 'run', members: [member], createdAtMs: atMs, createdBy: newId('key') },
    ...given,
  };
}
