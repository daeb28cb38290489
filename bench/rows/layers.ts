/**
 * What a checkpoint and a fork cost, and whether that grows with what a sandbox holds. The big writable layer has 2 GB in 50,000 files, and
 * a process writes to an open and a mapped file of each layer that is frozen; it stands still meanwhile, as a sandbox does.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerStore, Writable } from '../../src/layers/index.ts';
import { btrfs } from '../../test/support/btrfs.ts';
import { LayerRig, rigKinds } from '../../test/support/layer-rig.ts';
import { againstPeer, type Finding, figure, notMeasured, shownOnly } from '../finding.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';

const rounds = 25;
const files = 50_000;
const directories = 100;
const fileBytes = 8 * 1024;
const bigFiles = 16;
const bigFileBytes = 100 * 1024 ** 2;
const stackDepth = 50;
const gibibyte = 1024 ** 3;
const poolSizes = {
  initialBytes: 8 * gibibyte,
  reserveBytes: gibibyte,
  stepBytes: gibibyte,
  limitBytes: 16 * gibibyte,
};

export const layersRow: Row = {
  name: 'layers',
  run: async (scope) => [...(await measurePool(scope)), ...(await measureDirectories(scope))],
};

async function openRig(scope: Scope, kind: string): Promise<{ rig: LayerRig; store: LayerStore }> {
  const rig = await LayerRig.open(rigKinds.find((each) => each.kind === kind)!, { sizes: poolSizes });
  scope.stack.defer(() => rig.close());
  return { rig, store: await rig.store() };
}

async function measurePool(scope: Scope): Promise<Finding[]> {
  const what = 'live checkpoint of 2 GB in 50,000 files, one file changed';
  const missing = btrfs.missing();
  if (missing !== undefined) return [notMeasured(what, 'not installed', missing)];
  const { rig, store } = await openRig(scope, 'pool');
  const [big, small] = [await rig.fork(store), await rig.fork(store)];
  await fill(big);
  const holders = { big: await hold(scope, rig, big), small: await hold(scope, rig, small) };
  const checkpoint = (writable: Writable, holder: ChildProcess) => async (round: number) => {
    await writeFile(join(writable.directory, 'upper/changed'), `${round}`);
    holder.kill('SIGSTOP');
    try {
      return await timed(() => store.freeze(writable.id, { isInUse: true }));
    } finally {
      holder.kill('SIGCONT');
    }
  };
  const variants = { big: checkpoint(big, holders.big), small: checkpoint(small, holders.small) };
  const samples = await interleave(variants, { rounds, warmups: 3 });
  const bigLayer = await store.freeze(big.id, { isInUse: true });
  const smallLayer = await store.freeze(small.id, { isInUse: true });
  const forks = await interleave(
    {
      big: () => timed(() => rig.fork(store, bigLayer.id)),
      small: () => timed(() => rig.fork(store, smallLayer.id)),
      empty: () => timed(() => rig.fork(store)),
    },
    { rounds, warmups: 3 },
  );
  return [
    againstPeer(figure(what, samples.big), figure('of a fresh one', samples.small), { atMost: 2 }),
    againstPeer(figure('fork of that checkpoint', forks.big), figure('of a fresh one', forks.small), { atMost: 2 }),
    shownOnly(figure('a writable layer from nothing (pool)', forks.empty)),
  ];
}

async function measureDirectories(scope: Scope): Promise<Finding[]> {
  const { rig, store } = await openRig(scope, 'directories');
  const writable = await rig.fork(store);
  const frozen: number[] = [];
  for (let depth = 0; depth < stackDepth; depth++) {
    await writeFile(join(writable.directory, 'upper', `file-${depth}`), 'x');
    frozen.push(await timed(() => store.freeze(writable.id, { isInUse: false })));
  }
  const deep = store.findWritable(writable.id)!;
  const flat = await rig.fork(store);
  const samples = await interleave(
    { deep: () => timed(() => rig.view(store, deep)), flat: () => timed(() => rig.view(store, flat)) },
    { rounds, warmups: 3 },
  );
  const layer = store.findLayer(deep.parents[0]!)!;
  const forks: number[] = [];
  for (let round = 0; round < rounds; round++) forks.push(await timed(() => rig.fork(store, layer.id)));
  return [
    shownOnly(figure('checkpoint of a stopped sandbox by rename (plain directories)', frozen)),
    shownOnly(figure(`fork on ${stackDepth} layers (plain directories)`, forks)),
    againstPeer(
      figure(`mount and look at ${stackDepth} layers, one file each`, samples.deep),
      figure('no layer, no file', samples.flat),
    ),
  ];
}

async function fill({ directory }: Writable): Promise<void> {
  const content = Buffer.alloc(fileBytes, 'x');
  for (let index = 0; index < directories; index++) {
    const parent = join(directory, 'upper', `d${index}`);
    await mkdir(parent);
    const each = Array.from({ length: files / directories }, (_, file) => writeFile(join(parent, `f${file}`), content));
    await Promise.all(each);
  }
  const large = Buffer.alloc(bigFileBytes, 'y');
  for (let index = 0; index < bigFiles; index++) {
    await writeFile(join(directory, 'upper', `large-${index}`), large, { flush: true });
  }
}

async function hold(scope: Scope, rig: LayerRig, writable: Writable): Promise<ChildProcess> {
  const holder = await rig.hold(join(writable.directory, 'upper/held'));
  scope.stack.defer(async () => {
    holder.kill('SIGKILL');
    if (holder.exitCode === null && holder.signalCode === null) await once(holder, 'close');
  });
  return holder;
}
