import type { TeamId, WebhookId } from '../../protocol/index.ts';
import type { WebhookRecord, WebhookTable } from '../store.ts';
import type { Scope } from './connection.ts';
import { parseTexts } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

/** A row is the record but for its kinds. */
interface WebhookRow extends Omit<WebhookRecord, 'kinds'> {
  readonly kinds: string;
}

const selectSql = `SELECT id, team_id AS teamId, url, secret, kinds, created_at_ms AS createdAtMs, cursor, failures,
  next_attempt_at_ms AS nextAttemptAtMs, last_error AS lastError FROM webhooks`;
const columns = 'id, team_id, url, secret, kinds, created_at_ms, cursor, failures, next_attempt_at_ms, last_error';

export class SqliteWebhooks implements WebhookTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: WebhookId): Promise<WebhookRecord | undefined> {
    return this.#rows.one(shape, this.#scope.get<WebhookRow>(`${selectSql} WHERE id = ?`, id));
  }

  async list(teamId?: TeamId): Promise<readonly WebhookRecord[]> {
    const ofTeam = teamId === undefined ? '' : ' WHERE team_id = ?';
    const sql = `${selectSql}${ofTeam} ORDER BY created_at_ms, id`;
    return this.#rows.many(shape, this.#scope.all<WebhookRow>(sql, ...(teamId === undefined ? [] : [teamId])));
  }

  async put(record: WebhookRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO webhooks (${columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.teamId,
      record.url,
      record.secret,
      JSON.stringify(record.kinds),
      record.createdAtMs,
      record.cursor,
      record.failures,
      record.nextAttemptAtMs,
      record.lastError,
    );
  }

  async remove(id: WebhookId): Promise<void> {
    this.#scope.run('DELETE FROM webhooks WHERE id = ?', id);
  }
}

const shape: RowShape<WebhookRow, WebhookRecord> = {
  table: 'webhooks',
  id: (row) => row.id,
  parse: (row) => Object.freeze({ ...row, kinds: parseTexts(row.kinds) }),
};
