/**
 * Where sandboxes' files are: the storage of layers, the template below them, and the checkpoints that were taken.
 *
 * Invariants:
 *  - A writable layer belongs to one sandbox's record, to a sandbox that is being made, or to the spares; others are discarded when the node
 *    starts.
 *  - A layer that no checkpoint names and nothing stands on is collected, but never while one is being made (#making): whoever makes it
 *    has not written it down yet.
 */
import { statfs } from 'node:fs/promises';
import { basename } from 'node:path';
import { BackgroundLoop, type Clock, type FaultPoints, KeyedMutex, type Logger } from '../base/index.ts';
import { LayerOperations, type Spawner } from '../isolation/index.ts';
import {
  HostTemplate,
  type LayerStore,
  openLayerStore,
  type PoolSizes,
  type StorageKind,
  type Trees,
  type Writable,
} from '../layers/index.ts';
import {
  type CheckpointId,
  type DiskUsage,
  isPlatformError,
  PlatformError,
  type StorageDescription,
  type WritableId,
} from '../protocol/index.ts';
import { type CheckpointRecord, CheckpointRecords } from './checkpoint-records.ts';
import type { NodePaths } from './node-paths.ts';
import { prepareNames } from './sandbox-names.ts';
import { Spares } from './spares.ts';

/** How often room is looked for and what nobody needs is collected. */
const maintainIntervalMs = 5_000;
/** A stack of so many layers under a sandbox is made one when its next life begins. */
const flattenFrom = 64;
/** For what overlayfs makes when it is mounted. */
const beginningBytes = 16 * 1024 ** 2;

export interface StorageOptions {
  readonly kind?: StorageKind | undefined;
  readonly poolSizes?: PoolSizes | undefined;
}

export interface SandboxStorageParts {
  readonly paths: NodePaths;
  readonly spawner: Spawner;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly log: Logger;
  readonly options: StorageOptions;
}

export interface Limited {
  /** null: without any. */
  readonly limitBytes: number | null;
}

export interface NewWritable extends Limited {
  /** The exact template below it. */
  readonly base: string;
}

export class SandboxStorage {
  readonly #store: LayerStore;
  readonly #parts: SandboxStorageParts;
  readonly #template: HostTemplate;
  readonly checkpoints: CheckpointRecords;
  readonly #spares = new Spares<Writable>({ make: () => this.#makeSpare() });
  /** Guards one checkpoint: what is made from it has its layer before it can be removed. Rank 3. */
  readonly #checkpointLock = new KeyedMutex<CheckpointId>({ name: 'checkpoint of a node', rank: 3 });
  readonly #maintenance: BackgroundLoop;
  /** Layers that are being made and are not written down. */
  #making = 0;

