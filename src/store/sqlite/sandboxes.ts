import type { SandboxId, TeamId } from '../../protocol/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { SandboxFilter, SandboxPage, SandboxRecord, SandboxTable } from '../store.ts';
import type { Scope, Value } from './connection.ts';
import { parseNetwork, parseSpec, parseState, parseTextMap } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

interface SandboxRow {
  readonly id: SandboxId;
  readonly team_id: TeamId;
  readonly node_id: SandboxRecord['nodeId'];
  readonly name: string | null;
  readonly spec: string;
  readonly state: string;
  readonly generation: number;
  readonly version: number;
  readonly metadata: string;
  readonly metadata_version: number;
  readonly expires_at_ms: number | null;
  readonly lease_token: number;
  readonly lease_held: number;
  readonly network: string;
  readonly created_at_ms: number;
  readonly created_by: SandboxRecord['createdBy'];
  readonly user_id: SandboxRecord['userId'];
  readonly updated_at_ms: number;
}

/** In the order of `valuesOf`. */
const columns = `id, team_id, node_id, name, spec, state, state_kind, generation, version, metadata, metadata_version,
  expires_at_ms, lease_token, lease_held, network, created_at_ms, created_by, user_id, updated_at_ms`;
const places = Array.from(columns.split(','), () => '?').join(', ');

const selectSql = `SELECT ${columns} FROM sandboxes`;
const insertSql = `INSERT INTO sandboxes (${columns}) VALUES (${places}) ON CONFLICT (team_id, name) DO NOTHING`;
const updateSql = `UPDATE sandboxes SET (${columns}) = (${places}) WHERE id = ?
  AND NOT EXISTS (SELECT 1 FROM sandboxes AS other WHERE other.team_id = ? AND other.name = ? AND other.id <> ?)`;

export class SqliteSandboxes implements SandboxTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: SandboxId): Promise<SandboxRecord | undefined> {
    return this.#rows.one(shape, this.#scope.get<SandboxRow>(`${selectSql} WHERE id = ?`, id));
  }

  async findByName(key: { teamId: TeamId; name: string }): Promise<SandboxRecord | undefined> {
    const sql = `${selectSql} WHERE team_id = ? AND name = ?`;
    return this.#rows.one(shape, this.#scope.get<SandboxRow>(sql, key.teamId, key.name));
  }

  async list(filter: SandboxFilter, page: SandboxPage): Promise<readonly SandboxRecord[]> {
    const first = page.after && { created_at_ms: page.after.createdAtMs, id: page.after.id };
    return this.#rows.page<SandboxRow, SandboxRecord>(shape, {
      limit: page.limit,
      fetch: (last, limit) => {
        const conditions = conditionsOf(filter);
        const after = last ?? first;
        if (after) conditions.push(['(created_at_ms, id) < (?, ?)', after.created_at_ms, after.id]);
        const where = joinConditions(conditions);
        const sql = `${selectSql}${where.sql} ORDER BY created_at_ms DESC, id DESC LIMIT ?`;
        return this.#scope.all<SandboxRow>(sql, ...where.values, limit);
      },
    });
  }

  /** With those that cannot be read: they take up names and room like any other. */
  async count(filter: SandboxFilter): Promise<number> {
    const where = joinConditions(conditionsOf(filter));
    const sql = `SELECT count(*) AS count FROM sandboxes${where.sql}`;
    return this.#scope.get<{ count: number }>(sql, ...where.values)?.count ?? 0;
  }

  async insert(record: SandboxRecord): Promise<void> {
    const inserted = this.#scope.run(insertSql, ...valuesOf(record));
    if (inserted === 0) throw nameTaken(record);
    this.#putPairs(record);
  }

  async update(record: SandboxRecord): Promise<boolean> {
    const { id, teamId, name } = record;
    const currentSql = 'SELECT metadata FROM sandboxes WHERE id = ? AND version = ?';
    const current = this.#scope.get<{ metadata: string }>(currentSql, id, record.version - 1);
    if (!current) return false;
    const updated = this.#scope.run(updateSql, ...valuesOf(record), id, teamId, name, id);
    if (updated === 0) throw nameTaken(record);
    if (current.metadata !== JSON.stringify(record.metadata)) {
      this.#scope.run('DELETE FROM sandbox_pairs WHERE sandbox_id = ?', id);
      this.#putPairs(record);
    }
    return true;
  }

  async remove(id: SandboxId): Promise<void> {
    this.#scope.run('DELETE FROM sandboxes WHERE id = ?', id); // The pairs go with it.
  }

  #putPairs({ id, metadata }: SandboxRecord): void {
    const pairs = Object.entries(metadata).map(pairText);
    if (pairs.length === 0) return;
    const sql = 'INSERT INTO sandbox_pairs (pair, sandbox_id) SELECT value, ? FROM json_each(?)';
    this.#scope.run(sql, id, JSON.stringify(pairs));
  }
}

