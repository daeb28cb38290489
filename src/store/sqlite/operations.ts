import type { OperationId, TeamId } from '../../protocol/index.ts';
import type { OperationRecord, OperationTable } from '../store.ts';
import type { Scope } from './connection.ts';

interface OperationRow {
  readonly id: OperationId;
  readonly team_id: TeamId;
  readonly key: string;
  readonly kind: string;
  readonly fingerprint: string;
  readonly subject_id: string | null;
  readonly server_run: string;
  readonly started_at_ms: number;
  readonly finished_at_ms: number | null;
  readonly answer: string | null;
}

const columns = `id, team_id, key, kind, fingerprint, subject_id, server_run, started_at_ms, finished_at_ms, answer`;

export class SqliteOperations implements OperationTable {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async find(id: OperationId): Promise<OperationRecord | undefined> {
    return recordOf(this.#scope.get<OperationRow>(`SELECT ${columns} FROM operations WHERE id = ?`, id));
  }

  async findByKey(key: { teamId: TeamId; key: string }): Promise<OperationRecord | undefined> {
    const sql = `SELECT ${columns} FROM operations WHERE team_id = ? AND key = ?`;
    return recordOf(this.#scope.get<OperationRow>(sql, key.teamId, key.key));
  }

  async insert(record: OperationRecord): Promise<void> {
    this.#scope.run(
      `INSERT INTO operations (${columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.teamId,
      record.key,
      record.kind,
      record.fingerprint,
      record.subjectId,
      record.serverRun,
      record.startedAtMs,
      record.finishedAtMs,
      record.answer,
    );
  }

  async finish(finished: { id: OperationId; finishedAtMs: number; answer: string }): Promise<void> {
    const sql = 'UPDATE operations SET finished_at_ms = ?, answer = ? WHERE id = ? AND finished_at_ms IS NULL';
    this.#scope.run(sql, finished.finishedAtMs, finished.answer, finished.id);
  }

  async remove(id: OperationId): Promise<void> {
    this.#scope.run('DELETE FROM operations WHERE id = ?', id);
  }

  async adopt(taken: { id: OperationId; from: string; to: string }): Promise<boolean> {
    const sql = 'UPDATE operations SET server_run = ? WHERE id = ? AND server_run = ? AND finished_at_ms IS NULL';
    return this.#scope.run(sql, taken.to, taken.id, taken.from) === 1;
  }

  async removeStartedBefore(startedAtMs: number): Promise<number> {
    return this.#scope.run('DELETE FROM operations WHERE started_at_ms < ?', startedAtMs);
  }
}

function recordOf(row: OperationRow | undefined): OperationRecord | undefined {
  if (!row) return undefined;
  return Object.freeze({
    id: row.id,
    teamId: row.team_id,
    key: row.key,
    kind: row.kind,
    fingerprint: row.fingerprint,
    subjectId: row.subject_id,
    serverRun: row.server_run,
    startedAtMs: row.started_at_ms,
    finishedAtMs: row.finished_at_ms,
    answer: row.answer,
  });
}
