/**
 * The server is ended with SIGKILL at each step that changes something of the network. When it is back, links, rules and tables are as the
 * records say, and with the last sandbox everything goes.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { NetworkRig, networkNeeds, patience, reach } from '../support/network-rig.ts';
import { testWith } from '../support/requires.ts';
import { TestWorld, world } from '../support/test-world.ts';

const test = testWith(...networkNeeds);
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
const bare = { links: ['lan', 'lo', 'wan'], tables: [], switches: [] };
let machine: TestWorld | undefined;
let rig: NetworkRig;

beforeAll(async () => {
  if (networkNeeds.every((need) => need.missing() === undefined)) machine = await TestWorld.open();
});
afterAll(async () => {
  await machine?.close();
});
beforeEach(async () => {
  rig = await NetworkRig.on(machine!);
});
afterEach(async () => {
  await rig.platform.close();
  expect(await rig.machine.census()).toEqual(bare);
});

/** Gives an order to a server that dies at `point`, and starts the server again. */
async function crashAt(
  point: string,
  order: (sandbox?: Sandbox) => Promise<unknown>,
  sandbox?: Sandbox,
): Promise<void> {
  await rig.platform.restartServer(`${point}=crash`);
  const again = sandbox && (await rig.platform.client.sandboxes.connect(sandbox.id));
  const [ordered] = await Promise.allSettled([order(again), rig.platform.server.died]);
  expect(ordered).toMatchObject({ status: 'rejected' });
  await rig.platform.startServer();
}

for (const point of [
  'node-router-before-link',
  'node-router-half-linked',
  'node-router-between-tables',
  'node-router-before-forwarding',
  'node-before-spawn',
  'node-after-spawn',
  'node-create-before-commit',
]) {
  test(`create, killed at ${point}: nothing of it is left on the machine, and the next one has its network`, async () => {
    const { platform } = rig;
    await crashAt(point, () =>
      platform.client.sandboxes.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } }),
    );
    await expect.poll(() => rig.machine.census(), patience).toEqual(bare);
    const sandbox = await platform.client.sandboxes.create();
    expect(await reach(sandbox, world.name)).toContain(world.web);
    expect(await reach(sandbox, world.otherWeb)).toContain(world.otherWeb);
  });
}

for (const point of [
  'node-network-before-attach',
  'node-network-after-attach',
  'node-settings-after-network',
  'node-settings-before-commit',
]) {
  test(`none becomes full, killed at ${point}: it has none, inside and outside`, async () => {
    const { platform } = rig;
    const sandbox = await rig.create({ network: { mode: 'none' } });
    await crashAt(point, (again) => again!.setNetwork({ mode: 'full' }), sandbox);
    const after = await platform.client.sandboxes.connect(sandbox.id);
    expect(after.network).toEqual({ mode: 'none' });
    expect(await reach(after, world.web)).toBeUndefined();
    await expect.poll(() => rig.machine.census(), patience).toEqual(bare);
    await after.setNetwork({ mode: 'full' });
    expect(await reach(after, world.web)).toContain(world.web);
  });
}

for (const point of ['node-network-after-detach', 'node-settings-after-network', 'node-settings-before-commit']) {
  test(`full becomes none, killed at ${point}: it has full again, with its rules`, async () => {
    const sandbox = await rig.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } });
    const bystander = await rig.create();
    await crashAt(point, (again) => again!.setNetwork({ mode: 'none' }), sandbox);
    const after = await rig.platform.client.sandboxes.connect(sandbox.id);
    expect(after.network).toMatchObject({ mode: 'full' });
    expect(await reach(after, world.name)).toContain(world.web);
    expect(await reach(after, world.otherWeb)).toBeUndefined();
    const other = await rig.platform.client.sandboxes.connect(bystander.id);
    expect(await reach(other, world.otherWeb)).toContain(world.otherWeb);
  });
}

test('a change killed before its answer has been made, in the record too', async () => {
  const sandbox = await rig.create();
  await crashAt(
    'node-settings-before-answer',
    (again) => again!.setNetwork({ mode: 'full', deny: [{ cidr: world.web }] }),
    sandbox,
  );
  const { client } = rig.platform;
  await expect
    .poll(async () => (await client.sandboxes.get(sandbox.id)).network, patience)
    .toMatchObject({ deny: [{ cidr: world.web }] });
  const after = await client.sandboxes.connect(sandbox.id);
  expect(await reach(after, world.web)).toBeUndefined();
  expect(await reach(after, world.otherWeb)).toContain(world.otherWeb);
});

test('a router that vanished while the server was dead is made anew, and running sandboxes hang on it again', async () => {
  const sandbox = await rig.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } });
  await rig.platform.killServer();
  const [uplink] = (await rig.machine.census()).links.filter((name) => name.startsWith('atoll'));
  await rig.machine.onHost('umount', `/run/netns/atoll-${uplink!.slice('atoll'.length)}`);
  await expect.poll(async () => (await rig.machine.census()).links, patience).toEqual(bare.links);
  await rig.platform.startServer();
  const after = await rig.platform.client.sandboxes.connect(sandbox.id);
  expect(await reach(after, world.name)).toContain(world.web);
  expect(await reach(after, world.otherWeb)).toBeUndefined();
});
