import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

test('K15: a sandbox is seen as running only when the node has it', async () => {
  const gate = rig.node.hold('createSandbox');
  const creating = rig.create({ name: 'one' });
  await gate.reached;
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 10 });
  expect(items.map((item) => item.state)).toEqual(['creating']);
  await expect(rig.exec(items[0]!.id)).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  gate.open();
  expect(await creating).toMatchObject({ state: 'running', generation: 1, reachable: true });
});

test('a create that the node refuses leaves no record, and its name is free', async () => {
  rig.node.fail('createSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.create({ name: 'one' })).rejects.toMatchObject({ code: 'node_unavailable' });
  expect((await rig.control.sandboxes.list(rig.caller, { limit: 10 })).items).toEqual([]);
  expect(await rig.create({ name: 'one' })).toMatchObject({ name: 'one', state: 'running' });
});

test('a create whose answer is lost is completed by reconcile', async () => {
  rig.node.fail('createSandbox', { when: 'after', error: lostAnswer() });
  await expect(rig.create({ name: 'one' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.reconcile();
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 10 });
  expect(items).toMatchObject([{ name: 'one', state: 'running' }]);
});

test('K23: fifty callers of create-or-get by one name get one sandbox', async () => {
  const views = await Promise.all(Array.from({ length: 50 }, () => rig.create({ name: 'shared', ifExists: 'get' })));
  expect(new Set(views.map((view) => view.id)).size).toBe(1);
  expect(rig.node.sandboxes.size).toBe(1);
  expect(rig.node.calls.filter((call) => call === 'createSandbox')).toHaveLength(1);
});

test('without create-or-get the second of a name is refused', async () => {
  await rig.create({ name: 'one' });
  await expect(rig.create({ name: 'one' })).rejects.toMatchObject({ code: 'name_taken' });
});

test('K16: two stops, and two deletes, at once have one effect and one answer', async () => {
  const { id } = await rig.create();
  const stop = () => rig.control.sandboxes.stop(rig.caller, id, {}, { graceMs: 0 });
  const [first, second] = await Promise.all([stop(), stop()]);
  expect(second).toEqual(first);
  expect(first).toMatchObject({ state: 'stopped', reason: 'requested' });
  expect(rig.node.calls.filter((call) => call === 'stopSandbox')).toHaveLength(1);
  const remove = () => rig.control.sandboxes.delete(rig.caller, id, {}, { force: false });
  await Promise.all([remove(), remove()]);
  expect(rig.node.calls.filter((call) => call === 'deleteSandbox')).toHaveLength(1);
});

test('K24: start begins a new generation, and a handle of the earlier one is refused', async () => {
  const { id } = await rig.create();
  await rig.control.sandboxes.stop(rig.caller, id, {}, { graceMs: 0 });
  const started = await rig.control.sandboxes.start(rig.caller, id, {}, {});
  expect(started).toMatchObject({ state: 'running', generation: 2 });
  await expect(rig.exec(id, { generation: 1 })).rejects.toMatchObject({
    code: 'stale_generation',
    details: { generation: 2 },
  });
  await rig.exec(id, { generation: 2 });
});

test('K17: delete is carried out in every state', async () => {
  const remove = (id: string) => rig.control.sandboxes.delete(rig.caller, id as never, {}, { force: false });
  const gone = async (id: string) => {
    await expect(rig.control.sandboxes.get(rig.caller, id as never)).rejects.toMatchObject({
      code: 'sandbox_not_found',
    });
    expect(rig.node.sandboxes.has(id as never)).toBe(false);
  };
  const running = await rig.create();
  await remove(running.id);
  await gone(running.id);

  const stopped = await rig.create();
  await rig.control.sandboxes.stop(rig.caller, stopped.id, {}, { graceMs: 0 });
  await remove(stopped.id);
  await gone(stopped.id);

  const gate = rig.node.hold('createSandbox');
  const creating = rig.create({ name: 'young' });
  await gate.reached;
  const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 1 });
  const removing = remove(items[0]!.id);
  gate.open();
  await Promise.all([creating, removing]);
  await gone(items[0]!.id);
});

test('K17: a delete on a node that is away is recorded, and carried out when it is back', async () => {
  const { id } = await rig.create();
  rig.node.isAway = true;
  await rig.control.sandboxes.delete(rig.caller, id, {}, { force: false });
  expect((await rig.control.sandboxes.get(rig.caller, id)).state).toBe('deleting');
  rig.node.isAway = false;
  await rig.reconcile();
  await expect(rig.control.sandboxes.get(rig.caller, id)).rejects.toMatchObject({ code: 'sandbox_not_found' });
  expect(rig.node.sandboxes.size).toBe(0);
});

test('K18: a stop that nobody can finish goes back to running, with the reason', async () => {
  const { id } = await rig.create();
  const stuck = () => rig.node.fail('stopSandbox', { when: 'before', error: lostAnswer() });
  stuck();
  await expect(rig.control.sandboxes.stop(rig.caller, id, {}, { graceMs: 0 })).rejects.toMatchObject({
    code: 'outcome_unknown',
  });
  expect((await rig.control.sandboxes.get(rig.caller, id)).state).toBe('stopping');
  rig.clock.step(61_000);
  stuck();
  stuck();
  await rig.reconcile();
  expect((await rig.control.sandboxes.get(rig.caller, id)).state).toBe('running');
  expect(await rig.events('sandbox.stop_failed')).toHaveLength(1);
});

test('K18: a start that was never made is given up after its deadline, with the reason', async () => {
  const { id } = await rig.create();
  await rig.control.sandboxes.stop(rig.caller, id, {}, { graceMs: 0 });
  rig.node.fail('startSandbox', { when: 'before', error: lostAnswer() });
  await expect(rig.control.sandboxes.start(rig.caller, id, {}, {})).rejects.toMatchObject({ code: 'outcome_unknown' });
  expect((await rig.control.sandboxes.get(rig.caller, id)).state).toBe('starting');
  rig.clock.step(61_000);
  await rig.reconcile();
  expect(await rig.control.sandboxes.get(rig.caller, id)).toMatchObject({
    state: 'stopped',
    reason: expect.stringContaining('not made in time'),
  });
  expect(await rig.control.sandboxes.start(rig.caller, id, {}, {})).toMatchObject({ state: 'running', generation: 3 });
});

test('K19: a sandbox that ends on its node is recorded with the reason', async () => {
  const { id } = await rig.create();
  rig.node.end(id, 'expired');
  await expect
    .poll(async () => rig.control.sandboxes.get(rig.caller, id))
    .toMatchObject({
      state: 'stopped',
      reason: 'expired',
    });
});

test('a list is paged by cursors, newest first, and refuses a cursor that is not its own', async () => {
  for (let index = 0; index < 5; index++) {
    rig.clock.step(1);
    await rig.create({ name: `box-${index}` });
  }
  const names: (string | null)[] = [];
  let cursor: string | undefined;
  do {
    const page = await rig.control.sandboxes.list(rig.caller, { limit: 2, ...(cursor && { cursor }) });
    names.push(...page.items.map((item) => item.name));
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  expect(names).toEqual(['box-4', 'box-3', 'box-2', 'box-1', 'box-0']);
  await expect(rig.control.sandboxes.list(rig.caller, { limit: 2, cursor: 'AAAA' })).rejects.toMatchObject({
    code: 'invalid_request',
  });
});
