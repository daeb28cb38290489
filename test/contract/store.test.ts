import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { openSqliteStore, type Store } from '../../src/store/index.ts';
import { describeStore, type TestDatabase } from './store.contract.ts';

describeStore('SQLite', async (): Promise<TestDatabase> => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-store-'));
  const path = join(directory, 'atoll.db');
  const stores: Store[] = [];
  return {
    open: async (options = {}) => {
      const store = await openSqliteStore({ path, ...options });
      stores.push(store);
      return store;
    },
    writerArguments: ['sqlite', path],
    damage: async ({ table, column, idColumn, id }) => {
      using database = new DatabaseSync(path, { timeout: 5_000 });
      database.prepare(`UPDATE ${table} SET ${column} = 'not JSON' WHERE ${idColumn} = ?`).run(id);
    },
    dispose: async () => {
      for (const store of stores) await store.close();
      await rm(directory, { recursive: true });
    },
  };
});
