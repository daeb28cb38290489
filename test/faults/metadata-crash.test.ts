/** Metadata and deadline while server or node dies, is away or fails: record, node, list, get and the file inside tell the same. */
import { randomUUID } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import type { SandboxId } from '../../src/protocol/index.ts';
import {
  agreed,
  briskSettings,
  impatient,
  interrupted,
  patience,
  untilAnswered,
  withNode,
} from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const hourMs = 3600 * 1000;

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create({ metadata: { owner: 'somebody' } })).id;
});
afterAll(() => platform.close());

const sandboxNow = () => platform.client.sandboxes.connect(id);
const impatientSandbox = () => impatient(platform).sandboxes.connect(id);

test('K3: when a patch is answered, every side has it', async () => {
  const sandbox = await sandboxNow();
  for (let round = 1; round <= 5; round++) {
    const { version, metadata } = await sandbox.patchMetadata({ round: String(round) });
    const inside = await sandbox.exec(['cat', '/run/atoll/metadata.json']);
    expect(JSON.parse(inside.stdout)).toEqual({ version, metadata });
    const node = await withNode(platform, (api) => api.findSandbox(id as SandboxId));
    expect(node?.settings).toMatchObject({ metadata, metadataVersion: version });
    const [listed] = (await platform.client.sandboxes.list({ metadata: { round: String(round) } })).items;
    expect(listed).toMatchObject({ id, metadata, metadataVersion: version });
    expect(await platform.client.sandboxes.get(id)).toEqual(listed);
  }
});

test('K4: a patch while the node is away promises that nothing changed, keeps it, and works when it is back', async () => {
  const before = await agreed(platform, id);
  await platform.killNode();
  const refused = (await impatientSandbox()).patchMetadata({ away: 'yes' });
  await expect(refused).rejects.toMatchObject({ code: 'node_unavailable' });
  const shown = await platform.client.sandboxes.get(id);
  expect(shown.metadata).toEqual(before.view.metadata);

  await platform.startNode();
  const after = await agreed(platform, id);
  expect(after.view).toMatchObject({
    metadata: before.view.metadata,
    metadataVersion: before.view.metadataVersion,
  });
  await untilAnswered(async () => (await sandboxNow()).patchMetadata({ away: 'no' }));
  expect((await agreed(platform, id)).view.metadata).toMatchObject({ away: 'no' });
});

for (const point of ['node-settings-before-init', 'node-settings-after-settings', 'node-settings-after-metadata']) {
  test(`K4: a node that fails at "${point}": every side has the old values, and the patch works later`, async () => {
    const before = await agreed(platform, id);
    await platform.killNode();
    await platform.startNode(`${point}=error`);
    await untilAnswered(async () => (await sandboxNow()).exec(['true']));
    await expect((await impatientSandbox()).patchMetadata({ failing: 'yes' })).rejects.toThrow();
    await platform.killNode();
    await platform.startNode();

    const after = await agreed(platform, id);
    expect(after.view).toMatchObject({ metadata: before.view.metadata, metadataVersion: before.view.metadataVersion });
    await untilAnswered(async () => (await sandboxNow()).patchMetadata({ failing: 'no' }));
    expect((await agreed(platform, id)).view.metadata).toMatchObject({ failing: 'no' });
  });
}

for (const [point, wanted] of [
  ['node-settings-before-init', 'old'],
  ['node-settings-before-commit', 'old'],
  ['node-settings-after-settings', undefined],
  ['node-settings-after-metadata', undefined],
  ['node-settings-before-answer', 'new'],
] as const) {
  const which = wanted ?? 'old or the new';
  test(`K5: K49: a node killed at "${point}": nobody knows, and then every side has the ${which} map and deadline`, async () => {
    const before = await agreed(platform, id);
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    await untilAnswered(async () => (await sandboxNow()).exec(['true']));
    const update = (await impatientSandbox()).update({ metadata: { at: point, owner: null }, expiresInMs: hourMs });
    expect(await interrupted(platform.node!, update)).toEqual({ code: 'outcome_unknown' });
    await platform.startNode();

    const { view } = await agreed(platform, id);
    const isNew = view.metadata['at'] === point;
    if (wanted !== undefined) expect(isNew).toBe(wanted === 'new');
    expect({ hasOwner: view.metadata['owner'] !== undefined, hasDeadline: view.expiresAt !== null }).toEqual({
      hasOwner: !isNew,
      hasDeadline: isNew,
    });
    expect(view.metadataVersion).toBe(before.view.metadataVersion + (isNew ? 1 : 0));
    const back = await sandboxNow();
    await untilAnswered(() => back.update({ metadata: { at: null, owner: 'somebody' }, expiresInMs: null }));
    const { node } = await agreed(platform, id);
    expect(node.settings.expiresAtMs).toBeNull();
  });
}

