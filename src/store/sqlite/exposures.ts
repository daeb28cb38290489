import type { KeyId, SandboxId, TokenId } from '../../protocol/index.ts';
import type { ExposureKey, ExposureRecord, ExposureTable } from '../store.ts';
import type { Scope } from './connection.ts';

/** A row is the record but for its flag, which SQLite has as a number. */
interface ExposureRow {
  readonly sandboxId: SandboxId;
  readonly port: number;
  readonly isPublic: number;
  readonly tokenId: TokenId;
  readonly tokenHash: string;
  readonly createdAtMs: number;
  readonly createdBy: KeyId;
}

const selectSql = `SELECT sandbox_id AS sandboxId, port, is_public AS isPublic, token_id AS tokenId, token_hash AS tokenHash,
  created_at_ms AS createdAtMs, created_by AS createdBy FROM exposures`;

export class SqliteExposures implements ExposureTable {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async find({ sandboxId, port }: ExposureKey): Promise<ExposureRecord | undefined> {
    const row = this.#scope.get<ExposureRow>(`${selectSql} WHERE sandbox_id = ? AND port = ?`, sandboxId, port);
    return row === undefined ? undefined : recordOf(row);
  }

  async list(sandboxId: SandboxId): Promise<readonly ExposureRecord[]> {
    return this.#scope.all<ExposureRow>(`${selectSql} WHERE sandbox_id = ? ORDER BY port`, sandboxId).map(recordOf);
  }

  async put(record: ExposureRecord): Promise<void> {
    this.#scope.run(
      `INSERT OR REPLACE INTO exposures (sandbox_id, port, is_public, token_id, token_hash, created_at_ms, created_by)
        VALUES (?, ?, ?, ?, ?, ?, ?)`,
      record.sandboxId,
      record.port,
      record.isPublic ? 1 : 0,
      record.tokenId,
      record.tokenHash,
      record.createdAtMs,
      record.createdBy,
    );
  }

  async remove({ sandboxId, port }: ExposureKey): Promise<boolean> {
    return this.#scope.run('DELETE FROM exposures WHERE sandbox_id = ? AND port = ?', sandboxId, port) > 0;
  }
}

function recordOf(row: ExposureRow): ExposureRecord {
  const { sandboxId, port, isPublic, tokenId, tokenHash, createdAtMs, createdBy } = row;
  return Object.freeze({ sandboxId, port, isPublic: isPublic === 1, tokenId, tokenHash, createdAtMs, createdBy });
}
