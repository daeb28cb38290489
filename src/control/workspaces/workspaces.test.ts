/** Workspaces in control, on real git stores: what is refused, what races, what dies midway. */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../../test/support/fake-node.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { tarOf, textIn } from '../../../test/support/workspace-content.ts';
import { type BodyInputOf, type Conditions, routes, type SandboxId, workspaceLimits } from '../../protocol/index.ts';
import { attachCacheMax } from './attach-cache.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
});
afterEach(() => rig.close());

const page = { 'a.txt': 'one\ntwo\nthree\n', 'docs/b.md': 'b\n' };
const signal = new AbortController().signal;
const asked = (sandboxId: SandboxId, workspace = 'site', conditions: Conditions = {}) => ({
  ...{ caller: rig.caller, sandboxId, workspace, conditions },
});
const never = async function* (bytes: Uint8Array) {
  yield bytes;
};

async function make(name = 'site', files: Readonly<Record<string, string>> = page) {
  await rig.control.workspaces.create(rig.caller, {}, { name, content: 'none' });
  await bring(name, files);
  return await rig.control.workspaces.get(rig.caller, name);
}
function bring(
  name: string,
  files: Readonly<Record<string, string>>,
  conditions: Conditions = {},
  expectedHead?: number,
) {
  const query = { kind: 'archive' as const, ...(expectedHead !== undefined && { expectedHead }) };
  return rig.control.versions.importBytes(rig.caller, name, conditions, query, never(tarOf(files)), signal);
}
const createWith = (
  body: BodyInputOf<typeof routes.createSandbox> = { workspaces: [{ workspace: 'site', path: '/s' }] },
) => rig.create(body);
const attach = (id: SandboxId, body: BodyInputOf<typeof routes.attachWorkspace>, conditions: Conditions = {}) =>
  rig.control.attachments.attach(rig.caller, id, conditions, routes.attachWorkspace.body.parse(body));
const commit = (id: SandboxId, message = 'Changed', conditions: Conditions = {}, workspace = 'site') =>
  rig.control.attachmentChanges.commit(asked(id, workspace, conditions), { message, trailers: [] });
const head = async (name = 'site') => (await rig.control.workspaces.get(rig.caller, name)).head!.number;
async function write(id: SandboxId, path: string, content: string): Promise<void> {
  const file = join(await rig.node.checkout(id, '/'), path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, content);
}
const read = async (id: SandboxId, path: string) => readFile(join(await rig.node.checkout(id, '/'), path), 'utf8');
const holdsOf = async (name = 'site') => {
  const { id: workspaceId } = await rig.control.workspaces.get(rig.caller, name);
  return (await rig.node.workspaces.holds({ workspaceId })).map((one) => one.name).sort();
};
/** Nothing of a step is left on the node, and nobody has anything to settle. */
async function expectClean(kept: { sandboxes: number; checkpoints: number }): Promise<void> {
  await rig.reconcile();
  expect(rig.node.sandboxes.size).toBe(kept.sandboxes);
  expect(rig.node.branches.checkpoints.size).toBe(kept.checkpoints);
  expect(await rig.reconcile({ dryRun: true })).toMatchObject({ actions: [], checkpoints: [] });
}

describe('of a team', () => {
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
    const paths = Array.from({ length: workspaceLimits.attachments + 1 }, (_, index) => `w${index}`);
    for (const name of paths) await rig.control.workspaces.create(rig.caller, {}, { name, content: 'empty' });
    for (const name of paths.slice(0, -1)) await attach(sandbox.id, { workspace: name });
    await expect(attach(sandbox.id, { workspace: paths.at(-1)! })).rejects.toMatchObject({
      code: 'limit_exceeded',
      details: { limit: workspaceLimits.attachments },
    });
  });
});

describe('in a sandbox', () => {
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
    const leaseToken = lease.resources[0]!.token;
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
    rig.clock.advance(11 * 60_000);
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
});

describe('at creation', () => {
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
    rig.clock.advance(120_000);
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
        for (const { key } of await tables.workspaces.listAttachCache(9))
          await tables.workspaces.removeAttachCache(key);
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
    rig.clock.advance(11_000);
    await expect
      .poll(async () => (await rig.store.read((tables) => tables.workspaces.listAttachCache(1_000))).length)
      .toBe(attachCacheMax);
    expect(await rig.store.read((tables) => tables.workspaces.findAttachCache(entry!.key))).toBeDefined();
    expect(await rig.store.read((tables) => tables.workspaces.findAttachCache('old-0'))).toBeUndefined();
  });
});
