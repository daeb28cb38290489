import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import { fullNetwork, metadataLimits, networkPolicy, newId, routes, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open({ settings: { historyKept: 5 } });
});
afterEach(() => rig.close());

/** Everywhere that shows the metadata of a sandbox. */
async function everywhere(id: SandboxId) {
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 10 });
  const view = await rig.get(id);
  const own = await rig.control.metadata.get(rig.caller, id);
  const node = rig.node.sandboxes.get(id)!.settings;
  return {
    list: [items[0]!.metadata, items[0]!.metadataVersion],
    get: [view.metadata, view.metadataVersion],
    own: [own.metadata, own.version],
    node: [node.metadata, node.metadataVersion],
  };
}

function allShow(metadata: Record<string, string>, version: number) {
  const one = [metadata, version];
  return { list: one, get: one, own: one, node: one };
}

const history = (id: SandboxId, query = {}) => rig.control.metadata.history(rig.caller, id, { limit: 100, ...query });

test('K1: a patch merges, null and "" remove, absent keys stay, and the answer is the whole map', async () => {
  const { id } = await rig.create({ metadata: { a: '1', b: '2', c: '3' } });
  const answer = await rig.patch(id, { a: null, b: '', d: '4' });
  expect(answer).toEqual({ metadata: { c: '3', d: '4' }, version: 2 });
});

test('K1: a patch that changes nothing changes no version either, and the node is not asked', async () => {
  const { id, version } = await rig.create({ metadata: { a: '1' } });
  for (const patch of [{}, { a: '1' }, { b: null }, { b: '' }]) {
    expect(await rig.patch(id, patch)).toEqual({ metadata: { a: '1' }, version: 1 });
  }
  expect((await rig.get(id)).version).toBe(version);
  expect(rig.node.calls).not.toContain('applySettings');
});

test('K1: the version is its own: extending a deadline does not change it', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const view = await rig.control.sandboxes.update(rig.caller, id, {}, { expiresInMs: 60_000 });
  expect(view).toMatchObject({ metadataVersion: 1, version: 3 });
  expect(view.expiresAt).toBe(new Date(rig.clock.nowMs() + 60_000).toISOString());
});

test('K1: keys of every kind are data like any other', async () => {
  const { id } = await rig.create();
  const patch = JSON.parse('{"__proto__":"x","constructor":"y"}') as Record<string, string>;
  const { metadata } = await rig.patch(id, patch);
  expect(Object.entries(metadata)).toEqual([
    ['__proto__', 'x'],
    ['constructor', 'y'],
  ]);
});

test('K2: a patch is refused outside running, with the state named, and of an unknown sandbox', async () => {
  const gate = rig.node.hold('createSandbox');
  const creating = rig.create();
  await gate.reached;
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 1 });
  const early = rig.patch(items[0]!.id, { a: '1' });
  gate.open();
  // It waited in the lane for the end of the create, and then it was running.
  expect(await early).toMatchObject({ metadata: { a: '1' } });
  const { id } = await creating;
  await rig.stop(id);
  await expect(rig.patch(id, { a: '2' })).rejects.toMatchObject({
    code: 'sandbox_wrong_state',
    details: { state: 'stopped' },
  });
  rig.node.isAway = true;
  await rig.delete(id);
  await expect(rig.patch(id, { a: '2' })).rejects.toMatchObject({
    code: 'sandbox_wrong_state',
    details: { state: 'deleting' },
  });
  await expect(rig.patch(newId('sandbox'), { a: '1' })).rejects.toMatchObject({ code: 'sandbox_not_found' });
});

