import {
  type CheckpointId,
  type PlanCheckpointId,
  type PlanCommitId,
  type PlanId,
  PlatformError,
  planState,
  type SandboxId,
  type TeamId,
} from '../../protocol/index.ts';
import type {
  PlanCheckpointMember,
  PlanCheckpointRecord,
  PlanCommitRecord,
  PlanMemberRecord,
  PlanRecord,
  PlanTable,
} from '../plan-records.ts';
import type { Scope } from './connection.ts';
import { parseItems, parseTexts } from './json-columns.ts';
import { type Condition, newestFirst } from './newest-first.ts';
import type { RowReader, RowShape } from './readable.ts';

/** Rows are the records but for what SQLite has as a number or as JSON. */
interface PlanRow extends Omit<PlanRecord, 'state'> {
  readonly state: string;
}
interface CommitRow extends Omit<PlanCommitRecord, 'isDryRun' | 'members' | 'targets'> {
  readonly isDryRun: number;
  readonly members: string;
  readonly targets: string;
}
interface CheckpointRow extends Omit<PlanCheckpointRecord, 'members'> {
  readonly members: string;
}

const planSql = `SELECT id, team_id AS teamId, name, state, fence, version, created_at_ms AS createdAtMs,
  created_by AS createdBy, updated_at_ms AS updatedAtMs FROM plans`;
const memberSql = `SELECT plan_id AS planId, sandbox_id AS sandboxId, position, added_at_ms AS addedAtMs,
  added_by AS addedBy FROM plan_members`;
const commitSql = `SELECT id, plan_id AS planId, team_id AS teamId, kind, mode, is_dry_run AS isDryRun, state, fingerprint,
  fence, server_run AS serverRun, lease_id AS leaseId, members, targets, left_behind AS "left", kept_until_ms AS keptUntilMs,
  result, created_by AS createdBy, started_at_ms AS startedAtMs, finished_at_ms AS finishedAtMs, boot_id AS bootId,
  expires_at_boot_ms AS expiresAtBootMs FROM plan_commits`;
const checkpointSql = `SELECT id, plan_id AS planId, team_id AS teamId, name, state, server_run AS serverRun, members,
  created_at_ms AS createdAtMs, created_by AS createdBy FROM plan_checkpoints`;

