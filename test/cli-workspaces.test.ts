/** The commands of workspaces: what they ask of the server, print and exit with. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type CliRig, openCliRig } from './support/cli-rig.ts';
import { testId } from './support/fake-control.ts';
import { testAttachment, testVersion, testWorkspace } from './support/fake-control-workspaces.ts';
import { tarOf } from './support/workspace-content.ts';

const run = promisify(execFile);
const sandboxId = testId('sandbox', 'a');
const versionLine = `${testVersion.number} ${testVersion.commit}\n`;

let rig: CliRig;
let directory: string;
beforeEach(async () => {
  rig = await openCliRig({ env: { ATOLL_GIT_PASSWORD: 'hidden' } });
  directory = await mkdtemp(join(tmpdir(), 'atoll-cli-'));
});
afterEach(async () => {
  await rig[Symbol.asyncDispose]();
  await rm(directory, { recursive: true });
});

const asked = (method: string) => rig.http.control.last(method).args;

test('one is made empty, listed, shown, its versions listed, put back and deleted', async () => {
  expect((await rig.run('workspace', 'create', 'site')).stdout).toBe(`${testWorkspace.id}\n`);
  expect(asked('createWorkspace')[2]).toEqual({ name: 'site', content: 'empty' });
  expect((await rig.run('workspace', 'ls')).stdout).toContain('site');
  expect((await rig.run('workspace', 'info', 'site')).stdout).toContain('/workspace/site');
  expect((await rig.run('workspace', 'log', 'site', '--before', '9')).stdout).toContain('The second');
  expect(asked('listWorkspaceVersions')[2]).toMatchObject({ before: 9 });
  expect((await rig.run('workspace', 'revert', 'site', '1', '--message', 'Back')).stdout).toBe(versionLine);
  expect(asked('revertWorkspace')[3]).toEqual({ version: 1, message: 'Back' });
  expect(await rig.run('workspace', 'rm', 'site')).toMatchObject({ exitCode: 0, stdout: '' });
  expect(asked('deleteWorkspace')[1]).toBe('site');
  expect(JSON.parse((await rig.run('--json', 'workspace', 'info', 'site')).stdout)).toMatchObject({ name: 'site' });
});

test('a directory is imported as its files, a repository with its history, a bundle and an archive as they are', async () => {
  const files = join(directory, 'files');
  await mkdir(files);
  await writeFile(join(files, 'a.txt'), 'a');
  expect((await rig.run('workspace', 'create', 'site', files)).stdout).toBe(`${testWorkspace.id}\n`);
  expect(asked('createWorkspace')[2]).toEqual({ name: 'site', content: 'none' });
  expect(asked('importWorkspace')[3]).toMatchObject({ kind: 'archive' });

  const git = (...words: string[]) => run('git', ['-C', files, '-c', 'user.name=A', '-c', 'user.email=a@b', ...words]);
  await git('init', '-q');
  await git('add', '.');
  await git('commit', '-qm', 'One');
  expect((await rig.run('workspace', 'import', 'site', files, '--message', 'M')).stdout).toBe(versionLine);
  expect(asked('importWorkspace')[3]).toMatchObject({ kind: 'bundle', message: 'M' });
  await rig.run('workspace', 'import', 'site', files, '--files-only');
  expect(asked('importWorkspace')[3]).toMatchObject({ kind: 'archive' });

  const bundle = join(directory, 'some.file');
  await git('bundle', 'create', bundle, 'HEAD');
  await rig.run('workspace', 'import', 'site', bundle, '--ref', 'HEAD');
  expect(asked('importWorkspace')[3]).toMatchObject({ kind: 'bundle', ref: 'HEAD' });
  const missing = await rig.run('workspace', 'import', 'site', join(directory, 'none'));
  expect(missing).toMatchObject({ stdout: '' });
  expect(missing.exitCode).not.toBe(0);
  await git('update-ref', '-d', 'HEAD');
  const unborn = await rig.run('workspace', 'import', 'site', files);
  expect(unborn.stderr).toContain('git failed on this machine');
});

test('a remote is imported from and pushed to by the server, its password from the environment only', async () => {
  const url = 'https://git.example.com/site.git';
  await rig.run('workspace', 'import', 'site', url, '--ref', 'main', '--user', 'ada');
  const credentials = { username: 'ada', password: 'hidden' };
  expect(asked('importWorkspaceRemote')[3]).toEqual({ url, ref: 'main', credentials });
  expect((await rig.run('workspace', 'export', 'site', url, '--ref', 'main', '--at', '2')).stdout).toBe(versionLine);
  expect(asked('pushWorkspace')[3]).toEqual({ url, ref: 'main', version: 2 });
});

test('a version is exported to a file that is not there, and to stdout', async () => {
  const file = join(directory, 'site.bundle');
  expect(await rig.run('workspace', 'export', 'site', file)).toMatchObject({ exitCode: 0, stdout: '' });
  expect(asked('exportWorkspace')[2]).toEqual({ kind: 'bundle' });
  expect(await readFile(file, 'utf8')).toBe('an export');
  expect((await rig.run('workspace', 'export', 'site', file)).exitCode).not.toBe(0);
  expect((await rig.run('workspace', 'export', 'site', '-', '--at', '1')).stdout).toBe('an export');
  expect(asked('exportWorkspace')[2]).toEqual({ kind: 'archive', version: 1 });
});

test('in a sandbox: attach, list, diff, commit, update, drop, detach', async () => {
  const there = { sandboxId, workspace: 'site' };
  expect((await rig.run('workspace', 'attach', sandboxId, 'site', '/src', '--at', '1')).stdout).toBe(
    `${testAttachment.path}\n`,
  );
  expect(asked('attachWorkspace')[3]).toEqual({ workspace: 'site', path: '/src', version: 1 });
  expect((await rig.run('workspace', 'attached', sandboxId)).stdout).toContain('/workspace/site');
  expect((await rig.run('workspace', 'diff', sandboxId, 'site')).stdout).toMatch(
    /M +\+2 -3 +a\.txt\n1 files, \+2 -3\n$/,
  );
  expect((await rig.run('workspace', 'diff', sandboxId, 'site', '--patch')).stdout).toBe('diff --git a b\n');
  expect((await rig.run('workspace', 'diff', 'site', '--from', '1', '--to', '2')).stdout).toContain('a.txt');
  expect(asked('diffWorkspace')[2]).toMatchObject({ from: 1, to: 2 });
  expect((await rig.run('workspace', 'diff', 'site', '--patch')).stdout).toBe('diff --git a b\n');
  const words = ['-m', 'Why', '--author', 'Ada <a@b>', '--trailer', 'Ticket=7'];
  expect((await rig.run('workspace', 'commit', sandboxId, 'site', ...words)).stdout).toBe(versionLine);
  expect(asked('commitAttachment').slice(0, 2)).toMatchObject([
    there,
    { message: 'Why', author: { name: 'Ada', email: 'a@b' }, trailers: [{ name: 'Ticket', value: '7' }] },
  ]);
  expect((await rig.run('workspace', 'commit', sandboxId, 'site')).exitCode).toBe(64);
  expect((await rig.run('workspace', 'update', sandboxId, 'site')).stdout).toBe('2, 1 files changed\n');
  expect((await rig.run('workspace', 'drop', sandboxId, 'site')).stdout).toBe('2\n');
  expect((await rig.run('workspace', 'detach', sandboxId, 'site', '--remove-files')).exitCode).toBe(0);
  expect(asked('detachWorkspace')).toMatchObject([there, { removeFiles: 'true' }]);
});

test('a sandbox is created with workspaces', async () => {
  await rig.run('create', '--workspace', 'site:/src@2', '--workspace', 'docs');
  expect(asked('create').at(-1)).toMatchObject({
    workspaces: [{ workspace: 'site', path: '/src', version: 2 }, { workspace: 'docs' }],
  });
  expect((await rig.run('create', '--workspace', ':x')).exitCode).toBe(64);
});

test('a version is exported into a directory, as its files', async () => {
  const { control } = rig.http;
  control.versions.export = async () =>
    ({ version: testVersion, bytes: once(tarOf({ 'docs/a.txt': 'a\n' })) }) as never;
  const target = join(directory, 'out');
  expect(await rig.run('workspace', 'export', 'site', target)).toMatchObject({ exitCode: 0, stdout: '' });
  expect(await readFile(join(target, 'docs/a.txt'), 'utf8')).toBe('a\n');
});

test('the client library reads one version, and one side of a conflict', async () => {
  const { workspaces } = rig.http.client();
  expect(await workspaces.version('site', 2)).toMatchObject({ number: testVersion.number });
  expect(asked('getWorkspaceVersion').slice(1)).toEqual(['site', 2]);
  const blob = 'a'.repeat(40);
  expect(await text(await workspaces.readBlob('site', blob))).toBe('a blob');
  expect(asked('readWorkspaceBlob').slice(1, 3)).toEqual(['site', blob]);
});

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  yield bytes;
}