test('K2: a sandbox left in a transition refuses a patch with that state', async () => {
  const { id } = await rig.create();
  rig.node.fail('stopSandbox', { when: 'before', error: lostAnswer() });
  await expect(rig.stop(id)).rejects.toMatchObject({ code: 'outcome_unknown' });
  rig.node.fail('stopSandbox', { when: 'before', error: lostAnswer() });
  await expect(rig.patch(id, { a: '1' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.stop(id);
  const restarting = rig.start(id);
  await expect(rig.patch(id, { a: '1' })).resolves.toBeDefined();
  await restarting;

  await rig.stop(id);
  rig.node.fail('startSandbox', { when: 'before', error: lostAnswer() });
  await expect(rig.start(id)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(rig.patch(id, { a: '1' })).rejects.toMatchObject({
    code: 'sandbox_wrong_state',
    details: { state: 'starting' },
  });
});

test('K2: what is no flat map of strings is refused with the offending key, and each limit by its name', async () => {
  const { body } = routes.patchMetadata;
  for (const [key, value] of [
    ['number', 1],
    ['nested', { a: 'b' }],
    ['list', ['a']],
    ['long', 'x'.repeat(metadataLimits.valueLength + 1)],
  ] as const) {
    expect(body.safeParse({ [key]: value }).error?.issues[0]?.path).toEqual([key]);
  }
  expect(body.safeParse({ ['k'.repeat(metadataLimits.keyLength + 1)]: 'v' }).success).toBe(false);

  const { id } = await rig.create();
  const many = Object.fromEntries(Array.from({ length: metadataLimits.keys + 1 }, (_, i) => [`k${i}`, 'v']));
  await expect(rig.patch(id, many)).rejects.toMatchObject({ code: 'invalid_request', details: { limit: 'keys' } });
  const large = Object.fromEntries(
    Array.from({ length: 9 }, (_, i) => [`k${i}`, 'v'.repeat(metadataLimits.valueLength)]),
  );
  await expect(rig.patch(id, large)).rejects.toMatchObject({
    code: 'invalid_request',
    details: { limit: 'totalBytes', maximum: metadataLimits.totalBytes },
  });
  expect(await everywhere(id)).toEqual(allShow({}, 1));
});

test('K3: when a patch is answered, record, node, list and get show it', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  await rig.patch(id, { b: '2' });
  expect(await everywhere(id)).toEqual(allShow({ a: '1', b: '2' }, 2));
});

test('K3: nobody reads a new value before the node has it', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const gate = rig.node.hold('applySettings');
  const patching = rig.patch(id, { a: '2' });
  await gate.reached;
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 1));
  gate.open();
  await patching;
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
});

test('K4: a node that fails during a patch leaves the old values everywhere, and the same patch then works', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  await expect(rig.patch(id, { a: '2' })).rejects.toMatchObject({ code: 'node_unavailable', retry: 'backoff' });
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 1));
  rig.node.isAway = true;
  await expect(rig.patch(id, { a: '2' })).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 1));
  rig.node.isAway = false;
  await rig.patch(id, { a: '2' });
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
});

test.each([
  ['before', { a: '1' }, 1],
  ['after', { a: '2' }, 2],
] as const)(
  'K5: an answer lost %s the effect is outcome_unknown, and one reconcile later both sides agree',
  async (when, map, version) => {
    const { id } = await rig.create({ metadata: { a: '1' } });
    rig.node.fail('applySettings', { when, error: lostAnswer() });
    await expect(rig.patch(id, { a: '2' })).rejects.toMatchObject({ code: 'outcome_unknown' });
    await rig.reconcile();
    expect(await everywhere(id)).toEqual(allShow(map, version));
    expect((await history(id)).items.map((item) => item.version)).toEqual(version === 1 ? [1] : [2, 1]);
  },
);

test('K5: a store that fails after the node has applied leaves no mixture', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const gate = rig.faults.hold('after-apply-settings');
  const patching = rig.patch(id, { a: '2' });
  await gate.reached;
  // Somebody else has the record's next version: the commit does not fit.
  await rig.store.transact(async (tables) => {
    const record = await tables.sandboxes.find(id);
    await tables.sandboxes.update({ ...record!, version: record!.version + 1 });
  });
  gate.open();
  await expect(patching).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.patch(id, { b: '1' });
  const shown = await everywhere(id);
  expect(shown.node).toEqual(shown.get);
});