for (const point of [
  'after-journal-operation',
  'before-apply-settings',
  'after-apply-settings',
  'after-apply-settings>store-before-commit',
  'after-apply-settings>store-after-commit',
  'before-store-answer',
  'after-store-answer',
]) {
  test(`K22: K49: a server killed at "${point}" of an update: the repeat makes it once, on every side`, async () => {
    const before = await agreed(platform, id);
    await platform.restartServer(`${point}=crash`);
    const key = randomUUID();
    const change = { metadata: { key }, expiresInMs: hourMs };
    const cutOff = await impatientSandbox();
    await interrupted(platform.server, cutOff.update(change, { idempotencyKey: key }));
    await platform.startServer();

    const sandbox = await sandboxNow();
    const { view } = await untilAnswered(() => sandbox.update(change, { idempotencyKey: key }));
    expect(view).toMatchObject({
      metadata: { ...before.view.metadata, key },
      metadataVersion: before.view.metadataVersion + 1,
    });
    expect((await agreed(platform, id)).view).toMatchObject({ metadata: view.metadata, expiresAt: view.expiresAt });
    const { items } = await sandbox.metadataHistory({ limit: 2 });
    expect(items.map(({ changes }) => changes['key'])).toEqual([key, before.view.metadata['key']]);
    await sandbox.extend(null);
  });
}

test('K5: K10: a patch without a key whose server died before the answer is there or not, on every side', async () => {
  for (const [point, wanted] of [
    ['before-apply-settings', undefined],
    ['after-apply-settings', 'yes'],
  ] as const) {
    await platform.restartServer(`${point}=crash`);
    await interrupted(platform.server, (await impatientSandbox()).patchMetadata({ [point]: 'yes' }));
    await platform.startServer();
    expect((await agreed(platform, id)).view.metadata[point]).toBe(wanted);
  }
});

test('K7: an older version that arrives late at the node changes nothing', async () => {
  const sandbox = await sandboxNow();
  const old = (await agreed(platform, id)).node;
  await sandbox.patchMetadata({ late: 'newer' });
  const { generation, version } = old;
  const late = { ...old.settings, metadata: { late: 'older' }, metadataVersion: old.settings.metadataVersion + 1 };
  for (const order of [
    { sandboxId: id as SandboxId, generation, version: version + 1, settings: late },
    { sandboxId: id as SandboxId, generation, version, settings: old.settings },
  ]) {
    await expect(withNode(platform, (api) => api.applySettings(order))).rejects.toMatchObject({
      code: 'version_mismatch',
    });
  }
  await platform.killNode();
  await platform.startNode();
  const again = withNode(platform, (api) =>
    api.applySettings({ sandboxId: id as SandboxId, generation, version: version + 1, settings: late }),
  );
  await expect(again).rejects.toMatchObject({ code: 'version_mismatch' });
  expect((await agreed(platform, id)).view.metadata).toMatchObject({ late: 'newer' });
});

test('K7: a patch that is slow at the node is not overtaken by the next, though its server died meanwhile', async () => {
  await platform.killNode();
  await platform.startNode('node-settings-before-init=delay:1500');
  const first = (await impatientSandbox()).patchMetadata({ order: 'first', first: 'yes' });
  const isSlow = async () => (await withNode(platform, (api) => api.findSandbox(id as SandboxId)))?.settings.metadata;
  await untilAnswered(async () => (await sandboxNow()).exec(['true']));
  expect((await isSlow())?.['order']).toBeUndefined();
  platform.server.child.kill('SIGKILL');
  await interrupted(platform.server, first);
  await platform.startServer();

  await untilAnswered(async () => (await sandboxNow()).patchMetadata({ order: 'second' }));
  expect((await agreed(platform, id)).view.metadata).toMatchObject({ order: 'second' });
  await platform.killNode();
  await platform.startNode();
  expect((await agreed(platform, id)).view.metadata).toMatchObject({ order: 'second' });
});

