/**
 * Persistence: the truth about what should be. One interface, one contract suite (test/contract/store.contract.ts), several databases.
 *
 * Rules every implementation keeps:
 *  - `transact` runs its work alone, on a state that contains every transaction that was answered before; what it wrote is on
 *    disk (synced) when the promise resolves, all of it or nothing. Work may be run together with other work in one commit.
 *  - What `transact` was asked to have `written` only, the system has when the promise resolves: it survives the death of the program, and a
 *    loss of power once anything later is synced. What a loss of power leaves is a beginning of what was committed, in order.
 *  - Work awaits nothing but the transaction's own methods: no network, no process, no timer, no other lock.
 *  - `read` sees one state, the latest that was committed when it began, and never waits for a commit in progress longer than
 *    the database must.
 *  - Tables end with their work: used later they fail. Work that awaits anything else is rolled back and fails as a bug.
 *  - Records are frozen data. What comes back equals what was put in. Numbers are safe integers.
 *  - A record that cannot be read is left out of lists and reported when the store was opened with a way to; `find` fails.
 *  - A write that fails because the disk is full is `insufficient_storage`, and nothing of it is kept.
 *  - `close` finishes what was given before; from then on everything is refused with `shutting_down`.
 */
import type {
  KeyId,
  LeaseId,
  NetworkPolicy,
  NodeId,
  OperationId,
  SandboxId,
  SandboxSpec,
  SandboxState,
  TeamId,
  TokenId,
  UserId,
  WebhookId,
} from '../protocol/index.ts';

import type { BackupReader, BackupTable } from './backup-records.ts';
import type { CheckpointReader, CheckpointTable } from './checkpoint-records.ts';
import type { PlanReader, PlanTable } from './plan-records.ts';
import type { WorkspaceReader, WorkspaceTable } from './workspace-records.ts';

/** What a write outlives when it is answered: `synced` a loss of power, `written` the program's own death. */
export type Durability = 'synced' | 'written';

export interface Store {
  /** Synced unless it is told otherwise. */
  transact<Result>(
    work: (tables: Tables) => Promise<Result>,
    options?: { readonly durability: Durability },
  ): Promise<Result>;
  read<Result>(work: (tables: Readers) => Promise<Result>): Promise<Result>;
  /** As `read` finds it; a store may remember it, and is never behind what was answered before the call. */
  findSandbox(id: SandboxId): Promise<SandboxRecord | undefined>;
  close(): Promise<void>;
}

/** What reading needs; `Tables` adds the writing methods to each. */
export interface Readers {
  readonly sandboxes: SandboxReader;
  readonly operations: OperationReader;
  readonly keys: KeyReader;
  readonly teams: TeamReader;
  readonly users: UserReader;
  readonly leases: LeaseReader;
  readonly events: EventReader;
  readonly history: HistoryReader;
  readonly webhooks: WebhookReader;
  readonly exposures: ExposureReader;
  readonly checkpoints: CheckpointReader;
  readonly backups: BackupReader;
  readonly plans: PlanReader;
  readonly workspaces: WorkspaceReader;
}

export interface Tables extends Readers {
  readonly sandboxes: SandboxTable;
  readonly operations: OperationTable;
  readonly keys: KeyTable;
  readonly teams: TeamTable;
  readonly users: UserTable;
  readonly leases: LeaseTable;
  readonly events: EventTable;
  readonly history: HistoryTable;
  readonly webhooks: WebhookTable;
  readonly exposures: ExposureTable;
  readonly checkpoints: CheckpointTable;
  readonly backups: BackupTable;
  readonly plans: PlanTable;
  readonly workspaces: WorkspaceTable;
}

// ---- sandboxes

export interface SandboxRecord {
  readonly id: SandboxId;
  readonly teamId: TeamId;
  readonly nodeId: NodeId;
  /** Unique in its team while the record exists; null: none. */
  readonly name: string | null;
  readonly spec: SandboxSpec;
  readonly state: SandboxState;
  /** Which life is meant; grows on every start. */
  readonly generation: number;
  /** Grows by one on every change of this record. */
  readonly version: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly metadataVersion: number;
  readonly expiresAtMs: number | null;
  /** The last lease token granted for it; 0: none yet. */
  readonly leaseToken: number;
  readonly leaseHeld: boolean;
  readonly network: NetworkPolicy;
  /** What happens at the deadline. */
  readonly onExpiry: 'stop' | 'pause';
  /** Whether traffic resumes it. */
  readonly autoResume: boolean;
  /** How many of its checkpoints are kept; null: all. */
  readonly keepCheckpoints: number | null;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
  readonly userId: UserId | null;
  readonly updatedAtMs: number;
}

