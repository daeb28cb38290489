import { assert } from '../../base/index.ts';
import { PlatformError, type SandboxId, type TeamId, type WorkspaceId } from '../../protocol/index.ts';
import type {
  AttachCacheRecord,
  AttachmentRecord,
  WorkspaceRecord,
  WorkspaceTable,
  WorkspaceVersionRecord,
} from '../workspace-records.ts';
import type { Scope } from './connection.ts';
import { parseTextMap } from './json-columns.ts';
import { type Condition, newestFirst } from './newest-first.ts';
import type { RowReader, RowShape } from './readable.ts';

/** A row is the record but for what SQLite has as JSON. */
interface AttachCacheRow extends Omit<AttachCacheRecord, 'baselines'> {
  readonly baselines: string;
}

const workspaceSql = `SELECT id, team_id AS teamId, node_id AS nodeId, name, state, head_number AS headNumber,
  head_commit AS headCommit, version, created_at_ms AS createdAtMs, created_by AS createdBy, updated_at_ms AS updatedAtMs
  FROM workspaces`;
const versionSql = `SELECT workspace_id AS workspaceId, number, commit_id AS "commit", kind, summary, author,
  sandbox_id AS sandboxId, plan_id AS planId, created_at_ms AS createdAtMs, created_by AS createdBy FROM workspace_versions`;
const attachmentSql = `SELECT sandbox_id AS sandboxId, workspace_id AS workspaceId, team_id AS teamId, path,
  base_number AS baseNumber, base_commit AS baseCommit, baseline, attached_at_ms AS attachedAtMs, attached_by AS attachedBy
  FROM attachments`;
const attachCacheSql = `SELECT key, team_id AS teamId, node_id AS nodeId, checkpoint_id AS checkpointId, baselines,
  used_at_ms AS usedAtMs FROM attach_cache`;

export class SqliteWorkspaces implements WorkspaceTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: WorkspaceId): Promise<WorkspaceRecord | undefined> {
    return frozenIfAny(this.#scope.get<WorkspaceRecord>(`${workspaceSql} WHERE id = ?`, id));
  }

  async findByName({ teamId, name }: { teamId: TeamId; name: string }): Promise<WorkspaceRecord | undefined> {
    return frozenIfAny(
      this.#scope.get<WorkspaceRecord>(`${workspaceSql} WHERE team_id = ? AND name = ?`, teamId, name),
    );
  }

  async list(
    filter: Parameters<WorkspaceTable['list']>[0],
    page: Parameters<WorkspaceTable['list']>[1],
  ): Promise<readonly WorkspaceRecord[]> {
    const conditions: Condition[] = [];
    if (filter.teamId !== undefined) conditions.push(['team_id = ?', filter.teamId]);
    if (filter.nodeId !== undefined) conditions.push(['node_id = ?', filter.nodeId]);
    if (filter.states !== undefined) {
      conditions.push(['state IN (SELECT value FROM json_each(?))', JSON.stringify(filter.states)]);
    }
    const { after, limit } = page;
    return this.#scope.all<WorkspaceRecord>(...newestFirst(workspaceSql, conditions, { after, limit })).map(frozen);
  }

  async count(teamId: TeamId): Promise<number> {
    const sql = 'SELECT count(*) AS count FROM workspaces WHERE team_id = ?';
    return this.#scope.get<{ count: number }>(sql, teamId)?.count ?? 0;
  }

