/** Checkpoints as the store has them. They outlive their sandbox, so they hold everything that is needed to make another from one. */
import type { CheckpointId, KeyId, NetworkPolicy, NodeId, SandboxId, SandboxSpec, TeamId } from '../protocol/index.ts';
import type { AttachmentRecord } from './workspace-records.ts';

/**
 *   creating   Its node was, or will be, ordered to make it; nobody may use it.
 *   ready      Its node has it.
 *   deleting   It goes away and cannot come back.
 *   lost       Its node does not have it any more. Only deletion is possible.
 */
export type CheckpointState = 'creating' | 'ready' | 'deleting' | 'lost';

/** What the files were made from at that instant, and where. */
export type CheckpointAttachment = Pick<
  AttachmentRecord,
  'workspaceId' | 'path' | 'baseNumber' | 'baseCommit' | 'baseline'
>;

export interface CheckpointRecord {
  readonly id: CheckpointId;
  readonly teamId: TeamId;
  readonly nodeId: NodeId;
  readonly sandboxId: SandboxId;
  readonly name: string | null;
  readonly state: CheckpointState;
  /** True for one that a fork made for itself: shown to nobody. */
  readonly isHidden: boolean;
  readonly generation: number;
  readonly spec: SandboxSpec;
  readonly network: NetworkPolicy;
  readonly metadata: Readonly<Record<string, string>>;
  readonly attachments: readonly CheckpointAttachment[];
  /** null until it is ready. */
  readonly sizeBytes: number | null;
  readonly frozenMs: number | null;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
  readonly expiresAtMs: number | null;
}

export interface CheckpointFilter {
  readonly teamId?: TeamId;
  readonly sandboxId?: SandboxId;
  readonly name?: string;
  readonly isHidden?: boolean;
  readonly states?: readonly CheckpointState[];
  /** Only those whose time has come then. */
  readonly expiredAtMs?: number;
}

export interface CheckpointReader {
  find(id: CheckpointId): Promise<CheckpointRecord | undefined>;
  /** Newest first: by creation time, then id, both descending. */
  list(
    filter: CheckpointFilter,
    page: { readonly after?: { readonly createdAtMs: number; readonly id: CheckpointId }; readonly limit: number },
  ): Promise<readonly CheckpointRecord[]>;
  count(teamId: TeamId): Promise<number>;
  /** Of all of a team's together. */
  totalBytes(teamId: TeamId): Promise<number>;
}

export interface CheckpointTable extends CheckpointReader {
  /** As a whole: the record of this id, if there is one, is replaced. */
  put(record: CheckpointRecord): Promise<void>;
  remove(id: CheckpointId): Promise<void>;
}