test('K6: patches of different keys at once are all there, with versions without a gap, in one order on both sides', async () => {
  await rig.close();
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const count = Math.min(100, metadataLimits.keys);
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => rig.patch(id, { [`k${i % count}`]: `${i}` })),
  );
  const versions = answers.map((answer) => answer.version).sort((a, b) => a - b);
  expect(versions).toEqual(Array.from({ length: 100 }, (_, i) => i + 2));
  const shown = await everywhere(id);
  expect(Object.keys(shown.get[0]!)).toHaveLength(count);
  expect(shown.node).toEqual(shown.get);

  const inRecord = (await history(id)).items.reverse();
  expect(inRecord.map((item) => item.version)).toEqual(versions);
  expect(rig.node.applied.map((order) => order.settings.metadataVersion)).toEqual(versions);
  for (const [index, { settings }] of rig.node.applied.entries()) {
    expect(settings.metadata).toMatchObject(inRecord[index]!.changes);
    expect(settings.change.operationId).toBe(inRecord[index]!.operationId);
  }
});

test('K7: a patch that arrives after the sandbox was settled does not change the node any more', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const late = rig.node.loseInFlight('applySettings');
  await expect(rig.patch(id, { a: 'late' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.reconcile();
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 1));
  await late.arrive();
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 1));
});

test('K7: a patch of an earlier run that arrives after a newer one does not change the node', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const late = rig.node.holdNext('applySettings');
  void rig.patch(id, { a: 'late' });
  await late.reached;
  await rig.restart();
  await rig.patch(id, { a: '2' });
  late.open();
  await rig.reconcile();
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
});

test('K8: a stale version is refused with the current one, and nothing is changed', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  await rig.patch(id, { a: '2' }, { expectedVersion: 1 });
  await expect(rig.patch(id, { a: '3' }, { expectedVersion: 1 })).rejects.toMatchObject({
    code: 'version_mismatch',
    status: 412,
    details: { version: 2 },
  });
  const update = (conditions: object, body: object) => rig.control.sandboxes.update(rig.caller, id, conditions, body);
  await expect(update({ expectedVersion: 1 }, { metadata: { a: '3' } })).rejects.toMatchObject({
    code: 'version_mismatch',
  });
  await expect(update({}, { metadata: { a: '3' }, expectMetadata: { a: '1' } })).rejects.toMatchObject({
    code: 'version_mismatch',
    details: { key: 'a', value: '2' },
  });
  await expect(update({}, { metadata: { b: '3' }, expectMetadata: { a: null } })).rejects.toMatchObject({
    code: 'version_mismatch',
  });
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
  await update({}, { metadata: { b: '1' }, expectMetadata: { a: '2', b: null } });
  expect(await everywhere(id)).toEqual(allShow({ a: '2', b: '1' }, 3));
});

test('K8: of two with the same expected version at once, one is done and one refused', async () => {
  const { id } = await rig.create();
  const both = await Promise.allSettled([
    rig.patch(id, { a: '1' }, { expectedVersion: 1 }),
    rig.patch(id, { a: '2' }, { expectedVersion: 1 }),
  ]);
  expect(both.map((one) => one.status)).toEqual(['fulfilled', 'rejected']);
  expect(await everywhere(id)).toEqual(allShow({ a: '1' }, 2));
});

test('K10: after a restart, and after stop and start, the map and its version are those of the last answer', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  await rig.patch(id, { a: '2' });
  await rig.restart();
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
  await rig.stop(id);
  await rig.start(id);
  expect(await everywhere(id)).toEqual(allShow({ a: '2' }, 2));
});

test('K10: a crash between node and record is settled for the node before anybody else changes it', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const gate = rig.faults.hold('after-apply-settings');
  void rig.patch(id, { a: '2' });
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
  await rig.patch(id, { b: '1' });
  expect(await everywhere(id)).toEqual(allShow({ a: '2', b: '1' }, 3));
  expect((await history(id)).items.map((item) => item.changes)).toEqual([{ b: '1' }, { a: '2' }, { a: '1' }]);
});

