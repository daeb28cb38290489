import type { BackupId, TeamId } from '../../protocol/index.ts';
import type { BackupRecord, BackupTable } from '../backup-records.ts';
import type { Scope } from './connection.ts';
import { type Condition, newestFirst } from './newest-first.ts';

const selectSql = `SELECT id, team_id AS teamId, sandbox_id AS sandboxId, path, name, size_bytes AS sizeBytes, digest,
  created_at_ms AS createdAtMs, created_by AS createdBy, expires_at_ms AS expiresAtMs FROM backups`;

export class SqliteBackups implements BackupTable {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async find(id: BackupId): Promise<BackupRecord | undefined> {
    const row = this.#scope.get<BackupRecord>(`${selectSql} WHERE id = ?`, id);
    return row && Object.freeze({ ...row });
  }

  async list(...[filter, page]: Parameters<BackupTable['list']>): Promise<readonly BackupRecord[]> {
    const conditions: Condition[] = [];
    if (filter.teamId !== undefined) conditions.push(['team_id = ?', filter.teamId]);
    if (filter.sandboxId !== undefined) conditions.push(['sandbox_id = ?', filter.sandboxId]);
    if (filter.expiredAtMs !== undefined) conditions.push(['expires_at_ms <= ?', filter.expiredAtMs]);
    const { after, limit } = page;
    const rows = this.#scope.all<BackupRecord>(...newestFirst(selectSql, conditions, { after, limit }));
    return rows.map((row) => Object.freeze({ ...row }));
  }

  async count(teamId: TeamId): Promise<number> {
    const sql = 'SELECT count(*) AS count FROM backups WHERE team_id = ?';
    return this.#scope.get<{ count: number }>(sql, teamId)?.count ?? 0;
  }

  async totalBytes(teamId: TeamId): Promise<number> {
    const sql = 'SELECT coalesce(sum(size_bytes), 0) AS bytes FROM backups WHERE team_id = ?';
    return this.#scope.get<{ bytes: number }>(sql, teamId)?.bytes ?? 0;
  }

  async insert(record: BackupRecord): Promise<void> {
    this.#scope.run(
      `INSERT INTO backups (id, team_id, sandbox_id, path, name, size_bytes, digest, created_at_ms, created_by, expires_at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.teamId,
      record.sandboxId,
      record.path,
      record.name,
      record.sizeBytes,
      record.digest,
      record.createdAtMs,
      record.createdBy,
      record.expiresAtMs,
    );
  }

  async remove(id: BackupId): Promise<boolean> {
    return this.#scope.run('DELETE FROM backups WHERE id = ?', id) > 0;
  }
}
