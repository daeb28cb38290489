/** Processes and the death of server or node: what runs goes on, nothing runs twice, and every byte and exit is there afterwards. */
import { randomUUID } from 'node:crypto';
import { access, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { kill } from 'node:process';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { type ErrorCode, PlatformError } from '../../src/protocol/index.ts';
import type { Process, Sandbox } from '../../src/sdk/index.ts';
import { briskSettings, impatient, interrupted, patience, untilAdmitted, untilAnswered } from '../support/crashes.ts';
import { initPid } from '../support/node-leftovers.ts';
import { Platform } from '../support/platform.ts';
import { outputOf, waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';
import { ownTreeOf } from '../support/sandbox-tree.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create()).id;
});
afterAll(() => platform.close());

const sandboxNow = () => untilAnswered(() => platform.client.sandboxes.connect(id));

/** Starts it again under the same key, and tells what the starts left. */
async function repeat(command: string, idempotencyKey: string) {
  const sandbox = await sandboxNow();
  return await left(await untilAnswered(() => sandbox.processes.start(command, { idempotencyKey })), idempotencyKey);
}

/** What a process is and left when it is over. */
async function left(process: Process, key: string) {
  await untilAnswered(() => process.wait({ for: 'tree' }));
  const { stdout } = await untilAnswered(async () => (await sandboxNow()).exec(`cat /tmp/${key}`));
  return { id: process.id, exitCode: process.view.exit?.exitCode, lines: stdout.split('\n').length - 1, process };
}

