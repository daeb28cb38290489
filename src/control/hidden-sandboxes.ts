/**
 * Sandboxes that control makes for one step of its own work: nothing is recorded of them, nobody sees them, and they go away with the step. Their
 * node knows them by their mark, and they end by themselves; one that a crash leaves is removed by reconcile, which asks here which are in use.
 */
import { type CheckpointId, type KeyId, type NodeId, newId, noNetwork, type SandboxId } from '../protocol/index.ts';
import type { CheckpointRecord, SandboxRecord } from '../store/index.ts';
import type { ControlContext } from './context.ts';
import { settingsOf } from './sandbox-records.ts';

/** Nothing that they are for takes longer. */
const lifetimeMs = 60 * 60_000;

export interface HiddenSource {
  readonly teamId: SandboxRecord['teamId'];
  readonly nodeId: NodeId;
  readonly spec: SandboxRecord['spec'];
  readonly fromCheckpoint: CheckpointId | null;
  readonly createdBy: KeyId;
}

export class HiddenSandboxes {
  readonly #context: ControlContext;
  readonly #inUse = new Set<SandboxId>();

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** Of this server. One that is here was not left over. */
  get inUse(): ReadonlySet<SandboxId> {
    return this.#inUse;
  }

  /** Runs `work` with a sandbox that has no network and in which nothing runs; it is gone when this answers, or by the next reconcile. */
  async run<Result>(source: HiddenSource, work: (sandbox: SandboxRecord) => Promise<Result>): Promise<Result> {
    const { nodes, faults, logger } = this.#context;
    const sandbox = this.#recordOf(source);
    // Known before it is made: reconcile must not take it for left over.
    this.#inUse.add(sandbox.id);
    try {
      await nodes.call(source.nodeId, (node) => node.createSandbox(orderOf(sandbox, source)));
      await faults.hit('after-hidden-sandbox-made');
      return await work(sandbox);
    } finally {
      await this.discard(sandbox.id, sandbox.nodeId).catch((error: unknown) =>
        logger.warn('a hidden sandbox could not be removed yet', { sandboxId: sandbox.id, error }),
      );
      this.#inUse.delete(sandbox.id);
    }
  }

  /** Of one that is gone: succeeds. */
  async discard(sandboxId: SandboxId, nodeId: NodeId): Promise<void> {
    await this.#context.nodes.call(nodeId, (node) => node.deleteSandbox({ sandboxId, generation: 1 }));
  }

  #recordOf({ teamId, nodeId, spec, createdBy }: HiddenSource): SandboxRecord {
    const { clock, random } = this.#context;
    const nowMs = clock.nowMs();
    return {
      ...{ id: newId('sandbox', random), teamId, nodeId, name: null, spec, state: { kind: 'running' } },
      ...{ generation: 1, version: 1, metadata: {}, metadataVersion: 1, expiresAtMs: nowMs + lifetimeMs },
      ...{ leaseToken: 0, leaseHeld: false, network: noNetwork, onExpiry: 'stop', autoResume: false },
      ...{ keepCheckpoints: null, createdAtMs: nowMs, createdBy, userId: null, updatedAtMs: nowMs },
    };
  }
}

/** Whose files are looked at, where nothing of theirs runs. */
export function quietCopyOf(checkpoint: CheckpointRecord): HiddenSource {
  const { teamId, nodeId, spec, id, createdBy } = checkpoint;
  return { teamId, nodeId, spec, fromCheckpoint: id, createdBy };
}

function orderOf(sandbox: SandboxRecord, source: HiddenSource) {
  const { id: sandboxId, teamId, generation, version, spec, createdAtMs, createdBy } = sandbox;
  return {
    ...{ sandboxId, generation, version, spec, fromCheckpoint: source.fromCheckpoint },
    mark: { sandboxId, teamId, name: null, createdAtMs, createdBy, isHidden: true as const },
    settings: settingsOf(sandbox, { by: createdBy, atMs: createdAtMs, operationId: null }),
  };
}