export class SqlitePlans implements PlanTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async find(id: PlanId): Promise<PlanRecord | undefined> {
    return this.#rows.one(planShape, this.#scope.get<PlanRow>(`${planSql} WHERE id = ?`, id));
  }

  async findByName({ teamId, name }: { teamId: TeamId; name: string }): Promise<PlanRecord | undefined> {
    const row = this.#scope.get<PlanRow>(`${planSql} WHERE team_id = ? AND name = ?`, teamId, name);
    return this.#rows.one(planShape, row);
  }

  async list(
    filter: Parameters<PlanTable['list']>[0],
    page: Parameters<PlanTable['list']>[1],
  ): Promise<readonly PlanRecord[]> {
    return this.#rows.page<PlanRow, PlanRecord>(planShape, {
      limit: page.limit,
      fetch: (last, limit) => {
        const conditions: Condition[] = [];
        if (filter.teamId !== undefined) conditions.push(['team_id = ?', filter.teamId]);
        if (filter.states !== undefined) {
          conditions.push(['state_kind IN (SELECT value FROM json_each(?))', JSON.stringify(filter.states)]);
        }
        return this.#scope.all<PlanRow>(...newestFirst(planSql, conditions, { after: last ?? page.after, limit }));
      },
    });
  }

  async count(teamId: TeamId): Promise<number> {
    return this.#scope.get<{ count: number }>('SELECT count(*) AS count FROM plans WHERE team_id = ?', teamId)!.count;
  }

  async insert(record: PlanRecord): Promise<void> {
    const inserted = this.#scope.run(
      `INSERT INTO plans (id, team_id, name, state, state_kind, fence, version, created_at_ms, created_by, updated_at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (team_id, name) DO NOTHING`,
      record.id,
      record.teamId,
      record.name,
      JSON.stringify(record.state),
      record.state.kind,
      record.fence,
      record.version,
      record.createdAtMs,
      record.createdBy,
      record.updatedAtMs,
    );
    if (inserted > 0) return;
    const { name } = record;
    throw new PlatformError('name_taken', `Another plan of this team is named "${name}".`, { details: { name } });
  }

  async update(record: PlanRecord): Promise<boolean> {
    const updated = this.#scope.run(
      'UPDATE plans SET state = ?, state_kind = ?, fence = ?, version = ?, updated_at_ms = ? WHERE id = ? AND version = ?',
      JSON.stringify(record.state),
      record.state.kind,
      record.fence,
      record.version,
      record.updatedAtMs,
      record.id,
      record.version - 1,
    );
    return updated > 0;
  }

  async remove(id: PlanId): Promise<void> {
    this.#scope.run('DELETE FROM plans WHERE id = ?', id); // Its members go with it.
  }

  async members(planId: PlanId): Promise<readonly PlanMemberRecord[]> {
    const rows = this.#scope.all<PlanMemberRecord>(`${memberSql} WHERE plan_id = ? ORDER BY position`, planId);
    return rows.map((row) => Object.freeze({ ...row }));
  }

  async plansOf(sandboxId: SandboxId): Promise<readonly PlanRecord[]> {
    const sql = `${planSql} WHERE id IN (SELECT plan_id FROM plan_members WHERE sandbox_id = ?) ORDER BY created_at_ms, id`;
    return this.#rows.many(planShape, this.#scope.all<PlanRow>(sql, sandboxId));
  }

  async putMember(record: PlanMemberRecord): Promise<void> {
    this.#scope.run(
      'INSERT OR REPLACE INTO plan_members (plan_id, sandbox_id, position, added_at_ms, added_by) VALUES (?, ?, ?, ?, ?)',
      record.planId,
      record.sandboxId,
      record.position,
      record.addedAtMs,
      record.addedBy,
    );
  }

  async removeMember({ planId, sandboxId }: { planId: PlanId; sandboxId: SandboxId }): Promise<void> {
    this.#scope.run('DELETE FROM plan_members WHERE plan_id = ? AND sandbox_id = ?', planId, sandboxId);
  }

  async findCommit(id: PlanCommitId): Promise<PlanCommitRecord | undefined> {
    return this.#rows.one(commitShape, this.#scope.get<CommitRow>(`${commitSql} WHERE id = ?`, id));
  }

  async commits(planId: PlanId, page: { readonly limit: number }): Promise<readonly PlanCommitRecord[]> {
    const sql = `${commitSql} WHERE plan_id = ? ORDER BY started_at_ms DESC, id DESC LIMIT ?`;
    return this.#rows.many(commitShape, this.#scope.all<CommitRow>(sql, planId, page.limit));
  }

  async unfinishedCommits(limit: number): Promise<readonly PlanCommitRecord[]> {
    const sql = `${commitSql} WHERE left_behind <> 'nothing' ORDER BY started_at_ms LIMIT ?`;
    return this.#rows.many(commitShape, this.#scope.all<CommitRow>(sql, limit));
  }

  async putCommit(record: PlanCommitRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO plan_commits (id, plan_id, team_id, kind, mode, is_dry_run, state, fingerprint, fence, server_run,
        lease_id, members, targets, left_behind, kept_until_ms, result, created_by, started_at_ms, finished_at_ms, boot_id,
        expires_at_boot_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.planId,
      record.teamId,
      record.kind,
      record.mode,
      record.isDryRun ? 1 : 0,
      record.state,
      record.fingerprint,
      record.fence,
      record.serverRun,
      record.leaseId,
      JSON.stringify(record.members),
      JSON.stringify(record.targets),
      record.left,
      record.keptUntilMs,
      record.result,
      record.createdBy,
      record.startedAtMs,
      record.finishedAtMs,
      record.bootId,
      record.expiresAtBootMs,
    );
  }

  async removeCommit(id: PlanCommitId): Promise<void> {
    this.#scope.run('DELETE FROM plan_commits WHERE id = ?', id);
  }

  async findCheckpoint(id: PlanCheckpointId): Promise<PlanCheckpointRecord | undefined> {
    return this.#rows.one(checkpointShape, this.#scope.get<CheckpointRow>(`${checkpointSql} WHERE id = ?`, id));
  }

  async checkpoints(filter: Parameters<PlanTable['checkpoints']>[0]): Promise<readonly PlanCheckpointRecord[]> {
    const sql = `${checkpointSql} WHERE (?1 IS NULL OR plan_id = ?1)
      AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2))) ORDER BY created_at_ms DESC, id DESC`;
    const states = filter.states === undefined ? null : JSON.stringify(filter.states);
    return this.#rows.many(checkpointShape, this.#scope.all<CheckpointRow>(sql, filter.planId ?? null, states));
  }

  async isInCheckpoint(checkpointId: CheckpointId): Promise<boolean> {
    const sql = `SELECT 1 FROM plan_checkpoints, json_each(plan_checkpoints.members) AS member
      WHERE plan_checkpoints.state <> 'deleting' AND json_extract(member.value, '$.checkpointId') = ? LIMIT 1`;
    return this.#scope.get(sql, checkpointId) !== undefined;
  }

  async putCheckpoint(record: PlanCheckpointRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO plan_checkpoints (id, plan_id, team_id, name, state, server_run, members, created_at_ms, created_by)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      record.id,
      record.planId,
      record.teamId,
      record.name,
      record.state,
      record.serverRun,
      JSON.stringify(record.members),
      record.createdAtMs,
      record.createdBy,
    );
  }

  async removeCheckpoint(id: PlanCheckpointId): Promise<void> {
    this.#scope.run('DELETE FROM plan_checkpoints WHERE id = ?', id);
  }
}

const planShape: RowShape<PlanRow, PlanRecord> = {
  table: 'plans',
  id: (row) => row.id,
  parse: (row) => Object.freeze({ ...row, state: Object.freeze(planState.parse(JSON.parse(row.state))) }),
};

const commitShape: RowShape<CommitRow, PlanCommitRecord> = {
  table: 'plan_commits',
  id: (row) => row.id,
  parse: (row) =>
    Object.freeze({
      ...row,
      isDryRun: row.isDryRun === 1,
      members: parseTexts(row.members) as PlanCommitRecord['members'],
      targets: parseTexts(row.targets) as PlanCommitRecord['targets'],
    }),
};

const checkpointShape: RowShape<CheckpointRow, PlanCheckpointRecord> = {
  table: 'plan_checkpoints',
  id: (row) => row.id,
  parse: (row) =>
    Object.freeze({ ...row, members: parseItems(row.members) as unknown as readonly PlanCheckpointMember[] }),
};
