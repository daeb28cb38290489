/** A sandbox that ends without anybody asking: its init is killed, or the machine boots. */
import { afterEach, expect } from 'vitest';
import { SystemClock } from '../../src/base/index.ts';
import type { NodeEvent } from '../../src/protocol/index.ts';
import { type NodeUnderTest, openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { findLeftovers, initPid } from '../support/node-leftovers.ts';
import { createOrder, plainSettings, run } from '../support/node-orders.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.linux, requires.root, requires.cgroups);
let harness: NodeUnderTest | undefined;

afterEach(async () => {
  await harness?.close();
  harness = undefined;
});

test('an init that is killed takes its processes with it, is told as crashed, and the files can be used again', async () => {
  harness = await openNodeProcess();
  const { node, dataDirectory } = harness;
  const sandbox = await node.createSandbox(createOrder());
  const { sandboxId } = sandbox.mark;
  await run(node, sandbox, 'echo kept > /workspace/file; setsid sleep 1000 > /dev/null 2>&1 &');
  const running = run(node, sandbox, 'sleep 1000').catch((error: { code: string }) => error.code);
  const stop = new AbortController();
  const events = node.watch(stop.signal)[Symbol.asyncIterator]();
  await events.next();

  process.kill(await initPid(dataDirectory, sandboxId), 'SIGKILL');

  const end = (await events.next()).value as NodeEvent;
  expect(end).toMatchObject({ kind: 'ended', sandboxId, generation: 1, reason: 'crashed' });
  stop.abort();
  expect(await running).toBe('outcome_unknown');
  expect((await node.findSandbox(sandboxId))?.life).toMatchObject({ kind: 'ended', reason: 'crashed' });
  expect((await findLeftovers(dataDirectory)).processes).toEqual([]);
  const again = await node.startSandbox({ sandboxId, generation: 2, version: 2, settings: plainSettings });
  expect((await run(node, again, ['cat', '/workspace/file'])).stdout).toBe('kept\n');
});

test('an init that is killed while the node is away is found as crashed', async () => {
  harness = await openNodeProcess();
  const { dataDirectory } = harness;
  const { mark } = await harness.node.createSandbox(createOrder());
  const pid = await initPid(dataDirectory, mark.sandboxId);
  await harness.restart(async () => void process.kill(pid, 'SIGKILL'));
  expect((await harness.node.findSandbox(mark.sandboxId))?.life).toMatchObject({ kind: 'ended', reason: 'crashed' });
});

test('after a boot of the machine every sandbox has ended because of it, with its files', async () => {
  const system = new SystemClock();
  let boot = 'first boot';
  const clock = {
    nowMs: () => system.nowMs(),
    bootMs: () => system.bootMs(),
    get bootId() {
      return boot;
    },
  };
  harness = await openDirectNode({ clock });
  const sandbox = await harness.node.createSandbox(createOrder());
  const { sandboxId } = sandbox.mark;
  await run(harness.node, sandbox, 'echo kept > /workspace/file');
  await harness.restart(async () => {
    boot = 'second boot';
  });
  const life = (await harness.node.findSandbox(sandboxId))?.life;
  expect(life).toMatchObject({ kind: 'ended', reason: 'machine_rebooted' });
  const again = await harness.node.startSandbox({ sandboxId, generation: 2, version: 2, settings: plainSettings });
  expect((await run(harness.node, again, ['cat', '/workspace/file'])).stdout).toBe('kept\n');
});
