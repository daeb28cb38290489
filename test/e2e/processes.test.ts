/** Processes through the SDK, HTTP, control, node and init: output by cursor, ends, records. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Process, Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { all, outputOf, textOf, touch, until, waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

const file = () => `/tmp/${randomUUID()}`;

test('E81: id and pid come at once, and the output of a command that has ended already is complete', async () => {
  const process = await sandbox.processes.start('echo out; echo err >&2; exit 4');
  expect(process.id).toMatch(/^prc[a-z0-9]{20}$/);
  expect(process.pid).toBeGreaterThan(1);
  await process.wait({ for: 'tree' });
  expect(await outputOf(process)).toEqual({ stdout: 'out\n', stderr: 'err\n', kinds: ['exited', 'ended'] });
  expect(process.view).toMatchObject({ running: false, exit: { exitCode: 4, signal: null } });
});

test('E82: output is seen while the process runs', async () => {
  const go = file();
  const process = await sandbox.processes.start(`echo first; ${waitForFile(go)}; echo second`);
  const seen = textOf(await until(process.output(), ({ stdout }) => stdout.includes('first')));
  expect(seen).toMatchObject({ stdout: 'first\n', kinds: [] });
  expect((await process.refresh()).view).toMatchObject({ running: true, exit: null });
  await touch(sandbox, go);
  expect((await outputOf(process)).stdout).toBe('first\nsecond\n');
});

test('E81: E82: a start that is followed has its output with it, from the first byte to the end', async () => {
  const process = await sandbox.processes.start('echo one; read line; echo two >&2; exit 3', {
    stdin: 'open',
    follow: true,
  });
  const items = process.output();
  expect(textOf(await until(items, ({ stdout }) => stdout === 'one\n')).stdout).toBe('one\n');
  await process.closeStdin();
  // The stream of the start was taken; the next reader has one of its own.
  expect(await outputOf(process)).toEqual({ stdout: 'one\n', stderr: 'two\n', kinds: ['exited', 'ended'] });
  expect((await process.wait()).exit).toMatchObject({ exitCode: 3 });
  const refused = sandbox.processes.start(['/no/such/program'], { follow: true });
  await expect(refused).rejects.toMatchObject({ code: 'process_not_startable' });
});

test('E82: as server-sent events a start that is followed begins with its process', async () => {
  const response = await fetch(`${platform.server.url}/v1/sandboxes/${sandbox.id}/processes`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${platform.key}`, Accept: 'text/event-stream' },
    body: JSON.stringify({ command: 'echo said' }),
  });
  expect(response.status).toBe(201);
  const [first, second] = (await response.text()).split('\n\n');
  expect(first).toMatch(/^event: process\nid: prc[a-z0-9]{20}\.0\ndata: \{"id":"prc/);
  expect(second).toMatch(/^id: prc[a-z0-9]{20}\.\d+\ndata: \{"kind":"output","stream":"stdout","data":"said\\n"/);
});

test('E84: a late reader gets what was, then what comes, without gap or duplicate', async () => {
  const go = file();
  const process = await sandbox.processes.start(`seq 1 20000; ${waitForFile(go)}; seq 20001 40000`);
  await process.waitForLog('\n20000\n');
  const reading = all(process.output());
  await touch(sandbox, go);
  const lines = textOf(await reading)
    .stdout.trimEnd()
    .split('\n');
  expect(lines).toEqual(Array.from({ length: 40_000 }, (_, i) => String(i + 1)));
});

test('E85: a reader that comes back with its cursor goes on behind it', async () => {
  const go = file();
  const process = await sandbox.processes.start(`echo one; ${waitForFile(go)}; echo two >&2; echo three`);
  const before = await until(process.output(), ({ stdout }) => stdout.includes('one'));
  await touch(sandbox, go);
  await process.wait({ for: 'tree' });
  const after = await all(process.output({ cursor: before.at(-1)!.cursor }));
  expect(textOf(after)).toEqual({ stdout: 'three\n', stderr: 'two\n', kinds: ['exited', 'ended'] });
  const last = after.at(-1)!.cursor;
  expect(await process.readOutput({ cursor: last })).toEqual({
    items: [{ kind: 'ended', cursor: last }],
    cursor: last,
    hasMore: false,
  });
});

test('E85: Last-Event-ID resumes a stream, as a browser sends it', async () => {
  const process = await sandbox.processes.start('echo a; sleep 0.1; echo b');
  await process.wait({ for: 'tree' });
  const [first] = await all(process.output());
  const path = `/v1/sandboxes/${sandbox.id}/processes/${process.id}/output`;
  const response = await fetch(`${platform.server.url}${path}`, {
    headers: {
      Authorization: `Bearer ${platform.key}`,
      Accept: 'text/event-stream',
      'Last-Event-ID': first!.cursor,
    },
  });
  const text = await response.text();
  expect(text).not.toContain('"a\\n"');
  expect(text).toContain('"b\\n"');
  expect(text).toMatch(/id: prc[a-z0-9]{20}\.\d+\ndata: \{"kind":"ended"/);
});

test('E85: a foreign, a future and a senseless cursor are refused', async () => {
  const [one, two] = await Promise.all([sandbox.processes.start('echo one'), sandbox.processes.start('echo two')]);
  await Promise.all([one.wait({ for: 'tree' }), two.wait({ for: 'tree' })]);
  const foreign = (await all(two.output())).at(-1)!.cursor;
  const future = `${one.id}.999999`;
  const within = `${one.id}.3`;
  for (const cursor of [foreign, future, within, 'nonsense', `${one.id}.-1`, `${one.id}.1e3`]) {
    await expect(one.readOutput({ cursor })).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(all(one.output({ cursor }))).rejects.toMatchObject({ code: 'invalid_request' });
  }
});

test('E86: what is beyond the limit is announced as dropped, and the newest is kept', async () => {
  const process = await sandbox.processes.start('seq 100000000 100099999', { keepBytes: 64 * 1024 });
  await process.wait({ for: 'tree' });
  const items = await all(process.output());
  expect(items[0]).toMatchObject({ kind: 'dropped' });
  const { stdout } = textOf(items);
  expect(stdout.endsWith('100099999\n')).toBe(true);
  expect(stdout.length).toBeGreaterThan(40 * 1024);
  const { first, end } = process.view.output;
  const position = (cursor: string) => Number(cursor.split('.')[1]);
  expect(items[0]).toMatchObject({ bytes: position(first) });
  expect(items.at(-1)!.cursor).toBe(end);
});

test('E86: a slow reader holds the process back, and nothing is lost', async () => {
  const lines = 1_000_000;
  const go = file();
  const command = `echo ready; ${waitForFile(go)}; seq 100000000 ${100000000 + lines - 1}`;
  const process = await sandbox.processes.start(command, { keepBytes: 64 * 1024 });
  const items = process.output();
  expect(textOf([(await items.next()).value!]).stdout).toBe('ready\n');
  await touch(sandbox, go);
  let next = 100000000;
  let rest = '';
  for await (const item of items) {
    expect(item.kind).not.toBe('dropped');
    if (item.kind !== 'output') continue;
    const found = (rest + Buffer.from(item.bytes).toString()).split('\n');
    rest = found.pop()!;
    for (const line of found) if (Number(line) !== next++) throw new Error(`${line} came where ${next - 1} belongs.`);
  }
  expect(next).toBe(100000000 + lines);
});

test('E87: one of two readers leaves; the other and the process go on', async () => {
  const go = file();
  const process = await sandbox.processes.start(`echo a; ${waitForFile(go)}; echo b`);
  const staying = all(process.output());
  const leaving = new AbortController();
  const left = all(process.output({ signal: leaving.signal }));
  await process.waitForLog('a');
  leaving.abort();
  await expect(left).rejects.toMatchObject({ name: 'AbortError' });
  await touch(sandbox, go);
  expect(textOf(await staying)).toMatchObject({ stdout: 'a\nb\n', kinds: ['exited', 'ended'] });
  expect((await process.wait()).exit).toMatchObject({ exitCode: 0, killed: false });
});

test('E88: cancelling a wait ends the waiting only', async () => {
  const go = file();
  const process = await sandbox.processes.start(`${waitForFile(go)}; exit 6`);
  const stop = new AbortController();
  const waiting = process.wait({ signal: stop.signal });
  stop.abort();
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
  await expect(process.wait({ timeoutMs: 50 })).rejects.toMatchObject({ code: 'wait_timeout' });
  await touch(sandbox, go);
  expect((await process.wait()).exit).toMatchObject({ exitCode: 6, killed: false });
});

test('E92: a signal to an ended process changes nothing; an unknown one is not found', async () => {
  const process = await sandbox.processes.start('exit 5');
  await process.wait({ for: 'tree' });
  await process.kill({ signal: 'KILL' });
  expect(process.view.exit).toMatchObject({ exitCode: 5, killed: false });
  await expect(sandbox.processes.get('prcaaaaaaaaaaaaaaaaaaaa')).rejects.toMatchObject({ code: 'process_not_found' });
  await expect(sandbox.processes.get('nobody')).rejects.toMatchObject({ code: 'process_not_found', status: 404 });
});

test('E94: a timeout keeps the output and leaves nothing of the tree', async () => {
  const process = await sandbox.processes.start('echo before; setsid sleep 4444 & sleep 4444', { timeoutMs: 1_500 });
  await process.wait({ for: 'tree' });
  expect(process.view.exit).toMatchObject({ timedOut: true, exitCode: 143, signal: 'SIGTERM' });
  expect((await outputOf(process)).stdout).toBe('before\n');
  expect((await sandbox.exec('pgrep -f "sleep 4444"')).exitCode).toBe(1);
});

test('E95: a second process with the name of a running one is a conflict; an ended one gives it up', async () => {
  const go = file();
  const first = await sandbox.processes.start(waitForFile(go), { name: 'web' });
  const again = sandbox.processes.start('true', { name: 'web' });
  await expect(again).rejects.toMatchObject({ code: 'process_exists', status: 409, details: { name: 'web' } });
  expect((await sandbox.processes.get('web')).id).toBe(first.id);
  await touch(sandbox, go);
  await first.wait({ for: 'tree' });
  const second = await sandbox.processes.start('true', { name: 'web' });
  expect((await sandbox.processes.get('web')).id).toBe(second.id);
});

test('E96: what runs is listed first, and the newest first; a removed process is gone with its output', async () => {
  const own = await platform.client.sandboxes.create();
  const go = file();
  const ended: Process[] = [];
  for (let i = 0; i < 3; i++) ended.push(await own.processes.start('true'));
  for (const process of ended) await process.wait({ for: 'tree' });
  const live = [await own.processes.start(waitForFile(go)), await own.processes.start(waitForFile(go))];
  const wanted = [...live.reverse(), ...ended.reverse()].map(({ id }) => id);
  expect((await own.processes.list()).items.map(({ id }) => id)).toEqual(wanted);
  const first = await own.processes.list({ limit: 3 });
  const second = await own.processes.list({ limit: 3, cursor: first.nextCursor! });
  expect([...first.items, ...second.items].map(({ id }) => id)).toEqual(wanted);
  expect(second.nextCursor).toBeNull();
  await expect(own.processes.list({ cursor: 'x' })).rejects.toMatchObject({ code: 'invalid_request' });

  await expect(live[0]!.remove()).rejects.toMatchObject({ code: 'process_running' });
  await ended[0]!.remove();
  await expect(ended[0]!.refresh()).rejects.toMatchObject({ code: 'process_not_found' });
  await expect(all(ended[0]!.output())).rejects.toMatchObject({ code: 'process_not_found' });
  await own.delete();
});

test('E97: get and list answer while a process fills pipes that nobody reads', async () => {
  const process = await sandbox.processes.start('yes | head -c 50000000; sleep 600', { keepBytes: 64 * 1024 });
  await process.waitForLog('y');
  expect((await sandbox.processes.get(process.id)).view.running).toBe(true);
  expect((await sandbox.processes.list()).items[0]!.id).toBe(process.id);
  await process.kill({ signal: 'KILL' });
  await process.wait({ for: 'tree' });
});

test('E100: a wait is answered at the end of the leader, or of the tree, also afterwards, for many', async () => {
  const go = file();
  const process = await sandbox.processes.start(`(${waitForFile(go)}) & exit 3`);
  const views = await Promise.all(Array.from({ length: 20 }, () => process.wait()));
  for (const view of views) expect(view).toMatchObject({ running: true, exit: { exitCode: 3 }, treeEndedAt: null });
  const trees = Promise.all(Array.from({ length: 20 }, () => process.wait({ for: 'tree' })));
  await touch(sandbox, go);
  for (const view of await trees) expect(view).toMatchObject({ running: false, exit: { exitCode: 3 } });
  expect((await process.wait()).exit).toMatchObject({ exitCode: 3 });
});

test('E101: what cannot be started is refused by kind, and leaves no record', async () => {
  const own = await platform.client.sandboxes.create();
  const starts = [
    [own.processes.start(['no-such-program-anywhere']), 'process_not_startable'],
    [own.processes.start(['/etc/passwd']), 'process_not_startable'],
    [own.processes.start('true', { cwd: '/no/such/place' }), 'cwd_not_usable'],
    [own.processes.start('true', { user: 'nobody-here' }), 'user_not_usable'],
    [own.processes.start([]), 'invalid_command'],
  ] as const;
  await Promise.all(starts.map(([start, code]) => expect(start).rejects.toMatchObject({ code })));
  expect((await own.processes.list()).items).toEqual([]);
  await own.delete();
});

test("E102: a process outlives its caller's connection and is found by id later", async () => {
  const go = file();
  const response = await fetch(`${platform.server.url}/v1/sandboxes/${sandbox.id}/processes`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${platform.key}`, 'Content-Type': 'application/json', Connection: 'close' },
    body: JSON.stringify({ command: `${waitForFile(go)}; echo still here; exit 2` }),
  });
  const { id } = (await response.json()) as { id: string };
  await platform.restartServer();
  const again = await platform.client.sandboxes.connect(sandbox.id);
  sandbox = again;
  const process = await again.processes.get(id);
  expect(process.view.running).toBe(true);
  await touch(again, go);
  expect((await process.wait()).exit).toMatchObject({ exitCode: 2 });
  expect((await outputOf(process)).stdout).toBe('still here\n');
});

test('E103: a process that runs does not keep its sandbox from expiring, and its end says why', async () => {
  const own = await platform.client.sandboxes.create({ expiresInMs: 600_000 });
  const process = await own.processes.start('echo up; sleep 600');
  await process.waitForLog('up');
  expect((await own.processes.list()).items.map(({ view }) => view.running)).toEqual([true]);
  await own.extend(500);
  await vi.waitFor(async () => expect((await own.refresh()).state).toBe('stopped'), patience);
  const { view } = await process.refresh();
  expect(view).toMatchObject({ running: false, exit: { killed: true, sandboxEnded: true } });
  expect((await outputOf(process)).stdout).toBe('up\n');
  await own.delete();
});
