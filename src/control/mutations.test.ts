import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import { isId, PlatformError, routes } from '../protocol/index.ts';
import { canonicalJson } from './mutations.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

const key = { idempotencyKey: 'key-1' };
const sandboxIds = async () =>
  (await rig.control.sandboxes.list(rig.caller, { limit: 100 })).items.map((item) => item.id);
const calls = (name: string) => rig.node.calls.filter((call) => call === name).length;

/** Begins `work`, dies at the fault point, and is there again. */
async function crashAt(point: string, work: () => Promise<unknown>): Promise<void> {
  const gate = rig.faults.hold(point);
  void work();
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
}

test('K21: a repeat of a create returns the same sandbox, and at the same time joins it', async () => {
  const all = await Promise.all(Array.from({ length: 10 }, () => rig.createWith(key, { metadata: { a: '1' } })));
  const repeat = await rig.createWith(key, { metadata: { a: '1' } });
  expect(new Set([...all, repeat].map(({ view }) => view.id)).size).toBe(1);
  expect(calls('createSandbox')).toBe(1);
  expect(repeat).toEqual(all[0]);
});

test('K21: the same key with another body, or for another route, is refused', async () => {
  const gate = rig.node.hold('createSandbox');
  const first = rig.createWith(key, { name: 'one' });
  await expect(rig.createWith(key, { name: 'two' })).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  gate.open();
  const { view } = await first;
  await expect(rig.createWith(key, { name: 'two' })).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  await expect(rig.stop(view.id, key)).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  expect(await sandboxIds()).toHaveLength(1);
});

test.each([
  'after-journal-operation',
  'after-store-creating',
  'after-create-on-node',
  'before-store-answer',
  'after-store-answer',
])('K21: a create interrupted at %s is one sandbox when it is repeated', async (point) => {
  await crashAt(point, () => rig.createWith(key, { name: 'one', metadata: { a: '1' } }));
  const { view, created } = await rig.createWith(key, { name: 'one', metadata: { a: '1' } });
  expect(view).toMatchObject({ state: 'running', name: 'one', metadata: { a: '1' } });
  expect(created).toBe(true);
  await rig.reconcile();
  expect(await sandboxIds()).toEqual([view.id]);
  expect([...rig.node.sandboxes.keys()]).toEqual([view.id]);
  expect((await rig.createWith(key, { name: 'one', metadata: { a: '1' } })).view.id).toBe(view.id);
});

