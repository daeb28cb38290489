import type { SandboxId } from '../../protocol/index.ts';
import type { HistoryTable, MetadataChange } from '../store.ts';
import type { Scope } from './connection.ts';
import { parseFields } from './json-columns.ts';
import type { RowReader, RowShape } from './readable.ts';

/** A row is the change but for what changed. */
interface ChangeRow extends Omit<MetadataChange, 'changes'> {
  readonly changes: string;
}

const selectSql = `SELECT sandbox_id AS sandboxId, metadata_version AS metadataVersion, at_ms AS atMs, by,
  operation_id AS operationId, changes FROM metadata_changes`;

export class SqliteHistory implements HistoryTable {
  readonly #scope: Scope;
  readonly #rows: RowReader;

  constructor(scope: Scope, rows: RowReader) {
    this.#scope = scope;
    this.#rows = rows;
  }

  async list(query: { sandboxId: SandboxId; before?: number; limit: number }): Promise<readonly MetadataChange[]> {
    const sql = `${selectSql} WHERE sandbox_id = ? AND metadata_version < ? ORDER BY metadata_version DESC LIMIT ?`;
    const first = query.before ?? Number.MAX_SAFE_INTEGER;
    return this.#rows.page<ChangeRow, MetadataChange>(shape, {
      limit: query.limit,
      fetch: (last, limit) => this.#scope.all<ChangeRow>(sql, query.sandboxId, last?.metadataVersion ?? first, limit),
    });
  }

  async append(change: MetadataChange): Promise<void> {
    this.#scope.run(
      `INSERT INTO metadata_changes (sandbox_id, metadata_version, at_ms, by, operation_id, changes)
        VALUES (?, ?, ?, ?, ?, ?)`,
      change.sandboxId,
      change.metadataVersion,
      change.atMs,
      change.by,
      change.operationId,
      JSON.stringify(change.changes),
    );
  }

  async trim({ sandboxId, keep }: { sandboxId: SandboxId; keep: number }): Promise<void> {
    const sql = `DELETE FROM metadata_changes WHERE sandbox_id = ? AND metadata_version IN (
      SELECT metadata_version FROM metadata_changes WHERE sandbox_id = ? ORDER BY metadata_version DESC LIMIT -1 OFFSET ?)`;
    this.#scope.run(sql, sandboxId, sandboxId, keep);
  }

  async removeAll(sandboxId: SandboxId): Promise<void> {
    this.#scope.run('DELETE FROM metadata_changes WHERE sandbox_id = ?', sandboxId);
  }
}

const shape: RowShape<ChangeRow, MetadataChange> = {
  table: 'metadata_changes',
  id: (row) => `${row.sandboxId}/${row.metadataVersion}`,
  parse: (row) => Object.freeze({ ...row, changes: parseChanges(row.changes) }),
};

function parseChanges(text: string): MetadataChange['changes'] {
  const value = parseFields(text);
  const known = Object.values(value).every((item) => item === null || typeof item === 'string');
  if (!known) throw new TypeError('Not a change of metadata.');
  return value as MetadataChange['changes'];
}
