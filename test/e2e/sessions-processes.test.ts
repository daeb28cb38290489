/** Processes that are started from a session: a copy of its shell, with a life of their own that ends with it unless told. */
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { Sandbox, Session } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { outputOf, touch, waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';
import { holdBusy, say } from '../support/sessions.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));

let platform: Platform;
let sandbox: Sandbox;
let session: Session;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());
beforeEach(async () => {
  session = await sandbox.sessions.create();
});
afterEach(() => session[Symbol.asyncDispose]());

test('E73: it sees directory, variables, functions, aliases and options as they are at its launch', async () => {
  await say(
    session,
    'mkdir -p /tmp/e73; cd /tmp/e73; plain=p; export shown=s; f() { echo "f $plain"; }; alias hi="echo hi"',
  );
  await say(session, 'declare -A map=([k]=v); set -- first; shopt -s nullglob');
  const process = await session.processes.start('pwd; echo "$plain $shown"; f; hi; echo "${map[k]} $1"; echo none*');
  await process.wait({ for: 'tree' });
  expect(await outputOf(process)).toEqual({
    stdout: '/tmp/e73\np s\nf p\nhi\nv first\n\n',
    stderr: '',
    kinds: ['exited', 'ended'],
  });
  expect(process.view).toMatchObject({ running: false, exit: { exitCode: 0 } });
  const changed = await session.processes.start('echo $GIVEN; pwd', { env: { GIVEN: 'g' }, cwd: '/usr' });
  await changed.wait({ for: 'tree' });
  expect((await outputOf(changed)).stdout).toBe('g\n/usr\n');
  await say(session, 'mkdir -p below');
  const below = await session.processes.start('pwd', { cwd: 'below' });
  expect((await outputOf(below)).stdout).toBe('/tmp/e73/below\n');
  expect([process, changed, below].map(({ view }) => view.cwd)).toEqual(['/tmp/e73', '/usr', '/tmp/e73/below']);
});

test('E74: nothing that it does is written back', async () => {
  await say(session, 'kept=1; here() { echo mine; }');
  const process = await session.processes.start(
    'kept=2; cd /usr; here() { echo other; }; alias a=b; set -- x; trap "echo t" EXIT; exit 4',
  );
  await process.wait({ for: 'tree' });
  expect(process.view.exit).toMatchObject({ exitCode: 4 });
  expect(await say(session, 'echo "$kept $PWD $#"; here; alias -p; trap -p; jobs; echo "$!"')).toBe(
    '1 /workspace 0\nmine\n\n',
  );
});

test('E75: it waits for a running command as any call does, and the session is busy only for the launch', async () => {
  const { result, release } = await holdBusy(sandbox, session);
  const other = await sandbox.sessions.get(session.id);
  await expect(other.processes.start('true', { queueTimeoutMs: 100 })).rejects.toMatchObject({
    code: 'session_queue_timeout',
  });
  const starting = other.processes.start(`echo begun; ${waitForFile('/tmp/e75')}; echo over`);
  await release();
  await result;
  const process = await starting;
  await process.waitForLog('begun');
  expect(await say(session, 'echo free')).toBe('free\n');
  expect((await process.refresh()).view.running).toBe(true);
  await touch(sandbox, '/tmp/e75');
  expect((await outputOf(process)).stdout).toBe('begun\nover\n');
});

test('E76: its output is seen while it runs, from the first byte', async () => {
  const process = await session.processes.start(`printf first; ${waitForFile('/tmp/e76')}; printf second`);
  await process.waitForLog('first');
  expect((await process.refresh()).view).toMatchObject({ running: true, exit: null });
  await touch(sandbox, '/tmp/e76');
  expect((await outputOf(process)).stdout).toBe('firstsecond');
});

test('E77: 10 MB of its output are complete, as those of a stateless one', async () => {
  const command = 'head -c 10485760 /dev/zero | tr "\\0" y; echo end >&2';
  const [own, plain] = await Promise.all([session.processes.start(command), sandbox.processes.start(command)]);
  for (const process of [own, plain]) {
    const { stdout, stderr } = await outputOf(process);
    expect(stdout.length).toBe(10_485_760);
    expect(/^y+$/.test(stdout)).toBe(true);
    expect(stderr).toBe('end\n');
  }
});

