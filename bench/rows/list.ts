/** Lists in a team with a thousand sandboxes. The records are put into the store directly: none of them has to run. */
import { join } from 'node:path';
import { newId, type SandboxId } from '../../src/protocol/index.ts';
import { openSqliteStore, type SandboxRecord } from '../../src/store/index.ts';
import type { Platform } from '../../test/support/platform.ts';
import { againstLimit, againstPeer, figure } from '../finding.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row } from '../row.ts';
import { openHttp, startPlatform } from '../start.ts';

const count = 1_000;
const projects = 10;
const rounds = 100;
const limitMs = 15;

export const listRow: Row = {
  name: 'list',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    await seed(platform);
    const http = openHttp(scope, platform);
    const list = (query: string, expected: number) => () =>
      timed(async () => {
        const { items } = await http.json<{ items: unknown[] }>('GET', `/v1/sandboxes?limit=1000&${query}`);
        if (items.length !== expected) throw new Error(`The list has ${items.length} entries, not ${expected}.`);
      });
    const variants = {
      some: list('metadata=project%3Dp3', count / projects),
      all: list('state=stopped', count),
      me: () => timed(() => http.send('GET', '/v1/me')),
    };
    const samples = await interleave(variants, { rounds, warmups: 10 });
    const some = figure(`list, a metadata filter: ${count / projects} of ${count}`, samples.some);
    const all = figure(`list, a state filter: ${count} of ${count} in one page`, samples.all);
    return [
      againstLimit(some, { atMost: limitMs }),
      againstLimit(all, { atMost: limitMs }),
      againstPeer(some, figure('GET of /v1/me', samples.me)),
    ];
  },
};

/** While the server is down, because the store belongs to one process. */
async function seed(platform: Platform): Promise<void> {
  const model = await platform.client.sandboxes.create();
  await platform.killServer();
  const store = await openSqliteStore({ path: join(platform.dataDirectory, 'server', 'atoll.db') });
  try {
    const record = await store.read((tables) => tables.sandboxes.find(model.id as SandboxId));
    await store.transact(async ({ sandboxes }) => {
      for (let index = 0; index < count; index++) await sandboxes.insert(stoppedLike(record!, index));
    });
  } finally {
    await store.close();
  }
  await platform.startServer();
}

function stoppedLike(record: SandboxRecord, index: number): SandboxRecord {
  return {
    ...record,
    id: newId('sandbox'),
    name: `agent-${index}`,
    state: { kind: 'stopped', reason: 'requested', atMs: record.updatedAtMs },
    metadata: { project: `p${index % projects}`, owner: `agent-${index}`, purpose: 'a record of the usual size' },
    createdAtMs: record.createdAtMs + index,
  };
}