test('K21: a repeat while the node is away neither forgets nor doubles what was made before', async () => {
  await crashAt('after-create-on-node', () => rig.createWith(key, { name: 'one' }));
  rig.node.isAway = true;
  await expect(rig.createWith(key, { name: 'one' })).rejects.toMatchObject({ code: 'node_unavailable' });
  rig.node.isAway = false;
  // The first attempt is known to the node, the record still says "creating".
  rig.node.fail('findSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.createWith(key, { name: 'one' })).rejects.toMatchObject({ code: 'node_unavailable' });
  const { view } = await rig.createWith(key, { name: 'one' });
  await rig.reconcile();
  expect(await sandboxIds()).toEqual([view.id]);
  expect(rig.node.sandboxes.size).toBe(1);
});

test('K21: a repeat that cannot reach the node keeps the record of the first attempt', async () => {
  await crashAt('after-store-creating', () => rig.createWith(key, { name: 'one' }));
  rig.node.fail('createSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.createWith(key, { name: 'one' })).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await sandboxIds()).toHaveLength(1);
  const { view } = await rig.createWith(key, { name: 'one' });
  expect(view.state).toBe('running');
  expect(await sandboxIds()).toEqual([view.id]);
});

test('K21: a create whose record cannot be completed is in doubt, not refused', async () => {
  const gate = rig.faults.hold('after-create-on-node');
  const creating = rig.createWith(key);
  await gate.reached;
  const [id] = await sandboxIds();
  await rig.store.transact(async (tables) => {
    const record = await tables.sandboxes.find(id!);
    await tables.sandboxes.update({ ...record!, version: 2 });
  });
  gate.open();
  await expect(creating).rejects.toMatchObject({ code: 'outcome_unknown' });
  expect((await rig.createWith(key)).view).toMatchObject({ id, state: 'running' });
  expect(rig.node.sandboxes.size).toBe(1);
});

test('K21: an interrupted create that was completed and deleted since is not made again', async () => {
  await crashAt('before-store-answer', () => rig.createWith(key));
  const [id] = await sandboxIds();
  await rig.delete(id!);
  await expect(rig.createWith(key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(await sandboxIds()).toEqual([]);
});

test('K21: an interrupted create that was given up is told so', async () => {
  await crashAt('after-store-creating', () => rig.createWith(key));
  rig.clock.step(61_000);
  await rig.reconcile();
  await expect(rig.createWith(key)).rejects.toMatchObject({
    code: 'sandbox_wrong_state',
    details: { state: 'failed' },
  });
});

test('K21: keys are kept for a day, and then free', async () => {
  const first = await rig.createWith(key);
  rig.clock.step(23 * 3600 * 1000);
  await rig.control.operations.trim();
  expect((await rig.createWith(key)).view.id).toBe(first.view.id);
  rig.clock.step(2 * 3600 * 1000);
  await rig.control.operations.trim();
  expect((await rig.createWith(key)).view.id).not.toBe(first.view.id);
});

test('keys belong to a team', async () => {
  const first = await rig.createWith(key);
  const other = {
    ...rig.caller,
    teamId: (await rig.control.who.createTeam(rig.caller, {}, { name: 'b', diskBytes: null })).id,
  };
  const body = routes.createSandbox.body.parse({});
  const second = await rig.control.sandboxes.create(other, key, body);
  expect(second.view.id).not.toBe(first.view.id);
});

test('a refusal that may pass later frees the key; one that stays is the answer ever after', async () => {
  rig.node.fail('createSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.createWith(key)).rejects.toMatchObject({ code: 'node_unavailable' });
  await rig.createWith(key, { name: 'another body, for the key was free'.replaceAll(/[ ,]/g, '-') });

  const second = { idempotencyKey: 'key-2' };
  rig.node.fail('createSandbox', { when: 'before', error: new PlatformError('isolation_failed', 'No room.') });
  for (let time = 0; time < 2; time++) {
    await expect(rig.createWith(second)).rejects.toMatchObject({ code: 'isolation_failed', message: 'No room.' });
  }
  expect(calls('createSandbox')).toBe(3);
});

test('an effect stands though its answer could not be journalled', async () => {
  const gate = rig.faults.hold('before-store-answer');
  const creating = rig.createWith(key);
  await gate.reached;
  const transact = rig.store.transact.bind(rig.store);
  rig.store.transact = () => Promise.reject(new PlatformError('insufficient_storage', 'Full.'));
  gate.open();
  const { view } = await creating;
  rig.store.transact = transact;
  expect((await rig.createWith(key)).view.id).toBe(view.id);
});

test('a refusal stands though its key could not be freed, and a repeat resumes', async () => {
  const transact = rig.store.transact.bind(rig.store);
  const gate = rig.node.hold('applySettings');
  const { id } = await rig.create();
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  const patching = rig.patch(id, { a: '1' }, key);
  await gate.reached;
  rig.store.transact = () => Promise.reject(new PlatformError('insufficient_storage', 'Full.'));
  gate.open();
  await expect(patching).rejects.toMatchObject({ code: 'node_unavailable' });
  rig.store.transact = transact;
  expect(await rig.patch(id, { a: '1' }, key)).toMatchObject({ version: 2 });
});

test('K22: a repeat of an exec returns the stored answer and runs nothing, at the same time and later', async () => {
  const { id } = await rig.create();
  rig.node.execute = async () => ({ exitCode: 3, stdout: Buffer.from('out') });
  const all = await Promise.all([rig.exec(id, key), rig.exec(id, key)]);
  const repeat = await rig.exec(id, key);
  expect(all).toEqual([repeat, repeat]);
  expect(repeat).toMatchObject({ exitCode: 3, stdout: 'out' });
  expect(rig.node.execs).toHaveLength(1);
  await expect(rig.exec(id, key, { command: ['false'] })).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  await rig.delete(id);
  expect(await rig.exec(id, key)).toEqual(repeat);
});

test('K22: what is kept of the output is bounded, and says so', async () => {
  const { id } = await rig.create();
  rig.node.execute = async () => ({ stdout: Buffer.alloc(2 ** 20 + 1, 'x'), stderr: Buffer.from('short') });
  expect((await rig.exec(id, key)).stdoutTruncated).toBe(false);
  const repeat = await rig.exec(id, key);
  expect(repeat).toMatchObject({ stdoutTruncated: true, stderrTruncated: false, stderr: 'short' });
  expect(repeat.stdout).toHaveLength(2 ** 20);
});

test.each(['after-journal-operation', 'before-exec-on-node'])(
  'K22: an exec interrupted at %s runs once, when it is repeated',
  async (point) => {
    const { id } = await rig.create();
    await crashAt(point, () => rig.exec(id, key));
    expect(rig.node.execs).toHaveLength(0);
    expect(await rig.exec(id, key)).toMatchObject({ exitCode: 0 });
    await rig.exec(id, key);
    expect(rig.node.execs).toHaveLength(1);
  },
);

test('K22: an exec interrupted after it ran is in doubt, with what is known, and never runs again', async () => {
  const { id } = await rig.create();
  rig.node.execute = async () => ({ exitCode: 7 });
  await crashAt('after-exec-on-node', () => rig.exec(id, key));
  for (let time = 0; time < 2; time++) {
    await expect(rig.exec(id, key)).rejects.toMatchObject({
      code: 'operation_in_doubt',
      details: { run: 'ended', exitCode: 7 },
    });
  }
  expect(rig.node.execs).toHaveLength(1);
});

test('K22: an exec that still runs after a crash is in doubt, without an exit code', async () => {
  const { id } = await rig.create();
  const started = Promise.withResolvers<void>();
  rig.node.execute = () => {
    started.resolve();
    return new Promise(() => {});
  };
  void rig.exec(id, key);
  await started.promise;
  await rig.restart();
  await expect(rig.exec(id, key)).rejects.toMatchObject({
    code: 'operation_in_doubt',
    details: { run: 'running', exitCode: null },
  });
});

test('K22: a repeat of an interrupted exec that cannot reach the node does not free the key', async () => {
  const { id } = await rig.create();
  await crashAt('after-exec-on-node', () => rig.exec(id, key));
  rig.node.fail('findRun', { when: 'before', error: nodeAway() });
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'node_unavailable' });
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(rig.node.execs).toHaveLength(1);
});

test('K22: an exec of an earlier life is not run in the next one', async () => {
  const { id } = await rig.create();
  await crashAt('after-exec-on-node', () => rig.exec(id, key));
  await rig.stop(id);
  await rig.start(id);
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  await rig.delete(id);
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(rig.node.execs).toHaveLength(1);
});

test('K22: an exec whose answer was lost is in doubt when it is repeated', async () => {
  const { id } = await rig.create();
  rig.node.fail('exec', { when: 'after', error: lostAnswer() });
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(rig.exec(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(rig.node.execs).toHaveLength(1);
});

test.each(['after-journal-operation', 'before-apply-settings', 'after-apply-settings', 'before-store-answer'])(
  'K22: a patch interrupted at %s is made once, when it is repeated',
  async (point) => {
    const { id } = await rig.create({ metadata: { a: '1' } });
    await crashAt(point, () => rig.patch(id, { a: '2' }, { ...key, expectedVersion: 1 }));
    expect(await rig.patch(id, { a: '2' }, { ...key, expectedVersion: 1 })).toEqual({
      metadata: { a: '2' },
      version: 2,
    });
    expect(rig.node.sandboxes.get(id)!.settings).toMatchObject({ metadata: { a: '2' }, metadataVersion: 2 });
    await rig.patch(id, { a: '2' }, { ...key, expectedVersion: 1 });
    expect((await rig.get(id)).metadataVersion).toBe(2);
  },
);

test('K22: a patch that took effect and was followed by others is in doubt, and not made again', async () => {
  const { id } = await rig.create();
  await crashAt('before-store-answer', () => rig.patch(id, { a: '1' }, key));
  await rig.patch(id, { a: '2' });
  await expect(rig.patch(id, { a: '1' }, key)).rejects.toMatchObject({
    code: 'operation_in_doubt',
    details: { metadataVersion: 2 },
  });
  expect((await rig.get(id)).metadata).toEqual({ a: '2' });
});

test('K22: a deadline under a version that was moved before the crash is not called unchanged', async () => {
  const { id, version } = await rig.create();
  const update = () =>
    rig.control.sandboxes.update(rig.caller, id, { ...key, expectedVersion: version }, { expiresInMs: 60_000 });
  await crashAt('before-store-answer', update);
  await expect(update()).rejects.toMatchObject({ code: 'operation_in_doubt' });
});

test.each(['after-journal-operation', 'after-store-stopping', 'after-stop-on-node', 'before-store-answer'])(
  'K22: a stop interrupted at %s is one stop, when it is repeated',
  async (point) => {
    const { id, version } = await rig.create();
    const conditions = { ...key, expectedVersion: version, generation: 1 };
    await crashAt(point, () => rig.stop(id, conditions));
    expect(await rig.stop(id, conditions)).toMatchObject({ state: 'stopped', reason: 'requested' });
    expect(await rig.stop(id, conditions)).toMatchObject({ state: 'stopped' });
    expect(await rig.events('sandbox.stopped')).toHaveLength(1);
    expect(rig.node.sandboxes.get(id)!.life.kind).toBe('ended');
  },
);

test('K22: a repeat of an interrupted stop does not stop the next life', async () => {
  const { id } = await rig.create();
  await crashAt('before-store-answer', () => rig.stop(id, key));
  await rig.start(id);
  await expect(rig.stop(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect((await rig.get(id)).state).toBe('running');
});

test('K22: an interrupted stop that was never begun is checked again', async () => {
  const { id, version } = await rig.create();
  const conditions = { ...key, expectedVersion: version };
  await crashAt('after-journal-operation', () => rig.stop(id, conditions));
  await rig.patch(id, { a: '1' });
  await expect(rig.stop(id, conditions)).rejects.toMatchObject({ code: 'version_mismatch' });
  expect((await rig.get(id)).state).toBe('running');
});

test.each(['after-journal-operation', 'after-store-starting', 'after-start-on-node', 'before-store-answer'])(
  'K22: a start interrupted at %s is one life, when it is repeated',
  async (point) => {
    const { id } = await rig.create();
    const { version } = await rig.stop(id);
    const conditions = { ...key, expectedVersion: version, generation: 1 };
    await crashAt(point, () => rig.start(id, conditions));
    expect(await rig.start(id, conditions)).toMatchObject({ state: 'running', generation: 2 });
    expect(await rig.start(id, conditions)).toMatchObject({ generation: 2 });
    expect(rig.node.sandboxes.get(id)).toMatchObject({ generation: 2, life: { kind: 'running' } });
    expect((await rig.reconcile()).actions).toEqual([]);
  },
);

test('K22: a repeat of an interrupted start does not begin a second life', async () => {
  const { id } = await rig.create();
  await rig.stop(id);
  await crashAt('before-store-answer', () => rig.start(id, key));
  await rig.stop(id);
  await expect(rig.start(id, key)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(await rig.get(id)).toMatchObject({ state: 'stopped', generation: 2 });
});

test('K22: a repeat of an interrupted start that cannot reach the node can be repeated once more', async () => {
  const { id } = await rig.create();
  await rig.stop(id);
  await crashAt('after-store-starting', () => rig.start(id, key));
  rig.node.fail('startSandbox', { when: 'before', error: nodeAway() });
  await expect(rig.start(id, key)).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(await rig.start(id, key)).toMatchObject({ state: 'running', generation: 2 });
});

test.each(['after-journal-operation', 'after-store-deleting', 'after-delete-on-node', 'before-store-answer'])(
  'K22: a delete interrupted at %s is done, when it is repeated',
  async (point) => {
    const { id, version } = await rig.create();
    const conditions = { ...key, expectedVersion: version };
    await crashAt(point, () => rig.delete(id, conditions));
    await rig.delete(id, conditions);
    await rig.delete(id, conditions);
    expect(await sandboxIds()).toEqual([]);
    expect(rig.node.sandboxes.size).toBe(0);
    expect(await rig.events('sandbox.deleted')).toHaveLength(1);
  },
);

test('K22: an interrupted delete that was never begun does not pass over a lease taken since', async () => {
  const { id } = await rig.create();
  await crashAt('after-journal-operation', () => rig.delete(id, key));
  await rig.acquire([id]);
  await expect(rig.delete(id, key)).rejects.toMatchObject({ code: 'lease_held' });
  expect(rig.node.sandboxes.size).toBe(1);
});

test.each(['after-journal-operation', 'after-apply-settings', 'before-store-answer'])(
  'K22: an acquire interrupted at %s is one lease, when it is repeated',
  async (point) => {
    const { id } = await rig.create();
    await crashAt(point, () => rig.acquireWith(key, [id], { waitMs: 60_000 }));
    const lease = await rig.acquireWith(key, [id], { waitMs: 60_000 });
    expect(await rig.acquireWith(key, [id], { waitMs: 60_000 })).toEqual(lease);
    expect((await rig.control.leases.list(rig.caller, {})).items.map((item) => item.id)).toEqual([lease.id]);
    await rig.exec(id, { leaseToken: lease.grants[0]!.token });
  },
);

test.each(['after-journal-operation', 'before-store-answer'])(
  'K22: a key made and interrupted at %s is one key, shown again when it is repeated',
  async (point) => {
    const body = routes.createKey.body.parse({ name: 'ci', scopes: ['sandboxes:read'] });
    await crashAt(point, () => rig.control.who.createKey(rig.caller, key, body));
    const made = await rig.control.who.createKey(rig.caller, key, body);
    expect(await rig.control.who.createKey(rig.caller, key, body)).toEqual(made);
    expect((await rig.control.who.listKeys(rig.caller)).items.filter((item) => item.name === 'ci')).toHaveLength(1);
    expect(await rig.control.who.authenticate(made.key)).toMatchObject({ keyId: made.id });
  },
);

test('an operation is looked up by id and by key: started, interrupted, finished', async () => {
  const look = () => rig.control.operations.get(rig.caller, 'key:key-1');
  await expect(look()).rejects.toMatchObject({ code: 'operation_not_found' });
  const gate = rig.faults.hold('after-create-on-node');
  void rig.createWith(key);
  await gate.reached;
  const started = await look();
  expect(started).toMatchObject({ kind: 'createSandbox', state: 'started', finishedAt: null, answer: null });
  expect(isId('sandbox', started.subjectId ?? '')).toBe(true);
  await rig.crash();
  gate.open();
  await rig.restart();
  expect(await look()).toMatchObject({ id: started.id, state: 'interrupted' });
  const { view } = await rig.createWith(key);
  const finished = await rig.control.operations.get(rig.caller, started.id);
  expect(finished).toMatchObject({ state: 'finished', subjectId: view.id, answer: { ok: true, result: { view } } });
  const stranger = { ...rig.caller, teamId: 'teastranger' as never };
  await expect(rig.control.operations.get(stranger, started.id)).rejects.toMatchObject({ code: 'operation_not_found' });
  await expect(rig.control.operations.get(rig.caller, 'nonsense')).rejects.toMatchObject({
    code: 'operation_not_found',
  });
});

test('the same request has the same text whatever the order of its keys', () => {
  const one = canonicalJson({ b: [1, { d: null, c: new Uint8Array([1, 2]) }], a: undefined });
  expect(one).toBe(canonicalJson({ b: [1, { c: new Uint8Array([1, 2]), d: null }] }));
  expect(one).not.toBe(canonicalJson({ b: [{ c: new Uint8Array([1, 2]), d: null }, 1] }));
});
