/** What every store of layers does, whatever file system it stands on. Trees are looked at through a real overlay. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { LayerStore, Writable } from '../../src/layers/index.ts';
import { newId } from '../../src/protocol/index.ts';
import type { LayerRig } from '../support/layer-rig.ts';

/** Something of every kind, and every way in which an upper layer hides or moves what is below. */
const baseScript = [
  'mkdir d',
  'file d/one 10 1',
  'file d/two 10 2',
  'mkdir moved',
  'file moved/inside 100 3',
  'file gone 5 4',
];
const changes = [
  'file new 5000 5',
  'chown new 1000 1000',
  'chmod new 4755',
  'link new second-name',
  'file sparse 10 6',
  'grow sparse 3000000',
  'symlink link ../anywhere',
  'fifo pipe',
  'xattr new user.note hello',
  'unlink gone',
  'rename moved d/on-the-way',
  'rename d/on-the-way elsewhere',
  'rmtree d',
  'file elsewhere/more 10 7',
  'mkdir d',
  'file d/fresh 10 8',
  'time new 1000000000',
  'chmod . 711',
];

export function layerStoreContract(open: () => Promise<LayerRig>): void {
  let rig: LayerRig;
  let store: LayerStore;
  beforeEach(async () => {
    rig = await open();
    await rig.raw(rig.base, baseScript);
    store = await rig.store();
  });
  afterEach(() => rig.close());

  const changed = async (): Promise<{ writable: Writable; view: string[] }> => {
    const writable = await rig.fork(store);
    return { writable, view: await rig.view(store, writable, changes) };
  };

  for (const isInUse of [true, false]) {
    const when = isInUse ? 'in use' : 'nobody uses';
    test(`a fork of a frozen layer that is ${when} shows what was there, and the source stays as it was`, async () => {
      const { writable, view } = await changed();
      const layer = await store.freeze(writable.id, { isInUse });
      const fork = await rig.fork(store, layer.id);
      expect(await rig.view(store, fork)).toEqual(view);
      expect(await rig.view(store, store.findWritable(writable.id)!)).toEqual(view);
      expect(view.join('\n')).toContain('./elsewhere/inside');
    });
  }

  test('K37: writes after a freeze are seen in neither the layer, the source nor another fork', async () => {
    const { writable, view } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    const [a, b] = [await rig.fork(store, layer.id), await rig.fork(store, layer.id)];
    const inA = await rig.view(store, a, ['file new 77 9', 'rmtree elsewhere', 'write second-name 3 1']);
    const inSource = await rig.view(store, writable, ['write new 0 3', 'file third 3 3']);
    expect(await rig.view(store, b)).toEqual(view);
    expect(await rig.view(store, a)).toEqual(inA);
    expect(await rig.view(store, writable)).toEqual(inSource);
    expect(new Set([view, inA, inSource].map((lines) => lines.join('\n'))).size).toBe(3);
  });

  test('both trees of a layer are taken as one', async () => {
    const writable = await rig.fork(store);
    await rig.view(store, writable, ['file in-root 10 1']);
    const usr = await rig.view(store, writable, ['file in-usr 10 1'], 'usr');
    const layer = await store.freeze(writable.id, { isInUse: true });
    const fork = await rig.fork(store, layer.id);
    expect(await rig.view(store, fork, [], 'usr')).toEqual(usr);
    expect((await rig.view(store, fork)).join('\n')).toContain('./in-root');
  });

  test('forks of forks show the same as a flattened stack of them, which a writable layer can be put on', async () => {
    const { writable } = await changed();
    let current = writable;
    for (const script of [
      ['unlink second-name', 'rename elsewhere d/back', 'file d/back/inside 7 7'],
      ['rmtree d/back', 'mkdir d/back', 'file d/back/only 3 3', 'file gone 4 4'],
      ['rename d/back back', 'unlink link', 'symlink link new', 'unlink gone'],
    ]) {
      const { id } = await store.freeze(current.id, { isInUse: true });
      current = await rig.fork(store, id);
      await rig.view(store, current, script);
    }
    const layer = await store.freeze(current.id, { isInUse: true });
    expect(layer.parents).toHaveLength(store.forksBy === 'stack' ? 3 : 0);
    const deep = await rig.fork(store, layer.id);
    const view = await rig.view(store, deep);
    const flattened = await store.flatten(layer.id);
    expect(await rig.view(store, await rig.fork(store, flattened.id))).toEqual(view);
    if (store.forksBy === 'content') return expect(flattened).toEqual(layer);

    expect(flattened).toMatchObject({ parents: [], flattens: [layer.id, ...layer.parents] });
    const own = await rig.view(store, deep, ['file own 5 5']);
    const restacked = await store.restack(deep.id, flattened.id);
    expect(restacked.parents).toEqual([flattened.id]);
    expect(await rig.view(store, restacked)).toEqual(own);
    await expect(store.restack(restacked.id, layer.id)).rejects.toMatchObject({ code: 'layer_incompatible' });
  });

  test('layers and writable layers are found again when the store is opened again', async () => {
    const { writable, view } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    store = await rig.store();
    expect(store.listLayers()).toEqual([layer]);
    expect(store.listWritables()).toEqual([writable]);
    expect(await rig.view(store, await rig.fork(store, layer.id))).toEqual(view);
  });

  test('K36: what something stands on is not removed, and no removal changes a fork', async () => {
    const { writable } = await changed();
    const lower = await store.freeze(writable.id, { isInUse: true });
    const fork = await rig.fork(store, lower.id);
    const view = await rig.view(store, fork, ['file in-fork 5 5']);
    const upper = await store.freeze(fork.id, { isInUse: true });
    if (store.forksBy === 'stack') {
      await expect(store.removeLayer(lower.id)).rejects.toMatchObject({ code: 'layer_in_use' });
      await store.discardWritable(fork.id);
      await expect(store.removeLayer(lower.id)).rejects.toMatchObject({ code: 'layer_in_use' });
      expect(await rig.view(store, await rig.fork(store, upper.id))).toEqual(view);
      for (const { id, parents } of store.listWritables()) if (parents.length > 0) await store.discardWritable(id);
      await store.removeLayer(upper.id);
      await store.removeLayer(lower.id);
    } else {
      await store.removeLayer(lower.id);
      await store.removeLayer(upper.id);
      expect(await rig.view(store, fork)).toEqual(view);
    }
    expect(store.listLayers()).toEqual([]);
    // What is in the trash goes behind the answer.
    for (const name of ['layers', 'making', 'trash']) {
      await expect.poll(() => readdir(join(rig.root, name)), { timeout: 20_000 }).toEqual([]);
    }
    await expect(rig.fork(store, lower.id)).rejects.toMatchObject({ code: 'layer_not_found' });
  });

  test('an opening that is under way keeps its layers from being removed', async () => {
    const { writable } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    const gate = rig.faults.hold('layers-open-made');
    const opening = rig.fork(store, layer.id);
    await gate.reached;
    await expect(store.removeLayer(layer.id)).rejects.toMatchObject({ code: 'layer_in_use' });
    gate.open();
    const opened = await opening;
    expect(store.listWritables()).toContainEqual(opened);
  });

  test('K41: a collector run twice removes what nobody refers to, once, and nothing that is young', async () => {
    const { writable } = await changed();
    const lower = await store.freeze(writable.id, { isInUse: true });
    const unused = await store.freeze(writable.id, { isInUse: true });
    const fork = await rig.fork(store, lower.id);
    const upper = await store.freeze(fork.id, { isInUse: true });
    await store.discardWritable(fork.id);
    const removable = store.forksBy === 'stack' ? [unused.id] : [lower.id, unused.id];
    expect(await store.collect({ referenced: [upper.id] })).toEqual([]);
    expect(await store.collect({ referenced: [upper.id], minAgeMs: -1 })).toEqual(removable);
    expect(await store.collect({ referenced: [upper.id], minAgeMs: -1 })).toEqual([]);
    expect(store.findLayer(upper.id)).toEqual(upper);
    const rest = store.forksBy === 'stack' ? [upper.id, lower.id] : [upper.id];
    expect(await store.collect({ referenced: [], minAgeMs: -1 })).toEqual(rest);
    expect(store.listLayers()).toEqual([]);
  });

  test('a layer with a damaged manifest is refused and put aside', async () => {
    const { writable } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    const manifest = join(rig.root, 'layers', layer.id, 'manifest.json');
    const text = await readFile(manifest, 'utf8');
    await writeFile(manifest, text.replace('"test"', '"tesr"'));
    await expect(rig.fork(store, layer.id)).rejects.toMatchObject({ code: 'layer_damaged' });
    expect(await store.listQuarantine()).toEqual([expect.stringContaining(layer.id)]);
    await expect(rig.fork(store, layer.id)).rejects.toMatchObject({ code: 'layer_not_found' });
  });

  test('a directory that is no whole layer is put aside when the store is opened', async () => {
    const { writable } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    await writeFile(join(rig.root, 'layers', layer.id, 'manifest.json'), '{"format":1');
    store = await rig.store();
    expect(store.findLayer(layer.id)).toBeUndefined();
    expect(await store.listQuarantine()).toEqual([expect.stringContaining(layer.id)]);
  });

  test('layers of another template are refused by name', async () => {
    const { writable } = await changed();
    const layer = await store.freeze(writable.id, { isInUse: true });
    const other = store.openWritable({ base: 'other', from: layer.id });
    await expect(other).rejects.toMatchObject({
      code: 'layer_incompatible',
      message: expect.stringContaining('"other"'),
    });
    expect(store.listWritables()).toEqual([writable]);
  });

  test('a failure midway leaves nothing half-made, and the writable layer as it was', async () => {
    const { writable, view } = await changed();
    for (const point of [
      'layers-make-described',
      'layers-make-filled',
      'layers-move-taken',
      'layers-move-named',
      'layers-move-fresh',
    ]) {
      for (const isInUse of [true, false]) {
        const layers = store.listLayers();
        rig.faults.set(point, {
          kind: 'error',
          error: Object.assign(new Error('full'), { errno: -constants.errno.ENOSPC }),
        });
        const code = await store.freeze(writable.id, { isInUse }).then(
          () => 'passed by',
          (error: { code: string }) => error.code,
        );
        rig.faults.clear(point);
        expect(['insufficient_storage', 'passed by']).toContain(code);
        if (code !== 'passed by') expect(store.listLayers()).toEqual(layers);
        expect(await readdir(join(rig.root, 'making'))).toEqual([]);
        expect(await rig.view(store, store.findWritable(writable.id)!)).toEqual(view);
      }
    }
  });

  test('what is not there is said to be not there', async () => {
    const [writable, layer] = [newId('writable'), newId('layer')];
    await expect(store.freeze(writable, { isInUse: false })).rejects.toMatchObject({ code: 'layer_not_found' });
    await expect(store.discardWritable(writable)).rejects.toMatchObject({ code: 'layer_not_found' });
    await expect(store.removeLayer(layer)).rejects.toMatchObject({ code: 'layer_not_found' });
    await expect(store.usageOf(layer)).rejects.toMatchObject({ code: 'layer_not_found' });
  });

  test('the size of a layer grows with what is in it', async () => {
    const writable = await rig.fork(store);
    const small = await store.freeze(writable.id, { isInUse: true });
    await writeFile(join(writable.directory, 'upper', 'big'), Buffer.alloc(4_000_000, 'x'));
    const big = await store.freeze(writable.id, { isInUse: true });
    const grown = (await store.usageOf(big.id)).bytes - (await store.usageOf(small.id)).bytes;
    expect(grown).toBeGreaterThan(3_900_000);
    expect(grown).toBeLessThan(4_500_000);
  });

  test('a limit holds where there are quotas, and is refused where there are none', async () => {
    const limited = store.openWritable({ base: 'test', limitBytes: 8_000_000 });
    if (!store.hasQuotas) {
      await expect(limited).rejects.toMatchObject({ code: 'storage_unsupported' });
      expect(store.listWritables()).toEqual([]);
      return;
    }
    const { id, directory } = await limited;
    const fill = (bytes: number) =>
      writeFile(join(directory, 'upper', 'big'), Buffer.alloc(bytes, 'x'), { flush: true });
    await expect(fill(20_000_000)).rejects.toMatchObject({ errno: -constants.errno.EDQUOT });
    expect((await store.usageOf(id)).limitBytes).toBe(8_000_000);
    await store.setLimit(id, 64_000_000);
    await fill(20_000_000);
    expect((await store.usageOf(id)).bytes).toBeGreaterThan(19_000_000);
  });

  test('a tree deeper than a path can name, and a directory that nobody may enter, are frozen and removed', async () => {
    const depth = 3_000;
    const writable = await rig.fork(store);
    const upper = join(writable.directory, 'upper');
    await rig.raw(upper, ['mkdir closed', 'file closed/inside 5 5', 'chmod closed 0']);
    const layers = [await store.freeze(writable.id, { isInUse: true })];
    expect(await rig.raw(join(rig.root, 'layers', layers[0]!.id, 'data/upper'))).toEqual(await rig.raw(upper));
    await rig.deepen(upper, depth);
    layers.push(await store.freeze(writable.id, { isInUse: true }));
    const { entries } = await rig.operations.sizeOf(join(rig.root, 'layers', layers[1]!.id, 'data/upper'));
    expect(entries).toBe(depth + 2);
    const fork = await rig.fork(store, layers[1]!.id);
    layers.unshift(await store.freeze(fork.id, { isInUse: true }));
    if (store.forksBy === 'stack') {
      // The one thing that needs paths; the stack stays as it is.
      await expect(store.flatten(layers[0]!.id)).rejects.toMatchObject({
        code: 'storage_failed',
        details: { step: 'flatten' },
      });
      expect(await rig.leftovers()).toEqual([]);
    }
    for (const { id } of store.listWritables()) await store.discardWritable(id);
    for (const { id } of layers) await store.removeLayer(id);
    await store.emptied();
    for (const name of ['trash', 'layers', 'writable']) expect(await readdir(join(rig.root, name))).toEqual([]);
  });
}
