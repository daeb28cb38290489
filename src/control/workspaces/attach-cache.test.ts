/** Sandboxes that are created with workspaces: from a place that is kept, and without one. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../../test/support/fake-node.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { workspaceCalls } from '../../../test/support/workspace-calls.ts';
import { attachCacheMax } from './attach-cache.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
});
afterEach(() => rig.close());
const { make, bring, createWith, read, expectClean } = workspaceCalls(() => rig);

test('the first sandbox of a kind is kept as a place to begin with, and the next ones begin there', async () => {
  await make();
  await createWith();
  const calls = rig.node.calls.length;
  const second = await createWith();
  expect(rig.node.calls.slice(calls).filter((call) => call.startsWith('workspaces.'))).toEqual([]);
  expect(await read(second.id, '/s/docs/b.md')).toBe('b\n');
  expect(await rig.events('workspace.attached')).toHaveLength(2);
  await bring('site', { 'a.txt': 'new' });
  const third = await createWith();
  expect(await read(third.id, '/s/a.txt')).toBe('new');
  expect(await rig.store.read((tables) => tables.workspaces.listAttachCache(9))).toHaveLength(2);
});

test('a place is the same in whatever order its workspaces are named, and its last use is noted', async () => {
  await make('site');
  await make('docs');
  const both = [
    { workspace: 'site', path: '/s' },
    { workspace: 'docs', path: '/d' },
  ];
  const entries = () => rig.store.read((tables) => tables.workspaces.listAttachCache(9));
  await createWith({ workspaces: both });
  const [first] = await entries();
  rig.clock.step(61_000);
  const { id } = await createWith({ workspaces: both.toReversed() });
  expect(await read(id, '/d/docs/b.md')).toBe('b\n');
  const [second, ...more] = await entries();
  expect(more).toEqual([]);
  expect(second).toEqual({ ...first, usedAtMs: rig.clock.nowMs() });
});

test('a place goes with its workspace, also where the node cannot be told of it', async () => {
  await make('site');
  await createWith();
  const [entry] = await rig.store.read((tables) => tables.workspaces.listAttachCache(9));
  for (const { id } of (await rig.control.sandboxes.list(rig.caller, { limit: 9 })).items) await rig.delete(id);
  rig.node.fail('workspaces.forgetBaseline', { when: 'before', error: nodeAway() });
  await rig.control.workspaces.delete(rig.caller, 'site', {});
  expect(await rig.store.read((tables) => tables.workspaces.findAttachCache(entry!.key))).toBeUndefined();
  expect(rig.node.branches.checkpoints.size).toBe(0);
});

test('many at once share one making', async () => {
  await make();
  const made = await Promise.all(Array.from({ length: 4 }, () => createWith()));
  expect(new Set(made.map(({ id }) => id)).size).toBe(4);
  expect(rig.node.calls.filter((call) => call === 'workspaces.recordBaseline')).toHaveLength(1);
});

test('a kept place that is lost, or does not fit any more, is made anew; one that cannot be made is done without', async () => {
  await make();
  await createWith();
  rig.node.branches.checkpoints.clear();
  rig.clock.step(120_000);
  await rig.reconcile();
  expect(await read((await createWith()).id, '/s/a.txt')).toContain('one');
  // The node refuses what control takes for ready.
  rig.node.branches.checkpoints.clear();
  expect(await read((await createWith()).id, '/s/a.txt')).toContain('one');
  await bring('site', { 'a.txt': 'third' });
  rig.node.fail('workspaces.recordBaseline', { when: 'before', error: lostAnswer() });
  const { id } = await createWith();
  expect(await read(id, '/s/a.txt')).toBe('third');
  expect((await rig.control.attachments.list(rig.caller, id)).items).toHaveLength(1);
});

test('what cannot be attached is refused before anything is made, or leaves no sandbox', async () => {
  await make();
  const refused = [
    [[{ workspace: 'none' }], 'workspace_not_found'],
    [[{ workspace: 'site', version: 9 }], 'workspace_not_found'],
    [[{ workspace: 'site' }, { workspace: 'site', path: '/other' }], 'invalid_request'],
    [[{ workspace: 'site', path: '/usr' }], 'invalid_request'],
  ] as const;
  for (const [workspaces, code] of refused) {
    await expect(createWith({ workspaces: [...workspaces] })).rejects.toMatchObject({ code });
  }
  for (const _ of [1, 2]) rig.node.fail('workspaces.exportBytes', { when: 'before', error: nodeAway() });
  await expect(createWith()).rejects.toMatchObject({ code: 'node_unavailable' });
  await expectClean({ sandboxes: 0, checkpoints: 0 });
});

test('a create that was interrupted has its workspaces when it is repeated', async () => {
  await make();
  for (const point of ['after-cache-checkpoint', 'after-store-creating', 'after-create-on-node']) {
    const key = { idempotencyKey: point };
    const body = { workspaces: [{ workspace: 'site', path: '/s' }], name: point };
    const gate = rig.faults.hold(point);
    const first = rig.createWith(key, body);
    first.catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    const { view } = await rig.createWith(key, body);
    expect((await rig.control.attachments.list(rig.caller, view.id)).items, point).toHaveLength(1);
    await rig.store.transact(async (tables) => {
      for (const { key } of await tables.workspaces.listAttachCache(9)) await tables.workspaces.removeAttachCache(key);
    });
  }
  expect(await rig.events('workspace.attached')).toHaveLength(3);
});

test('only so many places are kept, those that were used last', async () => {
  await make();
  await createWith();
  const [entry] = await rig.store.read((tables) => tables.workspaces.listAttachCache(1));
  await rig.store.transact(async ({ workspaces }) => {
    for (let at = 0; at < attachCacheMax; at++) {
      await workspaces.putAttachCache({
        ...entry!,
        key: `old-${at}`,
        usedAtMs: at,
        checkpointId: `chk${at}` as never,
      });
    }
  });
  rig.clock.step(11_000);
  await expect
    .poll(async () => (await rig.store.read((tables) => tables.workspaces.listAttachCache(1_000))).length)
    .toBe(attachCacheMax);
  expect(await rig.store.read((tables) => tables.workspaces.findAttachCache(entry!.key))).toBeDefined();
  expect(await rig.store.read((tables) => tables.workspaces.findAttachCache('old-0'))).toBeUndefined();
});
