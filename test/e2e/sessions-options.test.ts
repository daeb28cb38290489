/** What may be said with a command of a session, in which order commands run, and what else is said relative to a session. */
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { holdBusy, say } from '../support/sessions.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

test('E54: a working directory for one command is left again, also when it fails', async () => {
  await using session = await sandbox.sessions.create({ cwd: '/usr' });
  expect((await session.exec('pwd', { cwd: '/tmp' })).stdout).toBe('/tmp\n');
  expect(await say(session, 'pwd')).toBe('/usr\n');
  expect((await session.exec('false', { cwd: '/tmp' })).exitCode).toBe(1);
  expect((await session.exec('echo "open', { cwd: '/tmp' })).exitCode).not.toBe(0);
  expect(await say(session, 'pwd')).toBe('/usr\n');
  expect((await session.exec('pwd', { cwd: 'lib' })).stdout).toBe('/usr/lib\n');
});

test('E55: an environment for one command is taken back, whether a name existed, did not, was exported or read-only', async () => {
  await using session = await sandbox.sessions.create();
  await say(session, 'PLAIN=p; export SHOWN=s; unset ABSENT');
  const env = { PLAIN: '1', SHOWN: '2', ABSENT: '3' };
  const inside = await session.exec('bash -c \'echo "$PLAIN $SHOWN $ABSENT"\'', { env });
  expect(inside.stdout).toBe('1 2 3\n');
  expect(await say(session, 'echo "$PLAIN $SHOWN ${ABSENT-unset}"')).toBe('p s unset\n');
  expect(await say(session, 'bash -c \'echo "${PLAIN-unset} $SHOWN ${ABSENT-unset}"\'')).toBe('unset s unset\n');
  await session.exec('false', { env });
  expect(await say(session, 'echo "$PLAIN $SHOWN ${ABSENT-unset}"')).toBe('p s unset\n');
  await say(session, 'readonly FIXED=f');
  const fixed = { FIXED: 'other', PLAIN: null };
  expect((await session.exec('echo "$FIXED ${PLAIN-unset}"', { env: fixed })).stdout).toBe('other unset\n');
  expect(await say(session, 'echo "$FIXED $PLAIN"')).toBe('f p\n');
  expect(await session.exec('FIXED=g')).toMatchObject({ exitCode: 1, sessionEnded: null });
});

test('E56: a missing working directory is refused by name, nothing runs, and the session lives', async () => {
  await using session = await sandbox.sessions.create();
  const refused = session.exec('touch /tmp/e56', { cwd: '/no/such/place' });
  await expect(refused).rejects.toMatchObject({ code: 'cwd_not_usable', details: { cwd: '/no/such/place' } });
  expect(await sandbox.files.exists('/tmp/e56')).toBe(false);
  expect(await say(session, 'pwd')).toBe('/workspace\n');
});

test("E57: a session's timeout is that of commands that bring none; a command's own wins", async () => {
  await using session = await sandbox.sessions.create({ timeoutMs: 3_000 });
  expect((await session.exec('sleep 4; echo slept', { timeoutMs: 60_000 })).stdout).toBe('slept\n');
  const ended = await session.exec('sleep 600');
  expect(ended).toMatchObject({ timedOut: true, sessionEnded: { reason: 'timeout' } });
});

test('E58: a timeout kills the tree, returns what was written and ends the session; nothing later runs in it', async () => {
  await using session = await sandbox.sessions.create();
  const mark = `${700_000 + Math.floor(Math.random() * 100_000)}`;
  const command = `trap "" TERM; echo before; (setsid sleep ${mark} &); sleep ${mark}; echo after`;
  const result = await session.exec(command, { timeoutMs: 2_000 });
  expect(result).toMatchObject({ stdout: 'before\n', stderr: '', timedOut: true });
  expect(result.sessionEnded).toMatchObject({ reason: 'timeout', exitCode: expect.any(Number) });
  const next = session.exec('touch /tmp/e58');
  await expect(next).rejects.toMatchObject({ code: 'session_terminated', details: { reason: 'timeout' } });
  expect(await sandbox.files.exists('/tmp/e58')).toBe(false);
  await vi.waitFor(async () => {
    expect((await sandbox.exec(`pgrep -fx "sleep ${mark}"`)).stdout).toBe('');
  }, patience);
});

test('E59: commands run strictly in call order, also when one fails', async () => {
  await using session = await sandbox.sessions.create();
  const results = await Promise.all(
    Array.from({ length: 30 }, (_, index) =>
      session.exec(index % 7 === 3 ? `echo ${index} >> /tmp/e59; false` : `echo ${index} >> /tmp/e59`),
    ),
  );
  expect(results.map(({ exitCode }) => exitCode)).toEqual(Array.from({ length: 30 }, (_, i) => (i % 7 === 3 ? 1 : 0)));
  const lines = (await sandbox.files.readText('/tmp/e59')).trim().split('\n');
  expect(lines).toEqual(Array.from({ length: 30 }, (_, index) => String(index)));
});

test('E59: between handles one command runs at a time', async () => {
  await using session = await sandbox.sessions.create({ name: 'e59' });
  const handles = await Promise.all(Array.from({ length: 20 }, () => sandbox.sessions.get('e59')));
  const alone = 'if mkdir /tmp/e59-lock; then sleep 0.01; rmdir /tmp/e59-lock; else echo not alone; fi';
  const results = await Promise.all(handles.map((handle) => handle.exec(alone)));
  expect(results.map(({ stdout, stderr }) => stdout + stderr)).toEqual(Array.from({ length: 20 }, () => ''));
  expect(session.id).toBe(handles[0]!.id);
});

