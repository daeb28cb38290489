/**
 * Branches in memory, for tests of control: checkpoints, restore, pause and resume by the order rules of the real node. `files` says whose
 * files a sandbox has, so that a test sees what it was made from, without any files.
 */
import type { NodeRecord } from '../../src/node/node-record.ts';
import { admitLease, decideChangeOfPace, decideRestore, refuseOlderLife } from '../../src/node/order-rules.ts';
import {
  type CheckpointId,
  type LifeOrder,
  type NodeBranches,
  type NodeCheckpoint,
  type NodeSandbox,
  type PauseOrder,
  PlatformError,
  type SandboxId,
} from '../../src/protocol/index.ts';

export interface FakeBranchesParts {
  readonly sandboxes: Map<SandboxId, NodeSandbox>;
  /** Passes gates and mishaps of the fake node. */
  readonly call: <Result>(name: keyof NodeBranches, work: () => Promise<Result>) => Promise<Result>;
}

export class FakeBranches implements NodeBranches {
  readonly checkpoints = new Map<CheckpointId, NodeCheckpoint>();
  /** Which checkpoint the files of a sandbox came from; absent: the template. */
  readonly files = new Map<SandboxId, CheckpointId>();
  readonly #parts: FakeBranchesParts;

  constructor(parts: FakeBranchesParts) {
    this.#parts = parts;
  }

  describeStorage: NodeBranches['describeStorage'] = async () => ({
    kind: 'directories',
    liveFreeze: 'copy',
    hasQuotas: false,
    totalBytes: 2 ** 40,
    freeBytes: 2 ** 39,
  });

  checkpoint: NodeBranches['checkpoint'] = (order) =>
    this.#parts.call('checkpoint', async () => {
      const known = this.checkpoints.get(order.checkpointId);
      if (known !== undefined) return known;
      const { spec, settings, generation, life } = this.#get(order);
      admitLease(this.#get(order) as unknown as NodeRecord, order);
      const { checkpointId, sandboxId } = order;
      const made: NodeCheckpoint = {
        ...{ checkpointId, sandboxId, generation, spec, templateId: 'host' },
        metadata: settings.metadata,
        metadataVersion: settings.metadataVersion,
        ...{ createdAtMs: 1, sizeBytes: 4_096, frozenMs: life.kind === 'running' ? 1.5 : 0 },
      };
      this.checkpoints.set(checkpointId, made);
      return made;
    });

  findCheckpoint: NodeBranches['findCheckpoint'] = (id) =>
    this.#parts.call('findCheckpoint', async () => this.checkpoints.get(id));

  listCheckpoints: NodeBranches['listCheckpoints'] = () =>
    this.#parts.call('listCheckpoints', async () => [...this.checkpoints.values()]);

  removeCheckpoint: NodeBranches['removeCheckpoint'] = (id) =>
    this.#parts.call('removeCheckpoint', async () => {
      this.checkpoints.delete(id);
    });

  restore: NodeBranches['restore'] = (order) =>
    this.#parts.call('restore', async () => {
      const found = this.#get(order);
      if (decideRestore(found as unknown as NodeRecord, order) === 'repeat') return found;
      this.begin(order.sandboxId, order.checkpointId);
      const { generation, version, settings } = order;
      return this.#put({ ...found, generation, version, settings, life: { kind: 'running' } });
    });

  pause: NodeBranches['pause'] = (order) => this.#parts.call('pause', async () => this.#changePace(order, 'paused'));
  resume: NodeBranches['resume'] = (order) =>
    this.#parts.call('resume', async () => this.#changePace(order, 'running'));

  usage: NodeBranches['usage'] = (order) =>
    this.#parts.call('usage', async () => ({ bytes: 1_000, limitBytes: this.#get(order).spec.limits.diskBytes }));

  /** A life on the files of a checkpoint. */
  begin(sandboxId: SandboxId, checkpointId: CheckpointId): void {
    if (!this.checkpoints.has(checkpointId)) {
      throw new PlatformError('checkpoint_not_found', `There is no checkpoint ${checkpointId} here.`);
    }
    this.files.set(sandboxId, checkpointId);
  }

  #changePace(order: PauseOrder, wanted: 'paused' | 'running'): NodeSandbox {
    const found = this.#get(order);
    if (decideChangeOfPace(found as unknown as NodeRecord, order, wanted) === 'repeat') return found;
    const { version, settings } = order;
    const life = wanted === 'paused' ? { kind: wanted, atMs: 1 } : { kind: wanted };
    return this.#put({ ...found, version, settings, life });
  }

  #get(order: LifeOrder): NodeSandbox {
    const found = this.#parts.sandboxes.get(order.sandboxId);
    if (found === undefined) throw new PlatformError('sandbox_not_found', 'The node does not have it.');
    refuseOlderLife(found as unknown as NodeRecord, order);
    return found;
  }

  #put(sandbox: NodeSandbox): NodeSandbox {
    this.#parts.sandboxes.set(sandbox.mark.sandboxId, sandbox);
    return sandbox;
  }
}