test('E78: it is killed when its session is deleted, with everything it started; a detached one goes on', async () => {
  const bound = await session.processes.start('(setsid sleep 8101 &); echo up; sleep 8102');
  const free = await session.processes.start(`echo up; ${waitForFile('/tmp/e78')}; echo outlived`, { detach: true });
  await Promise.all([bound.waitForLog('up'), free.waitForLog('up')]);
  await session.delete();
  expect((await bound.wait({ for: 'tree', timeoutMs: 30_000 })).exit).toMatchObject({
    signal: 'SIGKILL',
    killed: true,
  });
  expect((await sandbox.exec('pgrep -f "sleep 810[12]"')).stdout).toBe('');
  expect((await free.refresh()).view.running).toBe(true);
  await touch(sandbox, '/tmp/e78');
  expect((await outputOf(free)).stdout).toBe('up\noutlived\n');
});

test('E79: its end, its kill and its timeout leave the session as it was', async () => {
  await say(session, 'kept=1');
  const killed = await session.processes.start('echo up; sleep 600');
  await killed.waitForLog('up');
  await killed.kill({ signal: 'KILL' });
  expect((await killed.wait({ for: 'tree', timeoutMs: 30_000 })).exit).toMatchObject({
    signal: 'SIGKILL',
    killed: true,
  });
  const late = await session.processes.start('echo up; sleep 600', { timeoutMs: 1_500, graceMs: 0 });
  expect((await late.wait({ for: 'tree', timeoutMs: 30_000 })).exit).toMatchObject({ timedOut: true });
  const failed = await session.processes.start('exit 9');
  expect((await failed.wait({ timeoutMs: 30_000 })).exit).toMatchObject({ exitCode: 9 });
  expect(await say(session, 'echo $kept')).toBe('1\n');
  expect((await session.refresh()).view).toMatchObject({ state: 'running', queued: 0 });
});

test('E80: the exit and the timeout of a session end its processes', async () => {
  for (const end of ['exit 3', 'sleep 600']) {
    await using own = await sandbox.sessions.create();
    const process = await own.processes.start('trap "" TERM HUP; echo up; while :; do sleep 1; done');
    await process.waitForLog('up');
    expect((await own.exec(end, { timeoutMs: 2_000 })).sessionEnded).not.toBeNull();
    const { exit } = await process.wait({ for: 'tree', timeoutMs: 30_000 });
    expect(exit).toMatchObject({ signal: 'SIGKILL' });
  }
});

test('E132: only a process from a session carries its id, and lists filter by it', async () => {
  const other = await sandbox.sessions.create();
  const plain = await sandbox.processes.start('true');
  const own = await session.processes.start('true');
  const theirs = await other.processes.start('true', { name: 'named' });
  expect([plain, own, theirs].map(({ view }) => view.sessionId)).toEqual([null, session.id, other.id]);
  expect((await sandbox.processes.get('named')).view.sessionId).toBe(other.id);
  const ids = async (options: { sessionId?: string }) =>
    (await sandbox.processes.list(options)).items.map(({ id }) => id);
  expect(await ids({ sessionId: session.id })).toEqual([own.id]);
  expect((await other.processes.list()).items.map(({ id }) => id)).toEqual([theirs.id]);
  expect(await ids({})).toEqual(expect.arrayContaining([plain.id, own.id, theirs.id]));
  await other.delete();
});

test('input, names and records are those of any process', async () => {
  const process = await session.processes.start('read -r line; echo "got $line $tail"', {
    stdin: 'open',
    name: 'reader',
  });
  await expect(session.processes.start('true', { name: 'reader' })).rejects.toMatchObject({ code: 'process_exists' });
  await process.write('input\n');
  await process.wait({ for: 'tree' });
  expect((await outputOf(process)).stdout).toBe('got input \n');
  const key = crypto.randomUUID();
  const first = await session.processes.start('true', { idempotencyKey: key });
  expect((await session.processes.start('true', { idempotencyKey: key })).id).toBe(first.id);
});
