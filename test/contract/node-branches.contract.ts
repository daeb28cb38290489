/** What every NodeApi promises about branches of files: checkpoints, what is made from them, restore in place, pause and resume. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type CheckpointId,
  type NodeApi,
  type NodeCheckpoint,
  type NodeEvent,
  type NodeSandbox,
  newId,
} from '../../src/protocol/index.ts';
import * as rig from '../support/branch-rig.ts';
import { patience } from '../support/crashes.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, lifeOf, plainSpec, run } from '../support/node-orders.ts';

export function nodeBranchesContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let node: NodeApi;

  beforeAll(async () => {
    harness = await open();
    node = harness.node;
  });

  afterAll(() => harness?.close());

  const create = (overrides: Parameters<typeof createOrder>[0] = {}) => node.createSandbox(createOrder(overrides));
  const remove = (...sandboxes: readonly NodeSandbox[]) =>
    Promise.all(sandboxes.map((sandbox) => node.deleteSandbox(lifeOf(sandbox))));
  const sh = (sandbox: NodeSandbox, command: string) => rig.sh(node, sandbox, command);
  const start = (sandbox: NodeSandbox, command: string) => rig.startCommand(node, sandbox, command);
  const checkpoint = (sandbox: NodeSandbox, id?: CheckpointId) => rig.checkpointOf(node, sandbox, id);
  const restoreTo = (sandbox: NodeSandbox, one: Pick<NodeCheckpoint, 'checkpointId'>) =>
    node.branches.restore(rig.restoreOrder(sandbox, one));
  const next = rig.nextOrder;
  const storedLayers = async () => (await rig.storedIn(harness.dataDirectory)).layers;
  const fork = ({ checkpointId }: NodeCheckpoint, overrides: Parameters<typeof createOrder>[0] = {}) =>
    create({ fromCheckpoint: checkpointId, ...overrides });

  test('K34: a checkpoint of a running sandbox is of one instant, as a writer of two files sees it', async () => {
    const sandbox = await create({ settings: { metadata: { a: '1' }, metadataVersion: 3 } });
    await rig.startCounting(node, sandbox);
    const taken = await Promise.all([1, 2, 3].map(() => checkpoint(sandbox)));
    await rig.expectMoving(node, sandbox);
    for (const one of taken) {
      expect(one).toMatchObject({ sandboxId: sandbox.mark.sandboxId, generation: 1, spec: plainSpec });
      expect(one).toMatchObject({ metadata: { a: '1' }, metadataVersion: 3 });
      expect(one.frozenMs).toBeGreaterThan(0);
      const copy = await fork(one);
      const [first, second] = [await rig.countOf(node, copy, 'first'), await rig.countOf(node, copy)];
      expect(first - second === 0 || first - second === 1, `${first} and ${second}`).toBe(true);
      expect(second).toBeGreaterThan(10);
      await remove(copy);
      await node.branches.removeCheckpoint(one.checkpointId);
    }
    await remove(sandbox);
  });

  test('a checkpoint is found, listed and the same when it is ordered again; of another life it is refused', async () => {
    const sandbox = await create();
    const one = await checkpoint(sandbox);
    expect(await checkpoint(sandbox, one.checkpointId)).toEqual(one);
    expect(await node.branches.findCheckpoint(one.checkpointId)).toEqual(one);
    expect(await node.branches.listCheckpoints()).toEqual([one]);
    const other = await create();
    await expect(checkpoint(other, one.checkpointId)).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(checkpoint({ ...sandbox, generation: 2 })).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    await remove(sandbox, other);
    await node.branches.removeCheckpoint(one.checkpointId);
    await node.branches.removeCheckpoint(one.checkpointId);
    expect(await node.branches.findCheckpoint(one.checkpointId)).toBeUndefined();
    await expect(fork(one)).rejects.toMatchObject({ code: 'checkpoint_not_found' });
  });

  test('a checkpoint needs the lease while one is held', async () => {
    const sandbox = await create({ settings: { leaseToken: 4, leaseHeld: true } });
    const order = { ...lifeOf(sandbox), checkpointId: newId('checkpoint') };
    await expect(node.branches.checkpoint({ ...order, leaseToken: null })).rejects.toMatchObject({
      code: 'lease_held',
    });
    await expect(node.branches.checkpoint({ ...order, leaseToken: 3 })).rejects.toMatchObject({ code: 'lease_lost' });
    expect(await node.branches.listCheckpoints()).toEqual([]);
    await node.branches.checkpoint({ ...order, leaseToken: 4 });
    await node.branches.removeCheckpoint(order.checkpointId);
    await remove(sandbox);
  });

  test('K35: a restore keeps the id, begins the next generation, and ends every process of the one before', async () => {
    const sandbox = await create();
    await sh(sandbox, 'echo old > /root/file; mkdir /root/kept; ln /root/file /root/kept/hard');
    const one = await checkpoint(sandbox);
    await sh(sandbox, 'echo new > /root/file; rm -r /root/kept; echo more > /usr/local/more');
    await start(sandbox, 'sleep 1000');
    await expect.poll(() => sh(sandbox, 'pgrep -c sleep'), patience).toBe('1\n');
    const restored = await restoreTo(sandbox, one);
    expect(restored).toMatchObject({ mark: sandbox.mark, generation: 2, version: 2, life: { kind: 'running' } });
    expect(await sh(restored, 'cat /root/file /root/kept/hard; ls /usr/local/more 2>&1 | grep -c "No such"')).toBe(
      'old\nold\n1\n',
    );
    expect(await sh(restored, 'pgrep -c sleep')).toBe('0\n');
    // The same order again is what is there; one for the earlier life is refused.
    expect(await restoreTo(sandbox, one)).toEqual(restored);
    await expect(run(node, sandbox, 'true')).rejects.toMatchObject({ code: 'stale_generation' });
    // A stopped one is restored too, and what it has written since is gone.
    await sh(restored, 'echo newer > /root/file');
    const stopped = await node.stopSandbox({ ...lifeOf(restored), graceMs: 0 });
    const again = await restoreTo(stopped, one);
    expect(again).toMatchObject({ generation: 3, life: { kind: 'running' } });
    expect(await sh(again, 'cat /root/file')).toBe('old\n');
    await remove(again);
    await node.branches.removeCheckpoint(one.checkpointId);
  });

  test('K35: a restore that cannot begin leaves the sandbox running as it was', async () => {
    const sandbox = await create();
    await sh(sandbox, 'echo mine > /root/file');
    const gone = { checkpointId: newId('checkpoint') };
    await expect(restoreTo(sandbox, gone)).rejects.toMatchObject({ code: 'checkpoint_not_found' });
    expect(await node.findSandbox(sandbox.mark.sandboxId)).toEqual(sandbox);
    expect(await sh(sandbox, 'cat /root/file')).toBe('mine\n');
    await remove(sandbox);
  });

  test('K36, K37: forks are independent of each other, of their source and of the checkpoint, which never changes', async () => {
    const source = await create();
    await sh(source, 'echo source > /root/file; chmod 0751 /; mknod /root/pipe p');
    const one = await checkpoint(source);
    const forks = await Promise.all([1, 2, 3, 4].map(() => fork(one)));
    await Promise.all(
      forks.map((each, index) => sh(each, `echo ${index} > /root/file; echo ${index} > /root/own-${index}`)),
    );
    await sh(source, 'echo later > /root/file');
    for (const [index, each] of forks.entries()) {
      expect(await sh(each, 'cat /root/file; ls /root | grep own; stat -c %a /; stat -c %F /root/pipe')).toBe(
        `${index}\nown-${index}\n751\nfifo\n`,
      );
      const { sandboxId } = each.mark;
      expect(await sh(each, 'cat /etc/hostname; grep -c "$(hostname)" /etc/hosts; hostname')).toBe(
        `${sandboxId}\n1\n${sandboxId}\n`,
      );
    }
    expect(await sh(source, 'cat /root/file; ls /root | grep -c own')).toBe('later\n0\n');
    // What was made from it goes on without it.
    await node.branches.removeCheckpoint(one.checkpointId);
    await expect(fork(one)).rejects.toMatchObject({ code: 'checkpoint_not_found' });
    const stopped = await node.stopSandbox({ ...lifeOf(forks[0]!), graceMs: 0 });
    const started = await node.startSandbox({ ...next(stopped), generation: 2 });
    expect(await sh(started, 'cat /root/file /root/own-0')).toBe('0\n0\n');
    const { sandboxes } = await node.inventory();
    await remove(...sandboxes);
  });

  test('a fork of a hostile tree writes its names nowhere else', async () => {
    const source = await create();
    await sh(source, 'mv /etc /etc-real; mkdir /elsewhere; ln -s /elsewhere /etc; cp /etc-real/passwd /elsewhere');
    const one = await checkpoint(source);
    const copy = await fork(one);
    expect(await sh(copy, 'cat /elsewhere/hostname; readlink /etc')).toBe(`${copy.mark.sandboxId}\n/elsewhere\n`);
    await remove(source, copy);
    await node.branches.removeCheckpoint(one.checkpointId);
  });

  test('K38: a memory pause keeps every process, standing still, and refuses what would move one', async () => {
    const sandbox = await create();
    await rig.startCounting(node, sandbox);
    const pids = await sh(sandbox, 'pgrep -f "[f]irst"');
    const paused = await node.branches.pause(next(sandbox, { metadata: { at: 'pause' }, metadataVersion: 2 }));
    expect(paused).toMatchObject({ generation: 1, version: 2, life: { kind: 'paused' } });
    expect(await node.branches.pause(next(sandbox, { metadata: { at: 'pause' }, metadataVersion: 2 }))).toEqual(paused);
    await expect(run(node, sandbox, 'true')).rejects.toMatchObject({ code: 'sandbox_paused' });
    const file = { ...lifeOf(sandbox), user: null, leaseToken: null };
    const look = node.readFile({ ...file, path: '/root/first', offset: 0, length: null });
    await expect(look).rejects.toMatchObject({ code: 'sandbox_paused' });
    // Nothing moves: two checkpoints hold the same.
    const taken = [await checkpoint(paused), await checkpoint(paused)];
    expect(taken.map(({ frozenMs }) => frozenMs)).toEqual([0, 0]);
    const copies = await Promise.all(taken.map((one) => fork(one)));
    const counts = await Promise.all(copies.map((copy) => rig.countOf(node, copy, 'first')));
    expect(counts[0]).toBe(counts[1]);
    // K10: a patch while it is paused is there when it goes on, also after the node was started again.
    const patched = await node.applySettings(next(paused, { metadata: { at: 'patch' }, metadataVersion: 3 }));
    expect(patched.life).toEqual(paused.life);
    await harness.restart();
    node = harness.node;
    expect(await node.findSandbox(sandbox.mark.sandboxId)).toEqual(patched);
    const resumed = await node.branches.resume(next(patched, { metadata: { at: 'resume' }, metadataVersion: 4 }));
    expect(resumed).toMatchObject({ generation: 1, version: 4, life: { kind: 'running' } });
    expect(await sh(resumed, 'pgrep -f "[f]irst"')).toBe(pids);
    expect(JSON.parse(await sh(resumed, 'cat /run/atoll/metadata.json'))).toEqual({
      version: 4,
      metadata: { at: 'resume' },
    });
    await expect.poll(() => rig.countOf(node, resumed, 'first'), patience).toBeGreaterThan(counts[0]!);
    await remove(resumed, ...copies);
    for (const { checkpointId } of taken) await node.branches.removeCheckpoint(checkpointId);
  });

  test('a paused sandbox is stopped, restored and deleted like any other', async () => {
    const [stopped, restored, deleted] = await Promise.all([create(), create(), create()]);
    await start(stopped, 'trap "echo told > /root/told; exit" TERM; while :; do sleep 0.1; done');
    await sh(restored, 'echo kept > /root/file');
    const one = await checkpoint(restored);
    for (const each of [stopped, restored, deleted]) await node.branches.pause(next(each));
    expect(await node.stopSandbox({ ...lifeOf(stopped), graceMs: 10_000 })).toMatchObject({ life: { kind: 'ended' } });
    const back = await restoreTo({ ...restored, version: 2 }, one);
    expect(await sh(back, 'cat /root/file')).toBe('kept\n');
    await remove(deleted);
    const started = await node.startSandbox({ ...next(stopped), version: 3, generation: 2 });
    expect(await sh(started, 'cat /root/told')).toBe('told\n');
    await remove(started, back);
    await node.branches.removeCheckpoint(one.checkpointId);
  });

  test('a sandbox that is to be paused at its deadline is, tells so, and has no deadline then', async () => {
    const over = new AbortController();
    const heard: NodeEvent[] = [];
    const watching = (async () => {
      for await (const event of node.watch(over.signal)) heard.push(event);
    })().catch(() => {});
    await expect.poll(() => heard.length, patience).toBe(1);
    const sandbox = await create({ settings: { expiresAtMs: Date.now() + 2_000, onExpiry: 'pause' } });
    const { sandboxId } = sandbox.mark;
    const paused = async () => (await node.findSandbox(sandboxId))!;
    await expect.poll(async () => (await paused()).life.kind, patience).toBe('paused');
    expect(await paused()).toMatchObject({ version: 1, generation: 1 });
    await expect.poll(() => heard.at(-1), patience).toMatchObject({ kind: 'paused', sandboxId, generation: 1 });
    const ordered = await node.branches.pause(next(sandbox, { onExpiry: 'pause' }));
    expect(ordered).toMatchObject({ version: 2, life: (await paused()).life });
    const expiresAtMs = Date.now() + 600_000;
    const resumed = await node.branches.resume(next(ordered, { onExpiry: 'pause', expiresAtMs }));
    expect(await sh(resumed, 'echo works')).toBe('works\n');
    over.abort();
    await watching;
    await remove(resumed);
  });

  test('K41: what is deleted is freed, what is shared stays, and nothing is left in the end', async () => {
    await expect.poll(storedLayers, patience).toEqual([]);
    const source = await create();
    await sh(source, 'echo shared > /root/file');
    const one = await checkpoint(source);
    const copy = await fork(one);
    await remove(source);
    await node.branches.removeCheckpoint(one.checkpointId);
    expect(await sh(copy, 'cat /root/file')).toBe('shared\n');
    const stopped = await node.stopSandbox({ ...lifeOf(copy), graceMs: 0 });
    const two = await checkpoint(stopped);
    expect(two.frozenMs).toBe(0);
    const started = await node.startSandbox({ ...next(stopped), generation: 2 });
    const last = await fork(two);
    expect(await sh(last, 'cat /root/file')).toBe('shared\n');
    expect(await sh(started, 'cat /root/file')).toBe('shared\n');
    await remove(started);
    expect(await sh(last, 'cat /root/file')).toBe('shared\n');
    await remove(last);
    await node.branches.removeCheckpoint(two.checkpointId);
    await expect.poll(storedLayers, patience).toEqual([]);
  });

  test('what a sandbox takes on the disk is told; a limit holds, or is refused where there are none', async () => {
    const mebibyte = 1024 ** 2;
    const { hasQuotas, totalBytes, freeBytes } = await node.branches.describeStorage();
    expect(totalBytes).toBeGreaterThan(freeBytes);
    const limits = { ...plainSpec.limits, diskBytes: 24 * mebibyte };
    if (!hasQuotas) {
      await expect(create({ spec: { limits } })).rejects.toMatchObject({ code: 'storage_unsupported' });
    }
    const sandbox = await create(hasQuotas ? { spec: { limits } } : {});
    await sh(sandbox, 'head -c 8388608 /dev/urandom > /root/eight; sync /root/eight');
    const { bytes, limitBytes } = await node.branches.usage(lifeOf(sandbox));
    expect(bytes).toBeGreaterThan(8 * mebibyte);
    expect(bytes).toBeLessThan(24 * mebibyte);
    expect(limitBytes).toBe(hasQuotas ? limits.diskBytes : null);
    if (hasQuotas) {
      expect(await sh(sandbox, 'head -c 33554432 /dev/urandom > /root/more; sync /root/more')).toMatch(/quota/i);
      const copyOf = await checkpoint(sandbox);
      const copy = await fork(copyOf, { spec: { limits } });
      expect(await sh(copy, 'head -c 33554432 /dev/urandom > /root/most; sync /root/most')).toMatch(/quota/i);
      await remove(copy);
      await node.branches.removeCheckpoint(copyOf.checkpointId);
    }
    await remove(sandbox);
  });
}