test('K10: server and node killed: the map and its version are those of the last patch that was answered', async () => {
  const sandbox = await sandboxNow();
  const { version, metadata } = await sandbox.patchMetadata({ last: 'one' });
  await Promise.all([platform.killServer(), platform.killNode()]);
  await platform.startNode();
  await platform.startServer();
  const { view } = await agreed(platform, id);
  expect(view).toMatchObject({ metadata, metadataVersion: version });
  const inside = await (await sandboxNow()).exec(['cat', '/run/atoll/metadata.json']);
  expect(JSON.parse(inside.stdout)).toEqual({ version, metadata });
});

test('K5: K10: a node that died between the two files of a patch shows the map of its record inside again', async () => {
  const { view } = await agreed(platform, id);
  await Promise.all([platform.killServer(), platform.killNode()]);
  const file = join(platform.nodeDirectory, 'sandboxes', id, 'shared', 'metadata.json');
  const left = { version: view.metadataVersion + 1, metadata: { ...view.metadata, half: 'made' } };
  expect(JSON.parse(await readFile(file, 'utf8'))).not.toEqual(left);
  await writeFile(file, JSON.stringify(left));
  await platform.startNode();
  await platform.startServer();
  expect((await agreed(platform, id)).view.metadata).toEqual(view.metadata);
});

test('K7: K10: K33: a loss of power that takes the node back to earlier settings: record, list and the next life have the last ones', async () => {
  const { client } = platform;
  const sandbox = await client.sandboxes.create({ metadata: { step: 'first' } });
  const directory = join(platform.nodeDirectory, 'sandboxes', sandbox.id);
  const slots = join(directory, 'settings');
  await sandbox.patchMetadata({ step: 'second' });
  const earlier = await readFile(slots);
  const lease = await client.leases.acquire({ resources: [sandbox.id], holder: 'somebody', ttlMs: hourMs });
  const leaseToken = lease.grants[0]!.token;
  const { metadata, version } = await sandbox.patchMetadata({ step: 'last' }, { leaseToken });
  const before = (await agreed(platform, sandbox.id)).node;
  await Promise.all([platform.killServer(), platform.killNode()]);
  await writeFile(slots, earlier);
  // The machine that it was started on is not the one that starts now.
  const record = join(directory, 'record.json');
  await writeFile(record, (await readFile(record, 'utf8')).replace(/"bootId":"[^"]+"/, '"bootId":"an earlier boot"'));
  await platform.startNode();
  // What the node was told, or was about to be told, before the power went.
  const { generation, settings } = before;
  for (const late of [before.version, before.version + 1]) {
    const order = { sandboxId: sandbox.id as SandboxId, generation, version: late, settings };
    const refused = withNode(platform, (api) => api.applySettings(order));
    await expect(refused).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  }
  await platform.startServer();

  const last = { metadata, metadataVersion: version };
  const viewOf = () => untilAnswered(() => platform.client.sandboxes.get(sandbox.id));
  await expect.poll(viewOf, patience).toMatchObject({ state: 'stopped', reason: 'machine_rebooted', ...last });
  const { items } = await platform.client.sandboxes.list({ metadata: { step: 'last' } });
  expect(items.map((item) => item.id)).toEqual([sandbox.id]);
  const again = await platform.client.sandboxes.connect(sandbox.id);
  const kept = await again.checkpoints.create({ leaseToken });
  expect(kept.metadata).toEqual(metadata);
  await expect(again.start({ leaseToken: leaseToken - 1 })).rejects.toMatchObject({ code: 'lease_lost' });
  await again.start({ leaseToken });
  const { view, node } = await agreed(platform, sandbox.id);
  expect(view).toMatchObject({ state: 'running', generation: generation + 1, metadata, metadataVersion: version });
  expect(node.settings).toMatchObject({ metadata, metadataVersion: version, leaseToken, leaseHeld: true });
  await platform.client.checkpoints.delete(kept.id);
  await again.delete({ force: true });
});
