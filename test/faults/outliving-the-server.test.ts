/** Sandboxes and their deadlines while no server runs: killed, stopped, or never started again until it is over. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, vi } from 'vitest';
import { isPlatformError } from '../../src/protocol/index.ts';
import { agreed, briskSettings, groupsOf, impatient, patience, removeSandboxes } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let inside: Platform;
let apart: Platform;
beforeAll(async () => {
  inside = await Platform.start({ settings: briskSettings });
  apart = await Platform.start({ node: 'process', settings: briskSettings });
  // The first one waits for the template: no deadline of a test may pass meanwhile.
  for (const platform of [inside, apart]) await (await platform.client.sandboxes.create()).delete();
});
afterEach(async () => {
  await removeSandboxes(inside);
  await removeSandboxes(apart);
});
afterAll(async () => {
  await inside.close();
  await apart.close();
});

/** Processes of a sandbox, as the kernel counts them. */
async function processesOf(platform: Platform, id: string): Promise<number> {
  const groups = (await groupsOf(platform)).filter((path) => path.endsWith(id));
  const files = groups.flatMap((path) => ['', 'init', 'run'].map((name) => join(path, name, 'cgroup.procs')));
  const lists = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => '')));
  return new Set(lists.flatMap((list) => list.split('\n').filter((pid) => pid !== ''))).size;
}

test('K46: a server killed with -9 finds its sandboxes and what runs in them again', async () => {
  const boxes = await Promise.all([1, 2, 3].map((n) => inside.client.sandboxes.create({ name: `kept-${n}` })));
  const [first] = boxes;
  const lost = (await impatient(inside).sandboxes.connect(first!.id)).exec(
    'i=0; while :; do echo $i >> /root/log; i=$((i+1)); sleep 0.02; done',
  );
  const lines = async () => (await first!.exec('wc -l < /root/log')).stdout;
  await vi.waitFor(async () => expect(Number(await lines())).toBeGreaterThan(3), patience);
  inside.server.child.kill('SIGKILL');
  await expect(lost).rejects.toMatchObject({ code: 'outcome_unknown' });
  await inside.server.died;
  await inside.startServer();

  const { items } = await inside.client.sandboxes.list();
  const shown = items.map(({ id, state, reachable }) => ({ id, state, reachable }));
  expect(shown).toHaveLength(boxes.length);
  for (const { id } of boxes) expect(shown).toContainEqual({ id, state: 'running', reachable: true });
  const again = await inside.client.sandboxes.connect(first!.id);
  const before = Number((await again.exec('wc -l < /root/log')).stdout);
  await vi.waitFor(async () => {
    expect(Number((await again.exec('wc -l < /root/log')).stdout)).toBeGreaterThan(before);
  }, patience);
  const log = (await again.exec('cat /root/log')).stdout.trimEnd().split('\n');
  expect(log).toEqual(log.map((_, index) => String(index)));
  for (const { id } of boxes) {
    const box = await inside.client.sandboxes.connect(id);
    expect((await box.exec(['echo', 'usable'])).stdout).toBe('usable\n');
  }
});

test('K46: a graceful stop of server and node leaves sandboxes running', async () => {
  for (const platform of [inside, apart]) {
    const { id } = await platform.client.sandboxes.create({ metadata: { stays: 'yes' } });
    for (const daemon of [platform.server, platform.node]) {
      if (daemon === undefined) continue;
      daemon.child.kill('SIGTERM');
      await daemon.died;
      expect(daemon.child.exitCode).toBe(0);
    }
    expect(await processesOf(platform, id)).toBeGreaterThan(0);
    if (platform.node !== undefined) await platform.startNode();
    await platform.startServer();
    const box = await platform.client.sandboxes.connect(id);
    expect(box.view).toMatchObject({ state: 'running', generation: 1, metadata: { stays: 'yes' } });
    expect((await box.exec(['echo', 'usable'])).stdout).toBe('usable\n');
  }
});

test('K19: with no server and no node a sandbox ends on time, and is found expired', async () => {
  const endsOnTime = async (platform: Platform) => {
    const expiresInMs = 5_000;
    const { id, expiresAt } = await platform.client.sandboxes.create({ expiresInMs });
    const stays = await platform.client.sandboxes.create({ expiresInMs: 3600 * 1000 });
    await Promise.all([platform.killServer(), platform.killNode()]);
    expect(await processesOf(platform, id)).toBeGreaterThan(0);

    await vi.waitFor(async () => expect(await processesOf(platform, id)).toBe(0), patience);
    // Boot time is read in steps of 10 ms: that much earlier is still on time.
    expect(Date.now()).toBeGreaterThanOrEqual(expiresAt!.getTime() - 50);
    expect(await processesOf(platform, stays.id)).toBeGreaterThan(0);
    if (platform.node !== undefined) await platform.startNode();
    await platform.startServer();
    await vi.waitFor(async () => {
      expect(await platform.client.sandboxes.get(id)).toMatchObject({ state: 'stopped', reason: 'expired' });
    }, patience);
    expect(await platform.client.sandboxes.get(stays.id)).toMatchObject({ state: 'running' });
  };
  await Promise.all([inside, apart].map(endsOnTime));
});

test('K19: with the server stopped the node ends a sandbox on time, and the next server records it', async () => {
  const { id } = await apart.client.sandboxes.create({ expiresInMs: 1_500 });
  await apart.killServer();
  await vi.waitFor(async () => expect(await processesOf(apart, id)).toBe(0), patience);
  await apart.startServer();
  await vi.waitFor(async () => {
    expect(await apart.client.sandboxes.get(id)).toMatchObject({ state: 'stopped', reason: 'expired' });
  }, patience);
  const box = await apart.client.sandboxes.connect(id);
  await box.start();
  expect((await box.exec(['echo', 'again'])).stdout).toBe('again\n');
});

test('K20: extending just before the deadline wins or loses, never both', async () => {
  const hourMs = 3600 * 1000;
  const outcomes = await Promise.all(
    Array.from({ length: 12 }, async (_, index) => {
      const box = await apart.client.sandboxes.create({ expiresInMs: 1_000 });
      // Spread around the deadline, from before to after it.
      const extendAt = box.expiresAt!.getTime() - 60 + index * 10;
      await vi.waitFor(() => expect(Date.now()).toBeGreaterThanOrEqual(extendAt), { timeout: 30_000, interval: 1 });
      const isExtended = await box.extend(hourMs).then(
        () => true,
        (error: unknown) => {
          // Asked in the very moment of its end, init may take the question with it.
          if (!isPlatformError(error, 'sandbox_wrong_state', 'sandbox_unavailable', 'outcome_unknown')) throw error;
          return false;
        },
      );
      return { box, isExtended };
    }),
  );
  for (const { box, isExtended } of outcomes) {
    if (isExtended) {
      expect((await agreed(apart, box.id)).view.state).toBe('running');
      expect((await box.exec(['echo', 'alive'])).stdout).toBe('alive\n');
    } else {
      await vi.waitFor(async () => {
        expect(await apart.client.sandboxes.get(box.id)).toMatchObject({ state: 'stopped', reason: 'expired' });
      }, patience);
    }
  }
});
