/** Workspaces in sandboxes: commits, updates and drops that race, conflict and die midway. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { nodeAway } from '../../../test/support/fake-node.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { moveHead } from '../../../test/support/move-head.ts';
import { signal, workspaceCalls } from '../../../test/support/workspace-calls.ts';
import { textIn } from '../../../test/support/workspace-content.ts';
import type { PlatformError, SandboxId, WorkspaceConflict } from '../../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
});
afterEach(() => rig.close());
const { asked, make, bring, createWith, attach, commit, head, write, read, holdsOf, expectClean } = workspaceCalls(
  () => rig,
);

test('what it changed is shown and published; nothing to publish is said so; nothing is left of the steps', async () => {
  await make();
  const { id } = await createWith();
  await write(id, '/s/a.txt', 'one\n2\nthree\n');
  const diff = await rig.control.attachmentChanges.diff(asked(id), { limit: 10 });
  expect(diff).toMatchObject({ base: { number: 1 }, files: [{ path: 'a.txt' }], leftOut: [] });
  expect(await textIn((await rig.control.attachmentChanges.patch(asked(id))).bytes)).toContain('+2\n');
  expect(await commit(id)).toMatchObject({ outcome: 'committed', version: { number: 2, sandboxId: id } });
  expect(await commit(id)).toMatchObject({ outcome: 'nothing', version: null });
  expect(await rig.control.attachments.list(rig.caller, id)).toMatchObject({
    items: [{ path: '/s', base: { number: 2 }, isCurrent: true }],
  });
  expect(await holdsOf()).toEqual(['version/1', 'version/2']);
  // The one that is kept holds the workspace in place for the next sandbox.
  await expectClean({ sandboxes: 1, checkpoints: 1 });
  const other = await rig.control.attachmentChanges.diff(asked(id, 'none'), { limit: 1 }).catch((error) => error);
  expect(other).toMatchObject({ code: 'workspace_not_found' });
});

test('C21: a head that moves while a commit is made is merged with, and two commits at once both count', async () => {
  await make();
  const [one, two] = [await createWith(), await createWith()];
  await write(one.id, '/s/one.txt', '1');
  await write(two.id, '/s/two.txt', '2');
  const gate = rig.faults.hold('after-version-held');
  const first = commit(one.id, 'One');
  await gate.reached;
  const second = commit(two.id, 'Two');
  gate.open();
  const done = await Promise.all([first, second]);
  expect(done.map(({ version }) => version!.number).sort()).toEqual([2, 3]);
  const { bytes } = await rig.control.versions.export(rig.caller, 'site', { kind: 'archive' }, signal);
  const tar = await textIn(bytes);
  expect(tar).toContain('one.txt');
  expect(tar).toContain('two.txt');
  const kinds = (await rig.control.workspaces.versions(rig.caller, 'site', { limit: 9 })).items.map((v) => v.kind);
  expect(kinds).toEqual(['merge', 'commit', 'import']);
});

test('C21: a head that moves after a commit was merged with it is merged with again', async () => {
  const { id: workspaceId } = await make();
  const { id } = await createWith();
  await write(id, '/s/one.txt', '1');
  const gate = rig.faults.hold('after-version-held');
  const first = commit(id, 'One');
  await gate.reached;
  await moveHead(rig.store, workspaceId);
  gate.open();
  expect(await first).toMatchObject({ outcome: 'committed', version: { number: 3, sandboxId: id } });
  const { files } = await rig.control.workspaces.diff(rig.caller, 'site', { from: 2, limit: 9 });
  expect(files.map(({ path }) => path)).toEqual(['one.txt']);
});

test('a commit or an import stands when its holds cannot be released, and recovery releases them', async () => {
  await make();
  const { id } = await createWith();
  await write(id, '/s/one.txt', '1');
  rig.node.fail('workspaces.release', { when: 'before', error: nodeAway() });
  expect(await commit(id)).toMatchObject({ outcome: 'committed', version: { number: 2 } });
  rig.node.fail('workspaces.release', { when: 'before', error: nodeAway() });
  expect(await bring('site', { 'a.txt': 'x' })).toMatchObject({ number: 3 });
  expect((await holdsOf()).filter((name) => name.startsWith('operation/')).length).toBeGreaterThan(1);
  await rig.restart();
  await expect.poll(() => holdsOf(), { timeout: 10_000 }).toEqual(['version/1', 'version/2', 'version/3']);
});

test('an update leaves a directory in which a sandbox has files of its own', async () => {
  await make();
  const [one, two] = [await createWith(), await createWith()];
  await rm(join(await rig.node.checkout(one.id, '/s'), 'docs'), { recursive: true });
  await commit(one.id);
  await write(two.id, '/s/docs/mine.md', 'mine');
  expect(await rig.control.attachmentChanges.update(asked(two.id))).toMatchObject({ files: 1 });
  expect(await readdir(await rig.node.checkout(two.id, '/s/docs'))).toEqual(['mine.md']);
});

test('two commits of one sandbox at once publish its changes once', async () => {
  await make();
  const { id } = await createWith();
  await write(id, '/s/one.txt', '1');
  const done = await Promise.all([commit(id, 'A'), commit(id, 'B')]);
  expect(done.map(({ outcome }) => outcome).sort()).toEqual(['committed', 'nothing']);
  expect(await head()).toBe(2);
});

test('an update merges, writes what differs, removes what is gone, and says conflicts without touching anything', async () => {
  await make();
  const [one, two] = [await createWith(), await createWith()];
  await write(one.id, '/s/a.txt', 'one\ntwo\n3\n');
  await write(one.id, '/s/deep/new.txt', 'n');
  await rm(join(await rig.node.checkout(one.id, '/s'), 'docs'), { recursive: true });
  await commit(one.id);
  await write(two.id, '/s/a.txt', '1\ntwo\nthree\n');
  await write(two.id, '/s/own.txt', 'mine');
  const update = (id: SandboxId) => rig.control.attachmentChanges.update(asked(id));
  expect(await update(two.id)).toMatchObject({ files: 3, attachment: { base: { number: 2 }, isCurrent: true } });
  expect(await read(two.id, '/s/a.txt')).toBe('1\ntwo\n3\n');
  expect(await readdir(await rig.node.checkout(two.id, '/s'))).toEqual(['.git', 'a.txt', 'deep', 'own.txt']);
  expect(await update(two.id)).toMatchObject({ files: 0 });
  await write(one.id, '/s/a.txt', 'uno\ntwo\n3\n');
  await commit(one.id);
  const refused = await update(two.id).catch((error: unknown) => error);
  expect(refused).toMatchObject({
    code: 'workspace_conflict',
    details: { version: 3, conflicts: [{ path: 'a.txt', kind: 'content', sandboxId: two.id, withSandboxId: null }] },
  });
  expect(await read(two.id, '/s/a.txt')).toBe('1\ntwo\n3\n');
  const seen = await commit(two.id).catch((error: unknown) => error);
  expect(seen).toMatchObject({ code: 'workspace_conflict' });
  const [{ base, ours, theirs }] = (refused as PlatformError).details['conflicts'] as [WorkspaceConflict];
  const blob = async (side: WorkspaceConflict['base']) =>
    await textIn((await rig.control.workspaces.blob(rig.caller, 'site', side!.blob, signal)).bytes);
  expect([await blob(base), await blob(ours), await blob(theirs)]).toEqual([
    ...['one\ntwo\n3\n', '1\ntwo\n3\n', 'uno\ntwo\n3\n'],
  ]);
  const none = rig.control.workspaces.blob(rig.caller, 'site', '0'.repeat(40), signal);
  await expect(none).rejects.toMatchObject({ code: 'workspace_not_found' });
});

test('an update that would overwrite what is written meanwhile is made anew, and in the end refused', async () => {
  await make();
  const [one, two] = [await createWith(), await createWith()];
  await write(one.id, '/s/a.txt', 'changed\n');
  await commit(one.id);
  let looks = 0;
  const entry = { path: '/s/a.txt' } as never;
  rig.node.fileChanges = async ({ since }) => {
    const changes = since === null || ++looks > 1 ? [] : [{ kind: 'modified' as const, entry }];
    return { changes, cursor: 'mrk', hasMore: false };
  };
  expect(await rig.control.attachmentChanges.update(asked(two.id))).toMatchObject({ files: 1 });
  expect(looks).toBe(2);
  await write(one.id, '/s/a.txt', 'again\n');
  await commit(one.id);
  rig.node.fileChanges = async () => ({
    ...{ changes: [{ kind: 'deleted', path: '/s/a.txt', pathBase64: null }], cursor: 'mrk', hasMore: false },
  });
  const update = rig.control.attachmentChanges.update(asked(two.id));
  await expect(update).rejects.toMatchObject({ code: 'file_changed' });
  expect(await read(two.id, '/s/a.txt')).toBe('changed\n');
});

test('C13: a checkout that is gone is an error, not a version without files', async () => {
  await make();
  const { id } = await createWith();
  await rm(await rig.node.checkout(id, '/s'), { recursive: true });
  await expect(commit(id)).rejects.toMatchObject({ code: 'file_not_found' });
  expect(await head()).toBe(1);
  await rig.control.attachments.drop(asked(id));
  expect(await read(id, '/s/docs/b.md')).toBe('b\n');
});

test('a lease of somebody else keeps everything out, its token lets its holder in', async () => {
  await make();
  const { id } = await createWith();
  await write(id, '/s/x', 'x');
  const lease = await rig.acquire([id]);
  const leaseToken = lease.grants[0]!.token;
  const { attachments, attachmentChanges: changes } = rig.control;
  const tries = [
    () => commit(id),
    () => changes.update(asked(id)),
    () => attachments.drop(asked(id)),
    () => attachments.detach(asked(id), { removeFiles: 'false' }),
    () => attach(id, { workspace: 'site', path: '/t' }),
    () => changes.diff(asked(id), { limit: 1 }),
  ];
  for (const attempt of tries) await expect(attempt()).rejects.toMatchObject({ code: 'lease_held' });
  expect(await commit(id, 'Mine', { leaseToken })).toMatchObject({ outcome: 'committed' });
});

test('a commit that was interrupted is found again under its key, wherever it broke off', async () => {
  await make();
  const points = ['after-collect-checkpoint', 'after-hidden-sandbox-made', 'after-version-held'];
  for (const [index, point] of [...points, 'after-version-published', 'before-release-holds'].entries()) {
    const { id } = await createWith();
    await write(id, `/s/${point}`, 'x');
    const gate = rig.faults.hold(point);
    const key = { idempotencyKey: `commit-${point}` };
    const first = commit(id, 'Once', key);
    first.catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    const before = await head();
    const done = await commit(id, 'Once', key);
    expect(done, point).toMatchObject({ outcome: 'committed', version: { number: index + 2 } });
    expect(before, point).toBe(index < points.length ? index + 1 : index + 2);
    expect(await commit(id, 'Once', key), point).toEqual(done);
    await rig.delete(id);
  }
  rig.clock.step(11 * 60_000);
  await rig.reconcile();
  // A kept place for each version that a sandbox was made with.
  expect(rig.node.sandboxes.size).toBe(0);
  expect(await holdsOf()).toEqual([1, 2, 3, 4, 5, 6].map((number) => `version/${number}`));
});

test('an attach that was interrupted is done once: before the files, after them, and of a path that is another’s', async () => {
  await make();
  const { id } = await rig.create();
  const gate = rig.faults.hold('after-checkout-placed');
  const key = { idempotencyKey: 'attach' };
  const first = attach(id, { workspace: 'site', path: '/s' }, key);
  first.catch(() => {});
  await gate.reached;
  await rig.restart();
  gate.open();
  expect((await rig.control.attachments.list(rig.caller, id)).items).toEqual([]);
  expect(await attach(id, { workspace: 'site', path: '/s' }, key)).toMatchObject({ path: '/s', base: { number: 1 } });
  expect(await rig.events('workspace.attached')).toHaveLength(1);

  const other = await rig.create();
  await write(other.id, '/s/own.txt', 'mine');
  const taken = attach(other.id, { workspace: 'site', path: '/s' });
  await expect(taken).rejects.toMatchObject({ code: 'file_exists' });
  expect(await read(other.id, '/s/own.txt')).toBe('mine');
});

test('a workspace that is deleted while it is written into a sandbox is not attached', async () => {
  await make();
  const { id } = await rig.create();
  const gate = rig.faults.hold('after-checkout-placed');
  const attaching = attach(id, { workspace: 'site' });
  await gate.reached;
  await rig.control.workspaces.delete(rig.caller, 'site', {});
  gate.open();
  await expect(attaching).rejects.toMatchObject({ code: 'workspace_not_found' });
});

test('what was written into a life that a restore ended is recorded nowhere: files and their base stay together', async () => {
  await make();
  const { id } = await createWith({});
  const bare = await rig.checkpoint(id);
  const placed = rig.faults.hold('after-checkout-placed');
  const attaching = attach(id, { workspace: 'site', path: '/s' }).catch((error) => error);
  await placed.reached;
  await rig.restore(id, bare.id);
  placed.open();
  expect(await attaching).toMatchObject({ code: 'stale_generation' });
  expect((await rig.control.attachments.list(rig.caller, id)).items).toEqual([]);

  const { id: other } = await createWith();
  const old = await rig.checkpoint(other);
  await write((await createWith()).id, '/s/a.txt', 'newer\n');
  const [newer] = (await rig.control.workspaces.get(rig.caller, 'site')).attachments.filter(
    ({ sandboxId }) => sandboxId !== other,
  );
  await commit(newer!.sandboxId, 'Newer');
  for (const [point, work] of [
    ['after-checkout-updated', () => rig.control.attachmentChanges.update(asked(other))],
    ['after-checkout-dropped', () => rig.control.attachments.drop(asked(other))],
  ] as const) {
    const gate = rig.faults.hold(point);
    const changing = work().catch((error: unknown) => error);
    await gate.reached;
    await rig.restore(other, old.id);
    gate.open();
    expect(await changing, point).toMatchObject({ code: 'stale_generation' });
    const [kept] = (await rig.control.attachments.list(rig.caller, other)).items;
    expect(kept, point).toMatchObject({ base: { number: 1 } });
  }
});
