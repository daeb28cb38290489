/** Workspaces through HTTP and SDK, in real sandboxes: attached, changed, published, merged, brought up to date, dropped. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { tarOf, textIn } from '../support/workspace-content.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ settings: { retentionIntervalMs: 300 } });
});
afterAll(() => platform.close());

const runIn = async (sandbox: Sandbox, command: string) => {
  const { stdout, stderr, exitCode } = await sandbox.exec(command);
  expect({ exitCode, stderr }, command).toEqual({ exitCode: 0, stderr: '' });
  return stdout;
};

/** A workspace with these files as its first version. */
async function makeWorkspace(files: Readonly<Record<string, string>>): Promise<string> {
  const name = `site-${randomUUID().slice(0, 8)}`;
  await platform.client.workspaces.create(name, { content: 'none' });
  await platform.client.workspaces.import(name, tarOf(files), { kind: 'archive', message: 'The beginning' });
  return name;
}

const page = { 'index.html': 'one\ntwo\nthree\n', 'docs/guide.md': '# Guide\n', '.gitignore': 'built/\n' };

test('git works in a checkout: it is clean, knows its history, and its files are root’s as commands are', async () => {
  const name = await makeWorkspace(page);
  await using sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  expect(await runIn(sandbox, 'cd /src && git status --porcelain && git log --format=%s')).toBe('The beginning\n');
  expect(await runIn(sandbox, 'stat -c %U:%a /src/index.html')).toBe('root:644\n');
  expect(await runIn(sandbox, 'ls -A /src')).toBe('.git\n.gitignore\ndocs\nindex.html\n');
  const [attachment] = await sandbox.workspaces.list();
  expect(attachment).toMatchObject({ workspace: name, path: '/src', base: { number: 1 }, isCurrent: true });
});

test('what a sandbox changed is shown, published with author and trailers, and in the history', async () => {
  const name = await makeWorkspace(page);
  await using sandbox = await platform.client.sandboxes.create();
  await sandbox.workspaces.attach(name);
  const path = `/workspace/${name}`;
  await runIn(sandbox, `cd ${path} && echo four >> index.html && rm docs/guide.md && mkdir built && echo x > built/x`);
  await runIn(sandbox, `cd ${path} && printf '#!/bin/sh\\n' > run && chmod +x run && ln -s run link`);
  const workspace = sandbox.workspace(name);

  const diff = await workspace.diff();
  expect(diff.files.map(({ path, kind }) => [path, kind])).toEqual([
    ['docs/guide.md', 'deleted'],
    ['index.html', 'modified'],
    ['link', 'added'],
    ['run', 'added'],
  ]);
  expect(diff.counts.files).toBe(4);
  expect(await textIn(await workspace.patch())).toContain('+four\n');

  const author = { name: 'Ada', email: 'ada@example.com' };
  const trailers = [{ name: 'Reviewed-by', value: 'Grace' }];
  const key = { idempotencyKey: randomUUID() };
  const result = await workspace.commit('A fourth line\n\nBecause.', { author, trailers, ...key });
  expect(result).toMatchObject({ outcome: 'committed', version: { number: 2, kind: 'commit' } });
  expect(await workspace.commit('A fourth line\n\nBecause.', { author, trailers, ...key })).toEqual(result);
  const version = await platform.client.workspaces.version(name, 2);
  expect(version).toMatchObject({ author: 'Ada <ada@example.com>', sandboxId: sandbox.id, summary: 'A fourth line' });
  expect(version.message).toContain('Because.');
  expect(version.message).toContain(`Reviewed-by: Grace\nAtoll-Sandbox: ${sandbox.id}\n`);

  expect(await workspace.commit('Again')).toMatchObject({ outcome: 'nothing', version: null });
  expect((await workspace.diff()).files).toEqual([]);
  const { items } = await platform.client.workspaces.versions(name);
  expect(items.map(({ number, summary }) => [number, summary])).toEqual([
    [2, 'A fourth line'],
    [1, 'The beginning'],
  ]);
  const between = await platform.client.workspaces.diff(name, { from: 1 });
  expect(between.files.map(({ path }) => path)).toEqual(diff.files.map(({ path }) => path));
  expect(await textIn(await platform.client.workspaces.patch(name, { from: 1, to: 2 }))).toContain('+four\n');
});

