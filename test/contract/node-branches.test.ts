import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { checkpointOf, nextOrder, restoreOrder, sh, writableOf } from '../support/branch-rig.ts';
import { btrfs } from '../support/btrfs.ts';
import { openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { createOrder, lifeOf } from '../support/node-orders.ts';
import { describeWith, requires, testWith } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';
import { nodeBranchesContract } from './node-branches.contract.ts';

const machine = [requires.linux, requires.root, requires.cgroups] as const;
const pool = { storage: 'pool', poolSizes: smallPool } as const;

describeWith(...machine)('a node on plain directories, called directly', () => {
  nodeBranchesContract(() => openDirectNode());
});

testWith(...machine)(
  'K36: a checkpoint is removed when what is made from it has its files, and not before',
  async () => {
    const harness = await openDirectNode();
    try {
      const { node, faults } = harness;
      const source = await node.createSandbox(createOrder());
      await sh(node, source, 'echo source > /root/file');
      const [used, other] = [await checkpointOf(node, source), await checkpointOf(node, source)];
      const opening = faults.hold('node-checkpoint-opening');
      const making = node.createSandbox(createOrder({ fromCheckpoint: used.checkpointId }));
      await opening.reached;
      const removal = node.branches.removeCheckpoint(used.checkpointId);
      // Whatever the removal would do without waiting, one that is begun later has done by then.
      await node.branches.removeCheckpoint(other.checkpointId);
      expect(await node.branches.listCheckpoints()).toEqual([used]);
      opening.open();
      expect(await sh(node, await making, 'cat /root/file')).toBe('source\n');
      await removal;
      expect(await node.branches.listCheckpoints()).toEqual([]);

      // The other way round: what comes while it is being removed is refused.
      const gone = await checkpointOf(node, source);
      const forgotten = faults.hold('node-checkpoint-forgotten');
      const removing = node.branches.removeCheckpoint(gone.checkpointId);
      await forgotten.reached;
      const late = node.createSandbox(createOrder({ fromCheckpoint: gone.checkpointId }));
      forgotten.open();
      await expect(late).rejects.toMatchObject({ code: 'checkpoint_not_found' });
      await removing;
    } finally {
      await harness.close();
    }
  },
);

testWith(...machine)('a sandbox that starts on 64 layers stands on one, and has its files', async () => {
  const harness = await openDirectNode();
  try {
    const { node, dataDirectory } = harness;
    const sandbox = await node.createSandbox(createOrder());
    await sh(node, sandbox, 'echo first > /root/first; echo gone > /root/gone');
    const stopped = await node.stopSandbox({ ...lifeOf(sandbox), graceMs: 0 });
    const parents = async () => {
      const writable = await writableOf(dataDirectory, sandbox);
      const text = await readFile(join(dataDirectory, 'storage', 'writable', writable, 'writable.json'), 'utf8');
      return (JSON.parse(text.split('\n')[0]!) as { parents: string[] }).parents.length;
    };
    const checkpoints = [await checkpointOf(node, stopped)];
    for (let depth = 1; depth < 64; depth++) checkpoints.push(await checkpointOf(node, stopped));
    expect(await parents()).toBe(64);
    const started = await node.startSandbox({ ...nextOrder(stopped), generation: 2 });
    expect(await parents()).toBe(1);
    expect(await sh(node, started, 'rm /root/gone; echo last > /root/last; cat /root/first /root/last')).toBe(
      'first\nlast\n',
    );
    const restored = await node.branches.restore(restoreOrder(started, checkpoints[0]!));
    expect(await sh(node, restored, 'cat /root/*')).toBe('first\ngone\n');
  } finally {
    await harness.close();
  }
});

describeWith(...machine)('a node on plain directories, over HTTP', () => {
  nodeBranchesContract(() => openNodeProcess());
});

describeWith(...machine, btrfs)('a node on a pool, over HTTP', () => {
  nodeBranchesContract(() => openNodeProcess(pool));
});
