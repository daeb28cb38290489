/**
 * A process that writes to a store until it is killed: `store-writer.ts <database> <where> [faults]`. Each transaction makes
 * a sandbox and an event of it; its line, `<sequence> <sandbox id>`, is printed when the store has answered.
 */
import { writeSync } from 'node:fs';
import { parseFaults } from '../../src/base/index.ts';
import { openSqliteStore, type SandboxRecord, type Store } from '../../src/store/index.ts';
import { eventRecord, sandboxRecord } from './records.ts';

const writersAtOnce = 5;

async function openStore(database: string, where: string, faults: string): Promise<Store> {
  if (database === 'sqlite') return openSqliteStore({ path: where, faults: parseFaults(faults) });
  throw new Error(`No database is called "${database}".`);
}

async function writeForEver(store: Store, teamId: SandboxRecord['teamId']): Promise<never> {
  for (;;) {
    const record = sandboxRecord({ teamId });
    const event = await store.transact(async ({ sandboxes, events }) => {
      await sandboxes.insert(record);
      return events.append(eventRecord({ teamId, sandboxId: record.id }));
    });
    writeSync(1, `${event.sequence} ${record.id}\n`);
  }
}

const [database = '', where = '', faults = ''] = process.argv.slice(2);
const store = await openStore(database, where, faults);
const { teamId } = sandboxRecord();
await Promise.all(Array.from({ length: writersAtOnce }, () => writeForEver(store, teamId)));
