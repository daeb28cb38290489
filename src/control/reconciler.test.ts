import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import type { SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

const forgetRecord = (id: SandboxId) => rig.store.transact((tables) => tables.sandboxes.remove(id));
const kinds = async (options?: { dryRun: boolean }) => (await rig.reconcile(options)).actions.map(({ kind }) => kind);

test('K43: a dry run tells the actions with their reasons and does nothing', async () => {
  const { id } = await rig.create();
  await forgetRecord(id);
  const told = await rig.reconcile({ dryRun: true });
  expect(told.actions).toEqual([
    { kind: 'adopt', sandboxId: id, nodeId: rig.node.nodeId, reason: expect.stringContaining('our mark') },
  ]);
  expect(await rig.reconcile({ dryRun: true })).toEqual(told);
  await expect(rig.get(id)).rejects.toMatchObject({ code: 'sandbox_not_found' });
});

test('K44: a running sandbox without a record is adopted, with everything that its mark and settings tell', async () => {
  const made = await rig.create({ name: 'one', metadata: { a: '1' }, expiresInMs: 60_000 });
  const { metadataVersion } = await rig.get(made.id);
  await forgetRecord(made.id);
  expect(await kinds()).toEqual(['adopt']);
  const { updatedAt: _, version: __, ...same } = made;
  expect(await rig.get(made.id)).toMatchObject({ ...same, metadataVersion });
  expect(await rig.events('sandbox.adopted')).toHaveLength(1);
  expect(await kinds()).toEqual([]);
  await rig.exec(made.id);
  await rig.patch(made.id, { b: '2' });
});

test('K44: one that ended meanwhile is adopted as stopped, and a name that is taken is left to who has it', async () => {
  const { id } = await rig.create({ name: 'one' });
  await forgetRecord(id);
  rig.node.end(id, 'crashed');
  await rig.create({ name: 'one' });
  await rig.reconcile();
  expect(await rig.get(id)).toMatchObject({ state: 'stopped', reason: 'crashed', name: null });
});

test('K44: a sandbox of a team that is not known is listed and never touched, and so is what the node cannot read', async () => {
  const { id } = await rig.create();
  await forgetRecord(id);
  const sandbox = rig.node.sandboxes.get(id)!;
  rig.node.sandboxes.set(id, { ...sandbox, mark: { ...sandbox.mark, teamId: 'tea-somebody-else' } });
  rig.node.quarantined = [{ directory: '/data/x', why: 'No record in it.' }];
  const report = await rig.reconcile();
  expect(report.actions.map(({ kind }) => kind)).toEqual(['quarantine']);
  expect(report.quarantined).toEqual([{ nodeId: rig.node.nodeId, directory: '/data/x', why: 'No record in it.' }]);
  expect(rig.node.sandboxes.get(id)!.life.kind).toBe('running');
});

test('K44: what was deleted and made late by an order on its way is removed, not adopted', async () => {
  const late = rig.node.loseInFlight('createSandbox');
  await expect(rig.create({ name: 'one' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 1 });
  await rig.delete(items[0]!.id);
  await late.arrive();
  expect(rig.node.sandboxes.size).toBe(1);
  await rig.reconcile();
  expect(rig.node.sandboxes.size).toBe(0);
  expect((await rig.control.sandboxes.list(rig.caller, { limit: 1 })).items).toEqual([]);
});

test('a sandbox that was given up and is made late by an order on its way is removed', async () => {
  const late = rig.node.loseInFlight('createSandbox');
  await expect(rig.create()).rejects.toMatchObject({ code: 'outcome_unknown' });
  rig.clock.step(61_000);
  expect(await kinds()).toEqual(['abandon']);
  await late.arrive();
  expect(await kinds()).toEqual(['remove']);
  expect(rig.node.sandboxes.size).toBe(0);
});

test('a start that was given up and is made late does not run on behind a stopped record', async () => {
  const { id } = await rig.create();
  await rig.stop(id);
  const late = rig.node.loseInFlight('startSandbox');
  await expect(rig.start(id)).rejects.toMatchObject({ code: 'outcome_unknown' });
  rig.clock.step(61_000);
  await rig.reconcile();
  await late.arrive();
  expect(rig.node.sandboxes.get(id)!.life.kind).toBe('running');
  expect(await kinds()).toEqual(['stop-on-node']);
  expect(rig.node.sandboxes.get(id)!.life.kind).toBe('ended');
  expect(await rig.start(id)).toMatchObject({ state: 'running', generation: 3 });
});

test('K45: a record whose sandbox is gone becomes stopped with the reason, when it is not young', async () => {
  const { id } = await rig.create();
  const sandbox = rig.node.sandboxes.get(id)!;
  rig.node.sandboxes.delete(id);
  expect(await kinds()).toEqual([]);
  rig.clock.step(61_000);
  expect(await kinds()).toEqual(['lose']);
  expect(await rig.get(id)).toMatchObject({ state: 'stopped', reason: 'lost' });

  // And when its node has it again after all, it runs as if nothing had been.
  rig.node.sandboxes.set(id, sandbox);
  expect(await kinds()).toEqual(['find']);
  expect(await rig.get(id)).toMatchObject({ state: 'running', generation: 1 });
  expect(await kinds()).toEqual([]);
});

test('K45: a node out of reach makes its sandboxes unknown, never gone', async () => {
  const { id } = await rig.create();
  rig.clock.step(3600_000);
  rig.node.isAway = true;
  const report = await rig.reconcile();
  expect(report).toEqual({ actions: [], checkpoints: [], quarantined: [], unreachable: [rig.node.nodeId] });
  expect(await rig.get(id)).toMatchObject({ state: 'running', reachable: false });
  expect(rig.control.readiness()).toMatchObject({
    ready: false,
    reasons: [expect.stringContaining('out of reach'), expect.anything()],
  });
  rig.node.isAway = false;
  await rig.reconcile();
  expect(await rig.get(id)).toMatchObject({ state: 'running', reachable: true });
});

test('K45: a call that finds the node away says so in every view, and one that reaches it takes it back', async () => {
  const { id } = await rig.create();
  rig.node.isAway = true;
  await expect(rig.exec(id)).rejects.toMatchObject({ code: 'node_unavailable' });
  expect((await rig.get(id)).reachable).toBe(false);
  rig.node.isAway = false;
  await rig.exec(id);
  expect((await rig.get(id)).reachable).toBe(true);
});

test.each([
  ['after-store-creating', 'creating', 'failed'],
  ['after-create-on-node', 'creating', 'running'],
])('K46: a crash at %s leaves it %s, and then it is %s', async (point, before, after) => {
  const gate = rig.faults.hold(point);
  void rig.create({ name: 'one' });
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 1 });
  expect(items[0]!.state).toBe(before);
  rig.clock.step(61_000);
  await rig.reconcile();
  expect(await rig.get(items[0]!.id)).toMatchObject({ state: after, name: 'one' });
  expect(await kinds()).toEqual([]);
});

