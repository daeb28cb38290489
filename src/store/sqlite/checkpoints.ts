import type { CheckpointId, TeamId } from '../../protocol/index.ts';
import type {
  CheckpointAttachment,
  CheckpointFilter,
  CheckpointRecord,
  CheckpointTable,
} from '../checkpoint-records.ts';
import type { Scope, Value } from './connection.ts';
import { parseItems, parseNetwork, parseSpec, parseTextMap } from './json-columns.ts';
import { newestFirst } from './newest-first.ts';
import type { RowReader, RowShape } from './readable.ts';

/** A row is the record but for what SQLite has as a number or as JSON. */
interface CheckpointRow extends Omit<CheckpointRecord, 'isHidden' | 'spec' | 'network' | 'metadata' | 'attachments'> {
  readonly isHidden: number;
  readonly spec: string;
  readonly network: string;
  readonly metadata: string;
  readonly attachments: string;
}

const selectSql = `SELECT id, team_id AS teamId, node_id AS nodeId, sandbox_id AS sandboxId, name, state, is_hidden AS isHidden,
  generation, spec, network, metadata, attachments, size_bytes AS sizeBytes, frozen_ms AS frozenMs, created_at_ms AS createdAtMs,
  created_by AS createdBy, expires_at_ms AS expiresAtMs FROM checkpoints`;

export class SqliteCheckpoints implements CheckpointTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: CheckpointId): Promise<CheckpointRecord | undefined> {
    return this.#rows.one(shape, this.#scope.get<CheckpointRow>(`${selectSql} WHERE id = ?`, id));
  }

  async list(
    filter: CheckpointFilter,
    page: Parameters<CheckpointTable['list']>[1],
  ): Promise<readonly CheckpointRecord[]> {
    return this.#rows.page<CheckpointRow, CheckpointRecord>(shape, {
      limit: page.limit,
      fetch: (last, limit) => {
        const from = { after: last ?? page.after, limit };
        return this.#scope.all<CheckpointRow>(...newestFirst(selectSql, conditionsOf(filter), from));
      },
    });
  }

  async count(teamId: TeamId): Promise<number> {
    const sql = 'SELECT count(*) AS count FROM checkpoints WHERE team_id = ?';
    return this.#scope.get<{ count: number }>(sql, teamId)?.count ?? 0;
  }

  async totalBytes(teamId: TeamId): Promise<number> {
    const sql = 'SELECT coalesce(sum(size_bytes), 0) AS bytes FROM checkpoints WHERE team_id = ?';
    return this.#scope.get<{ bytes: number }>(sql, teamId)?.bytes ?? 0;
  }

  async put(record: CheckpointRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO checkpoints (id, team_id, node_id, sandbox_id, name, state, is_hidden, generation, spec, network,
        metadata, attachments, size_bytes, frozen_ms, created_at_ms, created_by, expires_at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.teamId,
      record.nodeId,
      record.sandboxId,
      record.name,
      record.state,
      record.isHidden ? 1 : 0,
      record.generation,
      JSON.stringify(record.spec),
      JSON.stringify(record.network),
      JSON.stringify(record.metadata),
      JSON.stringify(record.attachments),
      record.sizeBytes,
      record.frozenMs,
      record.createdAtMs,
      record.createdBy,
      record.expiresAtMs,
    );
  }

  async remove(id: CheckpointId): Promise<void> {
    this.#scope.run('DELETE FROM checkpoints WHERE id = ?', id);
  }
}

const shape: RowShape<CheckpointRow, CheckpointRecord> = {
  table: 'checkpoints',
  id: (row) => row.id,
  parse: (row) =>
    Object.freeze({
      ...row,
      isHidden: row.isHidden === 1,
      spec: parseSpec(row.spec),
      network: parseNetwork(row.network),
      metadata: parseTextMap(row.metadata),
      attachments: parseItems(row.attachments) as unknown as readonly CheckpointAttachment[],
    }),
};

function conditionsOf(filter: CheckpointFilter): [sql: string, ...values: Value[]][] {
  const conditions: [sql: string, ...values: Value[]][] = [];
  if (filter.teamId !== undefined) conditions.push(['team_id = ?', filter.teamId]);
  if (filter.sandboxId !== undefined) conditions.push(['sandbox_id = ?', filter.sandboxId]);
  if (filter.name !== undefined) conditions.push(['name = ?', filter.name]);
  if (filter.isHidden !== undefined) conditions.push(['is_hidden = ?', filter.isHidden ? 1 : 0]);
  if (filter.expiredAtMs !== undefined) conditions.push(['expires_at_ms <= ?', filter.expiredAtMs]);
  if (filter.states !== undefined) {
    conditions.push(['state IN (SELECT value FROM json_each(?))', JSON.stringify(filter.states)]);
  }
  return conditions;
}
