/** Making, using and removing sandboxes leaves the machine as it was. */
import { expect } from 'vitest';
import { openDirectNode } from '../support/node-harness.ts';
import { findLeftovers, nothingLeft } from '../support/node-leftovers.ts';
import { createOrder, run } from '../support/node-orders.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.linux, requires.root, requires.cgroups);
const sandboxCount = 60;
const atOnce = 12;

test('sandboxes that were made, used and deleted leave no process, group, mount or directory', async () => {
  const harness = await openDirectNode();
  const { node } = harness;
  try {
    let left = sandboxCount;
    const worker = async () => {
      while (left-- > 0) {
        const sandbox = await node.createSandbox(createOrder());
        const life = { sandboxId: sandbox.mark.sandboxId, generation: 1 };
        const command = 'setsid sleep 1000 & (setsid sleep 1000 &); mkfifo /tmp/p; mkdir -p /workspace/a; echo used';
        expect((await run(node, sandbox, command)).stdout).toBe('used\n');
        if (left % 2 === 0) await node.stopSandbox({ ...life, graceMs: 50 });
        await node.deleteSandbox(life);
      }
    };
    await Promise.all(Array.from({ length: atOnce }, worker));
    expect(await findLeftovers(harness.dataDirectory)).toEqual(nothingLeft);
  } finally {
    await harness.close();
  }
});
