/** A sandbox that ends without anybody asking: its init is killed, or the machine boots. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect } from 'vitest';
import { type Clock, SystemClock } from '../../src/base/index.ts';
import type { NodeEvent, SandboxSettings } from '../../src/protocol/index.ts';
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
  const clock = new BootingClock();
  harness = await openDirectNode({ clock });
  const sandbox = await harness.node.createSandbox(createOrder());
  const { sandboxId } = sandbox.mark;
  await run(harness.node, sandbox, 'echo kept > /workspace/file');
  await harness.restart(async () => clock.boot());
  const life = (await harness.node.findSandbox(sandboxId))?.life;
  expect(life).toMatchObject({ kind: 'ended', reason: 'machine_rebooted' });
  const again = await harness.node.startSandbox({ sandboxId, generation: 2, version: 2, settings: plainSettings });
  expect((await run(harness.node, again, ['cat', '/workspace/file'])).stdout).toBe('kept\n');
});

/** Settings as the record has them when version 3 was the last that somebody was answered. */
const settingsOf = (version: number): SandboxSettings => ({
  ...plainSettings,
  metadata: { version: String(version) },
  metadataVersion: version,
  leaseToken: version,
  leaseHeld: true,
});

for (const [what, lose] of [
  ['kept', (_: Buffer, now: Buffer) => now],
  ['as they were a change ago', (earlier: Buffer) => earlier],
  ['torn', (earlier: Buffer, now: Buffer) => Buffer.concat([earlier.subarray(0, 60), now.subarray(60)])],
  ['never written', (_: Buffer, now: Buffer) => Buffer.alloc(now.length)],
] as const) {
  test(`K7: K10: K29: a loss of power with slots of settings ${what}: nothing acts on them, and the next life has its order's`, async () => {
    const clock = new BootingClock();
    harness = await openDirectNode({ clock });
    const { mark } = await harness.node.createSandbox(createOrder({ settings: settingsOf(1) }));
    const { sandboxId } = mark;
    const life = { sandboxId, generation: 1 };
    const slots = join(harness.dataDirectory, 'sandboxes', sandboxId, 'settings');
    await harness.node.applySettings({ ...life, version: 2, settings: settingsOf(2) });
    const earlier = await readFile(slots);
    await harness.node.applySettings({ ...life, version: 3, settings: settingsOf(3) });
    const now = await readFile(slots);
    expect(now.equals(earlier)).toBe(false);
    await harness.restart(async () => {
      clock.boot();
      await writeFile(slots, lose(earlier, now));
    });

    const { node } = harness;
    const found = (await node.findSandbox(sandboxId))!;
    expect(found).toMatchObject({ generation: 1, life: { kind: 'ended', reason: 'machine_rebooted' } });
    expect(found.settings).toEqual(settingsOf(found.version));
    // Whatever the node remembers of its versions and tokens, no order of the life that is over is carried out.
    for (const version of [2, 3, 4]) {
      const order = { ...life, version, settings: settingsOf(version) };
      const outcome = node.applySettings(order).then((view) => view.life.kind, codeOf);
      expect(['ended', 'version_mismatch', 'sandbox_wrong_state']).toContain(await outcome);
      const paused = node.branches.pause(order).catch(codeOf);
      expect(['version_mismatch', 'sandbox_wrong_state']).toContain(await paused);
      const late = run(node, found, 'true', { leaseToken: version });
      await expect(late).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    }
    expect(await node.findSandbox(sandboxId)).toEqual(found);

    const again = await node.startSandbox({ sandboxId, generation: 2, version: 5, settings: settingsOf(3) });
    expect(again).toMatchObject({ generation: 2, version: 5, settings: settingsOf(3), life: { kind: 'running' } });
    const inside = await run(node, again, ['cat', '/run/atoll/metadata.json'], { leaseToken: 3 });
    expect(JSON.parse(inside.stdout)).toEqual({ version: 3, metadata: { version: '3' } });
    await expect(run(node, again, 'true', { leaseToken: 2 })).rejects.toMatchObject({ code: 'lease_lost' });
    await harness.restart();
    expect(await harness.node.findSandbox(sandboxId)).toMatchObject({ version: 5, settings: settingsOf(3) });
  });
}

const codeOf = (error: { code: string }) => error.code;

/** The system's, on a machine that boots when a test says so. */
class BootingClock implements Clock {
  readonly #system = new SystemClock();
  #boots = 1;

  boot(): void {
    this.#boots++;
  }

  get bootId(): string {
    return `boot ${this.#boots}`;
  }

  nowMs(): number {
    return this.#system.nowMs();
  }

  bootMs(): number {
    return this.#system.bootMs();
  }
}
