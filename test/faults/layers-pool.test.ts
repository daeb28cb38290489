/** The pool of layers: what it is mounted with, how it grows, fills up and is found again, and what happens when it cannot be used. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readdir, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { probeStorage } from '../../src/layers/index.ts';
import { eventually } from '../support/crashes.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { LayerRig, rigKinds } from '../support/layer-rig.ts';
import { describeWith } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';

const mebibyte = 1024 ** 2;
const kind = rigKinds.find((each) => each.kind === 'pool')!;
const neverGrows = { ...smallPool, limitBytes: smallPool.initialBytes };
let rig: LayerRig;

const image = () => join(rig.storage, 'pool.btrfs');
const mounts = async () =>
  (await readFile('/proc/self/mounts', 'utf8')).split('\n').filter((line) => line.includes(rig.root));
const freeBytes = async () => {
  const { bavail, bsize } = await statfs(rig.root);
  return bavail * bsize;
};

describeWith(...kind.needs)('a pool', () => {
  afterEach(() => rig.close());

  describeWith(...kind.needs)('of the usual sizes', () => {
    beforeEach(async () => {
      rig = await LayerRig.open(kind);
    });

    test('is mounted once, without set-id programs and devices, and its blocks are set aside', async () => {
      await rig.store();
      const [mount, ...more] = await mounts();
      expect(more).toEqual([]);
      expect(mount).toMatch(/ btrfs rw,nosuid,nodev,/);
      expect((await stat(image())).blocks * 512).toBeGreaterThanOrEqual(smallPool.initialBytes);
    });

    test('grows before it is full, and keeps what is in it', async () => {
      const store = await rig.store();
      const writable = await rig.fork(store);
      await writeFile(join(writable.directory, 'upper/big'), Buffer.alloc(200 * mebibyte, 'x'), { flush: true });
      expect(await freeBytes()).toBeLessThan(smallPool.reserveBytes);
      await store.maintain();
      expect((await stat(image())).size).toBe(smallPool.initialBytes + smallPool.stepBytes);
      expect(await freeBytes()).toBeGreaterThan(smallPool.reserveBytes);
      await writeFile(join(writable.directory, 'upper/more'), Buffer.alloc(100 * mebibyte, 'y'), { flush: true });
    });

    test('is unmounted when it is closed without writable layers, and found again as it was', async () => {
      let store = await rig.store();
      const writable = await rig.fork(store);
      const view = await rig.view(store, writable, ['file a 10 1']);
      const layer = await store.freeze(writable.id, { isInUse: true });
      await store.close();
      expect(await mounts()).toHaveLength(1);
      await store.discardWritable(writable.id);
      await store.close();
      expect(await mounts()).toEqual([]);
      store = await rig.store();
      expect(store.listLayers()).toEqual([layer]);
      expect(await rig.view(store, await rig.fork(store, layer.id))).toEqual(view);
    });

    test('whose mount is gone while a sandbox still has it is mounted again from the same device', async () => {
      let store = await rig.store();
      const writable = await rig.fork(store);
      const view = await rig.view(store, writable, ['file a 10 1']);
      // A mount namespace of its own keeps the file system alive, as a sandbox does.
      const sandbox = spawn('unshare', ['-m', 'sh', '-c', 'echo ready; exec sleep 1000'], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      try {
        await once(sandbox.stdout, 'data');
        const [before] = await mounts();
        await rig.operations.unmountPool(rig.root);
        expect(await mounts()).toEqual([]);
        store = await rig.store();
        expect(await mounts()).toEqual([before]);
        expect(await rig.view(store, store.findWritable(writable.id)!)).toEqual(view);
      } finally {
        sandbox.kill('SIGKILL');
        await once(sandbox, 'close');
      }
    });

    test('K41: deleting layers gives their space back', async () => {
      const store = await rig.store();
      const before = await freeBytes();
      const writable = await rig.fork(store);
      await writeFile(join(writable.directory, 'upper/big'), Buffer.alloc(64 * mebibyte, 'x'), { flush: true });
      const layer = await store.freeze(writable.id, { isInUse: true });
      await store.discardWritable(writable.id);
      expect(await freeBytes()).toBeLessThan(before - 60 * mebibyte);
      await store.removeLayer(layer.id);
      await eventually(async () => {
        // By itself the file system's cleaner comes round twice a minute; a sync for the count of a quota wakes it.
        await rig.operations.quotaOf(rig.root, { isFixed: false });
        expect(await freeBytes()).toBeGreaterThan(before - 8 * mebibyte);
      });
    });

    test('K42: a limit counts what a fork began with, and gives room back when that is removed', async () => {
      const clock = new FakeClock();
      rig.clock = clock;
      const store = await rig.store();
      const source = await rig.fork(store);
      await writeFile(join(source.directory, 'upper/first'), Buffer.alloc(20 * mebibyte, 'x'), { flush: true });
      const layer = await store.freeze(source.id, { isInUse: true });
      const limitBytes = 30 * mebibyte;
      const fork = await store.openWritable({ base: 'test', from: layer.id, limitBytes });
      const write = (name: string) =>
        writeFile(join(fork.directory, 'upper', name), Buffer.alloc(16 * mebibyte, name), { flush: true }).catch(
          (error: NodeJS.ErrnoException) => error.errno,
        );
      const full = -constants.errno.EDQUOT;
      expect(await write('a')).toBe(full);
      const { bytes, limitBytes: said } = await store.usageOf(fork.id);
      expect(said).toBe(limitBytes);
      expect(bytes).toBeGreaterThan(20 * mebibyte);
      await rm(join(fork.directory, 'upper/a'));
      await rm(join(fork.directory, 'upper/first'));
      await eventually(async () => {
        clock.step(60_000);
        await store.maintain();
        expect(await write('b')).toBeUndefined();
      });
      expect(await write('c')).toBe(full);
      expect(await rig.leftovers()).toEqual([]);
    });

    test('K41: the size of a checkpoint follows what it refers to, whatever earlier ones hold', async () => {
      const store = await rig.store();
      const writable = await rig.fork(store);
      const sizes: number[] = [];
      for (let step = 0; step < 4; step++) {
        const content = Buffer.alloc(8 * mebibyte, `${step}`);
        await writeFile(join(writable.directory, 'upper/file'), content, { flush: true });
        const { id } = await store.freeze(writable.id, { isInUse: true });
        await store.counted();
        sizes.push((await store.usageOf(id)).bytes / mebibyte);
      }
      for (const size of sizes) expect(size).toSatisfy((each: number) => each > 8 && each < 9);
    });

    test('that an earlier version made keeps its quotas, and does the same', async () => {
      let store = await rig.store();
      await store.close();
      await rig.operations.mountPool({ image: image(), point: rig.root });
      await promisify(execFile)('btrfs', ['quota', 'disable', rig.root]);
      expect(await rig.operations.enableQuotas(rig.root, { isSimple: false })).toBe('full');
      store = await rig.store();
      expect(await rig.operations.enableQuotas(rig.root, { isSimple: true })).toBe('full');
      const source = await rig.fork(store);
      await writeFile(join(source.directory, 'upper/first'), Buffer.alloc(20 * mebibyte, 'x'), { flush: true });
      const layer = await store.freeze(source.id, { isInUse: true });
      expect((await store.usageOf(layer.id)).bytes).toBeGreaterThan(20 * mebibyte);
      const fork = await store.openWritable({ base: 'test', from: layer.id, limitBytes: 30 * mebibyte });
      const writing = writeFile(join(fork.directory, 'upper/a'), Buffer.alloc(16 * mebibyte), { flush: true });
      await expect(writing).rejects.toMatchObject({ errno: -constants.errno.EDQUOT });
      await rm(join(fork.directory, 'upper/first'));
    });

    test('is not entered by the removal of a directory above it', async () => {
      const store = await rig.store();
      const writable = await rig.fork(store);
      await writeFile(join(writable.directory, 'upper/kept'), 'kept');
      await expect(rig.operations.removeTree(rig.storage)).rejects.toMatchObject({ code: 'isolation_failed' });
      expect(await readFile(join(writable.directory, 'upper/kept'), 'utf8')).toBe('kept');
    });

    test('whose file is damaged is an error by name, and the file stays', async () => {
      const store = await rig.store();
      await store.close();
      const file = await open(image(), 'r+');
      await file.write(Buffer.alloc(4096), 0, 4096, 64 * 1024);
      await file.close();
      await expect(rig.store()).rejects.toMatchObject({ code: 'storage_failed', details: { step: 'pool-mount' } });
      expect((await stat(image())).size).toBe(smallPool.initialBytes);
      expect(await mounts()).toEqual([]);
      await rm(image());
    });

    test('is what a probe finds here, and the probe leaves nothing', async () => {
      const directory = join(rig.directory, 'base');
      const found = await probeStorage({ directory, operations: rig.operations, poolBytes: smallPool.initialBytes });
      expect(found).toEqual({ kind: 'pool', reason: '' });
      expect(await readdir(directory)).toEqual([]);
      expect(await readFile('/proc/self/mounts', 'utf8')).not.toContain(directory);
    });
  });

  test('K42: that is full refuses, leaves nothing half-made, and works again when there is space', async () => {
    rig = await LayerRig.open(kind, { sizes: neverGrows });
    const store = await rig.store();
    const writable = await rig.fork(store);
    const view = await rig.view(store, writable, ['file a 10 1']);
    const big = join(writable.directory, 'upper/big');
    await expect(writeFile(big, Buffer.alloc(2 * smallPool.initialBytes, 'x'), { flush: true })).rejects.toMatchObject({
      code: 'ENOSPC',
    });
    for (const attempt of [() => store.freeze(writable.id, { isInUse: true }), () => rig.fork(store)]) {
      const code = await attempt().then(
        () => 'there was room for a few blocks',
        (error: { code: string }) => error.code,
      );
      expect(['there was room for a few blocks', 'insufficient_storage']).toContain(code);
      expect(await rig.leftovers()).toEqual([]);
    }
    await rm(big);
    const layer = await store.freeze(writable.id, { isInUse: true });
    const names = (lines: readonly string[]) => lines.filter((line) => !line.startsWith('. '));
    expect(names(await rig.view(store, await rig.fork(store, layer.id)))).toEqual(names(view));
  });
});

const plain = rigKinds.find((each) => each.kind === 'directories')!;
describeWith(...plain.needs)('plain directories', () => {
  beforeEach(async () => {
    rig = await LayerRig.open(plain);
  });
  afterEach(() => rig.close());

  test('K42: on a full disk a freeze refuses, leaves nothing half-made, and works again when there is space', async () => {
    const outer = join(rig.directory, 'outer');
    await promisify(execFile)('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'none', outer]);
    try {
      const store = await rig.store();
      expect(store.liveFreeze).toBe('copy');
      const writable = await rig.fork(store);
      await writeFile(join(writable.directory, 'upper/small'), 'small');
      const filler = join(outer, 'filler');
      await writeFile(join(writable.directory, 'upper/big'), Buffer.alloc(5 * mebibyte, 'x'));
      await writeFile(filler, Buffer.alloc(8 * mebibyte, 'y'));
      await expect(store.freeze(writable.id, { isInUse: true })).rejects.toMatchObject({
        code: 'insufficient_storage',
      });
      expect(await rig.leftovers()).toEqual([]);
      expect(store.listLayers()).toEqual([]);
      await rm(filler);
      const layer = await store.freeze(writable.id, { isInUse: true });
      expect((await store.usageOf(layer.id)).bytes).toBeGreaterThan(4 * mebibyte);
      await store.close();
    } finally {
      await promisify(execFile)('umount', [outer]);
    }
  });

  test('nothing outside the directory of the spawner is read or written', async () => {
    const to = join(rig.directory, 'base/copy');
    for (const [from, target] of [
      ['/etc', to],
      [`${rig.directory}/../../etc`, to],
      [`${rig.directory}//base`, to],
      [rig.directory, to],
      [rig.base, '/tmp/atoll-storage-outside'],
    ] as const) {
      await expect(rig.operations.copy({ from, to: target })).rejects.toMatchObject({ details: { step: 'request' } });
    }
    expect(await readdir(rig.base)).toEqual([]);
    await rig.operations.copy({ from: join(rig.directory, 'point'), to });
    expect(await readdir(rig.base)).toEqual(['copy']);
  });

  test('a directory where btrfs cannot be had is told with the reason', async () => {
    const directory = join(rig.directory, 'outer');
    await promisify(execFile)('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'none', directory]);
    try {
      const found = await probeStorage({ directory, operations: rig.operations });
      expect(found).toEqual({ kind: 'directories', reason: expect.stringContaining('0.0 GiB are free') });
      expect(await readdir(directory)).toEqual([]);
    } finally {
      await promisify(execFile)('umount', [directory]);
    }
  });
});
