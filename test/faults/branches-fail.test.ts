/** A checkpoint, a pause or a restore that fails: the sandbox goes on as it was, the caller hears why, and nothing half-made is left. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { ScriptedFaults } from '../../src/base/index.ts';
import { SandboxNode } from '../../src/node/index.ts';
import { errorCatalog } from '../../src/protocol/index.ts';
import {
  checkpointOf,
  expectMoving,
  nextOrder,
  restoreOrder,
  sh,
  startCounting,
  storedIn,
} from '../support/branch-rig.ts';
import { btrfs } from '../support/btrfs.ts';
import { nodeOptions, openDirectNode } from '../support/node-harness.ts';
import { createOrder, lifeOf } from '../support/node-orders.ts';
import { requires, testWith } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';

const machine = [requires.linux, requires.root, requires.cgroups] as const;
const run = promisify(execFile);
const failure = { kind: 'error', error: new Error('as it was told') } as const;

testWith(...machine)('K39: a checkpoint or pause that fails at any step leaves the sandbox running', async () => {
  const harness = await openDirectNode();
  try {
    const { node, faults } = harness;
    const sandbox = await node.createSandbox(createOrder());
    await startCounting(node, sandbox);
    const attempts = [
      ...['node-freeze-asked', 'node-checkpoint-frozen', 'layers-make-filled', 'node-checkpoint-taken'].map(
        (point) => [point, () => checkpointOf(node, sandbox)] as const,
      ),
      ...['node-freeze-asked', 'node-pause-frozen', 'node-settings-before-init'].map(
        (point) => [point, () => node.branches.pause(nextOrder(sandbox))] as const,
      ),
    ];
    for (const [point, attempt] of attempts) {
      faults.set(point, failure);
      await expect(attempt(), point).rejects.toThrow(/as it was told/);
      faults.clear(point);
      expect(await node.findSandbox(sandbox.mark.sandboxId)).toEqual(sandbox);
      await expectMoving(node, sandbox);
      expect(await node.branches.listCheckpoints()).toEqual([]);
      expect((await storedIn(harness.dataDirectory)).layers).toEqual([]);
    }
  } finally {
    await harness.close();
  }
});

testWith(...machine)(
  'K35: a restore that fails when the life has ended leaves the earlier files, and says so',
  async () => {
    const harness = await openDirectNode();
    try {
      const { node, faults } = harness;
      const sandbox = await node.createSandbox(createOrder());
      await sh(node, sandbox, 'echo old > /root/file');
      const kept = await checkpointOf(node, sandbox);
      await sh(node, sandbox, 'echo new > /root/file');
      const noLife = {
        kind: 'error',
        error: Object.assign(new Error('no space'), { code: 'ENOSPC', errno: -28 }),
      } as const;
      faults.set('node-restore-ended', noLife);
      const failed = node.branches.restore(restoreOrder(sandbox, kept));
      await expect(failed).rejects.toMatchObject({
        ...{ code: 'insufficient_storage', details: { state: 'stopped' } },
        message: expect.stringMatching(/is full; the earlier life has ended/),
      });
      expect(errorCatalog.insufficient_storage.meaning, 'as the catalog says').toContain('`details.state`');
      faults.clear('node-restore-ended');
      const ended = (await node.findSandbox(sandbox.mark.sandboxId))!;
      expect(ended).toMatchObject({ generation: 1, life: { kind: 'ended', reason: 'requested' } });
      const started = await node.startSandbox({ ...nextOrder(ended), generation: 2 });
      expect(await sh(node, started, 'cat /root/file')).toBe('new\n');
      const restored = await node.branches.restore(restoreOrder(started, kept));
      expect(await sh(node, restored, 'cat /root/file')).toBe('old\n');
    } finally {
      await harness.close();
    }
  },
);

/** A command that waits for a disk cannot stand still before the disk answers. */
testWith(...machine, btrfs)(
  'K39: commands that do not stand still in time go on, and the refusal names that',
  async () => {
    const harness = await openDirectNode({ storage: 'pool', poolSizes: smallPool });
    const pool = join(harness.dataDirectory, 'storage', 'pool');
    try {
      const { node } = harness;
      const sandbox = await node.createSandbox(createOrder());
      await startCounting(node, sandbox);
      await run('fsfreeze', ['-f', pool]);
      try {
        await expect(checkpointOf(node, sandbox)).rejects.toMatchObject({ code: 'freeze_failed' });
      } finally {
        await run('fsfreeze', ['-u', pool]);
      }
      await expectMoving(node, sandbox);
      expect(await node.branches.listCheckpoints()).toEqual([]);
      await checkpointOf(node, sandbox);
    } finally {
      await harness.close();
    }
  },
);

testWith(...machine)('K42: on a full disk a checkpoint is refused by name, and works when there is space', async () => {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'atoll-full-'));
  const disk = join(dataDirectory, 'disk');
  await mkdir(disk);
  await run('mount', ['-t', 'tmpfs', '-o', 'size=64m,mode=0700', 'tmpfs', disk]);
  const node = await SandboxNode.open({ ...nodeOptions, dataDirectory: disk, faults: new ScriptedFaults() });
  try {
    const sandbox = await node.createSandbox(createOrder());
    await sh(node, sandbox, 'head -c 8388608 /dev/urandom > /root/eight; sha256sum /root/eight > /root/sum');
    await startCounting(node, sandbox);
    const filler = join(disk, 'filler');
    // 4 MB are left: enough for the node, and not for a copy of the sandbox's files.
    const { stdout } = await run('df', ['--output=avail', '-B1', disk]);
    await writeFile(filler, Buffer.alloc(Number(stdout.split('\n')[1]) - 4 * 1024 ** 2));
    await expect(checkpointOf(node, sandbox)).rejects.toMatchObject({ code: 'insufficient_storage' });
    expect(await storedIn(disk)).toMatchObject({ layers: [] });
    await rm(filler);
    await expectMoving(node, sandbox);
    const kept = await checkpointOf(node, sandbox);
    const fork = await node.createSandbox(createOrder({ fromCheckpoint: kept.checkpointId }));
    expect(await sh(node, fork, 'sha256sum -c /root/sum')).toContain('OK');
    await Promise.all([sandbox, fork].map((each) => node.deleteSandbox(lifeOf(each))));
  } finally {
    await node.close();
    await run('umount', ['-l', disk]);
    await rm(dataDirectory, { recursive: true, force: true });
  }
});
