import type { LeaseId, TeamId } from '../../protocol/index.ts';
import type { LeaseHolder, LeaseRecord, LeaseTable } from '../store.ts';
import type { Scope } from './connection.ts';
import { parseFields } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

interface LeaseRow {
  readonly team_id: TeamId;
  readonly resource: string;
  readonly token: number;
  readonly holder: string | null;
}

const selectSql = 'SELECT team_id, resource, token, holder FROM leases';

export class SqliteLeases implements LeaseTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(key: { teamId: TeamId; resource: string }): Promise<LeaseRecord | undefined> {
    const sql = `${selectSql} WHERE team_id = ? AND resource = ?`;
    return this.#rows.one(shape, this.#scope.get<LeaseRow>(sql, key.teamId, key.resource));
  }

  async findByLeaseId(key: { teamId: TeamId; leaseId: LeaseId }): Promise<readonly LeaseRecord[]> {
    const sql = `${selectSql} WHERE team_id = ? AND lease_id = ? ORDER BY resource`;
    return this.#rows.many(shape, this.#scope.all<LeaseRow>(sql, key.teamId, key.leaseId));
  }

  async listHeld(teamId?: TeamId): Promise<readonly LeaseRecord[]> {
    const ofTeam = teamId === undefined ? '' : ' AND team_id = ?';
    const sql = `${selectSql} WHERE lease_id IS NOT NULL${ofTeam} ORDER BY team_id, resource`;
    return this.#rows.many(shape, this.#scope.all<LeaseRow>(sql, ...(teamId === undefined ? [] : [teamId])));
  }

  async put({ teamId, resource, token, holder }: LeaseRecord): Promise<void> {
    this.#scope.run(
      `INSERT INTO leases (team_id, resource, token, lease_id, holder) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (team_id, resource) DO UPDATE SET token = excluded.token, lease_id = excluded.lease_id, holder = excluded.holder`,
      teamId,
      resource,
      token,
      holder?.leaseId ?? null,
      holder && JSON.stringify(holder),
    );
  }

  async remove(key: { teamId: TeamId; resource: string }): Promise<void> {
    this.#scope.run('DELETE FROM leases WHERE team_id = ? AND resource = ?', key.teamId, key.resource);
  }
}

const shape: RowShape<LeaseRow, LeaseRecord> = {
  table: 'leases',
  id: (row) => row.resource,
  parse: (row) =>
    Object.freeze({
      teamId: row.team_id,
      resource: row.resource,
      token: row.token,
      holder: row.holder === null ? null : parseHolder(row.holder),
    }),
};

function parseHolder(text: string): LeaseHolder {
  const value = parseFields(text);
  const texts = ['leaseId', 'name', 'reason', 'keyId', 'bootId'].every((name) => typeof value[name] === 'string');
  const numbers = ['ttlMs', 'grantedAtMs', 'endsAtBootMs'].every((name) => Number.isSafeInteger(value[name]));
  if (!texts || !numbers || typeof value['acknowledged'] !== 'boolean')
    throw new TypeError('Not the holder of a lease.');
  return value as unknown as LeaseHolder;
}