  async insert(record: WorkspaceRecord): Promise<void> {
    const inserted = this.#scope.run(
      `INSERT INTO workspaces (id, team_id, node_id, name, state, head_number, head_commit, version, created_at_ms, created_by,
        updated_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team_id, name) DO NOTHING`,
      record.id,
      record.teamId,
      record.nodeId,
      record.name,
      record.state,
      record.headNumber,
      record.headCommit,
      record.version,
      record.createdAtMs,
      record.createdBy,
      record.updatedAtMs,
    );
    if (inserted > 0) return;
    const { name } = record;
    throw new PlatformError('name_taken', `Another workspace of this team is named "${name}".`, { details: { name } });
  }

  /** What makes it another workspace never changes: only state, head and times are written. */
  async update(record: WorkspaceRecord): Promise<boolean> {
    const updated = this.#scope.run(
      `UPDATE workspaces SET state = ?, head_number = ?, head_commit = ?, version = ?, updated_at_ms = ?
        WHERE id = ? AND version = ?`,
      record.state,
      record.headNumber,
      record.headCommit,
      record.version,
      record.updatedAtMs,
      record.id,
      record.version - 1,
    );
    return updated > 0;
  }

  async remove(id: WorkspaceId): Promise<void> {
    this.#scope.run('DELETE FROM workspaces WHERE id = ?', id); // Versions and attachments go with it.
  }

  async findVersion(key: { workspaceId: WorkspaceId; number: number }): Promise<WorkspaceVersionRecord | undefined> {
    const sql = `${versionSql} WHERE workspace_id = ? AND number = ?`;
    return frozenIfAny(this.#scope.get<WorkspaceVersionRecord>(sql, key.workspaceId, key.number));
  }

  async versions(
    workspaceId: WorkspaceId,
    page: { readonly before?: number; readonly limit: number },
  ): Promise<readonly WorkspaceVersionRecord[]> {
    const sql = `${versionSql} WHERE workspace_id = ? AND number < ? ORDER BY number DESC LIMIT ?`;
    const before = page.before ?? Number.MAX_SAFE_INTEGER;
    const found = this.#scope.all<WorkspaceVersionRecord>(sql, workspaceId, before, page.limit);
    return found.map(frozen);
  }

  async insertVersion(record: WorkspaceVersionRecord): Promise<void> {
    const [last] = await this.versions(record.workspaceId, { limit: 1 });
    assert(record.number === (last?.number ?? 0) + 1, 'Versions of a workspace have no gaps.');
    this.#scope.run(
      `INSERT INTO workspace_versions (workspace_id, number, commit_id, kind, summary, author, sandbox_id, plan_id,
        created_at_ms, created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.workspaceId,
      record.number,
      record.commit,
      record.kind,
      record.summary,
      record.author,
      record.sandboxId,
      record.planId,
      record.createdAtMs,
      record.createdBy,
    );
  }

  async attachmentsOf(sandboxId: SandboxId): Promise<readonly AttachmentRecord[]> {
    const sql = `${attachmentSql} WHERE sandbox_id = ? ORDER BY path`;
    return this.#scope.all<AttachmentRecord>(sql, sandboxId).map(frozen);
  }

  async attachmentsTo(workspaceId: WorkspaceId): Promise<readonly AttachmentRecord[]> {
    const sql = `${attachmentSql} WHERE workspace_id = ? ORDER BY sandbox_id`;
    return this.#scope.all<AttachmentRecord>(sql, workspaceId).map(frozen);
  }

  async putAttachment(record: AttachmentRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO attachments (sandbox_id, workspace_id, team_id, path, base_number, base_commit, baseline,
        attached_at_ms, attached_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.sandboxId,
      record.workspaceId,
      record.teamId,
      record.path,
      record.baseNumber,
      record.baseCommit,
      record.baseline,
      record.attachedAtMs,
      record.attachedBy,
    );
  }

  async removeAttachments(key: { sandboxId: SandboxId; workspaceId?: WorkspaceId }): Promise<void> {
    const { sandboxId, workspaceId } = key;
    if (workspaceId === undefined) this.#scope.run('DELETE FROM attachments WHERE sandbox_id = ?', sandboxId);
    else this.#scope.run('DELETE FROM attachments WHERE sandbox_id = ? AND workspace_id = ?', sandboxId, workspaceId);
  }

  async findAttachCache(key: string): Promise<AttachCacheRecord | undefined> {
    return this.#rows.one(attachCacheShape, this.#scope.get<AttachCacheRow>(`${attachCacheSql} WHERE key = ?`, key));
  }

  async listAttachCache(limit: number): Promise<readonly AttachCacheRecord[]> {
    const sql = `${attachCacheSql} ORDER BY used_at_ms, key LIMIT ?`;
    return this.#rows.many(attachCacheShape, this.#scope.all<AttachCacheRow>(sql, limit));
  }

  async putAttachCache(record: AttachCacheRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO attach_cache (key, team_id, node_id, checkpoint_id, baselines, used_at_ms)
        VALUES (?, ?, ?, ?, ?, ?)`,
      record.key,
      record.teamId,
      record.nodeId,
      record.checkpointId,
      JSON.stringify(record.baselines),
      record.usedAtMs,
    );
  }

  async removeAttachCache(key: string): Promise<void> {
    this.#scope.run('DELETE FROM attach_cache WHERE key = ?', key);
  }
}

const attachCacheShape: RowShape<AttachCacheRow, AttachCacheRecord> = {
  table: 'attach_cache',
  id: (row) => row.key,
  parse: (row) => Object.freeze({ ...row, baselines: parseTextMap(row.baselines) }),
};

function frozen<Row extends object>(row: Row): Row {
  return Object.freeze({ ...row });
}

function frozenIfAny<Row extends object>(row: Row | undefined): Row | undefined {
  return row === undefined ? undefined : frozen(row);
}
