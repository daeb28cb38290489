/**
 * A process that writes to a store until it is killed: `store-writer.ts <database> <where> [faults] [durability]`. Each transaction makes
 * a sandbox and an event of it, synced or written only; its line, `<sequence> <sandbox id>`, is printed when the store has answered.
 */
import { writeSync } from 'node:fs';
import { parseFaults } from '../../src/base/index.ts';
import {
  type Durability,
  openSqliteStore,
  type SandboxRecord,
  type Store,
  type Tables,
} from '../../src/store/index.ts';
import { eventRecord, sandboxRecord } from './records.ts';

const writersAtOnce = 5;

async function openStore(database: string, where: string, faults: string): Promise<Store> {
  if (database === 'sqlite') return openSqliteStore({ path: where, faults: parseFaults(faults) });
  throw new Error(`No database is called "${database}".`);
}

async function writeForEver(store: Store, teamId: SandboxRecord['teamId'], durability: Durability): Promise<never> {
  for (;;) {
    const record = sandboxRecord({ teamId });
    const work = async ({ sandboxes, events }: Tables) => {
      await sandboxes.insert(record);
      return events.append(eventRecord({ teamId, sandboxId: record.id }));
    };
    const event = await store.transact(work, { durability });
    writeSync(1, `${event.sequence} ${record.id}\n`);
  }
}

const [database = '', where = '', faults = '', durability = 'synced'] = process.argv.slice(2);
const store = await openStore(database, where, faults);
const { teamId } = sandboxRecord();
await Promise.all(Array.from({ length: writersAtOnce }, () => writeForEver(store, teamId, durability as Durability)));
