/** The official E2B SDK against a real platform: pause and resume, forks, snapshots, and a kill while something runs. */
import { CommandExitError, Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { agentHeaders } from '../support/e2b-rig.ts';
import { Platform } from '../support/platform.ts';

let platform: Platform;
let options: SandboxOpts;
const limitMs = 120_000;

beforeAll(async () => {
  platform = await Platform.start();
  options = {
    ...{ apiKey: platform.key.replace('atoll_', 'e2b_'), apiUrl: platform.server.url, sandboxUrl: platform.server.url },
    timeoutMs: 300_000,
  };
}, limitMs);
afterAll(() => platform?.close(), limitMs);

test('a paused sandbox stands still, and connect lets it go on with the same token', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', { ...options, metadata: { is: 'paused' } });
  const sleeper = await sandbox.commands.run('sleep 300', { background: true });
  expect(await sandbox.pause()).toBe(true);
  expect(await sandbox.pause()).toBe(false);
  expect(await sandbox.isRunning()).toBe(false);
  const paused = Sandbox.list({ ...options, query: { metadata: { is: 'paused' }, state: ['paused'] } });
  expect((await paused.nextItems()).map((item) => item.sandboxId)).toEqual([sandbox.sandboxId]);
  const patched = await fetch(`${platform.server.url}/sandboxes/${sandbox.sandboxId}/metadata`, {
    method: 'PATCH',
    headers: { 'X-API-Key': platform.key },
    body: '{"a":"b"}',
  });
  expect([patched.status, await patched.json()]).toMatchObject([409, { code: 409 }]);

  // Several at once are one resume.
  const resumed = await Promise.all([1, 2, 3].map(() => Sandbox.connect(sandbox.sandboxId, options)));
  expect(new Set(resumed.map((one) => one.sandboxId))).toEqual(new Set([sandbox.sandboxId]));
  expect(await sandbox.isRunning()).toBe(true);
  const running = await sandbox.commands.list();
  expect(running.map(({ pid }) => pid)).toContain(sleeper.pid);

  // Without memory the files stay and the processes do not.
  await sandbox.files.write('/tmp/kept', 'yes');
  await sandbox.pause({ keepMemory: false });
  await sandbox.connect();
  expect(await sandbox.files.read('/tmp/kept')).toBe('yes');
  expect(await sandbox.commands.list()).toEqual([]);
  await sandbox.kill();
});

test('traffic wakes a sandbox that its timeout has paused', { timeout: limitMs }, async () => {
  const lifecycle = { onTimeout: 'pause', autoResume: true } as const;
  const sandbox = await Sandbox.create('base', { ...options, timeoutMs: 60_000, lifecycle });
  expect((await sandbox.getInfo()).lifecycle).toEqual(lifecycle);
  await sandbox.setTimeout(1_500);
  await expect.poll(async () => (await sandbox.getInfo()).state, { timeout: 60_000 }).toBe('paused');
  // Whoever has no token does not wake it, whatever is asked; the token does.
  const { 'X-Access-Token': _, ...stranger } = agentHeaders(sandbox);
  for (const path of ['/health', '/envs', '/files?path=x&signature=v1_x', '/process.Process/List']) {
    expect((await fetch(`${options.sandboxUrl}${path}`, { headers: stranger })).status).toBe(502);
  }
  expect((await sandbox.getInfo()).state).toBe('paused');
  expect((await sandbox.commands.run('echo awake')).stdout).toBe('awake\n');
  await sandbox.kill();
});

test('forks and snapshots begin with the files, and are on their own', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', options);
  await sandbox.files.write('/tmp/state', 'before');
  const forks = await sandbox.fork({ count: 2, timeoutMs: 60_000 });
  const made = forks.filter((fork): fork is Sandbox => fork instanceof Sandbox);
  expect(made.length).toBe(2);
  await made[0]!.files.write('/tmp/state', 'in a fork');
  expect(await made[1]!.files.read('/tmp/state')).toBe('before');
  expect(await sandbox.files.read('/tmp/state')).toBe('before');

  const snapshot = await sandbox.createSnapshot({ name: 'a-name' });
  expect(snapshot.names).toEqual(['a-name']);
  await sandbox.kill();
  const listed = await Sandbox.listSnapshots({ ...options, name: 'a-name' } as never).nextItems();
  expect(listed.map((one) => one.snapshotId)).toEqual([snapshot.snapshotId]);
  const [byId, byName] = [await Sandbox.create(snapshot.snapshotId, options), await Sandbox.create('a-name', options)];
  expect([await byId.files.read('/tmp/state'), await byName.files.read('/tmp/state')]).toEqual(['before', 'before']);
  await Promise.all([...made, byId, byName].map((one) => one.kill()));
  expect(await Sandbox.deleteSnapshot(snapshot.snapshotId, options)).toBe(true);
  expect(await Sandbox.deleteSnapshot(snapshot.snapshotId, options)).toBe(false);
  await expect(Sandbox.create(snapshot.snapshotId, options)).rejects.toThrow(/not found/);
});

test('metrics are what the kernel counts', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', options);
  const busy = await sandbox.commands.run('head -c 64M /dev/zero | tail -c 64M | sleep 300 & while :; do :; done', {
    background: true,
    timeoutMs: 0,
  });
  await expect
    .poll(async () => (await sandbox.getMetrics())[0]?.cpuUsedPct ?? 0, { timeout: 60_000 })
    .toBeGreaterThan(5);
  const [metric] = await sandbox.getMetrics();
  const own = await platform.client.sandboxes.get(sandbox.sandboxId);
  expect(metric).toMatchObject({ cpuCount: 2, memTotal: own.limits.memoryBytes });
  expect(metric!.memUsed).toBeGreaterThan(0);
  expect(metric!.diskTotal).toBeGreaterThan(0);
  const hourMs = 3_600_000;
  const before = { start: new Date(Date.now() - 2 * hourMs), end: new Date(Date.now() - hourMs) };
  expect(await sandbox.getMetrics(before)).toEqual([]);
  await busy.kill();
  await sandbox.kill();
});

test('a sandbox that is killed while a command runs breaks the command off', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', options);
  const command = await sandbox.commands.run('echo begun; sleep 300', { background: true });
  const ended = command.wait().then(
    () => undefined,
    (error: Error) => error,
  );
  expect(await sandbox.kill()).toBe(true);
  const error = await ended;
  expect(error).toBeInstanceOf(Error);
  expect(error).not.toBeInstanceOf(CommandExitError);
  expect(error!.message).toMatch(/killed|end of life|not found/i);
});
