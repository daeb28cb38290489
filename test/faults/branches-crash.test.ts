/**
 * A node is ended with SIGKILL at each durable step of what it does with branches. What it finds when it starts again is before or after,
 * files are whole, nothing stands still that should move, and nothing is left that nobody has.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import type { NodeCheckpoint, NodeSandbox } from '../../src/protocol/index.ts';
import { newId } from '../../src/protocol/index.ts';
import {
  checkpointOf,
  expectMoving,
  nextOrder,
  restoreOrder,
  sh,
  startCounting,
  storedIn,
  writableOf,
} from '../support/branch-rig.ts';
import { btrfs } from '../support/btrfs.ts';
import { eventually, patience } from '../support/crashes.ts';
import { type NodeProcessUnderTest, openNodeProcess } from '../support/node-harness.ts';
import { findLeftovers } from '../support/node-leftovers.ts';
import { createOrder, lifeOf } from '../support/node-orders.ts';
import { describeWith, requires, testWith } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';

const emptyStorage = { layers: [], writables: [], unfinished: [] };
const machine = [requires.linux, requires.root, requires.cgroups] as const;
const test = testWith(...machine);

describeWith(...machine)('on plain directories', () => crashes({ storage: 'directories' }));
// The same steps on other files: one of each kind is enough.
describeWith(...machine, btrfs)('on a pool', () =>
  crashes({ storage: 'pool', poolSizes: smallPool }, [
    ...['node-checkpoint-taken', 'node-restore-before-discard', 'node-checkpoint-forgotten'],
  ]),
);

function crashes(options: Parameters<typeof openNodeProcess>[0], only?: readonly string[]): void {
  let harness: NodeProcessUnderTest;

  beforeAll(async () => {
    harness = await openNodeProcess(options);
  });
  afterAll(async () => {
    try {
      // What was made ahead goes with the next start.
      await harness.restart();
      await eventually(async () => expect(await storedIn(harness.dataDirectory)).toEqual(emptyStorage));
      const { processes, groups } = await findLeftovers(harness.dataDirectory);
      expect({ processes, groups }).toEqual({ processes: [], groups: [] });
    } finally {
      await harness?.close();
    }
    expect((await readFile('/proc/self/mounts', 'utf8')).includes(harness.dataDirectory)).toBe(false);
  });
  afterEach(async () => {
    const { sandboxes } = await harness.node.inventory();
    await Promise.all(sandboxes.map((sandbox) => harness.node.deleteSandbox(lifeOf(sandbox))));
    const checkpoints = await harness.node.branches.listCheckpoints();
    for (const { checkpointId } of checkpoints) await harness.node.branches.removeCheckpoint(checkpointId);
  });

  const create = (overrides: Parameters<typeof createOrder>[0] = {}) =>
    harness.node.createSandbox(createOrder(overrides));

  /** A sandbox with a file and a checkpoint of it, which has changed since and whose commands move. */
  async function scene(): Promise<{ readonly sandbox: NodeSandbox; readonly kept: NodeCheckpoint }> {
    const sandbox = await create();
    await sh(harness.node, sandbox, 'echo old > /root/file');
    const kept = await checkpointOf(harness.node, sandbox);
    await sh(harness.node, sandbox, 'echo new > /root/file');
    await startCounting(harness.node, sandbox);
    return { sandbox, kept };
  }

  /** Gives an order to a node that dies at `point`, and starts the node again. */
  async function crashAt(point: string, order: () => Promise<unknown>): Promise<void> {
    await harness.restartWith(`${point}=crash`);
    await expect(order()).rejects.toMatchObject({ code: 'outcome_unknown' });
    await harness.died;
    await harness.restart();
  }

  /** Every file of the storage is somebody's. */
  async function expectOnly(sandboxes: readonly NodeSandbox[], layers: number): Promise<void> {
    const named = await Promise.all(sandboxes.map((sandbox) => writableOf(harness.dataDirectory, sandbox)));
    // What only a collection removes goes with its next round.
    await expect
      .poll(async () => {
        const found = await storedIn(harness.dataDirectory);
        return { ...found, layers: found.layers.length };
      }, patience)
      .toEqual({ writables: named.sort(), layers, unfinished: [] });
  }

  function each<Outcome>(
    points: Readonly<Record<string, Outcome>>,
    title: (point: string, outcome: Outcome) => string,
    run: (point: string, outcome: Outcome) => Promise<void>,
  ): void {
    for (const [point, outcome] of Object.entries(points)) {
      if (only === undefined || only.includes(point)) test(title(point, outcome), () => run(point, outcome));
    }
  }

  each(
    {
      'node-freeze-asked': false,
      'node-checkpoint-frozen': false,
      'layers-make-described': false,
      'layers-make-filled': false,
      'layers-make-named': false,
      'node-checkpoint-taken': false,
      'node-checkpoint-before-answer': true,
    },
    (point, isThere) =>
      `K40: checkpoint, killed at ${point}: it is ${isThere ? '' : 'not '}there, and the sandbox goes on`,
    async (point, isThere) => {
      const sandbox = await create();
      await startCounting(harness.node, sandbox);
      const checkpointId = newId('checkpoint');
      await crashAt(point, () => checkpointOf(harness.node, sandbox, checkpointId));
      expect(await harness.node.findSandbox(sandbox.mark.sandboxId)).toEqual(sandbox);
      await expectMoving(harness.node, sandbox);
      expect((await harness.node.branches.findCheckpoint(checkpointId)) !== undefined).toBe(isThere);
      await expectOnly([sandbox], isThere ? 1 : 0);
      const again = await checkpointOf(harness.node, sandbox, checkpointId);
      const fork = await create({ fromCheckpoint: again.checkpointId });
      expect(Number(await sh(harness.node, fork, 'wc -l < /root/first'))).toBeGreaterThan(10);
    },
  );

  each(
    {
      'layers-open-made': 'running',
      'node-restore-opened': 'running',
      'node-end-before-record': 'ended',
      'node-restore-ended': 'ended',
      'node-before-spawn': 'ended',
      'node-after-spawn': 'ended',
      'node-restore-before-discard': 'restored',
      'node-restore-before-discard>layers-remove-renamed': 'restored',
      'node-restore-before-answer': 'restored',
    },
    (point, outcome) => `K40: restore, killed at ${point}: ${outcome}, and the order can be given again`,
    async (point, outcome) => {
      const { sandbox, kept } = await scene();
      const order = restoreOrder(sandbox, kept);
      await crashAt(point, () => harness.node.branches.restore(order));
      const found = (await harness.node.findSandbox(sandbox.mark.sandboxId))!;
      const [generation, kind] = { running: [1, 'running'], ended: [1, 'ended'], restored: [2, 'running'] }[outcome]!;
      expect(found).toMatchObject({ generation, life: { kind } });
      if (outcome === 'running') {
        await expectMoving(harness.node, found);
        expect(await sh(harness.node, found, 'cat /root/file')).toBe('new\n');
      }
      if (outcome === 'ended') {
        expect((await findLeftovers(harness.dataDirectory)).processes).toEqual([]);
        const started = await harness.node.startSandbox({ ...nextOrder(found), generation: 2 });
        expect(await sh(harness.node, started, 'cat /root/file')).toBe('new\n');
        const restored = await harness.node.branches.restore(restoreOrder(started, kept));
        return expect(await sh(harness.node, restored, 'cat /root/file')).toBe('old\n');
      }
      await expectOnly([found], 1);
      const restored = await harness.node.branches.restore(order);
      expect(restored.generation).toBe(2);
      expect(await sh(harness.node, restored, 'cat /root/file')).toBe('old\n');
    },
  );

  each(
    {
      'layers-open-made': false,
      'layers-open-named': false,
      'node-create-after-writable': false,
      'node-after-spawn': false,
      'node-create-before-commit': false,
      'node-create-before-answer': true,
    },
    (point, isThere) => `K40: create from a checkpoint, killed at ${point}: it is ${isThere ? '' : 'not '}there, whole`,
    async (point, isThere) => {
      const { sandbox, kept } = await scene();
      const order = createOrder({ fromCheckpoint: kept.checkpointId });
      await crashAt(point, () => harness.node.createSandbox(order));
      const found = await harness.node.findSandbox(order.sandboxId);
      expect(found !== undefined).toBe(isThere);
      await expectOnly(found === undefined ? [sandbox] : [sandbox, found], 1);
      const made = await harness.node.createSandbox(order);
      expect(await sh(harness.node, made, 'cat /root/file /etc/hostname')).toBe(`old\n${order.sandboxId}\n`);
      await expectMoving(harness.node, sandbox);
    },
  );

  each(
    {
      'node-freeze-asked': false,
      'node-pause-frozen': false,
      'node-settings-before-commit': false,
      'node-settings-after-settings': true,
      'node-pause-before-answer': true,
    },
    (point, isPaused) => `K40: pause, killed at ${point}: it ${isPaused ? 'stands still' : 'moves'}, and can be paused`,
    async (point, isPaused) => {
      const sandbox = await create();
      await startCounting(harness.node, sandbox);
      await crashAt(point, () => harness.node.branches.pause(nextOrder(sandbox)));
      const found = (await harness.node.findSandbox(sandbox.mark.sandboxId))!;
      expect(found.life.kind).toBe(isPaused ? 'paused' : 'running');
      if (!isPaused) await expectMoving(harness.node, found);
      const paused = await harness.node.branches.pause(nextOrder(sandbox));
      expect(paused.life.kind).toBe('paused');
      await expectMoving(harness.node, await harness.node.branches.resume(nextOrder(paused)));
    },
  );

  each(
    {
      'node-settings-before-init': true,
      'node-settings-before-commit': true,
      'node-resume-before-thaw': false,
      'node-resume-before-answer': false,
    },
    (point, isPaused) =>
      `K40: resume, killed at ${point}: it ${isPaused ? 'stands still' : 'moves'}, and can be resumed`,
    async (point, isPaused) => {
      const sandbox = await create();
      await startCounting(harness.node, sandbox);
      const paused = await harness.node.branches.pause(nextOrder(sandbox));
      const order = nextOrder(paused, { metadata: { a: 'resumed' }, metadataVersion: 2 });
      await crashAt(point, () => harness.node.branches.resume(order));
      const found = (await harness.node.findSandbox(sandbox.mark.sandboxId))!;
      expect(found.life.kind).toBe(isPaused ? 'paused' : 'running');
      const resumed = await harness.node.branches.resume(order);
      await expectMoving(harness.node, resumed);
      expect(await sh(harness.node, resumed, 'cat /run/atoll/metadata.json')).toContain('"a":"resumed"');
    },
  );

  each(
    { 'node-checkpoint-forgotten': true, 'node-checkpoint-forgotten>layers-remove-renamed': true },
    (point) => `K41: removing a checkpoint, killed at ${point}: it is gone, and its layer goes too`,
    async (point) => {
      const { sandbox, kept } = await scene();
      await crashAt(point, () => harness.node.branches.removeCheckpoint(kept.checkpointId));
      expect(await harness.node.branches.listCheckpoints()).toEqual([]);
      await expectOnly([sandbox], 0);
      await harness.node.branches.removeCheckpoint(kept.checkpointId);
      await expectMoving(harness.node, sandbox);
    },
  );
}
