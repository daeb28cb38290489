/** Brings a database to the latest version, all steps or none. */
import type { DatabaseSync } from 'node:sqlite';
import { migrations } from './migrations/index.ts';

/** Marks the file as ours: "Atol" in ASCII. */
export const applicationId = 0x41746f6c;
export const latestVersion = migrations.at(-1)?.version ?? 0;

export function migrate(database: DatabaseSync): void {
  if (versionOf(database) === latestVersion) return;
  database.exec('BEGIN IMMEDIATE');
  try {
    const version = versionOf(database); // Again, under the lock: another process may have done it meanwhile.
    for (const migration of migrations) {
      if (migration.version > version) for (const statement of migration.statements) database.exec(statement);
    }
    database.exec(`PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${latestVersion}`);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

function versionOf(database: DatabaseSync): number {
  return Number(database.prepare('PRAGMA user_version').get()?.['user_version']);
}
