/** Sessions and the death of server or node: shells and what runs in them go on, nothing runs twice, and every end is told afterwards. */
import { randomUUID } from 'node:crypto';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { briskSettings, impatient, interrupted, patience, untilAdmitted, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { outputOf, waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';
import { ownTreeOf } from '../support/sandbox-tree.ts';
import { holdBusy, say } from '../support/sessions.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create()).id;
});
afterAll(() => platform.close());

const sandboxNow = () => untilAnswered(() => platform.client.sandboxes.connect(id));
const sessionNow = async (session: string) => {
  const { sessions } = await sandboxNow();
  return await untilAnswered(() => sessions.get(session));
};
/** In the sandbox's own files, read from outside: nobody of the platform is needed for it. */
const inRoot = (name: string) => join(ownTreeOf(platform.nodeDirectory, id), 'root', name);

async function restartBoth(): Promise<void> {
  await platform.killServer();
  await platform.killNode();
  await platform.startNode();
  await platform.startServer();
}

const serverPoints = [
  'after-journal-operation',
  'before-session-on-node',
  'after-session-on-node',
  'before-store-answer',
  'after-store-answer',
];
for (const point of serverPoints) {
  test(`K22: a server killed at "${point}" of a create: there is one shell, and the repeat is answered with it`, async () => {
    await platform.restartServer(`${point}=crash`);
    const name = `n${randomUUID()}`;
    const options = { name, idempotencyKey: randomUUID() };
    const sandbox = await impatient(platform).sandboxes.connect(id);
    await interrupted(platform.server, sandbox.sessions.create(options));
    await platform.startServer();
    const { sessions } = await sandboxNow();
    const session = await untilAnswered(() => sessions.create(options));
    expect((await sessions.create(options)).id).toBe(session.id);
    const named = (await sessions.list()).filter((one) => one.name === name);
    expect(named.map((one) => one.id)).toEqual([session.id]);
    expect(await say(session, 'echo works')).toBe('works\n');
    await session.delete();
  });
}

const nodePoints = [
  'node-session-before-record',
  'node-session-before-start',
  'node-session-after-start',
  'node-session-before-answer',
];
for (const point of nodePoints) {
  test(`K22: a node killed at "${point}" of a create: nobody knows, and the repeat makes one shell`, async () => {
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    const options = { name: `n${randomUUID()}`, idempotencyKey: randomUUID() };
    const sandbox = await untilAnswered(() => impatient(platform).sandboxes.connect(id));
    const lost = untilAdmitted(() => sandbox.sessions.create(options));
    expect(await interrupted(platform.node!, lost)).toEqual({ code: 'outcome_unknown' });
    await platform.startNode();
    const { sessions } = await sandboxNow();
    const session = await untilAnswered(() => sessions.create(options));
    const before = (await sessions.list()).filter(({ view }) => view.state === 'running');
    const shells = await (await sandboxNow()).exec('pgrep -c bash');
    expect(Number(shells.stdout)).toBe(before.length);
    expect(await say(session, 'echo works')).toBe('works\n');
    await session.delete();
  });
}

test('a command under a key that was cut off before its shell heard of it runs once', async () => {
  const name = `n${randomUUID()}`;
  await (await sandboxNow()).sessions.create({ name });
  await platform.restartServer('before-session-exec-on-node=crash');
  const idempotencyKey = randomUUID();
  const command = `echo ran >> /root/${name}`;
  const cutOff = await (await impatient(platform).sandboxes.connect(id)).sessions.get(name);
  await interrupted(platform.server, cutOff.exec(command, { idempotencyKey }));
  await platform.startServer();
  const session = await sessionNow(name);
  expect((await untilAnswered(() => session.exec(command, { idempotencyKey }))).exitCode).toBe(0);
  expect((await session.exec(command, { idempotencyKey })).exitCode).toBe(0);
  expect(await say(session, `cat /root/${name}`)).toBe('ran\n');
  await session.delete();
});

