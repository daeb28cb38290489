/** What every NodeApi tells about what a sandbox takes of its machine, called directly or over HTTP. */
import { expect, test } from 'vitest';
import { newId } from '../../src/protocol/index.ts';
import { patience } from '../support/crashes.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder } from '../support/node-orders.ts';

const processMax = 64;

export function nodeLoadContract(open: () => Promise<NodeUnderTest>): void {
  test('work and memory of its commands are counted, and of none that is gone', { timeout: 60_000 }, async () => {
    const harness = await open();
    try {
      const { node } = harness;
      const { mark, generation } = await node.createSandbox(createOrder());
      const life = { sandboxId: mark.sandboxId, generation };
      const before = await node.load(life);
      await node.startProcess({
        ...life,
        ...{
          processId: newId('process'),
          name: null,
          leaseToken: null,
          cwd: null,
          env: {},
          user: null,
          stdinOpen: false,
        },
        ...{ timeoutMs: null, graceMs: 0, keepBytes: 65_536, autoCleanup: false },
        command: ['python3', '-c', 'kept = bytearray(b"x") * (32 << 20)\nwhile True: pass'],
      });
      await expect
        .poll(async () => {
          const { cpuMicros, memoryBytes, processes } = await node.load(life);
          const hasWorked = cpuMicros > before.cpuMicros + 100_000;
          return hasWorked && memoryBytes > before.memoryBytes + (24 << 20) && processes > before.processes;
        }, patience)
        .toBe(true);
      const load = await node.load(life);
      expect(load.memoryCacheBytes).toBeLessThanOrEqual(load.memoryBytes);
      expect(load.processes).toBeLessThan(processMax);
      await node.deleteSandbox(life);
      await expect(node.load(life)).rejects.toMatchObject({ code: 'sandbox_not_found' });
    } finally {
      await harness.close();
    }
  });
}
