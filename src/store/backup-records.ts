/** Backups as the store has them; the archives themselves are files of the server, named by their id. */
import type { BackupId, KeyId, SandboxId, TeamId } from '../protocol/index.ts';

export interface BackupRecord {
  readonly id: BackupId;
  readonly teamId: TeamId;
  readonly sandboxId: SandboxId;
  readonly path: string;
  readonly name: string | null;
  readonly sizeBytes: number;
  readonly digest: string;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
  readonly expiresAtMs: number | null;
}

export interface BackupReader {
  find(id: BackupId): Promise<BackupRecord | undefined>;
  /** Newest first: by creation time, then id, both descending. */
  list(
    filter: { readonly teamId?: TeamId; readonly sandboxId?: SandboxId; readonly expiredAtMs?: number },
    page: { readonly after?: { readonly createdAtMs: number; readonly id: BackupId }; readonly limit: number },
  ): Promise<readonly BackupRecord[]>;
  count(teamId: TeamId): Promise<number>;
  totalBytes(teamId: TeamId): Promise<number>;
}

export interface BackupTable extends BackupReader {
  insert(record: BackupRecord): Promise<void>;
  /** Whether there was one. */
  remove(id: BackupId): Promise<boolean>;
}
