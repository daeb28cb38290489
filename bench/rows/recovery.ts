/** After a kill -9: how long until a new server has every sandbox again, against the start of a server that has none. */
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxView } from '../../src/sdk/index.ts';
import type { Platform } from '../../test/support/platform.ts';
import { againstLimit, againstPeer, figure } from '../finding.ts';
import { HttpClient } from '../http-client.ts';
import type { Row } from '../row.ts';
import { addressOf, createMany, startPlatform } from '../start.ts';
import { median } from '../statistics.ts';

const count = 500;
const rounds = 3;
const limitSeconds = 2;
const pollMs = 5;
const patienceMs = 60_000;

interface Times {
  readonly readySeconds: number;
  readonly usableSeconds: number;
}

export const recoveryRow: Row = {
  name: 'recovery',
  run: async (scope) => {
    const full = await startPlatform(scope);
    const empty = await startPlatform(scope);
    const only = await empty.client.sandboxes.create();
    await createMany(full, count);
    const last = await full.client.sandboxes.create();
    const times = { full: [] as Times[], empty: [] as Times[] };
    for (let round = 0; round < rounds; round++) {
      times.full.push(await restart(full, { count: count + 1, lastId: last.id }));
      times.empty.push(await restart(empty, { count: 1, lastId: only.id }));
    }
    const usable = (list: readonly Times[]) => list.map(({ usableSeconds }) => usableSeconds);
    const ready = (list: readonly Times[]) => list.map(({ readySeconds }) => readySeconds);
    const ours = figure(`kill -9 with ${count} live sandboxes → all listed, exec in the last`, usable(times.full), 's');
    const extra = median(usable(times.full)) - median(usable(times.empty));
    return [
      againstLimit(
        ours,
        { atMost: limitSeconds },
        {
          notes: [`${((extra * 1_000) / count).toFixed(2)} ms per live sandbox beyond the start of the server itself.`],
        },
      ),
      againstLimit(figure(`the same → /readyz`, ready(times.full), 's'), { atMost: limitSeconds }),
      againstPeer(ours, figure('with one live sandbox', usable(times.empty), 's')),
    ];
  },
};

async function restart(
  platform: Platform,
  expected: { readonly count: number; readonly lastId: string },
): Promise<Times> {
  await platform.killServer();
  const startedAt = performance.now();
  const seconds = () => (performance.now() - startedAt) / 1_000;
  await platform.startServer();
  const http = new HttpClient(addressOf(platform));
  try {
    await until(() => http.send('GET', '/readyz'));
    const readySeconds = seconds();
    await until(async () => {
      const { items } = await http.json<{ items: SandboxView[] }>('GET', '/v1/sandboxes?limit=1000&state=running');
      const reachable = items.filter((item) => item.reachable);
      if (reachable.length !== expected.count) throw new Error(`${reachable.length} of ${expected.count} are there.`);
    });
    await until(async () => {
      const body = { command: ['true'] };
      const { exitCode } = await http.json<{ exitCode: number }>('POST', `/v1/sandboxes/${expected.lastId}/exec`, body);
      if (exitCode !== 0) throw new Error(`The command ended with ${exitCode}.`);
    });
    return { readySeconds, usableSeconds: seconds() };
  } finally {
    http.close();
  }
}

async function until(attempt: () => Promise<unknown>): Promise<void> {
  const endsAt = performance.now() + patienceMs;
  for (;;) {
    try {
      await attempt();
      return;
    } catch (error) {
      if (performance.now() > endsAt) throw error;
      await delay(pollMs);
    }
  }
}