test('K12: the history tells who, when and what, is bounded, and says so', async () => {
  const { id } = await rig.create({ metadata: { a: '0' } });
  for (let index = 1; index <= 8; index++) {
    rig.clock.step(1_000);
    await rig.patch(id, { a: `${index}` });
  }
  const { items, kept, nextCursor } = await history(id);
  expect(kept).toBe(5);
  expect(nextCursor).toBeNull();
  expect(items.map((item) => [item.version, item.changes])).toEqual(
    [8, 7, 6, 5, 4].map((value) => [value + 1, { a: `${value}` }]),
  );
  expect(items[0]).toMatchObject({
    by: rig.caller.keyId,
    at: new Date(rig.clock.nowMs()).toISOString(),
    operationId: expect.stringMatching(/^opr/),
  });
  const first = await history(id, { limit: 2 });
  const second = await history(id, { limit: 2, cursor: first.nextCursor });
  expect([...first.items, ...second.items].map((item) => item.version)).toEqual([9, 8, 7, 6]);
  await expect(history(id, { cursor: 'x' })).rejects.toMatchObject({ code: 'invalid_request' });
});

test('K13: list filters, events and webhooks carry the live map, never the one of creation time', async () => {
  const hook = { url: 'https://example.com/hook', kinds: [] };
  await rig.control.webhooks.create(rig.caller, {}, hook);
  const { id } = await rig.create({ metadata: { a: 'old' } });
  await rig.patch(id, { a: 'new' });
  const list = async (pair: string) =>
    (await rig.control.sandboxes.list(rig.caller, { limit: 10, metadata: [pair] })).items.length;
  expect([await list('a=old'), await list('a=new')]).toEqual([0, 1]);
  await rig.stop(id);
  await rig.start(id);
  const [created, ...later] = await rig.events('sandbox.');
  expect(created!.data['metadata']).toEqual({ a: 'old' });
  expect(later.map((event) => event.data['metadata'])).toEqual(later.map(() => ({ a: 'new' })));
  await rig.control.webhooks.tick(new AbortController().signal);
  const bodies = rig.deliveries.map((delivery) => JSON.parse(delivery.body) as { data: { metadata: object } });
  expect(bodies.at(-1)!.data.metadata).toEqual({ a: 'new' });
});

test('K49: metadata and deadline in one update are one order to the node, all or none', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  const update = () => rig.control.sandboxes.update(rig.caller, id, {}, { metadata: { a: '2' }, expiresInMs: 60_000 });
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  await expect(update()).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await rig.get(id)).toMatchObject({ metadata: { a: '1' }, expiresAt: null });
  await update();
  const expiresAtMs = rig.clock.nowMs() + 60_000;
  expect(rig.node.applied.map((order) => order.settings)).toMatchObject([{ metadata: { a: '2' }, expiresAtMs }]);
  expect(await rig.get(id)).toMatchObject({ metadata: { a: '2' }, expiresAt: new Date(expiresAtMs).toISOString() });
});

test('K49: one update whose answer is lost is taken from the node as a whole', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  rig.node.fail('applySettings', { when: 'after', error: lostAnswer() });
  const body = { metadata: { a: '2' }, expiresInMs: 60_000 };
  await expect(rig.control.sandboxes.update(rig.caller, id, {}, body)).rejects.toMatchObject({
    code: 'outcome_unknown',
  });
  const expiresAt = new Date(rig.clock.nowMs() + 60_000).toISOString();
  await rig.reconcile();
  expect(await rig.get(id)).toMatchObject({ metadata: { a: '2' }, expiresAt });
});

test('K49: a network is part of the same update, and of what a start gives the node', async () => {
  const { id } = await rig.create({ metadata: { a: '1' } });
  expect((await rig.get(id)).network).toEqual(fullNetwork);
  const network = networkPolicy.parse({ mode: 'full', deny: [{ cidr: '10.0.0.0/8' }] });
  const update = () => rig.control.sandboxes.update(rig.caller, id, {}, { metadata: { a: '2' }, network });
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  await expect(update()).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await rig.get(id)).toMatchObject({ metadata: { a: '1' }, network: fullNetwork });
  await update();
  expect(rig.node.applied.map((order) => order.settings)).toMatchObject([{ metadata: { a: '2' }, network }]);
  const { version } = await rig.get(id);
  await update(); // It is so already.
  expect((await rig.get(id)).version).toBe(version);
  rig.node.fail('applySettings', { when: 'after', error: lostAnswer() });
  const none = rig.control.sandboxes.update(rig.caller, id, {}, { network: { mode: 'none' } });
  await expect(none).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.reconcile();
  expect((await rig.get(id)).network).toEqual({ mode: 'none' });
});
