import type { SandboxId, TeamId } from '../../protocol/index.ts';
import type { EventRecord, EventTable } from '../store.ts';
import type { Scope } from './connection.ts';
import { parseFields } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

/** A row is the record but for its data. */
interface EventRow extends Omit<EventRecord, 'data'> {
  readonly data: string;
}

const selectSql = `SELECT sequence, team_id AS teamId, sandbox_id AS sandboxId, kind, at_ms AS atMs, data FROM events`;
const insertSql = 'INSERT INTO events (team_id, sandbox_id, kind, at_ms, data) VALUES (?, ?, ?, ?, ?)';

export class SqliteEvents implements EventTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async list(query: EventQuery): Promise<readonly EventRecord[]> {
    const { teamId, sandboxId } = query;
    const ofSandbox = sandboxId === undefined ? '' : ' AND sandbox_id = ?';
    const sql = `${selectSql} WHERE team_id = ?${ofSandbox} AND sequence > ? ORDER BY sequence LIMIT ?`;
    const values = sandboxId === undefined ? [teamId] : [teamId, sandboxId];
    return this.#rows.page<EventRow, EventRecord>(shape, {
      limit: query.limit,
      fetch: (last, limit) => this.#scope.all<EventRow>(sql, ...values, last?.sequence ?? query.after, limit),
    });
  }

  async range(): Promise<{ readonly first: number; readonly last: number }> {
    const last = this.#lastSequence();
    const sql = 'SELECT min(sequence) AS first FROM events';
    return { first: this.#scope.get<{ first: number | null }>(sql)?.first ?? last + 1, last };
  }

  async append(event: Omit<EventRecord, 'sequence'>): Promise<EventRecord> {
    const { teamId, sandboxId, kind, atMs, data } = event;
    const sequence = this.#scope.insert(insertSql, teamId, sandboxId, kind, atMs, JSON.stringify(data));
    return Object.freeze({ sequence, teamId, sandboxId, kind, atMs, data });
  }

  async trim(keep: number): Promise<number> {
    return this.#scope.run('DELETE FROM events WHERE sequence <= ?', this.#lastSequence() - keep);
  }

  /** Of events that are gone, too. */
  #lastSequence(): number {
    const sql = `SELECT seq AS last FROM sqlite_sequence WHERE name = 'events'`;
    return this.#scope.get<{ last: number }>(sql)?.last ?? 0;
  }
}

interface EventQuery {
  readonly teamId: TeamId;
  readonly sandboxId?: SandboxId;
  readonly after: number;
  readonly limit: number;
}

const shape: RowShape<EventRow, EventRecord> = {
  table: 'events',
  id: (row) => String(row.sequence),
  parse: (row) => Object.freeze({ ...row, data: parseFields(row.data) }),
};