/** A start that names no life, as no SDK of ours sends it: its key is journalled first. */
async function startInAnyLife(
  sandboxId: string,
  command: string,
  idempotencyKey: string,
): Promise<{ readonly id: string }> {
  const answer = await fetch(`${platform.server.url}/v1/sandboxes/${sandboxId}/processes`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${platform.key}`,
      'Content-Type': 'application/json',
      'Idempotency-Key': idempotencyKey,
    },
    body: JSON.stringify({ command }),
  });
  const body = (await answer.json()) as { id: string; error: { code: ErrorCode; message: string } };
  if (!answer.ok) throw new PlatformError(body.error.code, body.error.message);
  return body;
}

async function startInThisLife(sandboxId: string, command: string, idempotencyKey: string): Promise<Process> {
  const sandbox = await impatient(platform).sandboxes.connect(sandboxId);
  return await sandbox.processes.start(command, { idempotencyKey });
}

const serverPoints = [
  ['before-process-on-node', startInThisLife],
  ['after-process-on-node', startInThisLife],
  // Behind the answer, which may be lost or not.
  ['before-process-on-node>store-before-commit', startInThisLife],
  ['before-store-answer', startInThisLife],
  ['before-store-answer>store-before-commit', startInThisLife],
  ['before-store-answer>store-after-commit', startInThisLife],
  ['after-store-answer', startInThisLife],
  ['after-journal-operation', startInAnyLife],
  ['before-process-on-node', startInAnyLife],
  ['before-store-answer>store-before-commit', startInAnyLife],
  ['after-store-answer', startInAnyLife],
] as const;
for (const [point, start] of serverPoints) {
  const which = start === startInAnyLife ? 'a start that names no life' : 'a start';
  test(`K22: a server killed at "${point}" of ${which}: it ran once, and the repeat is answered with it`, async () => {
    await platform.restartServer(`${point}=crash`);
    const key = randomUUID();
    const command = `echo ran >> /tmp/${key}; echo said; exit 7`;
    const [begun] = await Promise.allSettled([start(id, command, key), platform.server.died]);
    await platform.startServer();

    const again = async () => {
      if (start === startInThisLife) return await repeat(command, key);
      const found = await untilAnswered(() => startInAnyLife(id, command, key));
      return await left(await (await sandboxNow()).processes.get(found.id), key);
    };
    const first = await again();
    expect(first).toMatchObject({ lines: 1, exitCode: 7 });
    if (begun.status === 'fulfilled') expect(first.id).toBe(begun.value.id);
    expect(await outputOf(first.process)).toEqual({ stdout: 'said\n', stderr: '', kinds: ['exited', 'ended'] });
    expect(await again()).toMatchObject({ id: first.id, lines: 1, exitCode: 7 });
  });
}

const nodePoints = [
  'node-process-before-record',
  'node-process-before-start',
  'node-process-after-start',
  'node-process-before-answer',
];
for (const point of nodePoints) {
  test(`K22: E128: a node killed at "${point}": the caller hears that nobody knows, and it runs once`, async () => {
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    const key = randomUUID();
    const command = `echo ran >> /tmp/${key}; echo said; exit 8`;
    const sandbox = await untilAnswered(() => impatient(platform).sandboxes.connect(id));
    const lost = untilAdmitted(() => sandbox.processes.start(command, { idempotencyKey: key }));
    expect(await interrupted(platform.node!, lost)).toEqual({ code: 'outcome_unknown' });
    await platform.startNode();

    const first = await repeat(command, key);
    expect(first).toMatchObject({ lines: 1, exitCode: 8 });
    expect((await outputOf(first.process)).stdout).toBe('said\n');
    expect(await repeat(command, key)).toMatchObject({ id: first.id, lines: 1 });
    const { items } = await (await sandboxNow()).processes.list();
    expect(items.filter(({ view }) => view.running)).toEqual([]);
  });
}

test('K22: a start that was cut off is not made in a later life of its sandbox: in doubt, or of a life that is over', async () => {
  const sandbox = await platform.client.sandboxes.create();
  await platform.restartServer('after-process-on-node=crash');
  const keys = { this: randomUUID(), any: randomUUID() };
  const command = 'echo ran >> /root/ran';
  await interrupted(platform.server, startInThisLife(sandbox.id, command, keys.this));
  await platform.startServer('after-journal-operation=crash');
  await Promise.allSettled([startInAnyLife(sandbox.id, command, keys.any), platform.server.died]);
  await platform.startServer();
  const next = await platform.client.sandboxes.connect(sandbox.id);
  const first = next.generation;
  await next.stop();
  await next.start();
  const runs = async () => (await next.exec('cat /root/ran | wc -l')).stdout;
  expect(await runs()).toBe('1\n');
  const again = next.processes.start(command, { idempotencyKey: keys.this, generation: first });
  await expect(again).rejects.toMatchObject({ code: 'stale_generation' });
  const doubtful = startInAnyLife(sandbox.id, command, keys.any);
  await expect(doubtful).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(await runs()).toBe('1\n');
  await next.delete();
});

test('K22: starts that a loss of power made everybody forget are refused when they are repeated, and do not run twice', async () => {
  const sandbox = await platform.client.sandboxes.create();
  const { generation } = sandbox;
  const database = ['atoll.db', 'atoll.db-wal'].map((name) => join(platform.dataDirectory, 'server', name));
  const synced = await Promise.all(database.map((path) => readFile(path)));
  const keys = [randomUUID(), randomUUID(), randomUUID()] as const;
  const start = async (key: string, of: Sandbox, life: number) =>
    await of.processes.start(`echo ${key} >> /root/ran`, { idempotencyKey: key, generation: life });
  const processes: Process[] = [];
  for (const key of keys) {
    const process = await start(key, sandbox, generation);
    await process.wait({ for: 'tree' });
    processes.push(process);
  }

  // What a machine loses: its processes, and of the files whatever was written and not synced. The starts were that alone.
  await platform.killServer();
  await platform.killNode();
  kill(await initPid(platform.nodeDirectory, sandbox.id), 'SIGKILL');
  await Promise.all(database.map((path, index) => writeFile(path, synced[index]!)));
  await rm(join(platform.dataDirectory, 'server', 'atoll.db-shm'));
  const directory = join(platform.nodeDirectory, 'sandboxes', sandbox.id);
  for (const process of processes) {
    await rm(join(directory, 'processes', `${process.id}.json`));
    await rm(join(directory, 'journals', process.id), { recursive: true });
  }
  await platform.startNode();
  await platform.startServer();

  const next = await untilAnswered(() => platform.client.sandboxes.connect(sandbox.id));
  const refused = expect.stringMatching(/^sandbox_(unavailable|wrong_state)$/);
  await expect(start(keys[0], next, generation)).rejects.toMatchObject({ code: refused });
  await vi.waitFor(async () => expect((await next.refresh()).state).toBe('stopped'), patience);
  await next.start();
  await expect(start(keys[1], next, generation)).rejects.toMatchObject({ code: 'stale_generation' });
  const ran = async () => (await next.exec('cat /root/ran')).stdout.trim().split('\n');
  expect(await ran()).toEqual(keys);
  // It is the life they name that refuses them: nobody knows the keys, and a start that names this life is made.
  await (await start(keys[2], next, next.generation)).wait({ for: 'tree' });
  expect(await ran()).toEqual([...keys, keys[2]]);
  await next.delete();
});

test('E84: output and exit of a process that ran and ended while server and node were dead are complete', async () => {
  const sandbox = await sandboxNow();
  const name = randomUUID();
  const go = `/root/${name}`;
  const process = await sandbox.processes.start(
    `echo begun; ${waitForFile(go)}; seq 1 50000; echo err >&2; touch ${go}.done; exit 23`,
  );
  await process.waitForLog('begun');
  // Started before the deaths, so that nobody is needed for it afterwards.
  await sandbox.processes.start(`sleep 2; touch ${go}`);
  await platform.killServer();
  await platform.killNode();
  const done = join(ownTreeOf(platform.nodeDirectory, id), 'root', `${name}.done`);
  await vi.waitFor(() => access(done), patience);
  await platform.startNode();
  await platform.startServer();

  const found = await (await sandboxNow()).processes.get(process.id);
  await found.wait({ for: 'tree' });
  expect(found.view.exit).toMatchObject({ exitCode: 23, killed: false });
  const { stdout, stderr, kinds } = await outputOf(found);
  expect(stdout).toBe(`begun\n${Array.from({ length: 50_000 }, (_, i) => `${i + 1}\n`).join('')}`);
  expect({ stderr, kinds }).toEqual({ stderr: 'err\n', kinds: ['exited', 'ended'] });
});

test('K46: a grace that a node did not live to see is kept by the next one, though nobody asks', async () => {
  const sandbox = await sandboxNow();
  const mark = String(800_000 + Math.floor(Math.random() * 100_000));
  const process = await sandbox.processes.start(
    `trap "" TERM; (trap "" TERM; exec sleep ${mark}) & echo ready; wait; sleep ${mark}`,
  );
  await process.waitForLog('ready');
  await process.kill({ graceMs: 3_000 });
  await platform.killNode();
  await platform.startNode();
  const left = async () => (await (await sandboxNow()).exec(`pgrep -fx "sleep ${mark}"`)).stdout;
  await vi.waitFor(async () => expect(await left()).toBe(''), patience);
  expect((await (await sandboxNow()).processes.get(process.id)).view.exit).toMatchObject({ killed: true });
});

test('a process whose init was killed has ended, without a code that nobody saw', async () => {
  const own = await platform.client.sandboxes.create();
  const process = await own.processes.start('echo up; sleep 600');
  await process.waitForLog('up');
  const following = outputOf(process);
  kill(await initPid(platform.nodeDirectory, own.id), 'SIGKILL');
  expect(await following).toEqual({ stdout: 'up\n', stderr: '', kinds: ['exited', 'ended'] });
  const ended = { exitCode: null, signal: null, killed: true, sandboxEnded: true, timedOut: false };
  expect((await process.refresh()).view).toMatchObject({ running: false, exit: ended });
  await platform.killNode();
  await platform.startNode();
  const after = await untilAnswered(() => process.refresh());
  expect(after.view).toMatchObject({ running: false, exit: ended });
  expect((await outputOf(process)).stdout).toBe('up\n');
  await own.delete();
});

test('E129: processes of a stopped sandbox can be read until its next life begins, to which a handle of theirs never binds', async () => {
  const own = await platform.client.sandboxes.create();
  const process = await own.processes.start('echo up; sleep 600');
  await process.waitForLog('up');
  await own.stop({ graceMs: 0 });
  expect((await process.refresh()).view).toMatchObject({ running: false, exit: { killed: true, sandboxEnded: true } });
  expect((await outputOf(process)).stdout).toBe('up\n');
  await own.start();
  const stale = { code: 'stale_generation' };
  await expect(process.refresh()).rejects.toMatchObject(stale);
  await expect(process.wait()).rejects.toMatchObject(stale);
  await expect(process.readOutput()).rejects.toMatchObject(stale);
  await expect(process.output().next()).rejects.toMatchObject(stale);
  await expect(process.kill()).rejects.toMatchObject(stale);
  await expect(process.remove()).rejects.toMatchObject(stale);
  // Where the caller names no life, the process is simply not there.
  await expect(own.processes.get(process.id)).rejects.toMatchObject({ code: 'process_not_found' });
  expect((await own.processes.list()).items).toEqual([]);
  const directory = join(platform.nodeDirectory, 'sandboxes', own.id);
  await vi.waitFor(async () => {
    expect(await readdir(join(directory, 'processes'))).toEqual([]);
    expect(await readdir(join(directory, 'journals'))).toEqual([]);
  }, patience);
  await own.delete();
});