describe('two sandboxes of one workspace', () => {
  test('C20: what they changed in different places is merged, and both go on from there', async () => {
    const name = await makeWorkspace(page);
    const workspaces = [{ workspace: name, path: '/src' }];
    await using first = await platform.client.sandboxes.create({ workspaces });
    await using second = await platform.client.sandboxes.create({ workspaces });
    await runIn(first, 'cd /src && echo four >> index.html');
    await runIn(second, "cd /src && sed -i 's/Guide/Manual/' docs/guide.md && mkdir built && echo 1 > built/kept");
    await first.workspace(name).commit('First');
    const merged = await second.workspace(name).commit('Second');
    expect(merged).toMatchObject({ version: { number: 3, kind: 'merge' }, counts: { files: 1 } });

    const updated = await second.workspace(name).update();
    expect(updated).toMatchObject({ files: 1, attachment: { base: { number: 3 }, isCurrent: true } });
    expect(await runIn(second, 'cd /src && tail -n1 index.html && cat docs/guide.md built/kept')).toBe(
      'four\n# Manual\n1\n',
    );
    expect((await second.workspace(name).diff()).files).toEqual([]);
    expect(await second.workspace(name).update()).toMatchObject({ files: 0 });
    await first.workspace(name).update();
    expect(await runIn(first, 'cat /src/docs/guide.md')).toBe('# Manual\n');
  });

  test('C20: what both changed is a conflict with every side, and neither workspace nor sandbox is touched', async () => {
    const name = await makeWorkspace(page);
    const workspaces = [{ workspace: name, path: '/src' }];
    await using first = await platform.client.sandboxes.create({ workspaces });
    await using second = await platform.client.sandboxes.create({ workspaces });
    await runIn(first, "cd /src && sed -i 's/two/2/' index.html && rm docs/guide.md");
    await runIn(second, "cd /src && sed -i 's/two/zwei/' index.html && echo more >> docs/guide.md && echo n > new");
    await first.workspace(name).commit('First');
    const refused = await second
      .workspace(name)
      .commit('Second')
      .catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'workspace_conflict', details: { version: 2, count: 2 } });
    const { conflicts } = (refused as { details: { conflicts: Record<string, never>[] } }).details;
    expect(conflicts).toMatchObject([
      { path: 'docs/guide.md', kind: 'modifyDelete', ours: null, sandboxId: second.id, withSandboxId: null },
      { path: 'index.html', kind: 'content', sandboxId: second.id, withSandboxId: null },
    ]);
    const { ours, theirs } = conflicts[1] as unknown as { ours: { blob: string }; theirs: { blob: string } };
    expect(await textIn(await platform.client.workspaces.readBlob(name, ours.blob))).toBe('one\n2\nthree\n');
    expect(await textIn(await platform.client.workspaces.readBlob(name, theirs.blob))).toBe('one\nzwei\nthree\n');

    const before = await runIn(second, 'cd /src && cat index.html docs/guide.md new');
    await expect(second.workspace(name).update()).rejects.toMatchObject({ code: 'workspace_conflict' });
    expect(await runIn(second, 'cd /src && cat index.html docs/guide.md new')).toBe(before);
    expect((await platform.client.workspaces.get(name)).head?.number).toBe(2);

    const dropped = await second.workspace(name).drop();
    expect(dropped).toMatchObject({ base: { number: 1 }, isCurrent: false });
    expect(await runIn(second, 'cd /src && git status --porcelain && ls -A && cat index.html')).toBe(
      '.git\n.gitignore\ndocs\nindex.html\none\ntwo\nthree\n',
    );
    await second.workspace(name).update();
    expect(await runIn(second, 'cd /src && cat index.html && ls')).toBe('one\n2\nthree\nindex.html\n');
  });
});

test('C46: a drop removes what was added, brings back what was deleted, modes, links and types', async () => {
  const name = await makeWorkspace(page);
  await using sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  const listing = 'cd /src && find . -path ./.git -prune -o -printf "%y %m %p %l\\n" | sort && cat index.html';
  const before = await runIn(sandbox, listing);
  await runIn(
    sandbox,
    'cd /src && rm -r docs && echo file > docs && rm index.html && ln -s /etc index.html && mkdir e',
  );
  await runIn(sandbox, 'cd /src && chmod 600 .gitignore && mkdir -p built/deep && echo x > built/deep/x');
  await sandbox.workspace(name).drop();
  expect(await runIn(sandbox, listing)).toBe(before);
  expect(await runIn(sandbox, 'ls -A / | grep atoll; true')).toBe('');
});

test('a version is put back as a new one, and a sandbox may stand on an old one', async () => {
  const name = await makeWorkspace(page);
  await platform.client.workspaces.import(name, tarOf({ 'a.txt': 'a' }), { kind: 'archive', message: 'Anew' });
  await using sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, version: 1 }] });
  expect(await runIn(sandbox, `cat /workspace/${name}/docs/guide.md`)).toBe('# Guide\n');
  const stale = platform.client.workspaces.revert(name, { version: 1, expectedHead: 1 });
  await expect(stale).rejects.toMatchObject({ code: 'workspace_moved' });
  const reverted = await platform.client.workspaces.revert(name, { version: 1 });
  expect(reverted).toMatchObject({ number: 3, kind: 'revert', summary: 'Revert to version 1' });
  expect((await platform.client.workspaces.diff(name, { from: 1, to: 3 })).files).toEqual([]);
  const missing = platform.client.workspaces.revert(name, { version: 9 });
  await expect(missing).rejects.toMatchObject({ code: 'workspace_not_found' });
});

