/** Plans as the store has them: what groups sandboxes, each attempt to commit it, and its checkpoints. */

import type {
  CheckpointId,
  KeyId,
  LeaseId,
  PlanCheckpointId,
  PlanCommitId,
  PlanId,
  PlanState,
  SandboxId,
  TeamId,
  WorkspaceId,
} from '../protocol/index.ts';

export interface PlanRecord {
  readonly id: PlanId;
  readonly teamId: TeamId;
  /** Unique in its team while the record exists. */
  readonly name: string;
  readonly state: PlanState;
  /** The last number that was given to whoever began something; 0: nobody yet. */
  readonly fence: number;
  /** Grows by one on every change of this record and of its members. */
  readonly version: number;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
  readonly updatedAtMs: number;
}

export interface PlanMemberRecord {
  readonly planId: PlanId;
  /** It may be gone. */
  readonly sandboxId: SandboxId;
  /** In its order members are merged. */
  readonly position: number;
  readonly addedAtMs: number;
  readonly addedBy: KeyId;
}

/**
 *   preparing   Its coordinator works on it, or died. Nothing is visible.
 *   committed   Every target has its version.
 *   partial     Some targets have theirs: only in the mode `bestEffort`.
 *   nothing     Nobody had changed anything.
 *   conflict    Changes could not be merged.
 *   aborted     Something else was in the way.
 */
export type PlanCommitState = 'preparing' | 'committed' | 'partial' | 'nothing' | 'conflict' | 'aborted';

export interface PlanCommitRecord {
  readonly id: PlanCommitId;
  readonly planId: PlanId;
  readonly teamId: TeamId;
  readonly kind: 'commit' | 'revert';
  readonly mode: 'atomic' | 'bestEffort';
  readonly isDryRun: boolean;
  readonly state: PlanCommitState;
  /** A hash of what was asked, to refuse the id for anything else. */
  readonly fingerprint: string;
  readonly fence: number;
  /** Which run of the server coordinates it; another one means that it was interrupted. */
  readonly serverRun: string;
  /** The lease on members and targets; null: none was asked for yet. */
  readonly leaseId: LeaseId | null;
  /** As they were when it began, in the order of merging. */
  readonly members: readonly SandboxId[];
  /** Whose homes may hold objects for it. */
  readonly targets: readonly WorkspaceId[];
  /** What it left behind: `everything`: lease and objects; `refs`: the objects that are kept until `keptUntilMs`. */
  readonly left: 'everything' | 'refs' | 'nothing';
  readonly keptUntilMs: number | null;
  /** JSON of what its callers are told; null while it is being prepared. */
  readonly result: string | null;
  readonly createdBy: KeyId;
  readonly startedAtMs: number;
  readonly finishedAtMs: number | null;
  /** When an undecided one is given up, in the boot time of the machine that began it. */
  readonly bootId: string;
  readonly expiresAtBootMs: number;
}

/**
 *   creating   Some of its checkpoints may be there; nobody may use it.
 *   ready      Every member's is there.
 *   deleting   It goes away and cannot come back.
 */
export type PlanCheckpointState = 'creating' | 'ready' | 'deleting';

export interface PlanCheckpointRecord {
  readonly id: PlanCheckpointId;
  readonly planId: PlanId;
  readonly teamId: TeamId;
  readonly name: string | null;
  readonly state: PlanCheckpointState;
  readonly serverRun: string;
  readonly members: readonly PlanCheckpointMember[];
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
}

export interface PlanCheckpointMember {
  readonly sandboxId: SandboxId;
  readonly checkpointId: CheckpointId;
  /** It is let go on when its checkpoint is there. */
  readonly wasRunning: boolean;
}

export interface PlanReader {
  find(id: PlanId): Promise<PlanRecord | undefined>;
  findByName(key: { teamId: TeamId; name: string }): Promise<PlanRecord | undefined>;
  /** Newest first: by creation time, then id, both descending. */
  list(
    filter: { readonly teamId?: TeamId; readonly states?: readonly PlanState['kind'][] },
    page: { readonly after?: { readonly createdAtMs: number; readonly id: PlanId }; readonly limit: number },
  ): Promise<readonly PlanRecord[]>;
  count(teamId: TeamId): Promise<number>;
  /** By position. */
  members(planId: PlanId): Promise<readonly PlanMemberRecord[]>;
  plansOf(sandboxId: SandboxId): Promise<readonly PlanRecord[]>;
  findCommit(id: PlanCommitId): Promise<PlanCommitRecord | undefined>;
  /** Newest first. */
  commits(planId: PlanId, page: { readonly limit: number }): Promise<readonly PlanCommitRecord[]>;
  /** Those that left something behind, oldest first. */
  unfinishedCommits(limit: number): Promise<readonly PlanCommitRecord[]>;
  findCheckpoint(id: PlanCheckpointId): Promise<PlanCheckpointRecord | undefined>;
  /** Newest first; of every plan where none is named. */
  checkpoints(filter: {
    readonly planId?: PlanId;
    readonly states?: readonly PlanCheckpointState[];
  }): Promise<readonly PlanCheckpointRecord[]>;
  /** Whether a plan's checkpoint is made of it. */
  isInCheckpoint(checkpointId: CheckpointId): Promise<boolean>;
}

export interface PlanTable extends PlanReader {
  /** Refuses a name that another record of the team has with `name_taken`. */
  insert(record: PlanRecord): Promise<void>;
  /** True if the record had `record.version - 1` and is now as given; false if it had not, and nothing changed. */
  update(record: PlanRecord): Promise<boolean>;
  /** With its members; its commits and checkpoints stay until they are removed one by one. */
  remove(id: PlanId): Promise<void>;
  putMember(record: PlanMemberRecord): Promise<void>;
  removeMember(key: { planId: PlanId; sandboxId: SandboxId }): Promise<void>;
  /** As a whole: the record of this id, if there is one, is replaced. */
  putCommit(record: PlanCommitRecord): Promise<void>;
  removeCommit(id: PlanCommitId): Promise<void>;
  putCheckpoint(record: PlanCheckpointRecord): Promise<void>;
  removeCheckpoint(id: PlanCheckpointId): Promise<void>;
}
