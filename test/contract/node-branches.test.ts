import { btrfs } from '../support/btrfs.ts';
import { openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';
import { nodeBranchesContract } from './node-branches.contract.ts';

const machine = [requires.linux, requires.root, requires.cgroups] as const;
const pool = { storage: 'pool', poolSizes: smallPool } as const;

describeWith(...machine)('a node on plain directories, called directly', () => {
  nodeBranchesContract(() => openDirectNode());
});

describeWith(...machine)('a node on plain directories, over HTTP', () => {
  nodeBranchesContract(() => openNodeProcess());
});

describeWith(...machine, btrfs)('a node on a pool, over HTTP', () => {
  nodeBranchesContract(() => openNodeProcess(pool));
});
