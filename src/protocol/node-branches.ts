/**
 * What control asks of a node about branches of files: checkpoints, sandboxes made from them, restore in place, pause and resume.
 * The rules of NodeApi hold here too.
 *
 *  - A checkpoint is named by control before it is made. Repeating an order returns the same checkpoint; a failure leaves none, and the
 *    sandbox as it was.
 *  - A checkpoint never changes, and is there until it is removed. Whatever was made from it goes on without it.
 *  - Pause with `memory` keeps every process, standing still; with `files` every process is ended and only the files stay.
 */
import type { CheckpointId, SandboxId } from './ids.ts';
import type { LifeOrder, NodeSandbox, SandboxSettings, SandboxSpec } from './node-api.ts';

export type PauseMode = 'memory' | 'files';

export interface CheckpointOrder extends LifeOrder {
  readonly checkpointId: CheckpointId;
  /** null: the caller brought none. Refused unless it is the current one, while a lease is held. */
  readonly leaseToken: number | null;
}

/** One checkpoint as its node has it. */
export interface NodeCheckpoint {
  readonly checkpointId: CheckpointId;
  /** Whose files they are, of which life. */
  readonly sandboxId: SandboxId;
  readonly generation: number;
  readonly spec: SandboxSpec;
  /** The map as of that instant. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly metadataVersion: number;
  /** What the template was, exactly: on another one it is refused (`layer_incompatible`). */
  readonly templateId: string;
  readonly createdAtMs: number;
  /** What it refers to, what it shares with others included. */
  readonly sizeBytes: number;
  /** How long the processes stood still; 0 when none ran. */
  readonly frozenMs: number;
}

export interface RestoreOrder extends LifeOrder {
  /** `generation` is the new life's; every process of the earlier one is ended. */
  readonly checkpointId: CheckpointId;
  readonly version: number;
  readonly settings: SandboxSettings;
}

export interface PauseOrder extends LifeOrder {
  readonly version: number;
  /** Without a deadline: what is paused does not expire by itself. */
  readonly settings: SandboxSettings;
}

export type ResumeOrder = PauseOrder;

export interface StorageDescription {
  readonly kind: 'subvolumes' | 'pool' | 'directories';
  /** How a checkpoint of a running sandbox is taken: at once, or in a time that grows with its files, or with its bytes. */
  readonly liveFreeze: 'snapshot' | 'reflink' | 'copy';
  readonly hasQuotas: boolean;
  readonly totalBytes: number;
  readonly freeBytes: number;
}

export interface DiskUsage {
  readonly bytes: number;
  readonly limitBytes: number | null;
}

export interface NodeBranches {
  describeStorage(): Promise<StorageDescription>;
  /** Of a running, memory-paused or stopped sandbox. A short freeze while it runs: the files are of one instant. */
  checkpoint(order: CheckpointOrder): Promise<NodeCheckpoint>;
  findCheckpoint(checkpointId: CheckpointId): Promise<NodeCheckpoint | undefined>;
  listCheckpoints(): Promise<readonly NodeCheckpoint[]>;
  /** Of an unknown one: succeeds. What others share stays on disk as long as they need it. */
  removeCheckpoint(checkpointId: CheckpointId): Promise<void>;
  /** All or nothing: the new life on the checkpoint's files runs, or the earlier files are there and the failure tells whether the earlier life ended. */
  restore(order: RestoreOrder): Promise<NodeSandbox>;
  /** Memory pause: every command stands still, init goes on. Of a paused one under the same version: succeeds again. */
  pause(order: PauseOrder): Promise<NodeSandbox>;
  /** The settings are in place before the first command moves again. */
  resume(order: ResumeOrder): Promise<NodeSandbox>;
  usage(order: LifeOrder): Promise<DiskUsage>;
}
