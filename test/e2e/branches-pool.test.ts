/** Checkpoints, restore, fork and disk limits through HTTP and SDK, on a small pool, where a checkpoint is a snapshot. */
import { afterAll, beforeAll, expect } from 'vitest';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ storage: 'pool', settings: { retentionIntervalMs: 300 } });
});
afterAll(() => platform.close());

test('K34: K35: K37: a snapshot of a busy sandbox is of one instant, restores, and forks', async () => {
  await using sandbox = await platform.client.sandboxes.create();
  const last = async (of: typeof sandbox, path: string) => Number((await of.exec(['tail', '-n1', path])).stdout);
  await sandbox.processes.start('n=0; while :; do n=$((n+1)); echo $n >> /workspace/a; echo $n >> /workspace/b; done');
  await expect.poll(() => last(sandbox, '/workspace/b'), { timeout: 20_000 }).toBeGreaterThan(0);

  const checkpoint = await sandbox.checkpoints.create();
  const forks = (await sandbox.fork({ count: 2 })).map((fork) => fork.sandbox!);
  await sandbox.restore(checkpoint.id);

  for (const one of [sandbox, ...forks]) {
    const apart = (await last(one, '/workspace/a')) - (await last(one, '/workspace/b'));
    expect([0, 1]).toContain(apart);
  }
  const kept = await last(sandbox, '/workspace/b');
  await forks[0]!.exec('echo 0 >> /workspace/b');
  expect(await last(sandbox, '/workspace/b')).toBe(kept);
  expect(await last(forks[1]!, '/workspace/b')).toBeGreaterThanOrEqual(kept);
  for (const fork of forks) await fork.delete();
  await platform.client.checkpoints.delete(checkpoint.id);
});

test('K42: a sandbox takes no more on the disk than its limit, and works again after space is freed', async () => {
  await using sandbox = await platform.client.sandboxes.create({ limits: { diskBytes: 32 * 2 ** 20 } });
  expect(sandbox.view.limits.diskBytes).toBe(32 * 2 ** 20);
  const filled = await sandbox.exec('head -c 64M /dev/urandom > /workspace/large; sync');
  expect(filled.stderr).toMatch(/quota|No space/i);
  await sandbox.exec('rm /workspace/large; sync');
  await expect
    .poll(async () => (await sandbox.exec('head -c 1M /dev/urandom > /workspace/small && sync')).exitCode, {
      timeout: 30_000,
    })
    .toBe(0);
});

test('where storage has no quotas, a limit on the disk is refused by name', async () => {
  const plain = await Platform.start();
  try {
    const creating = plain.client.sandboxes.create({ limits: { diskBytes: 32 * 2 ** 20 } });
    await expect(creating).rejects.toMatchObject({ code: 'storage_unsupported' });
    expect((await plain.client.sandboxes.list()).items).toEqual([]);
  } finally {
    await plain.close();
  }
});
