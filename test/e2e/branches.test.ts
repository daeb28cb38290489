/** Checkpoints, restore, fork, pause and resume through HTTP and SDK, on real sandboxes whose layers are plain directories. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const patient = { timeout: 20_000, interval: 100 };

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ settings: { retentionIntervalMs: 300 } });
});
afterAll(() => platform.close());

const lastOf = async (sandbox: Sandbox, path: string) => Number((await sandbox.exec(['tail', '-n1', path])).stdout);
const textOf = async (sandbox: Sandbox, path: string) => (await sandbox.exec(['cat', path])).stdout;

test('K34: K22: a checkpoint holds the files of one instant, and a repeat under its key is the same one', async () => {
  await using sandbox = await platform.client.sandboxes.create({ metadata: { owner: 'a' } });
  await sandbox.processes.start(
    'n=0; while :; do n=$((n+1)); echo $n >> /workspace/first; echo $n >> /workspace/second; done',
  );
  await expect.poll(() => textOf(sandbox, '/workspace/second'), patient).toMatch(/^1\n2\n/);

  const call = { idempotencyKey: randomUUID(), name: 'midway' };
  const checkpoint = await sandbox.checkpoints.create(call);
  await sandbox.patchMetadata({ owner: 'b' });

  expect(await sandbox.checkpoints.create(call)).toEqual(checkpoint);
  expect(checkpoint).toMatchObject({ state: 'ready', sandboxId: sandbox.id, metadata: { owner: 'a' }, name: 'midway' });
  expect(checkpoint.sizeBytes).toBeGreaterThan(0);
  expect((await sandbox.checkpoints.list({ name: 'midway' })).items).toEqual([checkpoint]);
  await using copy = await platform.client.sandboxes.create({ checkpoint: checkpoint.id });
  const first = await lastOf(copy, '/workspace/first');
  const second = await lastOf(copy, '/workspace/second');
  expect(second).toBeGreaterThan(0);
  expect([0, 1]).toContain(first - second);
  expect(copy.metadata, 'K11: inherited as of the checkpoint').toEqual({ owner: 'a' });
  await platform.client.checkpoints.delete(checkpoint.id);
  expect(await lastOf(copy, '/workspace/first')).toBe(first);
  await expect(platform.client.checkpoints.get(checkpoint.id)).rejects.toMatchObject({ code: 'checkpoint_not_found' });
});

test('K35: K36: K9: restore keeps id and live metadata, bumps the generation, ends every process, and changes no checkpoint', async () => {
  await using sandbox = await platform.client.sandboxes.create({ metadata: { step: '1' } });
  await sandbox.files.write('/workspace/kept', 'before');
  const { id } = await sandbox.checkpoints.create();
  await sandbox.files.write('/workspace/kept', 'after');
  await sandbox.files.write('/workspace/new', 'after');
  await sandbox.patchMetadata({ step: '2' });
  const earlier = await platform.client.sandboxes.connect(sandbox.id);
  await sandbox.processes.start(['sleep', '1000']);

  await sandbox.restore(id);

  expect(sandbox.view).toMatchObject({ id: earlier.id, generation: 2, state: 'running', metadata: { step: '2' } });
  expect(await textOf(sandbox, '/workspace/kept')).toBe('before');
  expect(await sandbox.files.exists('/workspace/new')).toBe(false);
  expect((await sandbox.exec('pgrep -c sleep')).stdout).toBe('0\n');
  await expect(earlier.exec(['true'])).rejects.toMatchObject({ code: 'stale_generation' });
  await sandbox.files.write('/workspace/kept', 'changed');
  await sandbox.restore(id);
  expect(await textOf(sandbox, '/workspace/kept')).toBe('before');

  const gone = `chk${'z'.repeat(20)}`;
  await expect(sandbox.restore(gone)).rejects.toMatchObject({ code: 'checkpoint_not_found' });
  expect((await sandbox.refresh()).view).toMatchObject({ generation: 3, state: 'running' });
});

test('K37: K11: forks are independent of each other and of their source', async () => {
  await using source = await platform.client.sandboxes.create({ metadata: { of: 'source' }, env: { WHO: 'source' } });
  await source.files.write('/workspace/shared', 'source');

  const forks = await source.fork({ count: 3 });
  const [given] = await source.fork({ metadata: { of: 'fork' } });

  const made = [...forks, given!].map(({ sandbox }) => sandbox!);
  expect(made.map(({ metadata }) => metadata['of'])).toEqual(['source', 'source', 'source', 'fork']);
  await Promise.all(made.map((fork, index) => fork.files.write('/workspace/shared', `fork ${index}`)));
  expect(await Promise.all(made.map((fork) => textOf(fork, '/workspace/shared')))).toEqual(
    made.map((_, index) => `fork ${index}`),
  );
  expect(await textOf(source, '/workspace/shared')).toBe('source');
  expect((await made[0]!.exec('echo $WHO')).stdout).toBe('source\n');
  expect((await platform.client.checkpoints.list({ sandboxId: source.id })).items).toEqual([]);
  for (const fork of made) await fork.delete();
});

test('K38: a memory pause keeps processes standing still; commands are refused meanwhile, metadata is not', async () => {
  await using sandbox = await platform.client.sandboxes.create({ expiresInMs: 3600_000 });
  await sandbox.processes.start('n=0; while :; do n=$((n+1)); echo $n > /workspace/count; done');
  await expect.poll(() => textOf(sandbox, '/workspace/count'), patient).toMatch(/\d/);

  const [one, two] = await Promise.all([
    platform.client.sandboxes.connect(sandbox.id).then((handle) => handle.pause()),
    sandbox.pause(),
  ]);

  expect(one.view, 'K16: both are told the same').toEqual(two.view);
  expect(sandbox.view).toMatchObject({ state: 'paused', generation: 1, expiresAt: null, paused: { mode: 'memory' } });
  await expect(sandbox.exec(['true'])).rejects.toMatchObject({ code: 'sandbox_paused' });
  await sandbox.patchMetadata({ while: 'paused' });
  const listed = await platform.client.sandboxes.list({ state: ['paused'], metadata: { while: 'paused' } });
  expect(listed.items.map(({ id }) => id)).toEqual([sandbox.id]);

  await sandbox.resume();

  expect(sandbox.view).toMatchObject({ state: 'running', generation: 1, metadata: { while: 'paused' } });
  expect(sandbox.expiresAt!.getTime()).toBeGreaterThan(Date.now() + 1_800_000);
  const before = await textOf(sandbox, '/workspace/count');
  await expect.poll(() => textOf(sandbox, '/workspace/count'), patient).not.toBe(before);
  const inside: unknown = JSON.parse(await textOf(sandbox, '/run/atoll/metadata.json'));
  expect(inside).toMatchObject({ metadata: { while: 'paused' } });
});

test('K38: the time of a command does not pass while it stands still, and goes on to be counted afterwards', async () => {
  await using sandbox = await platform.client.sandboxes.create();
  await using other = await platform.client.sandboxes.create();
  const timeoutMs = 3_000;
  const asked = await sandbox.processes.start('read line; echo "$line"', { stdin: 'open', timeoutMs });
  const idle = await sandbox.processes.start(['sleep', '1000'], { timeoutMs });
  await sandbox.pause();

  // The control, begun later and not paused: when its time is over, so is that of the others as the clock counts.
  const control = await other.processes.start(['sleep', '1000'], { timeoutMs });
  expect(await control.wait()).toMatchObject({ exit: { timedOut: true } });
  await sandbox.resume();

  await asked.write('still here\n');
  expect(await asked.wait()).toMatchObject({ exit: { exitCode: 0, timedOut: false } });
  expect(await idle.wait()).toMatchObject({ exit: { timedOut: true } });
});

test('K38: K10: a pause of the files ends processes and keeps files; an image of memory is refused with the reason', async () => {
  await using sandbox = await platform.client.sandboxes.create();
  await sandbox.files.write('/workspace/kept', 'kept');
  await sandbox.processes.start(['sleep', '1000']);
  await expect(sandbox.pause({ mode: 'image' })).rejects.toMatchObject({ code: 'pause_unsupported' });

  await sandbox.pause({ mode: 'files' });
  expect(sandbox.view).toMatchObject({ state: 'paused', paused: { mode: 'files' } });
  await sandbox.patchMetadata({ while: 'paused' });
  await sandbox.resume();

  expect(sandbox.view).toMatchObject({ state: 'running', generation: 2, metadata: { while: 'paused' } });
  expect(await textOf(sandbox, '/workspace/kept')).toBe('kept');
  expect((await sandbox.exec('pgrep -c sleep')).stdout).toBe('0\n');
});

test('a deadline pauses where it is set to, and traffic resumes what is set to be resumed', async () => {
  await using sandbox = await platform.client.sandboxes.create({ onExpiry: 'pause' });
  await sandbox.files.write('/workspace/kept', 'kept');
  await sandbox.update({ autoResume: true, expiresInMs: 1_500 });
  const state = async () => (await platform.client.sandboxes.get(sandbox.id)).state;
  await expect.poll(state, patient).toBe('paused');

  expect(await textOf(sandbox, '/workspace/kept')).toBe('kept');

  await sandbox.refresh();
  expect(sandbox.view).toMatchObject({ state: 'running', generation: 1, onExpiry: 'pause', autoResume: true });
  expect(sandbox.expiresAt!.getTime()).toBeGreaterThan(Date.now() + 60_000);
  await sandbox.pause();
  const reads = await Promise.all(Array.from({ length: 5 }, () => sandbox.files.readText('/workspace/kept')));
  expect(reads).toEqual(Array.from({ length: 5 }, () => 'kept'));
});

test('K26: checkpoint, restore, pause and fork need the lease while it is held', async () => {
  await using sandbox = await platform.client.sandboxes.create();
  const { id } = await sandbox.checkpoints.create();
  await sandbox.lease({ holder: 'test' }, async (held) => {
    const refused = { code: 'lease_held', details: { holder: 'test' } };
    await expect(sandbox.checkpoints.create()).rejects.toMatchObject(refused);
    await expect(sandbox.restore(id)).rejects.toMatchObject(refused);
    await expect(sandbox.pause()).rejects.toMatchObject(refused);
    await expect(sandbox.fork()).rejects.toMatchObject(refused);
    expect((await held.checkpoints.create()).state).toBe('ready');
    expect((await held.pause()).state).toBe('paused');
    expect((await held.resume()).state).toBe('running');
  });
});

test('K41: checkpoints go when their time has come, and beyond what is kept of a sandbox; K17: what is paused can be deleted', async () => {
  const sandbox = await platform.client.sandboxes.create({ keepCheckpoints: 2 });
  const names = async () => (await sandbox.checkpoints.list()).items.map(({ name }) => name);
  await sandbox.checkpoints.create({ name: 'brief', expiresInMs: 1_000 });
  await expect.poll(names, patient).toEqual([]);
  for (const name of ['a', 'b', 'c']) await sandbox.checkpoints.create({ name });
  expect(await names()).toEqual(['c', 'b']);
  await sandbox.pause();
  expect((await sandbox.checkpoints.create({ name: 'd' })).frozenMs).toBe(0);
  await sandbox.delete();
  await expect(platform.client.sandboxes.get(sandbox.id)).rejects.toMatchObject({ code: 'sandbox_not_found' });
  for (const { id } of (await platform.client.checkpoints.list()).items) await platform.client.checkpoints.delete(id);
  expect((await platform.client.reconcile({ dryRun: true })).checkpoints).toEqual([]);
});
