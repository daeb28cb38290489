/** A node is ended with SIGKILL at each of its durable steps. What it finds when it starts again is before or after, never between. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import type { LifeOrder, NodeSandbox } from '../../src/protocol/index.ts';
import { type NodeProcessUnderTest, openNodeProcess } from '../support/node-harness.ts';
import { findLeftovers, nothingLeft } from '../support/node-leftovers.ts';
import { createOrder, plainSettings, run } from '../support/node-orders.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.linux, requires.root, requires.cgroups);
let harness: NodeProcessUnderTest;

beforeEach(async () => {
  harness = await openNodeProcess();
});
afterEach(async () => {
  await harness.close();
});

const lifeOf = ({ mark, generation }: NodeSandbox): LifeOrder => ({ sandboxId: mark.sandboxId, generation });

/** Gives an order to a node that dies at `point`, and starts the node again. */
async function crashAt(point: string, order: () => Promise<unknown>): Promise<void> {
  await harness.restartWith(`${point}=crash`);
  await expect(order()).rejects.toMatchObject({ code: 'outcome_unknown' });
  await harness.died;
  await harness.restart();
}

for (const point of ['node-before-spawn', 'node-after-spawn', 'node-create-before-commit']) {
  test(`create, killed at ${point}: nothing is left, and the order can be given again`, async () => {
    const order = createOrder();
    await crashAt(point, () => harness.node.createSandbox(order));
    expect(await harness.node.findSandbox(order.sandboxId)).toBeUndefined();
    await expect.poll(() => findLeftovers(harness.dataDirectory)).toEqual(nothingLeft);
    const sandbox = await harness.node.createSandbox(order);
    expect((await run(harness.node, sandbox, ['true'])).exitCode).toBe(0);
  });
}

test('create, killed before the answer: the sandbox is there, whole', async () => {
  const order = createOrder({ settings: { metadata: { a: '1' } } });
  await crashAt('node-create-before-answer', () => harness.node.createSandbox(order));
  const sandbox = await harness.node.createSandbox(order);
  expect(sandbox.life).toEqual({ kind: 'running' });
  expect((await run(harness.node, sandbox, ['cat', '/run/atoll/metadata.json'])).stdout).toContain('"a":"1"');
});

for (const [point, begun] of [
  ['node-before-spawn', false],
  ['node-after-spawn', false],
  ['node-start-before-answer', true],
] as const) {
  test(`start, killed at ${point}: the new life has ${begun ? '' : 'not '}begun, and the order can be given again`, async () => {
    const first = await harness.node.createSandbox(createOrder());
    await harness.node.stopSandbox({ ...lifeOf(first), graceMs: 0 });
    const order = { ...lifeOf(first), generation: 2, version: 2, settings: plainSettings };
    await crashAt(point, () => harness.node.startSandbox(order));
    const found = await harness.node.findSandbox(first.mark.sandboxId);
    expect(found).toMatchObject({ generation: begun ? 2 : 1, life: { kind: begun ? 'running' : 'ended' } });
    if (!begun) expect((await findLeftovers(harness.dataDirectory)).processes).toEqual([]);
    const second = await harness.node.startSandbox(order);
    expect((await run(harness.node, second, ['true'])).exitCode).toBe(0);
  });
}

for (const point of ['node-end-before-record', 'node-end-after-record']) {
  test(`stop, killed at ${point}: it has ended as requested`, async () => {
    const sandbox = await harness.node.createSandbox(createOrder());
    const order = { ...lifeOf(sandbox), graceMs: 100 };
    await crashAt(point, () => harness.node.stopSandbox(order));
    const ended = await harness.node.stopSandbox(order);
    expect(ended.life).toMatchObject({ kind: 'ended', reason: 'requested' });
    expect((await findLeftovers(harness.dataDirectory)).processes).toEqual([]);
  });
}

