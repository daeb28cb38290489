/** Effects of an earlier life or an earlier lease are refused at the node itself, though control is never asked. */
import { afterAll, beforeAll, expect } from 'vitest';
import type { ExecOrder, NodeSandbox, SandboxId } from '../../src/protocol/index.ts';
import { agreed, briskSettings, withNode } from '../support/crashes.ts';
import { execOrder } from '../support/node-orders.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
});
afterAll(() => platform.close());

async function onNode(id: string): Promise<NodeSandbox> {
  const found = await withNode(platform, (node) => node.findSandbox(id as SandboxId));
  if (found === undefined) throw new Error(`The node does not have ${id}.`);
  return found;
}

async function restartNode(): Promise<void> {
  await platform.killNode();
  await platform.startNode();
}

test('K24: an effect meant for an earlier life is refused, by control and at the node, also after the node was killed', async () => {
  const earlier = await platform.client.sandboxes.create();
  const before = await onNode(earlier.id);
  const later = await platform.client.sandboxes.connect(earlier.id);
  await later.stop({ graceMs: 0 });
  await later.start();

  const stale = { code: 'stale_generation' };
  await expect(earlier.exec('touch /root/wrong')).rejects.toMatchObject(stale);
  await expect(earlier.patchMetadata({ wrong: 'yes' })).rejects.toMatchObject(stale);
  await expect(earlier.stop()).rejects.toMatchObject(stale);
  await expect(earlier.delete()).rejects.toMatchObject(stale);
  const old = { sandboxId: earlier.id as SandboxId, generation: 1 };
  const directly = async () =>
    await withNode(platform, async (node) => {
      await expect(node.exec(execOrder(before, { command: 'touch /root/wrong' }))).rejects.toMatchObject(stale);
      await expect(node.stopSandbox({ ...old, graceMs: 0 })).rejects.toMatchObject(stale);
      await expect(node.deleteSandbox(old)).rejects.toMatchObject(stale);
      const settings = { ...old, version: 1_000, settings: before.settings };
      await expect(node.applySettings(settings)).rejects.toMatchObject(stale);
      await expect(node.startSandbox(settings)).rejects.toMatchObject(stale);
      await expect(node.findRun({ ...old, runId: 'any' })).rejects.toMatchObject(stale);
    });
  await directly();
  await restartNode();
  await directly();
  expect((await later.exec('ls /root/wrong')).exitCode).toBe(2);
  expect((await agreed(platform, later.id)).view).toMatchObject({ state: 'running', generation: 2, metadata: {} });
});

test('K29: a holder that wakes up late is refused at the node, by token, also when server and node were killed since', async () => {
  const box = await platform.client.sandboxes.create();
  const acquire = (holder: string) =>
    platform.client.leases.acquire({ resources: [box.id], holder, ttlMs: 3600 * 1000 });
  const slow = await acquire('slow');
  const oldToken = slow.grants[0]!.token;
  await platform.client.leases.release(slow.id);
  const quick = await acquire('quick');
  const token = quick.grants[0]!.token;
  expect(token).toBe(oldToken + 1);

  const attempt = async (leaseToken: number | null, over: Partial<ExecOrder> = {}) => {
    const order = execOrder(await onNode(box.id), { command: 'echo x >> /root/effects', leaseToken, ...over });
    return await withNode(platform, (node) => node.exec(order));
  };
  const refusals = async () => {
    await expect(attempt(oldToken)).rejects.toMatchObject({ code: 'lease_lost' });
    await expect(attempt(null)).rejects.toMatchObject({ code: 'lease_held' });
    await expect(attempt(token + 1)).rejects.toMatchObject({ code: 'lease_lost' });
  };
  await refusals();
  await platform.killServer();
  await refusals();
  await restartNode();
  await refusals();
  expect((await attempt(token)).exitCode).toBe(0);
  await platform.startServer();
  const held = (await platform.client.sandboxes.connect(box.id)).withLeaseToken(token);
  expect((await held.exec('cat /root/effects')).stdout).toBe('x\n');
  const late = (await platform.client.sandboxes.connect(box.id)).withLeaseToken(oldToken);
  await expect(late.exec('echo y >> /root/effects')).rejects.toMatchObject({ code: 'lease_lost' });
});
