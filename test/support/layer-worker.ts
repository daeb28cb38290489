/**
 * A process that does one thing with a store of layers, for tests that end it in the middle: what it is told is JSON in the first argument.
 * It says "ready" when the store is open, and "done" at the end.
 */
import { writeSync } from 'node:fs';
import { parseFaults, SystemClock, silentLogger } from '../../src/base/index.ts';
import { LayerOperations, Spawner } from '../../src/isolation/index.ts';
import { openLayerStore, type PoolSizes, type StorageKind } from '../../src/layers/index.ts';
import type { LayerId, WritableId } from '../../src/protocol/index.ts';

export type LayerAction =
  | { readonly do: 'nothing' | 'maintain' }
  | { readonly do: 'open'; readonly from?: LayerId }
  | { readonly do: 'freeze'; readonly id: WritableId; readonly isInUse: boolean }
  | { readonly do: 'discard'; readonly id: WritableId }
  | { readonly do: 'remove' | 'flatten'; readonly id: LayerId }
  | { readonly do: 'restack'; readonly id: WritableId; readonly on: LayerId };

export interface LayerWorkerOptions {
  readonly program: string;
  readonly directory: string;
  readonly storage: string;
  readonly kind: StorageKind;
  readonly sizes: PoolSizes;
  readonly faults: string;
  readonly action: LayerAction;
}

const options = JSON.parse(process.argv[2]!) as LayerWorkerOptions;
const { action, kind } = options;
const spawner = new Spawner({ program: options.program, directory: options.directory });
const store = await openLayerStore({
  directory: options.storage,
  operations: new LayerOperations(spawner),
  clock: new SystemClock(),
  faults: parseFaults(options.faults),
  log: silentLogger,
  kind,
  poolSizes: options.sizes,
});
writeSync(1, 'ready\n');
switch (action.do) {
  case 'nothing':
    break;
  case 'maintain':
    await store.maintain();
    break;
  case 'open':
    await store.openWritable({ base: 'test', from: action.from });
    break;
  case 'freeze':
    await store.freeze(action.id, { isInUse: action.isInUse });
    break;
  case 'discard':
    await store.discardWritable(action.id);
    break;
  case 'remove':
    await store.removeLayer(action.id);
    break;
  case 'flatten':
    await store.flatten(action.id);
    break;
  case 'restack':
    await store.restack(action.id, action.on);
    break;
}
writeSync(1, 'done\n');
await store.close();
await spawner.close();