for (const point of ['node-delete-before-trash', 'node-delete-after-trash']) {
  test(`delete, killed at ${point}: repeated, it leaves nothing`, async () => {
    const sandbox = await harness.node.createSandbox(createOrder());
    await run(harness.node, sandbox, 'mkdir -p /workspace/a/b; touch /workspace/a/b/c');
    await crashAt(point, () => harness.node.deleteSandbox(lifeOf(sandbox)));
    await harness.node.deleteSandbox(lifeOf(sandbox));
    await expect.poll(() => findLeftovers(harness.dataDirectory), { timeout: 30_000 }).toEqual(nothingLeft);
  });
}

for (const [point, applied] of [
  ['node-settings-before-init', false],
  ['node-settings-before-commit', false],
  ['node-settings-after-settings', undefined],
  ['node-settings-after-metadata', undefined],
  ['node-settings-before-answer', true],
] as const) {
  const how = applied === undefined ? 'applied or as before' : applied ? 'applied' : 'as before';
  test(`settings, killed at ${point}: all of them are ${how}, and the order can be given again`, async () => {
    const before = { metadata: { a: 'old' }, metadataVersion: 1, leaseToken: 1, leaseHeld: true };
    const sandbox = await harness.node.createSandbox(createOrder({ settings: before }));
    const settings = { ...plainSettings, metadata: { a: 'new' }, metadataVersion: 2, leaseToken: 2, leaseHeld: true };
    const order = { ...lifeOf(sandbox), version: 2, settings };
    await crashAt(point, () => harness.node.applySettings(order));

    const found = await harness.node.findSandbox(sandbox.mark.sandboxId);
    if (applied !== undefined) expect(found?.version).toBe(applied ? 2 : 1);
    expect(found?.settings.metadata).toEqual({ a: found?.version === 2 ? 'new' : 'old' });

    await harness.node.applySettings(order);
    const withToken = { leaseToken: 2 };
    const seen = await run(harness.node, sandbox, ['cat', '/run/atoll/metadata.json'], withToken);
    expect(JSON.parse(seen.stdout)).toEqual({ version: 2, metadata: { a: 'new' } });
    const stale = run(harness.node, sandbox, 'true', { leaseToken: 1 });
    await expect(stale).rejects.toMatchObject({ code: 'lease_lost' });
    expect(await readdir(join(harness.dataDirectory, 'sandboxes', sandbox.mark.sandboxId))).not.toContain(
      '.record.json.tmp',
    );
  });
}

test('K10: whatever is killed after whichever of many settings, large or small: the last that were answered are there', async () => {
  const sandbox = await harness.node.createSandbox(createOrder());
  // One that is larger than a slot lies in the record itself; what comes after it counts again.
  for (const [index, length] of [10, 20, 12_000, 10, 3_000, 5_000, 4_000, 30].entries()) {
    const version = 2 + index * 2;
    const settings = { ...plainSettings, metadata: { text: 'x'.repeat(length) }, metadataVersion: version };
    await harness.node.applySettings({ ...lifeOf(sandbox), version, settings });
    await harness.restart();
    expect(await harness.node.findSandbox(sandbox.mark.sandboxId)).toMatchObject({ version, settings });
    const seen = await run(harness.node, sandbox, ['cat', '/run/atoll/metadata.json']);
    expect(JSON.parse(seen.stdout)).toEqual({ version, metadata: settings.metadata });
  }
});

test('K10: K24: settings of an earlier life are not taken for those of the next', async () => {
  const first = await harness.node.createSandbox(createOrder());
  const earlier = { ...plainSettings, metadata: { life: 'first' }, metadataVersion: 9, leaseToken: 3 };
  await harness.node.applySettings({ ...lifeOf(first), version: 9, settings: earlier });
  await harness.node.stopSandbox({ ...lifeOf(first), graceMs: 0 });
  await harness.restart();
  expect(await harness.node.findSandbox(first.mark.sandboxId)).toMatchObject({ version: 9, settings: earlier });

  const settings = { ...earlier, metadata: { life: 'second' }, metadataVersion: 10 };
  await harness.node.startSandbox({ ...lifeOf(first), generation: 2, version: 10, settings });
  await harness.restart();
  const found = await harness.node.findSandbox(first.mark.sandboxId);
  expect(found).toMatchObject({ generation: 2, version: 10, settings, life: { kind: 'running' } });
});
