/** A node that is away, comes back with less than it had, or is too slow: unknown is never taken for gone, and nothing stays in between. */

import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, vi } from 'vitest';
import {
  agreed,
  expectOnly,
  groupsOf,
  impatient,
  interrupted,
  patience,
  removeSandboxes,
  untilAnswered,
} from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  const settings = { reconcileIntervalMs: 200, transitionMs: 1_000, youngMs: 0 };
  platform = await Platform.start({ node: 'process', settings });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

const viewOf = (id: string) => platform.client.sandboxes.get(id);
const becomes = (id: string, wanted: object) =>
  vi.waitFor(async () => expect(await viewOf(id)).toMatchObject(wanted), patience);

/** Ends every process of a sandbox, as the kernel's killer of memory hogs would. */
async function killProcesses(id: string): Promise<void> {
  for (const group of await groupsOf(platform)) {
    const file = join(group, 'cgroup.kill');
    if (group.endsWith(id) && existsSync(file)) await writeFile(file, '1');
  }
}

test('K45: while a node is away its sandboxes are unknown, never gone, also for a server that starts meanwhile', async () => {
  const { id } = await platform.client.sandboxes.create({ metadata: { kept: 'yes' } });
  await platform.killNode();
  const away = { state: 'running', reachable: false, metadata: { kept: 'yes' } };
  await becomes(id, away);
  await platform.restartServer();
  await becomes(id, away);
  const { unreachable, actions } = await platform.client.reconcile();
  expect(unreachable).toHaveLength(1);
  expect(actions).toEqual([]);
  const exec = (await impatient(platform).sandboxes.connect(id)).exec(['true']);
  await expect(exec).rejects.toMatchObject({ code: 'node_unavailable' });

  await platform.startNode();
  await becomes(id, { state: 'running', reachable: true });
  expect((await agreed(platform, id)).view.generation).toBe(1);
});

test('K45: what a node lost while it was away is stopped with the reason, and its files start again', async () => {
  const box = await platform.client.sandboxes.create();
  await box.exec('echo kept > /root/file');
  await platform.killNode();
  await killProcesses(box.id);
  await platform.startNode();
  await becomes(box.id, { state: 'stopped', reason: 'crashed' });
  await box.start();
  expect((await box.exec('cat /root/file')).stdout).toBe('kept\n');
});

test('K45: a record whose sandbox is no longer on its node becomes stopped as lost', async () => {
  const box = await platform.client.sandboxes.create();
  await platform.killNode();
  await killProcesses(box.id);
  await vi.waitFor(
    () => rm(join(platform.nodeDirectory, 'sandboxes', box.id), { recursive: true, force: true }),
    patience,
  );
  await platform.startNode();
  await becomes(box.id, { state: 'stopped', reason: 'lost' });
  await expect(box.start()).rejects.toMatchObject({ code: 'sandbox_not_found' });
  await box.delete();
  await expectOnly(platform, []);
});

test('K17: delete on a node that is away succeeds, and is carried out when it is back', async () => {
  const box = await platform.client.sandboxes.create({ name: 'unwanted' });
  const stopped = await platform.client.sandboxes.create();
  await stopped.stop({ graceMs: 0 });
  await platform.killNode();
  await box.delete();
  await stopped.delete();
  await box.delete();
  expect((await platform.client.sandboxes.list({ state: ['running', 'stopped'] })).items).toEqual([]);
  await platform.restartServer();
  await platform.startNode();
  await expectOnly(platform, []);
});

test('K4: K18: a stop while the node is away is refused and changes nothing', async () => {
  const box = await platform.client.sandboxes.create();
  await platform.killNode();
  const refused = (await impatient(platform).sandboxes.connect(box.id)).stop();
  await expect(refused).rejects.toMatchObject({ code: 'node_unavailable' });
  await platform.startNode();
  await becomes(box.id, { state: 'running', reachable: true });
  expect((await agreed(platform, box.id)).view.state).toBe('running');
});

test('K4: K24: a start while the node is away is refused, and the same handle starts it when the node is back', async () => {
  const box = await platform.client.sandboxes.create();
  await box.stop({ graceMs: 0 });
  await platform.killNode();
  const handle = await impatient(platform).sandboxes.connect(box.id);
  await expect(handle.start()).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await viewOf(box.id)).toMatchObject({ state: 'stopped', generation: 1 });
  await platform.startNode();
  await untilAnswered(() => handle.start());
  expect(handle.generation).toBe(2);
  expect((await handle.exec(['echo', 'usable'])).stdout).toBe('usable\n');
});

test('K18: a create that nobody finishes fails at its deadline with the reason, and nothing is left on the node', async () => {
  await platform.restartServer('after-store-creating=crash');
  await interrupted(platform.server, impatient(platform).sandboxes.create({ name: 'half-made' }));
  await platform.startServer();
  const [found] = (await platform.client.sandboxes.list({ namePrefix: 'half-made' })).items;
  await becomes(found!.id, { state: 'failed', reason: expect.stringContaining('not made in time') });
  await (await platform.client.sandboxes.connect(found!.id)).delete();
  await expectOnly(platform, []);
});

test('K18: a start that comes too late is over at its deadline, on both sides, and the next one works', async () => {
  const box = await platform.client.sandboxes.create();
  await box.stop({ graceMs: 0 });
  await platform.killNode();
  await platform.startNode('node-before-spawn=delay:4000');
  await vi.waitFor(async () => expect((await viewOf(box.id)).reachable).toBe(true), patience);
  const late = (await impatient(platform).sandboxes.connect(box.id)).start();
  await becomes(box.id, { state: 'starting' });
  // The record says so before the node hears of it; it makes groups first.
  const isBegun = async () => expect((await groupsOf(platform)).some((group) => group.endsWith(box.id))).toBe(true);
  await vi.waitFor(isBegun, patience);
  platform.server.child.kill('SIGKILL');
  await interrupted(platform.server, late);
  await platform.startServer();

  await becomes(box.id, { state: 'stopped' });
  // The node is still at it; when it is through, both sides tell the same.
  const { view } = await agreed(platform, box.id);
  expect(view.state).toBe('stopped');
  await platform.killNode();
  await platform.startNode();
  const again = await platform.client.sandboxes.connect(box.id);
  await vi.waitFor(() => again.start(), patience);
  expect((await again.exec(['echo', 'usable'])).stdout).toBe('usable\n');
});

test('K18: a stop that was begun is finished by the next server', async () => {
  const { id } = await platform.client.sandboxes.create();
  await platform.restartServer('after-store-stopping=crash');
  await interrupted(platform.server, (await impatient(platform).sandboxes.connect(id)).stop());
  await platform.startServer();
  await becomes(id, { state: 'stopped', reason: 'requested' });
  expect((await agreed(platform, id)).view.state).toBe('stopped');
});
