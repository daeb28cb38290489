/**
 * What sandboxes changed in their workspaces, from files to a version: the steps that a commit of one sandbox and the commit of a plan share.
 *
 *   collect ──► combine ──► publish
 *      │           │           one store transaction; the only step that anybody sees
 *      │           onto the head as it is then; repeated when the head has moved
 *      one instant of a sandbox
 *
 * Invariants:
 *  - Before `publish` nothing is visible, and everything that an answer names is on disk and held under the caller's hold name.
 *  - Every step can be repeated: with the same arguments it gives the same commits.
 *  - `publish` is the decision. It changes no object, only records, and all of those in the caller's transaction.
 */
import type {
  ChangeCounts,
  CommitAuthor,
  GitObjectId,
  KeyId,
  PlanId,
  SandboxId,
  TeamId,
  WorkspaceConflict,
  WorkspaceId,
} from '../../protocol/index.ts';
import type { AttachmentRecord, Tables, WorkspaceVersionRecord } from '../../store/index.ts';

export interface CollectRequest {
  readonly teamId: TeamId;
  readonly sandboxId: SandboxId;
  /** Of whoever holds the sandbox's lease; null: nobody does. */
  readonly leaseToken: number | null;
  readonly createdBy: KeyId;
  /** Only these attachments; absent: all of the sandbox's. */
  readonly workspaceIds?: readonly WorkspaceId[];
  readonly hold: string;
}

/** What one sandbox has at one attachment. */
export interface Contribution {
  readonly attachment: AttachmentRecord;
  readonly tree: GitObjectId;
  /** Against the attachment's base. */
  readonly counts: ChangeCounts;
  readonly leftOut: readonly string[];
}

export interface CombineRequest {
  readonly workspaceId: WorkspaceId;
  /** In the order in which they are merged. Those without changes may be among them. */
  readonly contributions: readonly Contribution[];
  readonly author: CommitAuthor;
  readonly message: string;
  readonly trailers: readonly { readonly name: string; readonly value: string }[];
  readonly atMs: number;
  readonly hold: string;
}

/** A version that could be published: it stands on the head that it names. */
export interface PreparedVersion {
  readonly workspaceId: WorkspaceId;
  readonly onNumber: number;
  readonly onCommit: GitObjectId;
  readonly commit: GitObjectId;
  readonly tree: GitObjectId;
  readonly kind: WorkspaceVersionRecord['kind'];
  readonly summary: string;
  readonly author: CommitAuthor;
  /** Against the head that it stands on. */
  readonly counts: ChangeCounts;
  /** What each attachment stands on once this is published: the commit of exactly the files that its sandbox has. */
  readonly bases: readonly { readonly attachment: AttachmentRecord; readonly commit: GitObjectId }[];
}

export interface CombineConflict extends WorkspaceConflict {
  /** Whose changes could not be merged, and with whose: null is the head. */
  readonly sandboxId: SandboxId;
  readonly withSandboxId: SandboxId | null;
}

export type Combined =
  | { readonly kind: 'prepared'; readonly version: PreparedVersion }
  /** Nobody changed anything. */
  | { readonly kind: 'nothing'; readonly onNumber: number; readonly onCommit: GitObjectId }
  /** Those of every contribution, not only of the first that had one. */
  | { readonly kind: 'conflicts'; readonly onNumber: number; readonly conflicts: readonly CombineConflict[] };

export interface PublishRequest {
  readonly version: PreparedVersion;
  readonly createdBy: KeyId;
  readonly sandboxId: SandboxId | null;
  readonly planId: PlanId | null;
  readonly atMs: number;
}

export interface WorkspaceChanges {
  /**
   * The files of a sandbox's attachments at one instant. Commands in it may go on: a hidden checkpoint is taken and read in a sandbox made from
   * it in which nothing runs. Both are gone when this answers, or by the next reconcile.
   */
  collect(request: CollectRequest, signal?: AbortSignal): Promise<readonly Contribution[]>;
  combine(request: CombineRequest, signal?: AbortSignal): Promise<Combined>;
  /** Refuses with `workspace_moved` if the head is not the one that the version stands on; then nothing is changed. */
  publish(tables: Tables, request: PublishRequest): Promise<WorkspaceVersionRecord>;
  /** What was held under the name goes, except what a version is made of. Of nothing: succeeds. */
  release(key: { readonly workspaceId: WorkspaceId; readonly hold: string }): Promise<void>;
}