const shape: RowShape<SandboxRow, SandboxRecord> = {
  table: 'sandboxes',
  id: (row) => row.id,
  parse: (row) =>
    Object.freeze({
      id: row.id,
      teamId: row.team_id,
      nodeId: row.node_id,
      name: row.name,
      spec: parseSpec(row.spec),
      state: parseState(row.state),
      generation: row.generation,
      version: row.version,
      metadata: parseTextMap(row.metadata),
      metadataVersion: row.metadata_version,
      expiresAtMs: row.expires_at_ms,
      leaseToken: row.lease_token,
      leaseHeld: row.lease_held === 1,
      network: parseNetwork(row.network),
      createdAtMs: row.created_at_ms,
      createdBy: row.created_by,
      userId: row.user_id,
      updatedAtMs: row.updated_at_ms,
    }),
};

function valuesOf(record: SandboxRecord): Value[] {
  return [
    record.id,
    record.teamId,
    record.nodeId,
    record.name,
    JSON.stringify(record.spec),
    JSON.stringify(record.state),
    record.state.kind,
    record.generation,
    record.version,
    JSON.stringify(record.metadata),
    record.metadataVersion,
    record.expiresAtMs,
    record.leaseToken,
    record.leaseHeld ? 1 : 0,
    JSON.stringify(record.network),
    record.createdAtMs,
    record.createdBy,
    record.userId,
    record.updatedAtMs,
  ];
}

/** SQL that must hold, and the values in it. */
type Condition = readonly [sql: string, ...values: Value[]];

function conditionsOf(filter: SandboxFilter): Condition[] {
  const conditions: Condition[] = [];
  if (filter.teamId !== undefined) conditions.push(['team_id = ?', filter.teamId]);
  if (filter.nodeId !== undefined) conditions.push(['node_id = ?', filter.nodeId]);
  if (filter.createdBy !== undefined) conditions.push(['created_by = ?', filter.createdBy]);
  if (filter.userId !== undefined) conditions.push(['user_id = ?', filter.userId]);
  if (filter.states !== undefined) {
    conditions.push(['state_kind IN (SELECT value FROM json_each(?))', JSON.stringify(filter.states)]);
  }
  if (filter.namePrefix !== undefined) {
    conditions.push(['substr(name, 1, length(?)) = ?', filter.namePrefix, filter.namePrefix]);
  }
  for (const pair of Object.entries(filter.metadata ?? {})) {
    conditions.push(['id IN (SELECT sandbox_id FROM sandbox_pairs WHERE pair = ?)', pairText(pair)]);
  }
  return conditions;
}

function joinConditions(conditions: readonly Condition[]): { readonly sql: string; readonly values: Value[] } {
  const sql = conditions.map(([text]) => text).join(' AND ');
  return { sql: sql === '' ? '' : ` WHERE ${sql}`, values: conditions.flatMap(([, ...values]) => values) };
}

function pairText(pair: readonly [key: string, value: string]): string {
  return JSON.stringify(pair);
}

function nameTaken({ name }: SandboxRecord): PlatformError {
  return new PlatformError('name_taken', `Another sandbox of this team is named "${name}".`, { details: { name } });
}
