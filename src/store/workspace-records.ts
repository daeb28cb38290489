/**
 * Workspaces as the store has them. The head is a number: versions are only ever added, and the head is the version with the largest number, so
 * that `number` is the compare-and-set of whoever publishes.
 */
import type {
  CheckpointId,
  GitObjectId,
  KeyId,
  NodeId,
  PlanId,
  SandboxId,
  TeamId,
  WorkspaceId,
} from '../protocol/index.ts';

/**
 *   creating   Its home was, or will be, ordered to make it; it has no version.
 *   ready      It has at least one version.
 *   deleting   It goes away and cannot come back.
 */
export type WorkspaceState = 'creating' | 'ready' | 'deleting';

export interface WorkspaceRecord {
  readonly id: WorkspaceId;
  readonly teamId: TeamId;
  /** Its home: the node that has its objects. */
  readonly nodeId: NodeId;
  /** Unique in its team while the record exists. */
  readonly name: string;
  readonly state: WorkspaceState;
  /** The head; 0: there is none yet. */
  readonly headNumber: number;
  readonly headCommit: GitObjectId | null;
  /** Grows by one on every change of this record. */
  readonly version: number;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
  readonly updatedAtMs: number;
}

export interface WorkspaceVersionRecord {
  readonly workspaceId: WorkspaceId;
  /** 1, 2, 3, … without gaps. */
  readonly number: number;
  readonly commit: GitObjectId;
  readonly kind: 'import' | 'commit' | 'merge' | 'revert';
  /** The first line. */
  readonly summary: string;
  readonly author: string;
  readonly sandboxId: SandboxId | null;
  readonly planId: PlanId | null;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
}

/** A version that was put into a sandbox, and where. */
export interface AttachmentRecord {
  readonly sandboxId: SandboxId;
  readonly workspaceId: WorkspaceId;
  readonly teamId: TeamId;
  /** Absolute, normal; one workspace per path, and no path inside another. */
  readonly path: string;
  /** What the checkout was made from; moves when the sandbox has committed or was brought up to date. */
  readonly baseNumber: number;
  readonly baseCommit: GitObjectId;
  /** Of NodeWorkspaces.recordBaseline; null: none. */
  readonly baseline: string | null;
  readonly attachedAtMs: number;
  readonly attachedBy: KeyId;
}

/** A checkpoint that holds a template with workspaces in place, to make sandboxes from: found by what it holds. */
export interface AttachCacheRecord {
  /** A hash of template, versions and paths. */
  readonly key: string;
  readonly teamId: TeamId;
  readonly nodeId: NodeId;
  readonly checkpointId: CheckpointId;
  readonly baselines: Readonly<Record<WorkspaceId, string>>;
  readonly usedAtMs: number;
}

export interface WorkspaceReader {
  find(id: WorkspaceId): Promise<WorkspaceRecord | undefined>;
  findByName(key: { teamId: TeamId; name: string }): Promise<WorkspaceRecord | undefined>;
  /** Newest first: by creation time, then id, both descending. */
  list(
    filter: { readonly teamId?: TeamId; readonly nodeId?: NodeId; readonly states?: readonly WorkspaceState[] },
    page: { readonly after?: { readonly createdAtMs: number; readonly id: WorkspaceId }; readonly limit: number },
  ): Promise<readonly WorkspaceRecord[]>;
  count(teamId: TeamId): Promise<number>;
  findVersion(key: { workspaceId: WorkspaceId; number: number }): Promise<WorkspaceVersionRecord | undefined>;
  /** Newest first, below `before` if it is given. */
  versions(
    workspaceId: WorkspaceId,
    page: { readonly before?: number; readonly limit: number },
  ): Promise<readonly WorkspaceVersionRecord[]>;
  attachmentsOf(sandboxId: SandboxId): Promise<readonly AttachmentRecord[]>;
  attachmentsTo(workspaceId: WorkspaceId): Promise<readonly AttachmentRecord[]>;
  findAttachCache(key: string): Promise<AttachCacheRecord | undefined>;
  /** Least recently used first. */
  listAttachCache(limit: number): Promise<readonly AttachCacheRecord[]>;
}

export interface WorkspaceTable extends WorkspaceReader {
  /** Refuses a name that another record of the team has with `name_taken`. */
  insert(record: WorkspaceRecord): Promise<void>;
  /** True if the record had `record.version - 1` and is now as given; false if it had not, and nothing changed. */
  update(record: WorkspaceRecord): Promise<boolean>;
  /** With its versions and attachments. */
  remove(id: WorkspaceId): Promise<void>;
  /** Only as the next of its workspace: a bug otherwise. The record of the workspace is updated by the caller in the same transaction. */
  insertVersion(record: WorkspaceVersionRecord): Promise<void>;
  /** As a whole: the one of this sandbox and workspace, if there is one, is replaced. */
  putAttachment(record: AttachmentRecord): Promise<void>;
  removeAttachments(key: { sandboxId: SandboxId; workspaceId?: WorkspaceId }): Promise<void>;
  putAttachCache(record: AttachCacheRecord): Promise<void>;
  removeAttachCache(key: string): Promise<void>;
}
