/** Workspaces in and out through HTTP and the command line: directories, repositories, bundles, archives, and a git remote on loopback. */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect } from 'vitest';
import { type GitHttp, openGitHttp } from '../support/git-http.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { textIn } from '../support/workspace-content.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const run = promisify(execFile);

let platform: Platform;
let directory: string;
let repository: string;
let remote: GitHttp;
beforeAll(async () => {
  platform = await Platform.start({ serverEnvironment: { ATOLL_PRIVATE_HOSTS: '127.0.0.1' } });
  directory = await mkdtemp(join(tmpdir(), 'atoll-transfer-'));
  repository = join(directory, 'repository');
  await mkdir(repository);
  await git('init', '-q', '-b', 'main');
  for (const [index, text] of ['one\n', 'one\ntwo\n'].entries()) {
    await writeFile(join(repository, 'a.txt'), text);
    await git('add', '.');
    await git('commit', '-qm', `Step ${index + 1}`);
  }
  const bare = join(directory, 'remote');
  await run('git', ['clone', '-q', '--bare', repository, join(bare, 'site.git')]);
  await run('git', ['-C', join(bare, 'site.git'), 'config', 'http.receivepack', 'true']);
  remote = await openGitHttp({ root: bare });
});
afterAll(async () => {
  await remote.close();
  await platform.close();
  await rm(directory, { recursive: true });
});

const git = (...words: string[]) =>
  run('git', ['-C', repository, '-c', 'user.name=Ada', '-c', 'user.email=ada@example.com', ...words]);
const newName = () => `site-${randomUUID().slice(0, 8)}`;
const logIn = async (path: string) => (await run('git', ['-C', path, 'log', '--format=%s'])).stdout;

test('a repository goes in with its history, into a sandbox, and out as a bundle, a directory and a tar', async () => {
  const name = newName();
  const made = await platform.cli('workspace', 'create', name, repository);
  expect(made).toMatchObject({ code: 0, stderr: '' });
  const { stdout } = await platform.cli('create', '--workspace', `${name}:/src`);
  const sandbox = await platform.client.sandboxes.connect(stdout.trim());
  expect((await sandbox.exec('cd /src && git log --format=%s && git status --porcelain')).stdout).toBe(
    'Step 2\nStep 1\n',
  );
  await sandbox.exec('echo three >> /src/a.txt');
  const patch = await platform.cli('workspace', 'diff', sandbox.id, name, '--patch');
  expect(patch.stdout).toContain('+three\n');
  const committed = await platform.cli('workspace', 'commit', sandbox.id, name, '-m', 'Step 3');
  expect(committed.stdout).toMatch(/^2 [0-9a-f]{40}\n$/);

  const bundle = join(directory, `${name}.bundle`);
  expect((await platform.cli('workspace', 'export', name, bundle)).code).toBe(0);
  const clone = join(directory, `${name}-clone`);
  await run('git', ['clone', '-q', '-b', 'main', bundle, clone]);
  expect(await logIn(clone)).toBe('Step 3\nStep 2\nStep 1\n');
  expect((await run('git', ['-C', clone, 'fsck', '--strict'])).stdout).toBe('');

  const files = join(directory, `${name}-files`);
  expect((await platform.cli('workspace', 'export', name, files, '--at', '1')).code).toBe(0);
  expect(await readFile(join(files, 'a.txt'), 'utf8')).toBe('one\ntwo\n');
  const tar = await platform.client.workspaces.export(name, { kind: 'archive' });
  expect(await textIn(tar)).toContain('one\ntwo\nthree\n');

  // What came out goes in again, and is the same.
  const copy = newName();
  expect((await platform.cli('workspace', 'create', copy, bundle)).code).toBe(0);
  const [was, is] = await Promise.all([name, copy].map((one) => platform.client.workspaces.get(one)));
  expect(is!.head!.commit).toBe(was!.head!.commit);
  expect((await platform.cli('workspace', 'log', name)).stdout).toContain('Step 3');
  await sandbox.delete();
  expect((await platform.cli('workspace', 'rm', name, copy)).code).toBe(0);
});

test('a remote on loopback is imported from and pushed to, only forward, and only where its host is allowed', async () => {
  const name = newName();
  const { workspaces, sandboxes } = platform.client;
  await workspaces.create(name, { content: 'none' });
  const url = `${remote.url}/site.git`;
  expect(await workspaces.importRemote(name, { url, ref: 'main' })).toMatchObject({ number: 1, summary: 'Step 2' });
  await using sandbox = await sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  await sandbox.exec('echo pushed > /src/new.txt');
  const { version } = await sandbox.workspace(name).commit('Pushed');
  expect(await workspaces.push(name, { url, ref: 'main' })).toMatchObject({ number: 2, commit: version!.commit });
  const bare = join(directory, 'remote', 'site.git');
  expect((await run('git', ['-C', bare, 'rev-parse', 'main'])).stdout.trim()).toBe(version!.commit);
  const back = workspaces.push(name, { url, ref: 'main', version: 1 });
  await expect(back).rejects.toMatchObject({ code: 'workspace_remote_moved' });
  const missing = workspaces.importRemote(name, { url, ref: 'none' });
  await expect(missing).rejects.toMatchObject({ code: 'workspace_remote_failed' });
  const elsewhere = workspaces.importRemote(name, { url: url.replace('127.0.0.1', '127.0.0.2') });
  await expect(elsewhere).rejects.toMatchObject({ code: 'invalid_request' });
  expect((await workspaces.get(name)).head?.number).toBe(2);
});
