/** A process that changes a store of layers is ended with SIGKILL at each durable step. What the next one finds is before or after. */
import { readFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Layer, LayerStore, Writable } from '../../src/layers/index.ts';
import { LayerRig, type RigKind, rigKinds } from '../support/layer-rig.ts';
import type { LayerAction } from '../support/layer-worker.ts';
import { describeWith } from '../support/requires.ts';
import { smallPool } from '../support/small-pool.ts';

const mebibyte = 1024 ** 2;
const script = ['file a 5000 1', 'link a b', 'unlink gone', 'mkdir d', 'file d/c 20 3', 'chmod d 700'];

interface Scene {
  readonly rig: LayerRig;
  readonly writable: Writable;
  readonly view: string[];
  /** Frozen from a fork of a layer, and the layer. */
  readonly upper: Layer;
  readonly lower: Layer;
}

async function setScene(kind: RigKind): Promise<Scene> {
  const rig = await LayerRig.open(kind);
  await rig.raw(rig.base, ['file gone 3 3', 'file kept 3 3']);
  const store = await rig.store();
  const first = await rig.fork(store);
  await rig.view(store, first, ['file lower 10 10']);
  const lower = await store.freeze(first.id, { isInUse: true });
  await store.discardWritable(first.id);
  const writable = await rig.fork(store, lower.id);
  const view = await rig.view(store, writable, script);
  const upper = await store.freeze(writable.id, { isInUse: true });
  return { rig, writable, view, upper, lower };
}

function describeCrashes(kind: RigKind): void {
  let scene: Scene;
  beforeEach(async () => {
    scene = await setScene(kind);
  });
  afterEach(() => scene.rig.close());

  /** Ends a process at the point, and opens the store again. */
  async function crash(point: string, action: LayerAction): Promise<LayerStore> {
    const { signal, said } = await scene.rig.elsewhere(action, { faults: `${point}=crash` });
    expect({ signal, said }).toEqual({ signal: 'SIGKILL', said: 'ready\n' });
    const store = await scene.rig.store();
    expect(await scene.rig.leftovers()).toEqual([]);
    expect(await store.listQuarantine()).toEqual([]);
    return store;
  }

  for (const [point, isThere] of [
    ['layers-open-made', false],
    ['layers-open-named', true],
  ] as const) {
    test(`opening, killed at ${point}: it is ${isThere ? '' : 'not '}there, and can be done again`, async () => {
      const { rig, upper, view } = scene;
      const store = await crash(point, { do: 'open', from: upper.id });
      expect(store.listWritables()).toHaveLength(isThere ? 2 : 1);
      for (const each of [...store.listWritables(), await rig.fork(store, upper.id)]) {
        expect(await rig.view(store, each)).toEqual(view);
      }
    });
  }

  const freezes = [true, false].flatMap((isInUse) => {
    const isMove = kind.kind === 'directories' && !isInUse;
    const steps = isMove
      ? ['layers-make-described', 'layers-move-intended', 'layers-move-taken']
      : // A snapshot is there, and on disk, in one step.
        ['layers-make-described', ...(kind.kind === 'directories' ? ['layers-make-filled'] : [])];
    const ends = isMove ? ['layers-move-named', 'layers-move-fresh', 'layers-make-named'] : ['layers-make-named'];
    return [
      ...steps.map((point) => ({ point, isInUse, isThere: false })),
      ...ends.map((point) => ({ point, isInUse, isThere: true })),
    ];
  });
  for (const { point, isInUse, isThere } of freezes) {
    test(`K40: freezing one ${isInUse ? 'in use' : 'that nobody uses'}, killed at ${point}: the layer is ${isThere ? '' : 'not '}there, and no file is lost`, async () => {
      const { rig, writable, view, upper, lower } = scene;
      const store = await crash(point, { do: 'freeze', id: writable.id, isInUse });
      const made = store.listLayers().filter(({ id }) => id !== upper.id && id !== lower.id);
      expect(made).toHaveLength(isThere ? 1 : 0);
      const found = store.findWritable(writable.id)!;
      expect(await rig.view(store, found)).toEqual(view);
      const again = await store.freeze(found.id, { isInUse });
      for (const { id } of [again, ...made]) expect(await rig.view(store, await rig.fork(store, id))).toEqual(view);
    });
  }

  test('discarding, killed when it is renamed: it is gone, with its files', async () => {
    const { writable } = scene;
    const store = await crash('layers-remove-renamed', { do: 'discard', id: writable.id });
    expect(store.listWritables()).toEqual([]);
  });

  test('removing a layer, killed when it is renamed: it is gone, and what it stood on is there', async () => {
    const { upper, lower } = scene;
    const store = await crash('layers-remove-renamed', { do: 'remove', id: upper.id });
    expect(store.listLayers()).toEqual([lower]);
  });

  for (const killAfterMs of [0, 20]) {
    test(`freezing many files, killed ${killAfterMs} ms after it began: all or nothing`, async () => {
      const { rig, writable, upper, lower } = scene;
      let store = await rig.store();
      const many = Array.from({ length: 400 }, (_, index) => `file d/f${index} 2000 ${index}`);
      const view = await rig.view(store, writable, many);
      const { signal } = await rig.elsewhere({ do: 'freeze', id: writable.id, isInUse: true }, { killAfterMs });
      store = await rig.store();
      expect(await rig.leftovers()).toEqual([]);
      const made = store.listLayers().filter(({ id }) => id !== upper.id && id !== lower.id);
      expect(made.length).toBeLessThanOrEqual(1);
      if (signal === null) expect(made).toHaveLength(1);
      for (const { id } of made) expect(await rig.view(store, await rig.fork(store, id))).toEqual(view);
      expect(await rig.view(store, store.findWritable(writable.id)!)).toEqual(view);
    });
  }

  if (kind.kind !== 'directories') return;

  for (const [point, isThere] of [
    ['layers-make-described', false],
    ['layers-make-filled', false],
    ['layers-make-named', true],
  ] as const) {
    test(`flattening, killed at ${point}: the one layer is ${isThere ? '' : 'not '}there, and the stack stays`, async () => {
      const { rig, upper, lower, view } = scene;
      const store = await crash(point, { do: 'flatten', id: upper.id });
      const made = store.listLayers().filter(({ id }) => id !== upper.id && id !== lower.id);
      expect(made).toHaveLength(isThere ? 1 : 0);
      for (const { id } of [...made, upper]) expect(await rig.view(store, await rig.fork(store, id))).toEqual(view);
    });
  }

  test('restacking, killed when it is written: the writable layer shows the same', async () => {
    const { rig, upper, view } = scene;
    const before = await rig.store();
    const { id } = await rig.fork(before, upper.id);
    const flattened = await before.flatten(upper.id);
    const store = await crash('layers-restack-written', { do: 'restack', id, on: flattened.id });
    const found = store.findWritable(id)!;
    expect(found.parents).toEqual([flattened.id]);
    expect(await rig.view(store, found)).toEqual(view);
  });
}

