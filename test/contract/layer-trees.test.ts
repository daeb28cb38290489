/**
 * Random trees, written through a real overlay, are frozen, forked, restored and flattened: what overlayfs shows afterwards is what it
 * showed before, entry for entry. The seed is printed; ATOLL_SEED repeats a run.
 */
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { LayerStore, Writable } from '../../src/layers/index.ts';
import { LayerRig, rigKinds } from '../support/layer-rig.ts';
import { describeWith } from '../support/requires.ts';

const seed = Number(process.env['ATOLL_SEED'] ?? Date.now() % 2 ** 31);
/** For each file system; a slow machine tries fewer trees, but some. */
const timeLimitMs = 6_000;
const treesMin = 10;

const longName = 'n'.repeat(255);
const names = ['a', 'b', 'x', longName];
const pathOf = (choices: readonly string[], maxLength: number) =>
  fc.array(fc.constantFrom(...choices), { minLength: 1, maxLength }).map((parts) => parts.join('/'));
const path = pathOf(names, 3);
/** What is there at first: directories with something in them, so that moves and removals meet more than emptiness. */
const fullNames = ['a', 'b'];
const fullTree = fullNames.flatMap((one) => [
  `mkdir ${one}`,
  ...fullNames.flatMap((two) => [`mkdir ${one}/${two}`, `file ${one}/${two}/x 100 1`, `mkdir ${one}/${two}/b`]),
  `file ${one}/${longName} 10 2`,
]);
const move = fc.tuple(pathOf(fullNames, 2), pathOf(names, 3)).map(([from, to]) => `rename ${from} ${to}`);
const number = fc.integer({ min: 0, max: 9 });

/** Weighted towards what makes whiteouts, opaque directories and redirects. */
const operation: fc.Arbitrary<string> = fc.oneof(
  { weight: 4, arbitrary: path.map((at) => `mkdir ${at}`) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(path, fc.constantFrom(0, 1, 700, 5000), number)
      .map(([at, size, fill]) => `file ${at} ${size} ${fill}`),
  },
  { weight: 6, arbitrary: move },
  { weight: 2, arbitrary: fc.tuple(path, path).map(([from, to]) => `rename ${from} ${to}`) },
  { weight: 3, arbitrary: path.map((at) => `rmtree ${at}`) },
  { weight: 2, arbitrary: path.map((at) => `unlink ${at}`) },
  { weight: 2, arbitrary: fc.tuple(path, path).map(([from, to]) => `link ${from} ${to}`) },
  { weight: 2, arbitrary: fc.tuple(path, number).map(([at, fill]) => `write ${at} ${fill * 1000} ${fill}`) },
  { weight: 1, arbitrary: fc.tuple(path, fc.constantFrom(100, 300_000)).map(([at, size]) => `grow ${at} ${size}`) },
  { weight: 1, arbitrary: fc.tuple(path, path).map(([at, to]) => `symlink ${at} ${to}`) },
  { weight: 1, arbitrary: path.map((at) => `fifo ${at}`) },
  {
    weight: 1,
    arbitrary: fc.tuple(path, fc.constantFrom('4755', '2711', '1777', '0')).map(([at, mode]) => `chmod ${at} ${mode}`),
  },
  { weight: 1, arbitrary: fc.tuple(path, number, number).map(([at, uid, gid]) => `chown ${at} ${uid * 1000} ${gid}`) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(path, fc.constantFrom('user.note', 'trusted.mine', 'user.other'), number)
      .map(([at, name, value]) => `xattr ${at} ${name} value${value}`),
  },
  { weight: 1, arbitrary: fc.tuple(path, number).map(([at, seconds]) => `time ${at} ${1_000_000_000 + seconds}`) },
  { weight: 1, arbitrary: fc.constantFrom('chmod . 711', 'chown . 5 6', 'xattr . user.top value') },
);
const script = fc.array(operation, { minLength: 4, maxLength: 25 });
const scripts = fc.tuple(script, script, script, script);

for (const kind of rigKinds) {
  describeWith(...kind.needs)(`trees on ${kind.title}`, () => {
    let rig: LayerRig;
    let store: LayerStore;
    beforeEach(async () => {
      rig = await LayerRig.open(kind);
      store = await rig.store();
    });
    afterEach(() => rig.close());

    const upperOf = ({ directory }: Writable) => join(directory, 'upper');

    /** Base, first life, a fork's life, and its life after it was frozen with nobody in it. */
    async function checkOne([base, first, second, third]: readonly string[][]): Promise<void> {
      await rig.raw(
        rig.base,
        names.map((name) => `rmtree ${name}`),
      );
      await rig.raw(rig.base, [...names.map((name) => `unlink ${name}`), ...fullTree, ...base!]);
      const source = await rig.fork(store);
      const shown = [await rig.view(store, source, first)];
      const layers = [await store.freeze(source.id, { isInUse: true })];
      const onDisk = await rig.raw(join(rig.root, 'layers', layers[0]!.id, 'data/upper'));
      expect(onDisk).toEqual(await rig.raw(upperOf(source)));

      const fork = await rig.fork(store, layers[0]!.id);
      expect(await rig.view(store, fork)).toEqual(shown[0]);
      shown.push(await rig.view(store, fork, second));
      layers.push(await store.freeze(fork.id, { isInUse: false }));
      shown.push(await rig.view(store, store.findWritable(fork.id)!, third));
      layers.push(await store.freeze(fork.id, { isInUse: true }));
      layers.push(await store.flatten(layers[2]!.id));
      shown.push(shown[2]!);

      expect(await rig.view(store, source)).toEqual(shown[0]);
      for (const [index, { id }] of layers.entries()) {
        expect(await rig.view(store, await rig.fork(store, id))).toEqual(shown[index]);
      }
      for (const { id } of store.listWritables()) await store.discardWritable(id);
      await store.collect({ referenced: [], minAgeMs: -1 });
      expect(store.listLayers()).toEqual([]);
    }

    test(`a fork, a restored and a flattened layer show what was frozen (seed ${seed})`, async () => {
      let tried = 0;
      const endsAt = performance.now() + timeLimitMs;
      const property = fc.asyncProperty(scripts, async (lives) => {
        if (performance.now() > endsAt && tried >= treesMin) return;
        await checkOne(lives);
        tried++;
      });
      // Without shrinking, which the time limit would cut short.
      await fc.assert(property, { seed, numRuns: 500, endOnFailure: true });
      process.stdout.write(`${kind.title}: ${tried} random trees, seed ${seed}\n`);
      expect(tried).toBeGreaterThanOrEqual(treesMin);
    });
  });
}
