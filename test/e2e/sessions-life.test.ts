/** How sessions begin, are found, and end, and what is left of them. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
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

test('E63: a name that lives is refused; of a dead session it gives a new shell', async () => {
  const first = await sandbox.sessions.create({ name: 'e63' });
  await say(first, 'OLD=1');
  const again = sandbox.sessions.create({ name: 'e63' });
  await expect(again).rejects.toMatchObject({ code: 'session_exists', details: { name: 'e63', sessionId: first.id } });
  expect(await say(first, 'echo $OLD')).toBe('1\n');
  await first.exec('exit 3');
  await using second = await sandbox.sessions.create({ name: 'e63' });
  expect(second.id).not.toBe(first.id);
  expect(await say(second, 'echo "${OLD-unset}"')).toBe('unset\n');
  await expect(first.exec('true')).rejects.toMatchObject({ code: 'session_terminated', details: { exitCode: 3 } });
  expect((await sandbox.sessions.get('e63')).id).toBe(second.id);
});

test('E64: however many create one name at once, there is one shell', async () => {
  const own = await platform.client.sandboxes.create();
  const results = await Promise.allSettled(Array.from({ length: 12 }, () => own.sessions.create({ name: 'one' })));
  const made = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value.id] : []));
  const refused = results.flatMap((result) => (result.status === 'rejected' ? [result.reason.code] : []));
  expect(made).toHaveLength(1);
  expect(refused).toEqual(Array.from({ length: 11 }, () => 'session_exists'));
  expect((await own.sessions.list()).map(({ id }) => id)).toEqual(made);
  expect((await own.exec('pgrep -c bash')).stdout).toBe('1\n');
  await own.delete();
});

test('E64: a command for a name that is being created waits for its shell', async () => {
  const own = await platform.client.sandboxes.create();
  const creating = own.sessions.create({ name: 'soon', env: { FROM: 'create' } });
  await expect.poll(() => own.sessions.get('soon').catch(() => undefined), patience).toBeDefined();
  const found = await own.sessions.get('soon');
  expect(await say(found, 'echo $FROM')).toBe('create\n');
  expect((await creating).id).toBe(found.id);
  await own.delete();
});

test('E65: E68: an unknown session is not found, whatever is asked of it', async () => {
  await using session = await sandbox.sessions.create();
  const path = (name: string, rest = '') => `${platform.server.url}/v1/sandboxes/${sandbox.id}/sessions/${name}${rest}`;
  const ask = async (method: string, url: string, body?: unknown) => {
    const headers = { Authorization: `Bearer ${platform.key}`, 'Content-Type': 'application/json' };
    const response = await fetch(url, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
    const { error } = response.status === 204 ? {} : ((await response.json()) as { error?: { code: string } });
    return [response.status, error?.code];
  };
  const missing = [404, 'session_not_found'];
  for (const name of ['nobody', `ses${'a'.repeat(20)}`]) {
    expect(await ask('POST', path(name, '/exec'), { command: 'true' })).toEqual(missing);
    expect(await ask('GET', path(name))).toEqual(missing);
    expect(await ask('PATCH', path(name, '/env'), { env: { A: '1' } })).toEqual(missing);
    expect(await ask('POST', path(name, '/processes'), { command: 'true' })).toEqual(missing);
    expect(await ask('DELETE', path(name))).toEqual(missing);
  }
  expect(await ask('DELETE', path(session.id))).toEqual([204, undefined]);
  expect(await ask('DELETE', path(session.id))).toEqual(missing);
});

test('E66: a dead session tells its end to everybody who asks, and is not replaced', async () => {
  const session = await sandbox.sessions.create({ name: 'e66' });
  await session.exec('exit 11');
  const ended = { code: 'session_terminated', details: { exitCode: 11, reason: 'exited' } };
  await expect(session.exec('true')).rejects.toMatchObject(ended);
  await expect((await sandbox.sessions.get('e66')).exec('true')).rejects.toMatchObject(ended);
  await expect(session.setEnv({ A: '1' })).rejects.toMatchObject(ended);
  await expect(session.processes.start('true')).rejects.toMatchObject(ended);
  await expect(session.files.stat('.')).rejects.toMatchObject(ended);
  const listed = (await sandbox.sessions.list()).find(({ id }) => id === session.id);
  expect(listed?.view).toMatchObject({ state: 'ended', end: { exitCode: 11 } });
  await session.delete();
  await expect(session.exec('true')).rejects.toMatchObject({ code: 'session_not_found' });
});

test('E67: a delete kills the running command and its processes at once, refuses what waits, and leaves no file', async () => {
  const own = await platform.client.sandboxes.create();
  const session = await own.sessions.create({ name: 'e67' });
  await say(session, '(setsid sleep 9001 &) ; sleep 9002 &');
  const process = await session.processes.start('sleep 9003');
  const { result } = await holdBusy(own, session);
  const waiting = (await own.sessions.get('e67')).exec('touch /tmp/e67');
  const queued = () => own.sessions.get('e67').then(({ view }) => view.queued);
  await vi.waitFor(async () => expect(await queued()).toBe(1), patience);
  const refused = expect(waiting).rejects.toMatchObject({ code: 'session_terminated', details: { reason: 'killed' } });
  await session.delete();
  await refused;
  expect(await result).toMatchObject({ killed: true, sessionEnded: { reason: 'killed' } });
  expect((await process.wait({ for: 'tree', timeoutMs: 30_000 })).exit).toMatchObject({ killed: true });
  await vi.waitFor(async () => {
    expect((await own.exec('pgrep -f "sleep 900[123]"; pgrep bash')).stdout).toBe('');
  }, patience);
  expect(await own.files.exists('/tmp/e67')).toBe(false);
  expect(await own.sessions.list()).toEqual([]);
  expect(await readdir(join(platform.nodeDirectory, 'sandboxes', own.id, 'sessions'))).toEqual([]);
  await own.delete();
});

test('E67: a session that is deleted while it is made, many times over, leaves no shell', async () => {
  const own = await platform.client.sandboxes.create();
  for (let round = 0; round < 10; round++) {
    const creating = own.sessions.create({ name: 'short' }).catch(() => {});
    await expect.poll(() => own.sessions.get('short').catch(() => undefined), patience).toBeDefined();
    await (await own.sessions.get('short')).delete();
    await creating;
  }
  expect(await own.sessions.list()).toEqual([]);
  await vi.waitFor(async () => expect((await own.exec(['pgrep', '-c', 'bash'])).stdout).toBe('0\n'), patience);
  await own.delete();
});

test('E69: variables are set and unset all or none, in turn with commands', async () => {
  await using session = await sandbox.sessions.create({ env: { GONE: 'g', OLD: 'o' } });
  await session.setEnv({ OLD: 'new', MORE: 'it\'s "$quoted" `x`\n', GONE: null });
  const show = 'printf "%s|%s|%s" "$OLD" "$MORE" "${GONE-unset}"; bash -c \'echo "|$OLD"\'';
  expect(await say(session, show)).toBe(`new|it's "$quoted" \`x\`\n|unset|new\n`);
  await say(session, 'readonly FIXED=f');
  const refused = session.setEnv({ OLD: 'never', FIXED: 'g' });
  await expect(refused).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(session.setEnv({ OLD: 'never', '1BAD': 'g' })).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(session.setEnv({ OLD: 'never', BAD: 'a\0b' })).rejects.toMatchObject({ code: 'invalid_request' });
  expect(await say(session, 'echo "$OLD $FIXED"')).toBe('new f\n');
  const both = await Promise.all(
    Array.from({ length: 10 }, (_, i) => session.setEnv({ PAIR_A: `${i}`, PAIR_B: `${i}` }).then(() => i)),
  );
  expect(both).toHaveLength(10);
  expect(await say(session, 'echo "$PAIR_A $PAIR_B"')).toBe('9 9\n');
});

test('E71: a shell that is killed for memory or by another process mid-command is told, never a hang', async () => {
  const small = await platform.client.sandboxes.create({ limits: { memoryBytes: 128 * 1024 ** 2 } });
  const hungry = await small.sessions.create();
  // The shell itself grows, so it is what the kernel finds to kill.
  const starved = await hungry.exec('x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done', { timeoutMs: 120_000 });
  expect(starved.sessionEnded).toMatchObject({ exitCode: 137, signal: 'SIGKILL', reason: 'out_of_memory' });
  expect(starved.outOfMemory).toBe(true);
  const ended = { code: 'session_terminated', details: { reason: 'out_of_memory' } };
  await expect(hungry.exec('true')).rejects.toMatchObject(ended);

  const shot = await small.sessions.create();
  const { result } = await holdBusy(small, shot);
  await small.exec(['kill', '-SEGV', String(shot.view.pid)]);
  expect((await result).sessionEnded).toMatchObject({ signal: 'SIGSEGV', exitCode: 139, reason: 'crashed' });
  await small.delete();
});

test(
  'E72: 100 idle sessions cost bounded memory',
  async () => {
    const own = await platform.client.sandboxes.create();
    const resident = async () => {
      const status = await readFile(`/proc/${platform.server.pid}/status`, 'utf8');
      return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
    };
    const before = await resident();
    for (let index = 0; index < 100; index++) await own.sessions.create();
    const { stdout } = await own.exec(
      `for p in $(pgrep bash); do grep Pss: /proc/$p/smaps_rollup; done | awk '{s+=$2} END {print NR, s/1024}'`,
    );
    const [shells, inside] = stdout.trim().split(' ').map(Number);
    const server = (await resident()) - before;
    process.stderr.write(
      `E72: 100 idle sessions: ${inside} MiB in their shells, ${server.toFixed(1)} MiB in the server\n`,
    );
    expect(shells).toBeGreaterThanOrEqual(100);
    expect(inside).toBeLessThan(600);
    expect(server).toBeLessThan(200);
    expect((await own.sessions.list()).filter(({ view }) => view.state === 'running')).toHaveLength(100);
    await own.delete();
  },
  { timeout: 180_000 },
);

test('E129: sessions of an earlier life are gone, and a handle of it acts on nothing', async () => {
  const own = await platform.client.sandboxes.create();
  const session = await own.sessions.create({ name: 'work' });
  const early = await platform.client.sandboxes.connect(own.id);
  const handle = await early.sessions.get('work');
  await own.stop({ graceMs: 0 });
  expect((await handle.refresh()).view).toMatchObject({ state: 'ended', end: { reason: 'sandbox_ended' } });
  await own.start();
  await expect(handle.exec('true')).rejects.toMatchObject({ code: 'stale_generation' });
  await expect(own.sessions.get('work')).rejects.toMatchObject({ code: 'session_not_found' });
  expect(await own.sessions.list()).toEqual([]);
  const next = await own.sessions.create({ name: 'work' });
  expect(next.id).not.toBe(session.id);
  await expect(handle.exec('true')).rejects.toMatchObject({ code: 'stale_generation' });
  await own.delete();
});

test('E131: without a session nothing makes one: none is listed and no shell lives', async () => {
  const own = await platform.client.sandboxes.create();
  await own.exec('true');
  const process = await own.processes.start('true');
  await process.wait({ for: 'tree' });
  await own.files.write('a', 'b');
  await using watch = await own.files.watch('.');
  await own.exec('git init -q repo');
  await own.git.status({ path: 'repo' });
  expect(await own.sessions.list()).toEqual([]);
  expect((await own.exec(['pgrep', '-c', '^(ba|da|)sh$'])).stdout).toBe('0\n');
  watch.close();
  await own.delete();
});

test('a shell that is no bash is refused by name, and nothing of it stays', async () => {
  const own = await platform.client.sandboxes.create();
  for (const shell of ['/bin/dash', '/bin/true', '/no/such/shell']) {
    await expect(own.sessions.create({ shell, name: 'odd' })).rejects.toMatchObject({
      code: 'session_shell_not_usable',
    });
  }
  await expect(own.sessions.create({ user: 'nobody-here' })).rejects.toMatchObject({ code: 'user_not_usable' });
  await expect(own.sessions.create({ cwd: '/no/such' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
  expect(await own.sessions.list()).toEqual([]);
  expect(await readdir(join(platform.nodeDirectory, 'sandboxes', own.id, 'sessions'))).toEqual([]);
  await own.sessions.create({ shell: '/bin/bash', name: 'odd' });
  await own.delete();
});
