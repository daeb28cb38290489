/** Workspaces and their versions in control, on real git stores: what is refused, what races, what dies midway. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { nodeAway } from '../../../test/support/fake-node.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { moveHead } from '../../../test/support/move-head.ts';
import { attachmentRecord, workspaceRecord } from '../../../test/support/records.ts';
import { page, signal, workspaceCalls } from '../../../test/support/workspace-calls.ts';
import { tarOf, textIn } from '../../../test/support/workspace-content.ts';
import { type Conditions, type NodeWorkspaces, newId, PlatformError, workspaceLimits } from '../../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
});
afterEach(() => rig.close());
const { make, bring, createWith, attach, head, holdsOf } = workspaceCalls(() => rig);

test('one is made empty, found by id and name, listed, and its name is taken once', async () => {
  const made = await rig.control.workspaces.create(rig.caller, {}, { name: 'site', content: 'empty' });
  expect(made).toMatchObject({ name: 'site', state: 'ready', head: { number: 1 } });
  expect(await rig.control.workspaces.get(rig.caller, made.id)).toMatchObject({ name: 'site', attachments: [] });
  expect((await rig.control.workspaces.list(rig.caller, { limit: 1 })).items).toEqual([made]);
  const again = rig.control.workspaces.create(rig.caller, {}, { name: 'site', content: 'empty' });
  await expect(again).rejects.toMatchObject({ code: 'name_taken' });
  await rig.control.workspaces.create(rig.caller, {}, { name: 'other', content: 'none' });
  const first = await rig.control.workspaces.list(rig.caller, { limit: 1 });
  const next = await rig.control.workspaces.list(rig.caller, { limit: 1, cursor: first.nextCursor! });
  expect([...first.items, ...next.items].map(({ name }) => name).sort()).toEqual(['other', 'site']);
  expect(next.nextCursor).toBeNull();
  expect(await holdsOf()).toEqual(['version/1']);
});

test('another team does not see it, and a token of one sandbox attaches none', async () => {
  const { id } = await make();
  const stranger = { ...rig.caller, teamId: 'teazzzzzzzzzzzzzzzzzzzz' as never };
  for (const reference of [id, 'site']) {
    const looked = rig.control.workspaces.get(stranger, reference);
    await expect(looked).rejects.toMatchObject({ code: 'workspace_not_found' });
  }
  const sandbox = await rig.create();
  const bound = { ...rig.caller, sandboxId: sandbox.id };
  const body = { workspace: 'site' };
  await expect(rig.control.attachments.attach(bound, sandbox.id, {}, body)).rejects.toMatchObject({
    code: 'forbidden',
  });
});

test('one without a version is not attached, exported or compared, and takes its first import', async () => {
  await rig.control.workspaces.create(rig.caller, {}, { name: 'site', content: 'none' });
  const sandbox = await rig.create();
  await expect(attach(sandbox.id, { workspace: 'site' })).rejects.toMatchObject({ code: 'workspace_wrong_state' });
  const missing = rig.control.versions.export(rig.caller, 'site', { kind: 'bundle' }, signal);
  await expect(missing).rejects.toMatchObject({ code: 'workspace_wrong_state' });
  expect(await bring('site', page, {}, 0)).toMatchObject({ number: 1, kind: 'import' });
});

test('a home that refuses what it is asked leaves the name free; a beginning that dies is finished under its key', async () => {
  const create = (conditions: Conditions) =>
    rig.control.workspaces.create(rig.caller, conditions, { name: 'site', content: 'empty' });
  const refusal = new PlatformError('storage_unsupported', 'There is no git.');
  rig.node.fail('workspaces.create', { when: 'before', error: refusal });
  await expect(create({})).rejects.toMatchObject({ code: 'storage_unsupported' });
  expect((await rig.control.workspaces.list(rig.caller, { limit: 9 })).items).toEqual([]);
  expect((await rig.events('workspace.')).map(({ kind }) => kind)).toEqual(['workspace.created', 'workspace.deleted']);
  for (const point of ['after-journal-operation', 'after-store-workspace', 'after-workspace-on-node']) {
    const gate = rig.faults.hold(point);
    const key = { idempotencyKey: point };
    create(key).catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    expect(await create(key), point).toMatchObject({ state: 'ready', head: { number: 1 } });
    expect((await rig.control.workspaces.list(rig.caller, { limit: 9 })).items, point).toHaveLength(1);
    await rig.control.workspaces.delete(rig.caller, 'site', { idempotencyKey: `${point} gone` });
    await rig.control.workspaces.delete(rig.caller, 'site', { idempotencyKey: `${point} gone` });
  }
});

test('a home that refuses leaves no record, one that is away leaves one that a repeat finishes', async () => {
  rig.node.fail('workspaces.create', { when: 'before', error: new Error('a bug') });
  const create = (conditions: Conditions) =>
    rig.control.workspaces.create(rig.caller, conditions, { name: 'site', content: 'empty' });
  await expect(create({})).rejects.toThrow('a bug');
  await rig.control.workspaces.delete(rig.caller, 'site', {});
  rig.node.fail('workspaces.create', { when: 'before', error: nodeAway() });
  const key = { idempotencyKey: 'k' };
  await expect(create(key)).rejects.toMatchObject({ code: 'node_unavailable' });
  await rig.control.workspaces.delete(rig.caller, 'site', {});
  expect(await create(key)).toMatchObject({ head: { number: 1 } });
});

test('versions are imported onto the head that was named, or onto any, and compared, read and put back', async () => {
  await make();
  await expect(bring('site', page, {}, 0)).rejects.toMatchObject({ code: 'workspace_moved' });
  await bring('site', { 'a.txt': 'one\n' }, {}, 1);
  const { versions, workspaces } = rig.control;
  const { items, nextBefore } = await workspaces.versions(rig.caller, 'site', { limit: 1 });
  expect(items).toMatchObject([{ number: 2 }]);
  expect((await workspaces.versions(rig.caller, 'site', { limit: 1, before: nextBefore! })).items).toMatchObject([
    { number: 1 },
  ]);
  const diff = await workspaces.diff(rig.caller, 'site', { from: 1, limit: 10 });
  expect(diff.files.map(({ path, kind }) => [path, kind])).toEqual([
    ['a.txt', 'modified'],
    ['docs/b.md', 'deleted'],
  ]);
  const patch = await workspaces.patch(rig.caller, 'site', { from: 1, to: 2 }, signal);
  expect(await textIn(patch.bytes)).toContain('-two\n');
  const { message, parents } = await workspaces.version(rig.caller, 'site', 2);
  expect({ message, parents }).toEqual({ message: 'Import\n', parents: [] });
  const revert = { version: 1, message: 'Back' };
  expect(await workspaces.revert(rig.caller, 'site', {}, revert)).toMatchObject({ number: 3, summary: 'Back' });
  const { bytes } = await versions.export(rig.caller, 'site', { kind: 'bundle', version: 3, since: [2] }, signal);
  expect(await textIn(bytes)).toContain('# v2 git bundle');
  expect(await holdsOf()).toEqual(['version/1', 'version/2', 'version/3']);
});

test('C21: an import or a revert onto a head that moves is put on the newer one, and holds nothing when it gives up', async () => {
  await make();
  const moveOnce = async (work: () => Promise<unknown>) => {
    const gate = rig.faults.hold('after-version-held');
    const slow = work();
    await gate.reached;
    const { id } = await rig.control.workspaces.get(rig.caller, 'site');
    await moveHead(rig.store, id);
    gate.open();
    return await slow;
  };
  expect(await moveOnce(() => bring('site', { 'x.txt': 'x' }))).toMatchObject({ number: 3 });
  const revert = (expectedHead?: number) => {
    const body = { version: 1, ...(expectedHead !== undefined && { expectedHead }) };
    return rig.control.workspaces.revert(rig.caller, 'site', {}, body);
  };
  expect(await moveOnce(() => revert())).toMatchObject({ number: 5, kind: 'revert' });
  await expect(moveOnce(() => revert(5))).rejects.toMatchObject({ code: 'workspace_moved' });
  expect((await holdsOf()).filter((name) => name.startsWith('operation/'))).toEqual([]);
});

for (const point of ['after-version-held', 'after-version-published']) {
  test(`a revert that dies at "${point}" is one version under its key`, async () => {
    await make();
    await bring('site', { 'a.txt': 'x' });
    const key = { idempotencyKey: 'k' };
    const revert = () => rig.control.workspaces.revert(rig.caller, 'site', key, { version: 1 });
    const gate = rig.faults.hold(point);
    revert().catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    expect(await revert()).toMatchObject({ number: 3, kind: 'revert' });
    expect(await head()).toBe(3);
  });
}

test('a remote is fetched from and pushed to by the node, with credentials that no record keeps', async () => {
  await make();
  const orders: unknown[] = [];
  const { importBytes } = rig.node.workspaces;
  Object.assign(rig.node.workspaces, {
    importRemote: async ({ workspaceId, ...order }: Parameters<NodeWorkspaces['importRemote']>[0]) => {
      orders.push(order);
      const author = { name: 'Far', email: 'far@example.com' };
      const source = { kind: 'archive' as const };
      return await importBytes({ workspaceId, source, message: 'Far away', author, atMs: 0 }, tarBytes({ far: 'f' }));
    },
    pushRemote: async ({ workspaceId: _, ...order }: Parameters<NodeWorkspaces['pushRemote']>[0]) => {
      orders.push(order);
    },
  });
  const remote = { url: 'https://example.com/far.git', credentials: { username: 'u', password: 'secret' } };
  const { versions } = rig.control;
  const key = { idempotencyKey: 'k' };
  expect(await versions.importRemote(rig.caller, 'site', key, remote, signal)).toMatchObject({
    ...{ number: 2, kind: 'import', summary: 'Far away', author: 'Far <far@example.com>' },
  });
  // Under its key it is not fetched again, whatever the credentials are by now.
  const later = { ...remote, credentials: { username: 'u', password: 'another' } };
  expect(await versions.importRemote(rig.caller, 'site', key, later, signal)).toMatchObject({ number: 2 });
  const stale = versions.importRemote(rig.caller, 'site', {}, { ...remote, expectedHead: 1 }, signal);
  await expect(stale).rejects.toMatchObject({ code: 'workspace_moved' });
  const pushed = await versions.push(rig.caller, 'site', {}, { ...remote, ref: 'main', version: 1 }, signal);
  expect(pushed.number).toBe(1);
  const { url, credentials } = remote;
  expect(orders).toEqual([
    { url, ref: null, credentials },
    { url, ref: null, credentials },
    { url, ref: 'main', credentials, commit: pushed.commit },
  ]);
});

test('a bundle makes a round trip, history and all', async () => {
  await make();
  await bring('site', { 'a.txt': 'x' });
  await rig.control.workspaces.revert(rig.caller, 'site', {}, { version: 1 });
  const { bytes } = await rig.control.versions.export(rig.caller, 'site', { kind: 'bundle' }, signal);
  await rig.control.workspaces.create(rig.caller, {}, { name: 'copy', content: 'none' });
  const query = { kind: 'bundle' as const };
  const imported = await rig.control.versions.importBytes(rig.caller, 'copy', {}, query, bytes, signal);
  expect(imported.commit).toBe((await rig.control.workspaces.get(rig.caller, 'site')).head!.commit);
});

test('C29: a crash around publishing keeps what a version is made of, and lets the rest go', async () => {
  for (const point of ['after-version-held', 'after-version-published', 'before-release-holds']) {
    const name = `w-${point}`;
    await make(name);
    const gate = rig.faults.hold(point);
    const key = { idempotencyKey: point };
    const importing = bring(name, { 'x.txt': point }, key);
    importing.catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    const isOut = point !== 'after-version-held';
    expect(await head(name), point).toBe(isOut ? 2 : 1);
    await expect
      .poll(() => holdsOf(name), { timeout: 10_000 })
      .toEqual(isOut ? ['version/1', 'version/2'] : ['version/1']);
    expect(await bring(name, { 'x.txt': point }, key), point).toMatchObject({ number: 2 });
    expect(await head(name), point).toBe(2);
  }
});

test('C29: what a look at a plan held when the server died is let go, and what a commit holds is not', async () => {
  const { id: workspaceId, head: newest } = await make();
  const [plan, box] = [newId('plan'), newId('sandbox')];
  const names = [`look/${plan}/${box}/tree/${box}`, `plan/${plan}/${newId('planCommit')}/tree/${box}`] as const;
  for (const name of names) await rig.node.workspaces.hold({ workspaceId, name, object: newest!.commit });
  await rig.restart();
  await expect.poll(() => holdsOf(), { timeout: 10_000 }).toEqual([names[1], 'version/1']);
});

test('a deletion that a crash cut off is finished, and nothing of it is left', async () => {
  for (const point of ['after-store-workspace-deleting', 'after-workspace-removed-on-node']) {
    const { id } = await make('gone');
    const gate = rig.faults.hold(point);
    const key = { idempotencyKey: point };
    const deleting = rig.control.workspaces.delete(rig.caller, 'gone', key);
    deleting.catch(() => {});
    await gate.reached;
    const late = bring('gone', page);
    await expect(late).rejects.toMatchObject({ code: 'workspace_wrong_state' });
    await rig.restart();
    gate.open();
    await rig.control.workspaces.delete(rig.caller, 'gone', key);
    await expect.poll(() => rig.node.workspaces.list(), { timeout: 10_000 }).not.toContain(id);
  }
  expect((await rig.events('workspace.deleted')).length).toBe(2);
});

test('limits have names', async () => {
  await make();
  const sandbox = await createWith({});
  const { id, teamId } = (await rig.store.read((tables) => tables.sandboxes.find(sandbox.id)))!;
  await rig.store.transact(async (tables) => {
    for (let at = 1; at < workspaceLimits.workspaces; at++) {
      const record = workspaceRecord({ teamId });
      await tables.workspaces.insert(record);
      if (at > workspaceLimits.attachments) continue;
      const attachment = attachmentRecord({ sandboxId: id, workspaceId: record.id, teamId, path: `/p${at}` });
      await tables.workspaces.putAttachment(attachment);
    }
  });
  const { attachments, workspaces } = workspaceLimits;
  const attaching = attach(id, { workspace: 'site' });
  await expect(attaching).rejects.toMatchObject({ code: 'limit_exceeded', details: { limit: attachments } });
  const making = rig.control.workspaces.create(rig.caller, {}, { name: 'more', content: 'empty' });
  await expect(making).rejects.toMatchObject({ code: 'limit_exceeded', details: { limit: workspaces } });
});

async function* tarBytes(files: Record<string, string>): AsyncGenerator<Uint8Array, void> {
  yield tarOf(files);
}
