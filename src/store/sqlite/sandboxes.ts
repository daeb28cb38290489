import type { NetworkPolicy, SandboxId, SandboxSpec, SandboxState, TeamId } from '../../protocol/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { SandboxFilter, SandboxPage, SandboxRecord, SandboxTable } from '../store.ts';
import type { Scope, Value } from './connection.ts';
import { parseNetwork, parseSpec, parseState, parseTextMap } from './json-columns.ts';
import type { KnownSandboxes } from './known-sandboxes.ts';
import { type Condition, joinConditions, newestFirst } from './newest-first.ts';
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
  network: string,
  onExpiry: SandboxRecord['onExpiry'],
  autoResume: number,
  keepCheckpoints: number | null,
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
  'network',
  'on_expiry',
  'auto_resume',
  'keep_checkpoints',
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
  readonly #known: KnownSandboxes;

  /** `known` hears of whatever is about to be written. */
  constructor(scope: Scope, rows: RowReader, known: KnownSandboxes) {
    this.#scope = scope;
    this.#rows = rows;
    this.#known = known;
  }

  async find(id: SandboxId): Promise<SandboxRecord | undefined> {
    return this.findNow(id);
  }

  findNow(id: SandboxId): SandboxRecord | undefined {
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
        const after = last ? { createdAtMs: last[createdAtColumn], id: last[0] } : page.after;
        return this.#scope.arrays<SandboxRow>(...newestFirst(selectSql, conditionsOf(filter), { after, limit }));
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
    this.#known.changes(record.id);
    const inserted = this.#scope.run(insertSql, ...valuesOf(record));
    if (inserted === 0) throw nameTaken(record);
    this.#putPairs(record);
  }

  /** Writes only what differs: every column that is set costs the indexes that it is part of. */
  async update(record: SandboxRecord): Promise<boolean> {
    const { id, teamId, name } = record;
    this.#known.changes(id);
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
    this.#known.changes(id);
    this.#scope.run('DELETE FROM sandboxes WHERE id = ?', id); // The pairs go with it.
  }

  #putPairs({ id, metadata }: SandboxRecord): void {
    const pairs = Object.entries(metadata).map(pairText);
    if (pairs.length === 0) return;
    const sql = 'INSERT INTO sandbox_pairs (pair, sandbox_id) SELECT value, ? FROM json_each(?)';
    this.#scope.run(sql, id, JSON.stringify(pairs));
  }
}

/** Many sandboxes have the same spec and network, and those that run the same state: on one page each text is parsed once. */
function shapeOf(): RowShape<SandboxRow, SandboxRecord> {
  const parsers = { specOf: onceEach(parseSpec), stateOf: onceEach(parseState), networkOf: onceEach(parseNetwork) };
  return { table: 'sandboxes', id: (row) => row[0], parse: (row) => recordOf(row, parsers) };
}

function onceEach<Result>(parse: (text: string) => Result): (text: string) => Result {
  const known = new Map<string, Result>();
  return (text) => {
    let result = known.get(text);
    if (result === undefined) {
      result = parse(text);
      known.set(text, result);
    }
    return result;
  };
}

interface Parsers {
  readonly specOf: (text: string) => SandboxSpec;
  readonly stateOf: (text: string) => SandboxState;
  readonly networkOf: (text: string) => NetworkPolicy;
}

/** By number, because taking a row apart by pattern costs as much as the rest of it. */
function recordOf(row: SandboxRow, parsers: Parsers): SandboxRecord {
  return Object.freeze({
    id: row[0],
    teamId: row[1],
    nodeId: row[2],
    name: row[3],
    spec: parsers.specOf(row[4]),
    state: parsers.stateOf(row[5]),
    generation: row[7],
    version: row[8],
    metadata: parseTextMap(row[9]),
    metadataVersion: row[10],
    expiresAtMs: row[11],
    leaseToken: row[12],
    leaseHeld: row[13] === 1,
    createdAtMs: row[14],
    createdBy: row[15],
    userId: row[16],
    updatedAtMs: row[17],
    network: parsers.networkOf(row[18]),
    onExpiry: row[19],
    autoResume: row[20] === 1,
    keepCheckpoints: row[21],
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
    JSON.stringify(record.network),
    record.onExpiry,
    record.autoResume ? 1 : 0,
    record.keepCheckpoints,
  ];
}

/** SQL that must hold, and the values in it. */
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

function pairText(pair: readonly [key: string, value: string]): string {
  return JSON.stringify(pair);
}

function nameTaken({ name }: SandboxRecord): PlatformError {
  return new PlatformError('name_taken', `Another sandbox of this team is named "${name}".`, { details: { name } });
}