export interface SandboxFilter {
  readonly teamId?: TeamId;
  readonly nodeId?: NodeId;
  readonly states?: readonly SandboxState['kind'][];
  /** Every pair must be equal. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly namePrefix?: string;
  readonly createdBy?: KeyId;
  readonly userId?: UserId;
}

/** Newest first: by creation time, then id, both descending. */
export interface SandboxPage {
  readonly after?: { readonly createdAtMs: number; readonly id: SandboxId };
  readonly limit: number;
}

export interface SandboxReader {
  find(id: SandboxId): Promise<SandboxRecord | undefined>;
  findByName(key: { teamId: TeamId; name: string }): Promise<SandboxRecord | undefined>;
  list(filter: SandboxFilter, page: SandboxPage): Promise<readonly SandboxRecord[]>;
  /** With records that cannot be read: they take up names and room like any other. */
  count(filter: SandboxFilter): Promise<number>;
}

export interface SandboxTable extends SandboxReader {
  /** Refuses a name that another record of the team has with `name_taken`. */
  insert(record: SandboxRecord): Promise<void>;
  /**
   * True if the record had `record.version - 1` and is now as given; false if it had not, and nothing changed. Refuses a
   * name that another record of the team has with `name_taken`.
   */
  update(record: SandboxRecord): Promise<boolean>;
  remove(id: SandboxId): Promise<void>;
}

// ---- operations: the journal of idempotency keys

export interface OperationRecord {
  readonly id: OperationId;
  readonly teamId: TeamId;
  readonly key: string;
  /** Which mutation, as the route names it. */
  readonly kind: string;
  /** A hash of what was asked, to refuse the key for anything else. */
  readonly fingerprint: string;
  /** What it acts on or makes, chosen before the effect. */
  readonly subjectId: string | null;
  /** Which run of the server started it; another one means that it was interrupted. */
  readonly serverRun: string;
  readonly startedAtMs: number;
  readonly finishedAtMs: number | null;
  /** JSON of the answer, a refusal included; null until finished. */
  readonly answer: string | null;
}

export interface OperationReader {
  find(id: OperationId): Promise<OperationRecord | undefined>;
  findByKey(key: { teamId: TeamId; key: string }): Promise<OperationRecord | undefined>;
}

export interface OperationTable extends OperationReader {
  insert(record: OperationRecord): Promise<void>;
  /** The first answer stays. */
  finish(finished: { id: OperationId; finishedAtMs: number; answer: string }): Promise<void>;
  /** For one that was not admitted and changed nothing: the key is free again. */
  remove(id: OperationId): Promise<void>;
  /** Takes an interrupted one over; false if another run of the server has it, or it is finished. */
  adopt(taken: { id: OperationId; from: string; to: string }): Promise<boolean>;
  /** Finished or not; how many went. */
  removeStartedBefore(startedAtMs: number): Promise<number>;
}

// ---- who

export interface TeamRecord {
  readonly id: TeamId;
  readonly name: string;
  readonly createdAtMs: number;
  /** What it may take on disks; null: no bound. */
  readonly diskBytes: number | null;
}
export interface TeamReader {
  find(id: TeamId): Promise<TeamRecord | undefined>;
  list(): Promise<readonly TeamRecord[]>;
}
export interface TeamTable extends TeamReader {
  /** Whether there is such a team. */
  setDiskBytes(change: { id: TeamId; diskBytes: number | null }): Promise<boolean>;
  insert(record: TeamRecord): Promise<void>;
}

export interface UserRecord {
  readonly id: UserId;
  readonly teamId: TeamId;
  readonly name: string;
  readonly createdAtMs: number;
}
export interface UserReader {
  find(id: UserId): Promise<UserRecord | undefined>;
  list(teamId: TeamId): Promise<readonly UserRecord[]>;
}
export interface UserTable extends UserReader {
  insert(record: UserRecord): Promise<void>;
}

export interface KeyRecord {
  readonly id: KeyId;
  readonly teamId: TeamId;
  readonly userId: UserId | null;
  readonly name: string;
  /** SHA-256 of the key's text, hex. The text itself is stored nowhere. */
  readonly hash: string;
  readonly scopes: readonly string[];
  /** Set for a token that reaches one sandbox only. */
  readonly sandboxId: SandboxId | null;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly revokedAtMs: number | null;
}
export interface KeyReader {
  find(id: KeyId): Promise<KeyRecord | undefined>;
  findByHash(hash: string): Promise<KeyRecord | undefined>;
  list(teamId: TeamId): Promise<readonly KeyRecord[]>;
}
export interface KeyTable extends KeyReader {
  insert(record: KeyRecord): Promise<void>;
  /** The first revocation stays. */
  revoke(revoked: { id: KeyId; revokedAtMs: number }): Promise<void>;
}

// ---- leases

export interface LeaseRecord {
  readonly teamId: TeamId;
  /** A sandbox id, or `name:` and a name of the team's own. */
  readonly resource: string;
  /** The last token granted; grows by one per grant and is never given again. */
  readonly token: number;
  readonly holder: LeaseHolder | null;
}

export interface LeaseHolder {
  readonly leaseId: LeaseId;
  readonly name: string;
  readonly reason: string;
  readonly keyId: KeyId;
  readonly ttlMs: number;
  readonly grantedAtMs: number;
  /** When it ends, in the boot time of the machine that granted it: the time of day does not count. */
  readonly bootId: string;
  readonly endsAtBootMs: number;
  /** False until the node has acknowledged the token: not yet a grant. */
  readonly acknowledged: boolean;
}

export interface LeaseReader {
  find(key: { teamId: TeamId; resource: string }): Promise<LeaseRecord | undefined>;
  findByLeaseId(key: { teamId: TeamId; leaseId: LeaseId }): Promise<readonly LeaseRecord[]>;
  /** Those with a holder; of one team, or of all. */
  listHeld(teamId?: TeamId): Promise<readonly LeaseRecord[]>;
}
export interface LeaseTable extends LeaseReader {
  put(record: LeaseRecord): Promise<void>;
  remove(key: { teamId: TeamId; resource: string }): Promise<void>;
}

// ---- events

export interface EventRecord {
  /** Grows by one per event over the whole store; the order of events. */
  readonly sequence: number;
  readonly teamId: TeamId;
  readonly sandboxId: SandboxId | null;
  readonly kind: string;
  readonly atMs: number;
  readonly data: Readonly<Record<string, unknown>>;
}
export interface EventReader {
  /** In order, from the first after `after`. */
  list(query: { teamId: TeamId; sandboxId?: SandboxId; after: number; limit: number }): Promise<readonly EventRecord[]>;
  /** The sequences that are kept; `last` is 0 when there never was one, `first` is `last + 1` when none is kept. */
  range(): Promise<{ readonly first: number; readonly last: number }>;
}
export interface EventTable extends EventReader {
  append(event: Omit<EventRecord, 'sequence'>): Promise<EventRecord>;
  /** Drops all but the newest `keep`; how many went. */
  trim(keep: number): Promise<number>;
}

// ---- history of metadata

export interface MetadataChange {
  readonly sandboxId: SandboxId;
  readonly metadataVersion: number;
  readonly atMs: number;
  readonly by: string;
  readonly operationId: string | null;
  /** What changed: the new value, or null for a removed key. */
  readonly changes: Readonly<Record<string, string | null>>;
}
export interface HistoryReader {
  /** Newest first. */
  list(query: { sandboxId: SandboxId; before?: number; limit: number }): Promise<readonly MetadataChange[]>;
}
export interface HistoryTable extends HistoryReader {
  append(change: MetadataChange): Promise<void>;
  /** Drops all but the newest `keep` of one sandbox. */
  trim(bound: { sandboxId: SandboxId; keep: number }): Promise<void>;
  removeAll(sandboxId: SandboxId): Promise<void>;
}

// ---- webhooks

export interface WebhookRecord {
  readonly id: WebhookId;
  readonly teamId: TeamId;
  readonly url: string;
  /** Signs what is delivered; needed in clear to sign. */
  readonly secret: string;
  /** Kinds to deliver; empty: all. */
  readonly kinds: readonly string[];
  readonly createdAtMs: number;
  /** The last event that was delivered, or passed over. */
  readonly cursor: number;
  readonly failures: number;
  readonly nextAttemptAtMs: number;
  readonly lastError: string | null;
}
export interface WebhookReader {
  find(id: WebhookId): Promise<WebhookRecord | undefined>;
  list(teamId?: TeamId): Promise<readonly WebhookRecord[]>;
}
export interface WebhookTable extends WebhookReader {
  put(record: WebhookRecord): Promise<void>;
  remove(id: WebhookId): Promise<void>;
}

// ---- exposed ports

export interface ExposureKey {
  readonly sandboxId: SandboxId;
  readonly port: number;
}
export interface ExposureRecord extends ExposureKey {
  /** Needs no token. */
  readonly isPublic: boolean;
  /** Which token it is; its text is derived from this and stored nowhere. */
  readonly tokenId: TokenId;
  /** SHA-256 of the token's text, hex. */
  readonly tokenHash: string;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
}
export interface ExposureReader {
  find(key: ExposureKey): Promise<ExposureRecord | undefined>;
  /** By port. */
  list(sandboxId: SandboxId): Promise<readonly ExposureRecord[]>;
}
/** The exposures of a sandbox go when its record is removed; one of a sandbox without a record is refused as a bug. */
export interface ExposureTable extends ExposureReader {
  put(record: ExposureRecord): Promise<void>;
  /** Whether there was one. */
  remove(key: ExposureKey): Promise<boolean>;
}

// ---- checkpoints and backups, in records.ts of their own
export type { BackupReader, BackupRecord, BackupTable } from './backup-records.ts';
export type {
  CheckpointAttachment,
  CheckpointReader,
  CheckpointRecord,
  CheckpointTable,
} from './checkpoint-records.ts';