test('E18: E60: a long command of one session holds no other session and no stateless command', async () => {
  await using busy = await sandbox.sessions.create();
  await using free = await sandbox.sessions.create();
  const { result, release } = await holdBusy(sandbox, busy);
  expect(await say(free, 'echo free')).toBe('free\n');
  expect((await sandbox.exec('echo stateless')).stdout).toBe('stateless\n');
  expect((await busy.refresh()).view.current).not.toBeNull();
  await release();
  expect((await result).stdout).toBe('released\n');
});

test('E61: a background child holds neither its command nor the next; its late output is in neither', async () => {
  await using session = await sandbox.sessions.create();
  const go = '/tmp/e61-go';
  const first = await session.exec(
    `(while [ ! -e ${go} ]; do sleep 0.02; done; echo late; touch ${go}.said) & echo begun`,
  );
  expect(first).toMatchObject({ stdout: 'begun\n', exitCode: 0 });
  await sandbox.exec(['touch', go]);
  const next = await session.exec(`while [ ! -e ${go}.said ]; do sleep 0.02; done; echo next`);
  expect(next.stdout).toBe('next\n');
});

test('E70: what runs, since when and how many wait can be seen; who would not wait longer does not run', async () => {
  await using session = await sandbox.sessions.create({ name: 'e70' });
  expect(session.view).toMatchObject({ current: null, queued: 0 });
  const before = Date.now();
  const { result, release } = await holdBusy(sandbox, session);
  const other = await sandbox.sessions.get('e70');
  expect(other.view.current?.operationId).toMatch(/^opr[a-z0-9]{20}$/);
  expect(Date.parse(other.view.current!.since)).toBeGreaterThanOrEqual(before - 1_000);
  const [patient, late, now, left] = await Promise.all(Array.from({ length: 4 }, () => sandbox.sessions.get('e70')));
  const waiting = patient!.exec('echo waited');
  await vi.waitFor(async () => expect((await other.refresh()).view.queued).toBe(1), patience);
  const timeout = { code: 'session_queue_timeout' };
  await expect(late!.exec('touch /tmp/e70', { queueTimeoutMs: 100 })).rejects.toMatchObject(timeout);
  await expect(now!.exec('touch /tmp/e70', { queueTimeoutMs: 0 })).rejects.toMatchObject(timeout);
  const abort = new AbortController();
  const cancelled = left!.exec('touch /tmp/e70', { signal: abort.signal });
  const refused = expect(cancelled).rejects.toMatchObject({ name: 'AbortError' });
  await vi.waitFor(async () => expect((await other.refresh()).view.queued).toBe(2), patience);
  abort.abort();
  await refused;
  await vi.waitFor(async () => expect((await other.refresh()).view.queued).toBe(1), patience);
  await release();
  expect((await result).queuedMs).toBeLessThan(60_000);
  expect(await waiting).toMatchObject({ stdout: 'waited\n', sessionEnded: null });
  expect((await waiting).queuedMs).toBeGreaterThan(0);
  expect(await sandbox.files.exists('/tmp/e70')).toBe(false);
  expect((await other.refresh()).view).toMatchObject({ state: 'running', current: null, queued: 0 });
});

test('E122: relative paths of files and git are where the session is, without waiting for its command', async () => {
  await using session = await sandbox.sessions.create();
  await say(session, 'mkdir -p /tmp/e122/repo && cd /tmp/e122');
  const { result, release } = await holdBusy(sandbox, session);
  expect((await session.files.write('note.txt', 'here')).path).toBe('/tmp/e122/note.txt');
  expect(await session.files.readText('note.txt')).toBe('here');
  expect(await session.files.readText('/tmp/e122/note.txt')).toBe('here');
  await session.files.move('note.txt', 'repo/note.txt');
  expect((await session.files.list('repo')).map(({ path }) => path)).toEqual(['/tmp/e122/repo/note.txt']);
  await sandbox.exec('git init -q', { cwd: '/tmp/e122/repo' });
  expect((await session.git.status({ path: 'repo' })).files.map(({ path }) => path)).toEqual(['note.txt']);
  expect((await session.refresh()).view.current).not.toBeNull();
  await release();
  await result;
  await say(session, 'cd repo');
  expect(await session.files.exists('note.txt')).toBe(true);
  expect((await session.git.status()).files).toHaveLength(1);
  await expect(sandbox.files.stat('note.txt')).rejects.toMatchObject({ code: 'file_not_found' });
});

test('E122: files of a session are those of its user', async () => {
  await using session = await sandbox.sessions.create({ user: 'user', cwd: '/home/user' });
  const entry = await session.files.write('mine', 'x');
  expect(entry).toMatchObject({ path: '/home/user/mine', uid: 1000 });
  await expect(session.files.write('/root/mine', 'x')).rejects.toMatchObject({ code: 'permission_denied' });
});

test("E127: a call's environment goes before the session's, and that before the sandbox's; null unsets", async () => {
  const own = await platform.client.sandboxes.create({
    env: { ONE: 'sandbox', TWO: 'sandbox', THREE: 'sandbox', GONE: 'sandbox' },
  });
  const session = await own.sessions.create({ env: { TWO: 'session', THREE: 'session', GONE: null } });
  const show = 'echo "$ONE $TWO $THREE ${GONE-unset}"';
  expect((await session.exec(show, { env: { THREE: 'call' } })).stdout).toBe('sandbox session call unset\n');
  expect((await session.exec('echo "${ONE-unset} $TWO"', { env: { ONE: null } })).stdout).toBe('unset session\n');
  expect(await say(session, show)).toBe('sandbox session session unset\n');
  await own.delete();
});
