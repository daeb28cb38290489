/** git in a real sandbox; the network is off, so remotes are paths and file URLs inside. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const author = { name: 'A', email: 'a@example.com' };

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
  const made = await sandbox.exec(
    'git init -q -b main --bare /srv/origin.git && git clone -q /srv/origin.git /tmp/seed && cd /tmp/seed && git checkout -q -b main; echo one > file && git add . && git -c user.name=a -c user.email=b@c commit -qm first && git push -q origin main',
  );
  expect(made).toMatchObject({ exitCode: 0 });
});
afterAll(() => platform.close());

test('clone, status, add, commit, push, pull, branches and diff, with results as data', async () => {
  const { git, files } = sandbox;
  const { commit: first } = await git.clone('file:///srv/origin.git', '/workspace/work');
  const path = '/workspace/work';
  expect(first).toMatch(/^[0-9a-f]{40}$/);
  expect(await git.status({ path })).toMatchObject({
    branch: 'main',
    commit: first,
    upstream: 'origin/main',
    isClean: true,
  });
  await files.write('work/new\nname', 'x');
  await files.write('work/file', 'two\n');
  expect((await git.status({ path })).files).toEqual([
    { path: 'file', from: null, staged: '.', unstaged: 'M' },
    { path: 'new\nname', from: null, staged: '?', unstaged: '?' },
  ]);
  expect(await git.diff({ path })).toContain('+two');
  await git.add(['.'], { path });
  expect(await git.diff({ path, staged: true, paths: ['file'] })).toContain('-one');
  const { commit } = await git.commit('second', { path, author });
  await git.push({ path });
  expect(await git.branches({ path })).toEqual([
    { name: 'main', commit, isCurrent: true, isRemote: false, upstream: 'origin/main' },
    { name: 'origin/main', commit, isCurrent: false, isRemote: true, upstream: null },
  ]);
  expect(await git.pull({ path: '/tmp/seed', branch: 'main' })).toEqual({ commit, isChanged: true });
});

test('what git refuses has a reason', async () => {
  const { git } = sandbox;
  const failed = (reason: string) => ({ code: 'git_failed', details: { reason } });
  await expect(git.status({ path: '/tmp' })).rejects.toMatchObject(failed('not_a_repository'));
  await expect(git.clone('/srv/none.git', '/tmp/none')).rejects.toMatchObject(failed('not_found'));
  await expect(git.clone('/srv/origin.git', '/tmp/seed')).rejects.toMatchObject(failed('exists'));
  await expect(git.commit('empty', { path: '/tmp/seed', author })).rejects.toMatchObject(failed('nothing_to_commit'));
  await expect(git.clone('https://nowhere.invalid/x', '/tmp/far')).rejects.toMatchObject(failed('unreachable'));
  await expect(git.status({ path: '/no/such' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
});

test('hooks that a repository brings along do not run', async () => {
  await sandbox.exec(
    'printf "#!/bin/sh\\ntouch /tmp/hook-ran\\n" > /tmp/seed/.git/hooks/pre-commit; chmod +x /tmp/seed/.git/hooks/pre-commit',
  );
  await sandbox.git.commit('quiet', { path: '/tmp/seed', author, allowEmpty: true });
  expect(await sandbox.files.exists('/tmp/hook-ran')).toBe(false);
});

test('E130: credentials reach git, and are in no file of the sandbox, no error, no record', async () => {
  // A server that asks for credentials and writes down what it gets.
  const server = `
import base64, http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        given = self.headers.get('Authorization', '')
        if given:
            open('/run/seen', 'w').write(base64.b64decode(given.split()[1]).decode())
        self.send_response(401); self.send_header('WWW-Authenticate', 'Basic realm="x"'); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(('127.0.0.1', 8099), H).serve_forever()
`;
  await sandbox.files.write('/opt/server.py', server);
  await sandbox.exec('setsid python3 /opt/server.py >/dev/null 2>&1 &');
  const ready =
    'for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null && exit 0; sleep 0.1; done; exit 1';
  expect((await sandbox.exec(ready)).exitCode).toBe(0);
  await sandbox.exec('git config --global credential.helper store');
  const password = 'tok-3f1c9a7d55';
  const error = await sandbox.git
    .clone('http://127.0.0.1:8099/x.git', '/tmp/secret-clone', { credentials: { username: 'bot', password } })
    .catch((caught: unknown) => caught);
  expect(error).toMatchObject({ code: 'git_failed', details: { reason: 'authentication' } });
  expect(await sandbox.files.readText('/run/seen')).toBe(`bot:${password}`);
  await sandbox.files.remove('/run/seen');
  expect(JSON.stringify(error) + String((error as Error).stack)).not.toContain(password);
  const found = await sandbox.exec([
    'grep',
    '-rlsF',
    '--exclude-dir=proc',
    '--exclude-dir=sys',
    'tok-3f1c',
    '/root',
    '/home',
    '/tmp',
    '/workspace',
    '/etc',
    '/run',
    '/srv',
    '/var',
  ]);
  expect(found.stdout).toBe('');
  for (const name of ['atoll.db', 'atoll.db-wal']) {
    const bytes = await readFile(join(platform.dataDirectory, 'server', name)).catch(() => Buffer.alloc(0));
    expect(bytes.includes(password)).toBe(false);
  }
});

test("E127: the call's author goes before the sandbox's environment, which goes before what git has by itself", async () => {
  const env = {
    GIT_AUTHOR_NAME: 'Box',
    GIT_AUTHOR_EMAIL: 'box@example.com',
    GIT_COMMITTER_NAME: 'Box',
    GIT_COMMITTER_EMAIL: 'b@e',
  };
  const own = await platform.client.sandboxes.create({ env });
  const path = '/workspace/r';
  await own.exec(['git', 'init', '-q', '-b', 'main', path]);
  await own.git.commit('of the sandbox', { path, allowEmpty: true });
  await own.git.commit('of the call', { path, allowEmpty: true, author });
  const log = ['git', 'log', '--reverse', '--format=%an %ae %cn'];
  expect((await own.exec(log, { cwd: path })).stdout).toBe('Box box@example.com Box\nA a@example.com A\n');
  await own.delete();
});

test('E131: git leaves no process behind', async () => {
  await sandbox.git.status({ path: '/tmp/seed' });
  const left = async () => (await sandbox.exec(['pgrep', '-cx', 'git|bash|sh'])).stdout;
  await expect.poll(left, { timeout: 20_000 }).toBe('0\n');
});
