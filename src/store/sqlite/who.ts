/** Teams, users and keys. */
import type { KeyId, TeamId, UserId } from '../../protocol/index.ts';
import type { KeyRecord, KeyTable, TeamRecord, TeamTable, UserRecord, UserTable } from '../store.ts';
import type { Scope } from './connection.ts';
import { parseTexts } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

const teamSql = 'SELECT id, name, created_at_ms AS createdAtMs, disk_bytes AS diskBytes FROM teams';

export class SqliteTeams implements TeamTable {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async find(id: TeamId): Promise<TeamRecord | undefined> {
    const row = this.#scope.get<TeamRecord>(`${teamSql} WHERE id = ?`, id);
    return row && plain(row);
  }

  async list(): Promise<readonly TeamRecord[]> {
    return this.#scope.all<TeamRecord>(`${teamSql} ORDER BY created_at_ms, id`).map(plain);
  }

  async insert({ id, name, createdAtMs, diskBytes }: TeamRecord): Promise<void> {
    const sql = 'INSERT INTO teams (id, name, created_at_ms, disk_bytes) VALUES (?, ?, ?, ?)';
    this.#scope.run(sql, id, name, createdAtMs, diskBytes);
  }

  async setDiskBytes({ id, diskBytes }: { id: TeamId; diskBytes: number | null }): Promise<boolean> {
    return this.#scope.run('UPDATE teams SET disk_bytes = ? WHERE id = ?', diskBytes, id) > 0;
  }
}

const userSql = 'SELECT id, team_id AS teamId, name, created_at_ms AS createdAtMs FROM users';

export class SqliteUsers implements UserTable {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async find(id: UserId): Promise<UserRecord | undefined> {
    const row = this.#scope.get<UserRecord>(`${userSql} WHERE id = ?`, id);
    return row && plain(row);
  }

  async list(teamId: TeamId): Promise<readonly UserRecord[]> {
    return this.#scope.all<UserRecord>(`${userSql} WHERE team_id = ? ORDER BY created_at_ms, id`, teamId).map(plain);
  }

  async insert({ id, teamId, name, createdAtMs }: UserRecord): Promise<void> {
    const sql = 'INSERT INTO users (id, team_id, name, created_at_ms) VALUES (?, ?, ?, ?)';
    this.#scope.run(sql, id, teamId, name, createdAtMs);
  }
}

/** A row is the record but for its scopes. */
interface KeyRow extends Omit<KeyRecord, 'scopes'> {
  readonly scopes: string;
}

const keySql = `SELECT id, team_id AS teamId, user_id AS userId, name, hash, scopes, sandbox_id AS sandboxId,
  created_at_ms AS createdAtMs, expires_at_ms AS expiresAtMs, revoked_at_ms AS revokedAtMs FROM keys`;

export class SqliteKeys implements KeyTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: KeyId): Promise<KeyRecord | undefined> {
    return this.#rows.one(keyShape, this.#scope.get<KeyRow>(`${keySql} WHERE id = ?`, id));
  }

  async findByHash(hash: string): Promise<KeyRecord | undefined> {
    return this.#rows.one(keyShape, this.#scope.get<KeyRow>(`${keySql} WHERE hash = ?`, hash));
  }

  async list(teamId: TeamId): Promise<readonly KeyRecord[]> {
    const rows = this.#scope.all<KeyRow>(`${keySql} WHERE team_id = ? ORDER BY created_at_ms, id`, teamId);
    return this.#rows.many(keyShape, rows);
  }

  async insert(record: KeyRecord): Promise<void> {
    this.#scope.run(
      `INSERT INTO keys (id, team_id, user_id, name, hash, scopes, sandbox_id, created_at_ms, expires_at_ms, revoked_at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.teamId,
      record.userId,
      record.name,
      record.hash,
      JSON.stringify(record.scopes),
      record.sandboxId,
      record.createdAtMs,
      record.expiresAtMs,
      record.revokedAtMs,
    );
  }

  async revoke(revoked: { id: KeyId; revokedAtMs: number }): Promise<void> {
    const sql = 'UPDATE keys SET revoked_at_ms = ? WHERE id = ? AND revoked_at_ms IS NULL';
    this.#scope.run(sql, revoked.revokedAtMs, revoked.id);
  }
}

const keyShape: RowShape<KeyRow, KeyRecord> = {
  table: 'keys',
  id: (row) => row.id,
  parse: (row) => Object.freeze({ ...row, scopes: parseTexts(row.scopes) }),
};

/** Rows come without a prototype; records are ordinary objects. */
function plain<Row extends object>(row: Row): Row {
  return Object.freeze({ ...row });
}