test('K46: what ended while the server was down is recorded as it ended, and what runs still runs', async () => {
  const [one, two] = [await rig.create(), await rig.create()];
  await rig.crash();
  rig.node.end(one.id, 'expired');
  await rig.restart();
  await rig.reconcile();
  expect(await rig.get(one.id)).toMatchObject({ state: 'stopped', reason: 'expired' });
  expect(await rig.get(two.id)).toMatchObject({ state: 'running', generation: 1 });
  await rig.exec(two.id);
});

test('K46: interrupted stops and deletions are finished after a restart', async () => {
  for (const [point, work] of [
    ['after-store-stopping', (id: SandboxId) => rig.stop(id)],
    ['after-store-deleting', (id: SandboxId) => rig.delete(id)],
  ] as const) {
    const { id } = await rig.create();
    const gate = rig.faults.hold(point);
    void work(id);
    await gate.reached;
    await rig.crash();
    gate.open();
    await rig.restart();
    await rig.reconcile();
    expect(await kinds()).toEqual([]);
    if (point === 'after-store-stopping') expect((await rig.get(id)).state).toBe('stopped');
    else expect(rig.node.sandboxes.has(id)).toBe(false);
  }
});

test('K47: requests are answered for sandboxes while others are still being settled', async () => {
  const [stuck, free] = [await rig.create(), await rig.create()];
  rig.node.fail('applySettings', { when: 'after', error: lostAnswer() });
  await expect(rig.patch(stuck.id, { a: '1' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.restart();
  const gate = rig.node.holdNext('findSandbox');
  const settling = rig.reconcile();
  await gate.reached;
  await rig.exec(free.id);
  await rig.patch(free.id, { a: '1' });
  expect((await rig.get(stuck.id)).metadata).toEqual({});
  gate.open();
  await settling;
  expect((await rig.get(stuck.id)).metadata).toEqual({ a: '1' });
});

test('the server is ready when record and nodes were compared, and goes on by itself', async () => {
  await using self = await ControlRig.open({ reconcilesByItself: true });
  await expect.poll(() => self.control.readiness()).toEqual({ ready: true, reasons: [] });
  const { id } = await self.create();
  self.node.fail('applySettings', { when: 'after', error: lostAnswer() });
  await expect(self.patch(id, { a: '1' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect
    .poll(async () => {
      self.clock.step(30_000);
      return (await self.get(id)).metadata;
    })
    .toEqual({ a: '1' });
  const metrics = await self.control.metrics();
  expect(metrics.find(({ name }) => name === 'atoll_reconcile_actions_total')?.samples[0]?.value).toBeGreaterThan(0);
  expect(metrics.find(({ name }) => name === 'atoll_sandboxes')?.samples).toContainEqual({
    labels: { state: 'running' },
    value: 1,
  });
});

test('a node that comes back after a silence is watched again', async () => {
  const { id } = await rig.create();
  rig.node.breakWatches();
  await expect
    .poll(() => {
      rig.clock.step(500);
      return rig.node.watchers;
    })
    .toBe(1);
  rig.node.end(id, 'expired');
  await expect.poll(async () => (await rig.get(id)).state).toBe('stopped');
});

test('a sandbox that cannot be settled holds nobody else up', async () => {
  const [one, two] = [await rig.create(), await rig.create()];
  for (const { id } of [one, two]) await forgetRecord(id);
  rig.node.fail('findSandbox', { when: 'before', error: nodeAway() });
  await rig.reconcile();
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 10 });
  expect(items).toHaveLength(1);
  await rig.reconcile();
  expect((await rig.control.sandboxes.list(rig.caller, { limit: 10 })).items).toHaveLength(2);
});

test('a sandbox in doubt whose node stays away stays in doubt', async () => {
  const { id } = await rig.create();
  rig.node.fail('applySettings', { when: 'before', error: lostAnswer() });
  await expect(rig.patch(id, { a: '1' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  rig.node.isAway = true;
  await rig.reconcile();
  const inDoubt = async () =>
    (await rig.control.metrics()).find(({ name }) => name === 'atoll_sandboxes_in_doubt')?.samples[0]?.value;
  expect(await inDoubt()).toBe(1);
  rig.node.isAway = false;
  await rig.reconcile();
  expect(await inDoubt()).toBe(0);
});

test('a stop that its node refuses for now leaves it running, as the refusal says', async () => {
  const { id } = await rig.create();
  rig.node.fail('stopSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.stop(id)).rejects.toMatchObject({ code: 'node_unavailable' });
  expect((await rig.get(id)).state).toBe('running');
  expect(await kinds()).toEqual([]);
});