test('a path that is taken, one in another, and one that the sandbox needs are refused; an empty directory is not', async () => {
  const name = await makeWorkspace(page);
  const other = await makeWorkspace({ 'b.txt': 'b' });
  await using sandbox = await platform.client.sandboxes.create();
  await runIn(sandbox, 'mkdir -p /data/empty /data/full && echo x > /data/full/x && ln -s /etc /data/link');
  const attach = (workspace: string, path: string) => sandbox.workspaces.attach(workspace, { path });
  for (const path of ['/data/full', '/data/link']) {
    await expect(attach(name, path), path).rejects.toMatchObject({ code: 'file_exists' });
  }
  for (const path of ['/', '/etc', '/proc/x', '/usr/', '/a/../etc']) {
    await expect(attach(name, path), path).rejects.toMatchObject({ code: 'invalid_request' });
  }
  await attach(name, '/data/empty/');
  expect(await runIn(sandbox, 'cat /data/empty/docs/guide.md && ls -A /data')).toBe('# Guide\nempty\nfull\nlink\n');
  await expect(attach(name, '/elsewhere')).rejects.toMatchObject({ code: 'workspace_in_use' });
  await expect(attach(other, '/data/empty/inside')).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(attach(other, '/data')).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(platform.client.workspaces.delete(name)).rejects.toMatchObject({
    code: 'workspace_in_use',
    details: { sandboxes: [{ sandboxId: sandbox.id, path: '/data/empty' }] },
  });
  await sandbox.workspace(name).detach();
  expect(await runIn(sandbox, 'ls /data/empty')).toBe('docs\nindex.html\n');
  await attach(other, '/b');
  await sandbox.workspace(other).detach({ removeFiles: true });
  expect(await sandbox.files.exists('/b')).toBe(false);
  expect(await sandbox.workspaces.list()).toEqual([]);
  await platform.client.workspaces.delete(name);
  await expect(platform.client.workspaces.get(name)).rejects.toMatchObject({ code: 'workspace_not_found' });
});

test('a fork, a sandbox from a checkpoint and a restore stand on what their files were made from', async () => {
  const name = await makeWorkspace(page);
  await using sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  const checkpoint = await sandbox.checkpoints.create();
  await runIn(sandbox, 'echo four >> /src/index.html');
  await sandbox.workspace(name).commit('Four');
  const [fork] = await sandbox.fork();
  await using forked = fork!.sandbox!;
  expect(await forked.workspaces.list()).toMatchObject([{ base: { number: 2 }, isCurrent: true }]);
  expect((await forked.workspace(name).diff()).files).toEqual([]);
  await sandbox.restore(checkpoint.id);
  expect(await sandbox.workspaces.list()).toMatchObject([{ path: '/src', base: { number: 1 }, isCurrent: false }]);
  expect((await sandbox.workspace(name).diff()).files).toEqual([]);
  await using copy = await platform.client.sandboxes.create({ checkpoint: checkpoint.id });
  expect(await copy.workspaces.list()).toMatchObject([{ base: { number: 1 } }]);
});

test('a commit is of one instant while commands go on, of a stopped sandbox too, and leaves nothing behind', async () => {
  const name = await makeWorkspace(page);
  await using sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  // Each file is whole at every moment, so that the one instant is all that is looked for.
  const put = 'put() { echo $n > /next && mv /next $1; }';
  await sandbox.processes.start(`${put}; n=0; while :; do n=$((n+1)); put /src/first; put /src/second; done`);
  await expect.poll(() => sandbox.files.exists('/src/second'), { timeout: 20_000 }).toBe(true);
  await sandbox.workspace(name).commit('Amid');
  await using reader = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  const [first, second] = (await runIn(reader, 'cat /src/first /src/second')).split('\n').map(Number);
  expect([0, 1]).toContain(first! - second!);
  await sandbox.stop({ graceMs: 0 });
  expect((await sandbox.workspace(name).diff()).counts.files).toBeLessThanOrEqual(2);
  await expect(sandbox.workspace(name).drop()).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  const listed = await platform.client.sandboxes.list({ limit: 100 });
  expect(listed.items.map(({ id }) => id)).toEqual([reader.id, sandbox.id]);
  expect((await platform.client.checkpoints.list({ sandboxId: sandbox.id })).items).toEqual([]);
  const report = await platform.client.reconcile({ dryRun: true });
  expect(report).toMatchObject({ actions: [], checkpoints: [] });
});

test('events tell of every transition in order', async () => {
  const name = await makeWorkspace(page);
  const { id } = await platform.client.workspaces.get(name);
  const sandbox = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  await runIn(sandbox, 'echo x > /src/x');
  await sandbox.workspace(name).commit('X');
  await sandbox.workspace(name).drop();
  await sandbox.workspace(name).detach();
  await sandbox.delete();
  await platform.client.workspaces.delete(name);
  const kinds: string[] = [];
  for (let after = 0; ; ) {
    const page = await platform.client.events.list({ after, limit: 1_000 });
    for (const { kind, data } of page.items) if (data['workspaceId'] === id) kinds.push(kind);
    if (page.items.length < 1_000) break;
    after = page.items.at(-1)!.sequence;
  }
  expect(kinds).toEqual(
    ['created', 'version', 'attached', 'version', 'dropped', 'detached', 'deleting', 'deleted'].map(
      (kind) => `workspace.${kind}`,
    ),
  );
});