test('a command under a key whose answer was lost is in doubt with its exit code, and does not run again', async () => {
  const name = `n${randomUUID()}`;
  await (await sandboxNow()).sessions.create({ name });
  await platform.restartServer('after-session-exec-on-node=crash');
  const idempotencyKey = randomUUID();
  const command = `echo ran >> /root/${name}; (exit 6)`;
  const cutOff = await (await impatient(platform).sandboxes.connect(id)).sessions.get(name);
  await interrupted(platform.server, cutOff.exec(command, { idempotencyKey }));
  await platform.startServer();
  const session = await sessionNow(name);
  const again = untilAnswered(() => session.exec(command, { idempotencyKey }));
  await expect(again).rejects.toMatchObject({ code: 'operation_in_doubt', details: { run: 'ended', exitCode: 6 } });
  expect(await say(session, `cat /root/${name}`)).toBe('ran\n');
  await session.delete();
});

test('a session and its running command outlive server and node; who comes afterwards waits behind that command', async () => {
  const sandbox = await sandboxNow();
  const session = await sandbox.sessions.create({ name: `n${randomUUID()}` });
  await say(session, 'cd /tmp; plain=kept; f() { echo "f $plain"; }');
  const { go } = await holdBusy(sandbox, session);
  const before = (await session.refresh()).view;
  await restartBoth();

  const found = await sessionNow(session.id);
  expect(found.view).toMatchObject({ state: 'running', pid: before.pid, cwd: '/tmp', name: session.name });
  expect(found.view.current?.operationId).toBe(before.current?.operationId);
  const refused = (await sessionNow(session.id)).exec('touch /root/overtook', { queueTimeoutMs: 100 });
  await expect(refused).rejects.toMatchObject({ code: 'session_queue_timeout' });
  const waiting = found.exec('pwd; f');
  const { sessions } = await sandboxNow();
  await vi.waitFor(async () => expect((await sessions.get(session.id)).view.queued).toBe(1), patience);
  await (await sandboxNow()).exec(['touch', go]);
  expect((await waiting).stdout).toBe('/tmp\nf kept\n');
  await found.delete();
});

test('a session that ended while nobody was there tells its exit afterwards, and what it had started has ended', async () => {
  const sandbox = await sandboxNow();
  const name = `n${randomUUID()}`;
  const session = await sandbox.sessions.create({ name });
  const process = await session.processes.start('echo up; sleep 600');
  const free = await session.processes.start(`echo up; ${waitForFile(`/root/${name}`)}; echo outlived`, {
    detach: true,
  });
  await Promise.all([process.waitForLog('up'), free.waitForLog('up')]);
  session.exec(`sleep 2; touch /root/${name}.over; exit 23`).catch(() => {});
  await vi.waitFor(async () => expect((await session.refresh()).view.current).not.toBeNull(), patience);
  await platform.killServer();
  await platform.killNode();
  await vi.waitFor(() => access(inRoot(`${name}.over`)), patience);
  await platform.startNode();
  await platform.startServer();

  const found = await sessionNow(session.id);
  await vi.waitFor(async () => expect((await found.refresh()).view.state).toBe('ended'), patience);
  expect(found.view.end).toMatchObject({ exitCode: 23, reason: 'exited' });
  const ended = { code: 'session_terminated', details: { exitCode: 23 } };
  await expect(found.exec('true')).rejects.toMatchObject(ended);
  const now = await sandboxNow();
  expect((await (await now.processes.get(process.id)).wait({ for: 'tree', timeoutMs: 30_000 })).exit).toMatchObject({
    signal: 'SIGKILL',
  });
  await now.files.write(`/root/${name}`, '');
  expect((await outputOf(await now.processes.get(free.id))).stdout).toBe('up\noutlived\n');
  await restartBoth();
  await expect((await sessionNow(session.id)).exec('true')).rejects.toMatchObject(ended);
});