const tested = rigKinds.filter(({ kind, isOnBtrfs }) => kind === 'pool' || (kind === 'directories' && !isOnBtrfs));
for (const kind of tested) {
  describeWith(...kind.needs)(`layers on ${kind.title}`, () => describeCrashes(kind));
}

const pool = rigKinds.find(({ kind }) => kind === 'pool')!;
describeWith(...pool.needs)('a pool', () => {
  let rig: LayerRig;
  beforeEach(async () => {
    rig = await LayerRig.open(pool, { sizes: { ...smallPool, reserveBytes: 300 * mebibyte } });
  });
  afterEach(async () => {
    await rig.close();
    expect(await readFile('/proc/self/mounts', 'utf8')).not.toContain(rig.directory);
  });

  describe('while it is made', () => {
    for (const point of ['layers-pool-allocated', 'layers-pool-formatted', 'layers-pool-mounted']) {
      test(`killed at ${point}: the next opening has a whole one, and nothing else is left`, async () => {
        const { signal } = await rig.elsewhere({ do: 'nothing' }, { faults: `${point}=crash` });
        expect(signal).toBe('SIGKILL');
        const store = await rig.store();
        const writable = await rig.fork(store);
        await rig.view(store, writable, ['file a 10 1']);
        expect(await rig.leftovers()).toEqual([]);
        expect(await loopsOf(rig)).toBe(1);
      });
    }
  });

  test('killed while it grows: it is as large as its file when it is opened again', async () => {
    const { signal } = await rig.elsewhere({ do: 'open' }, { faults: 'layers-pool-grown=crash' });
    expect(signal).toBe('SIGKILL');
    const store = await rig.store();
    await rig.fork(store);
    expect(await loopsOf(rig)).toBe(1);
  });
});

/** Mounts that have a file of the rig behind them. */
async function loopsOf(rig: LayerRig): Promise<number> {
  const mounts = (await readFile('/proc/self/mounts', 'utf8')).split('\n');
  return mounts.filter((line) => line.includes(rig.directory)).length;
}
