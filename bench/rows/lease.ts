/** How long a lease is nobody's: from the holder's release to the waiter's answer, against a plain request. */
import type { LeaseView } from '../../src/sdk/index.ts';
import { againstPeer, figure } from '../finding.ts';
import type { HttpClient } from '../http-client.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row } from '../row.ts';
import { openHttp, startPlatform } from '../start.ts';

const rounds = 150;
const waitMs = 30_000;

export const leaseRow: Row = {
  name: 'lease',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const http = openHttp(scope, platform);
    const { id } = await platform.client.sandboxes.create();
    const variants = {
      name: () => handOver(http, 'name:bench'),
      sandbox: () => handOver(http, id),
      get: () => timed(() => http.send('GET', `/v1/sandboxes/${id}`)),
    };
    const samples = await interleave(variants, { rounds, warmups: 10 });
    const get = figure('GET of a sandbox', samples.get);
    const whatItTakes =
      'The grant counts when the node has kept the token and init enforces it: a file, init and a synced commit come before the answer.';
    return [
      againstPeer(figure('lease hand-over, a name', samples.name), get, { atMost: 3 }),
      againstPeer(figure('lease hand-over, a sandbox', samples.sandbox), get, { atMost: 3, notes: [whatItTakes] }),
    ];
  },
};

async function handOver(http: HttpClient, resource: string): Promise<number> {
  const held = await acquire(http, resource);
  let answeredAt = 0;
  const waiter = acquire(http, resource).then((lease) => {
    answeredAt = performance.now();
    return lease;
  });
  await untilSomebodyWaits(http, resource);
  const releasedAt = performance.now();
  await Promise.all([http.send('DELETE', `/v1/leases/${held.id}`), waiter]);
  await http.send('DELETE', `/v1/leases/${(await waiter).id}`);
  return answeredAt - releasedAt;
}

function acquire(http: HttpClient, resource: string): Promise<LeaseView> {
  return http.json('POST', '/v1/leases', { resources: [resource], holder: 'bench', waitMs });
}

async function untilSomebodyWaits(http: HttpClient, resource: string): Promise<void> {
  const path = `/v1/leases?resource=${encodeURIComponent(resource)}`;
  for (;;) {
    const { items } = await http.json<{ items: { waiting: number }[] }>('GET', path);
    if ((items[0]?.waiting ?? 0) > 0) return;
  }
}