  private constructor(parts: SandboxStorageParts, store: LayerStore, checkpoints: CheckpointRecords) {
    this.#parts = parts;
    this.#store = store;
    this.checkpoints = checkpoints;
    this.#template = new HostTemplate({ directory: parts.paths.layers });
    this.#maintenance = new BackgroundLoop({
      intervalMs: maintainIntervalMs,
      tick: () => this.#maintain(),
      onError: (error) => parts.log.error('The storage of layers cannot be maintained.', { error }),
    });
  }

  static async open(parts: SandboxStorageParts): Promise<SandboxStorage> {
    const { paths, spawner, options, log } = parts;
    const checkpoints = await CheckpointRecords.open(paths.checkpoints, log);
    const store = await openLayerStore({
      ...parts,
      directory: paths.storage,
      operations: new LayerOperations(spawner),
      ...(options.kind !== undefined && { kind: options.kind }),
      ...(options.poolSizes !== undefined && { poolSizes: options.poolSizes }),
    });
    return new SandboxStorage(parts, store, checkpoints);
  }

  /** Discards what no sandbox has; `named` are those of every record. From now on the storage is maintained. */
  async begin(named: ReadonlySet<WritableId>, options: { readonly keepsUnknown: boolean }): Promise<void> {
    const unknown = this.#store.listWritables().filter(({ id }) => !named.has(id));
    if (options.keepsUnknown) {
      const ids = unknown.map(({ id }) => id);
      this.#parts.log.warn('Files that no readable sandbox has are kept: one cannot be read.', { ids });
    } else {
      await Promise.all(unknown.map(({ id }) => this.#store.discardWritable(id)));
    }
    this.#maintenance.start();
  }

  /** The storage is unmounted if no sandbox is left. */
  async close(): Promise<void> {
    await this.#maintenance.close();
    const spares = await this.#spares.close();
    await Promise.all(spares.map(({ id }) => this.#store.discardWritable(id)));
    await this.#store.close();
  }

  /** One with `prepareNames` done. */
  async openNew({ base, limitBytes }: NewWritable): Promise<Writable> {
    this.#refuseLimit(limitBytes);
    const writable = await this.#takeSpare(base);
    if (limitBytes !== null) await this.#orDiscard(writable, () => this.#store.setLimit(writable.id, limitBytes));
    return writable;
  }

  /** Whatever a sandbox has left in it is in there: nothing in it may be followed. */
  async openFrom(checkpointId: CheckpointId, { base, limitBytes }: NewWritable): Promise<Writable> {
    this.#refuseLimit(limitBytes);
    return await this.#checkpointLock.run(checkpointId, async () => {
      const { layer } = this.checkpoint(checkpointId);
      await this.#parts.faults.hit('node-checkpoint-opening');
      return await this.#store.openWritable({ base, from: layer, ...(limitBytes !== null && { limitBytes }) });
    });
  }

  /** Where the sandbox's own files are, and what lies under them. */
  async treesOf(id: WritableId): Promise<Trees & { readonly directory: string }> {
    const trees = await this.#store.treesUnder(id);
    return { ...trees, directory: this.#store.findWritable(id)!.directory };
  }

  /** A file system that is full to its limit cannot be mounted for writing: while a life begins there is a little more. */
  async whileBeginning<Result>(
    { id, limitBytes }: Limited & { readonly id: WritableId },
    begin: () => Promise<Result>,
  ): Promise<Result> {
    if (limitBytes === null) return await begin();
    await this.#store.setLimit(id, limitBytes + beginningBytes);
    try {
      return await begin();
    } finally {
      await this.#store.setLimit(id, limitBytes);
    }
  }

  /** Of a sandbox that does not run: a long stack under it becomes one layer. A stack that cannot be flattened stays. */
  async shorten(id: WritableId): Promise<void> {
    const parents = this.#store.findWritable(id)?.parents ?? [];
    const [top] = parents;
    if (top === undefined || parents.length < flattenFrom) return;
    try {
      await this.#whileMaking(async () => {
        const flattened = await this.#store.flatten(top);
        await this.#store.restack(id, flattened.id);
      });
    } catch (error) {
      this.#parts.log.warn('A stack of layers stays as long as it is.', { id, layers: parents.length, error });
    }
  }

  /** One that is gone is discarded. What only it stood on goes too. */
  async discard(id: WritableId): Promise<void> {
    if (this.#store.findWritable(id) === undefined) return;
    await this.#store.discardWritable(id);
    await this.#collect();
  }

  /** A layer of what the writable one holds now, and the record that `describe` makes of it. All or nothing. */
  async keep(
    checkpointId: CheckpointId,
    options: {
      /** Makes it, between whatever has to be done before and after. */
      readonly take: (
        freeze: (isInUse: boolean) => Promise<void>,
      ) => Promise<Omit<CheckpointRecord, 'format' | 'layer' | 'sizeBytes'>>;
      readonly writable: WritableId;
    },
  ): Promise<CheckpointRecord> {
    const { faults } = this.#parts;
    return await this.#checkpointLock.run(checkpointId, async () => {
      return await this.#whileMaking(async () => {
        let layer: Awaited<ReturnType<LayerStore['freeze']>> | undefined;
        try {
          const described = await options.take(async (isInUse) => {
            layer = await this.#store.freeze(options.writable, { isInUse });
          });
          const { bytes } = await this.#store.usageOf(layer!.id);
          await faults.hit('node-checkpoint-taken');
          return await this.checkpoints.write({ ...described, layer: layer!.id, sizeBytes: bytes });
        } catch (error) {
          // One that a stopped sandbox now stands on stays until it goes.
          if (layer !== undefined) await this.#drop(layer.id);
          throw error;
        }
      });
    });
  }

  async removeCheckpoint(id: CheckpointId): Promise<void> {
    const { faults } = this.#parts;
    await this.#checkpointLock.run(id, async () => {
      const record = this.checkpoints.find(id);
      if (record === undefined) return;
      await this.checkpoints.remove(id);
      await faults.hit('node-checkpoint-forgotten');
      await this.#drop(record.layer);
    });
    await this.#collect();
  }

  async usageOf(id: WritableId): Promise<DiskUsage> {
    const { bytes, limitBytes } = await this.#store.usageOf(id);
    return { bytes, limitBytes: limitBytes ?? null };
  }

  async describe(): Promise<StorageDescription> {
    const { liveFreeze, hasQuotas, storageKind: kind, root } = this.#store;
    const { blocks, bavail, bsize } = await statfs(root);
    return { kind, liveFreeze, hasQuotas, totalBytes: blocks * bsize, freeBytes: bavail * bsize };
  }

  /** Only for the machine's own template are there spares. */
  async #takeSpare(base: string): Promise<Writable> {
    const host = await this.#hostBase();
    if (base !== host) return await this.#make(base);
    const spare = this.#spares.take();
    if (spare?.base === base) return spare;
    if (spare !== undefined) await this.#store.discardWritable(spare.id);
    return await this.#make(base);
  }

  async #makeSpare(): Promise<Writable> {
    return await this.#make(await this.#hostBase());
  }

  async #hostBase(): Promise<string> {
    const { layers } = await this.#template.ensure();
    return layers.map((path) => basename(path)).join('+');
  }

  async #make(base: string): Promise<Writable> {
    const writable = await this.#store.openWritable({ base });
    await this.#orDiscard(writable, () => prepareNames(writable.directory));
    return writable;
  }

  async #orDiscard({ id }: Writable, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      await this.#store.discardWritable(id);
      throw error;
    }
  }

  async #maintain(): Promise<void> {
    await this.#store.maintain();
    await this.#collect();
  }

  async #whileMaking<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#making++;
    try {
      return await work();
    } finally {
      this.#making--;
    }
  }

  /** Where one is being made, the next round does it. */
  async #collect(): Promise<void> {
    if (this.#making > 0 || this.checkpoints.unreadable.length > 0) return;
    await this.#store.collect({ referenced: this.checkpoints.layers(), minAgeMs: -1 });
  }

  async #drop(layer: CheckpointRecord['layer']): Promise<void> {
    await this.#store.removeLayer(layer).catch((error: unknown) => {
      if (!isPlatformError(error, 'layer_in_use', 'layer_not_found')) throw error;
    });
  }

  #refuseLimit(limitBytes: number | null): void {
    if (limitBytes === null || this.#store.hasQuotas) return;
    const message =
      'The size of a sandbox cannot be limited here: its files are kept in plain directories, which have no quotas.';
    throw new PlatformError('storage_unsupported', message);
  }

  checkpoint(id: CheckpointId): CheckpointRecord {
    const record = this.checkpoints.find(id);
    if (record === undefined) throw new PlatformError('checkpoint_not_found', `This node has no checkpoint ${id}.`);
    return record;
  }
}
