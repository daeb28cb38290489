import type { SandboxId, SandboxSpec, TeamId } from '../../protocol/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { SandboxFilter, SandboxPage, SandboxRecord, SandboxTable } from '../store.ts';
import type { Scope, Value } from './connection.ts';
import { parseSpec, parseState, parseTextMap } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

/** In the order of `columns`. */
type SandboxRow = readonly [
  id: SandboxId,
  teamId: TeamId,
  nodeId: SandboxRecord['nodeId'],
  name: string | null,
  spec: string,
  state: string,
  stateKind: string,
  generation: number,
  version: number,
  metadata: string,
  metadataVersion: number,
  expiresAtMs: number | null,
  leaseToken: number,
  leaseHeld: number,
  createdAtMs: number,
  createdBy: SandboxRecord['createdBy'],
  userId: SandboxRecord['userId'],
  updatedAtMs: number,
];
const createdAtColumn = 14;

/** In the order of `valuesOf`. */
const columns = [
  'id',
  'team_id',
  'node_id',
  'name',
  'spec',
  'state',
  'state_kind',
  'generation',
  'version',
  'metadata',
  'metadata_version',
  'expires_at_ms',
  'lease_token',
  'lease_held',
  'created_at_ms',
  'created_by',
  'user_id',
  'updated_at_ms',
] as const;
const places = columns.map(() => '?').join(', ');

const selectSql = `SELECT ${columns.join(', ')} FROM sandboxes`;
const insertSql = `INSERT INTO sandboxes (${columns.join(', ')}) VALUES (${places})
  ON CONFLICT (team_id, name) DO NOTHING`;
const nameIsFreeSql = `NOT EXISTS (SELECT 1 FROM sandboxes AS other
  WHERE other.team_id = ? AND other.name = ? AND other.id <> ?)`;

export class SqliteSandboxes implements SandboxTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: SandboxId): Promise<SandboxRecord | undefined> {
    return this.#rows.one(shapeOf(), this.#scope.arrays<SandboxRow>(`${selectSql} WHERE id = ?`, id)[0]);
  }

  async findByName(key: { teamId: TeamId; name: string }): Promise<SandboxRecord | undefined> {
    const sql = `${selectSql} WHERE team_id = ? AND name = ?`;
    return this.#rows.one(shapeOf(), this.#scope.arrays<SandboxRow>(sql, key.teamId, key.name)[0]);
  }

  async list(filter: SandboxFilter, page: SandboxPage): Promise<readonly SandboxRecord[]> {
    return this.#rows.page<SandboxRow, SandboxRecord>(shapeOf(), {
      limit: page.limit,
      fetch: (last, limit) => {
        const conditions = conditionsOf(filter);
        const after = last ? { createdAtMs: last[createdAtColumn], id: last[0] } : page.after;
        if (after) conditions.push(['(created_at_ms, id) < (?, ?)', after.createdAtMs, after.id]);
        const where = joinConditions(conditions);
        const sql = `${selectSql}${where.sql} ORDER BY created_at_ms DESC, id DESC LIMIT ?`;
        return this.#scope.arrays<SandboxRow>(sql, ...where.values, limit);
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

  /** Writes only what differs: every column that is set costs the indexes that it is part of. */
  async update(record: SandboxRecord): Promise<boolean> {
    const { id, teamId, name } = record;
    const currentSql = `${selectSql} WHERE id = ? AND version = ?`;
    const [current] = this.#scope.arrays<SandboxRow>(currentSql, id, record.version - 1);
    if (!current) return false;
    const values = valuesOf(record);
    const changed = [...columns.keys()].filter((at) => values[at] !== current[at]);
    const sets = changed.map((at) => `${columns[at]} = ?`).join(', ');
    const updateSql = `UPDATE sandboxes SET ${sets} WHERE id = ? AND ${nameIsFreeSql}`;
    const updated = this.#scope.run(updateSql, ...changed.map((at) => values[at]!), id, teamId, name, id);
    if (updated === 0) throw nameTaken(record);
    if (changed.some((at) => columns[at] === 'metadata')) {
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

/** Specs are alike: each text is parsed once a page. */
function shapeOf(): RowShape<SandboxRow, SandboxRecord> {
  const specs = new Map<string, SandboxSpec>();
  const specOf = (text: string) => {
    const known = specs.get(text) ?? parseSpec(text);
    specs.set(text, known);
    return known;
  };
  return { table: 'sandboxes', id: ([id]) => id, parse: (row) => recordOf(row, specOf) };
}

function recordOf(row: SandboxRow, specOf: (text: string) => SandboxSpec): SandboxRecord {
  const [id, teamId, nodeId, name, spec, state, , generation, version, metadata, metadataVersion, ...rest] = row;
  const [expiresAtMs, leaseToken, leaseHeld, createdAtMs, createdBy, userId, updatedAtMs] = rest;
  return Object.freeze({
    id,
    teamId,
    nodeId,
    name,
    spec: specOf(spec),
    state: parseState(state),
    generation,
    version,
    metadata: parseTextMap(metadata),
    metadataVersion,
    expiresAtMs,
    leaseToken,
    leaseHeld: leaseHeld === 1,
    createdAtMs,
    createdBy,
    userId,
    updatedAtMs,
  });
}

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
