/**
 * Restore in place: the files of a checkpoint take the place of the sandbox's own, and a new generation begins on them. Id, name, metadata and
 * everything else that the record holds stay as they are now. What fails leaves the life that was there.
 */
import { assert } from '../base/index.ts';
import {
  type BodyOf,
  type Conditions,
  PlatformError,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { SandboxRecord, Tables } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { ControlContext } from './context.ts';
import { type LifeChanges, overtaken } from './life-changes.ts';
import { transitionDeadline } from './lifecycle.ts';
import type { Lane } from './sandbox-lanes.ts';
import { type ChangeMark, deadlineAfter, settingsFor } from './sandbox-pauses.ts';
import { promisesNoChange, type SandboxRecords } from './sandbox-records.ts';
import { takeAttachments } from './workspaces/attached-files.ts';

export class SandboxRestores {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #changes: LifeChanges;
  readonly #checkpoints: Checkpoints;

  constructor(
    context: ControlContext,
    parts: { records: SandboxRecords; changes: LifeChanges; checkpoints: Checkpoints },
  ) {
    this.#context = context;
    this.#records = parts.records;
    this.#changes = parts.changes;
    this.#checkpoints = parts.checkpoints;
  }

  restore(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.restoreSandbox>,
  ): Promise<SandboxView> {
    const { checkpoint: checkpointId } = body;
    return this.#changes.run(
      { caller, sandboxId, conditions, kind: 'restoreSandbox', body },
      {
        effect: (lane, record, operation) =>
          this.#checkpoints.using(caller, checkpointId, async (checkpoint) => {
            if (checkpoint.nodeId !== record.nodeId) throw elsewhere(checkpointId, sandboxId);
            const mark = { by: caller.keyId, operationId: operation.id, isRepeat: false };
            return await this.#restore(lane, record, checkpointId, mark);
          }),
        // Entering the lane has settled what was begun: the new life runs, or the earlier one is back.
        rest: async (_lane, record, { operation, generation }) => {
          if (record.generation === generation) return undefined;
          const isDone = record.generation === generation + 1 && record.state.kind === 'running';
          if (!isDone) throw overtaken(operation, 'It was begun, and is over.');
          return record;
        },
      },
    );
  }

  async #restore(
    lane: Lane,
    record: SandboxRecord,
    checkpointId: BodyOf<typeof routes.restoreSandbox>['checkpoint'],
    mark: ChangeMark,
  ): Promise<SandboxRecord> {
    const { clock, settings, faults } = this.#context;
    const { state, generation, expiresAtMs } = record;
    const nowMs = clock.nowMs();
    assert(state.kind !== 'restoring', 'The lane is settled.');
    const before = { state, generation, expiresAtMs };
    const untilMs = nowMs + settings.transitionMs;
    const next = this.#records.after(record, { kind: 'restore', checkpointId, before, untilMs });
    const restoring = {
      ...next,
      generation: generation + 1,
      // The deadline of a life that has ended is past.
      expiresAtMs: state.kind === 'stopped' ? null : deadlineAfter(record, undefined, nowMs),
    };
    const begun = await this.#records.commit(lane, {
      record: restoring,
      events: [{ kind: 'sandbox.restoring', data: { checkpointId } }],
    });
    await faults.hit('after-store-restoring');
    return await this.finishRestore(lane, begun, mark);
  }

  /** The rest of a restore, also after a crash. */
  async finishRestore(lane: Lane, begun: SandboxRecord, mark: ChangeMark): Promise<SandboxRecord> {
    const { nodes, faults, clock, lanes } = this.#context;
    const { state } = begun;
    assert(state.kind === 'restoring', 'A restore was begun.');
    const { checkpointId, before } = state;
    const { id: sandboxId, generation, version } = begun;
    const order = { sandboxId, generation, version, checkpointId, settings: settingsFor(begun, mark) };
    try {
      await nodes.call(begun.nodeId, (node) => node.branches.restore(order));
    } catch (error) {
      const isLate = (transitionDeadline(state) ?? 0) <= clock.nowMs();
      if (promisesNoChange(error) && (!mark.isRepeat || error.retry !== 'backoff' || isLate)) {
        const back = this.#records.after(begun, { kind: 'refused', why: error.message, atMs: clock.nowMs() });
        await this.#records.commitAfterNode(lane, {
          record: { ...back, generation: before.generation, expiresAtMs: before.expiresAtMs },
          events: [{ kind: 'sandbox.restore_failed', data: { checkpointId, why: error.message } }],
        });
      }
      // The earlier files are there; whether the earlier life is, the node knows.
      lanes.doubt(lane);
      throw error;
    }
    await faults.hit('after-restore-on-node');
    const running = this.#records.after(begun, { kind: 'confirmed' });
    const data = { checkpointId, by: mark.by };
    return await this.#records.commitAfterNode(lane, {
      record: running,
      events: [{ kind: 'sandbox.restored', data }],
      also: (tables) => restoreAttachments(tables, begun),
    });
  }
}

/** The files are those of the checkpoint, and so is what they were made from. Of a checkpoint that is gone by now nobody knows. */
export async function restoreAttachments(tables: Tables, restoring: SandboxRecord): Promise<void> {
  assert(restoring.state.kind === 'restoring', 'A restore was begun.');
  const checkpoint = await tables.checkpoints.find(restoring.state.checkpointId);
  if (checkpoint !== undefined) await takeAttachments(tables, restoring, checkpoint, checkpoint.createdBy);
}

function elsewhere(checkpointId: string, sandboxId: string): PlatformError {
  const message = `The checkpoint ${checkpointId} is on another node than ${sandboxId}.`;
  return new PlatformError('checkpoint_not_usable', message, { details: { checkpointId } });
}
