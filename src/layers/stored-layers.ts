/**
 * The one implementation of `LayerStore`, on a driver for the file system at hand.
 *
 * Invariants:
 *  - #layers and #writables are what is on disk under a final name. An entry is added when its rename is done, and taken out before
 *    the rename that removes it.
 *  - Whether something stands on a layer is asked and answered without an await in between, and an opening that is under way counts (#opening).
 */
import { mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type FaultPoints, KeyedMutex, type Logger, syncDirectory } from '../base/index.ts';
import type { LayerOperations } from '../isolation/index.ts';
import { isId, type LayerId, newId, PlatformError, type WritableId } from '../protocol/index.ts';
import { type ContentMoveParts, moveContent } from './content-move.ts';
import { exists } from './layer-data.ts';
import { type LayerDriver, treeNames } from './layer-driver.ts';
import {
  type LayerManifest,
  newManifest,
  newRecord,
  parentsMax,
  type WritableRecord,
  writeManifest,
  writeRecord,
} from './layer-manifest.ts';
import { dataOf, LayerPaths } from './layer-paths.ts';
import { putAside, type RecoveredStore, readLayer, recoverStore } from './layer-recovery.ts';
import type { ForkKind, Layer, LayerStore, LiveFreeze, Trees, Usage, Writable } from './layer-store.ts';
import type { StorageKind } from './probe-storage.ts';
import { asStorageError } from './storage-error.ts';

/** Long enough for whoever made a layer to write down that it is needed. */
const defaultMinAgeMs = 3600 * 1000;

export interface StoredLayersOptions {
  readonly storageKind: StorageKind;
  readonly root: string;
  readonly driver: LayerDriver;
  readonly operations: LayerOperations;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly log: Logger;
}

type NewLayer = Pick<LayerManifest, 'base' | 'parents' | 'flattens'>;

export class StoredLayers implements LayerStore {
  readonly #options: StoredLayersOptions;
  readonly #paths: LayerPaths;
  readonly #layers: Map<LayerId, LayerManifest>;
  readonly #writables: Map<WritableId, WritableRecord>;
  /** Stacks of what is being opened or flattened. */
  readonly #opening = new Set<readonly LayerId[]>();
  /** Guards the directory and the record of one writable layer. Rank 5. */
  readonly #writableLock = new KeyedMutex<WritableId>({ name: 'writable layer', rank: 5 });

  private constructor(options: StoredLayersOptions, paths: LayerPaths, found: RecoveredStore) {
    this.#options = options;
    this.#paths = paths;
    this.#layers = found.layers;
    this.#writables = found.writables;
  }

  static async open(options: StoredLayersOptions): Promise<StoredLayers> {
    const paths = new LayerPaths(options.root);
    try {
      return new StoredLayers(options, paths, await recoverStore({ ...options, paths }));
    } catch (error) {
      throw asStorageError(error, `${options.root} cannot be opened`);
    }
  }

  get kind() {
    return this.#options.driver.kind;
  }

  get storageKind(): StorageKind {
    return this.#options.storageKind;
  }

  get root(): string {
    return this.#options.root;
  }

  get liveFreeze(): LiveFreeze {
    return this.#options.driver.liveFreeze;
  }

  get forksBy(): ForkKind {
    return this.#options.driver.forksBy;
  }

  get hasQuotas(): boolean {
    return this.#options.driver.hasQuotas;
  }

  async openWritable(options: {
    readonly base: string;
    readonly from?: LayerId | undefined;
    readonly limitBytes?: number | undefined;
  }): Promise<Writable> {
    const { driver, faults } = this.#options;
    const { base, from, limitBytes } = options;
    const stack = from === undefined ? [] : this.#stackOf(from);
    return await this.#whileOpening(stack, async () => {
      for (const { id, base: other } of await this.#verified(stack)) {
        if (other === base) continue;
        throw new PlatformError('layer_incompatible', `The layer ${id} stands on "${other}", not on "${base}".`);
      }
      const parents = driver.forksBy === 'stack' ? stack : stack.slice(1);
      const record = newRecord({ id: newId('writable'), base, parents });
      const directory = this.#paths.unfinished(record.id);
      await this.#making(directory, 'a writable layer cannot be made', async () => {
        await driver.makeWritable(dataOf(directory), from && dataOf(this.#paths.layer(from)));
        if (limitBytes !== undefined) await driver.setLimit(dataOf(directory), limitBytes);
        await writeRecord(directory, record);
        await faults.hit('layers-open-made');
        await rename(directory, this.#paths.writable(record.id));
        await syncDirectory(this.#paths.writables);
      });
      this.#writables.set(record.id, record);
      await faults.hit('layers-open-named');
      return this.#view(record);
    });
  }

  findWritable(id: WritableId): Writable | undefined {
    const record = this.#writables.get(id);
    return record && this.#view(record);
  }

  listWritables(): readonly Writable[] {
    return [...this.#writables.values()].map((record) => this.#view(record));
  }

  async treesUnder(id: WritableId): Promise<Trees> {
    const { parents } = this.#get(id);
    await this.#verified(parents);
    const [layers, usrLayers] = treeNames.map((tree) =>
      parents.map((each) => join(dataOf(this.#paths.layer(each)), tree)),
    );
    return { layers: layers!, usrLayers: usrLayers! };
  }

  async freeze(id: WritableId, options: { readonly isInUse: boolean }): Promise<Layer> {
    const { driver } = this.#options;
    return await this.#writableLock.run(id, async () => {
      const record = this.#get(id);
      const from = dataOf(this.#paths.writable(id));
      const { base, parents } = record;
      if (!options.isInUse && driver.movesContent) return await this.#moveDown(record);
      return await this.#makeLayer({ base, parents, flattens: null }, (to) => driver.freeze({ from, to }));
    });
  }

  async discardWritable(id: WritableId): Promise<void> {
    await this.#writableLock.run(id, async () => {
      const record = this.#get(id);
      this.#writables.delete(id);
      await this.#remove(id, this.#paths.writable(id)).catch((error: unknown) => {
        this.#writables.set(id, record);
        throw error;
      });
    });
  }

  findLayer(id: LayerId): Layer | undefined {
    const manifest = this.#layers.get(id);
    return manifest && layerView(manifest);
  }

  listLayers(): readonly Layer[] {
    return [...this.#layers.values()].map(layerView);
  }

  async removeLayer(id: LayerId): Promise<void> {
    const manifest = this.#layers.get(id);
    if (manifest === undefined) throw notFound(id);
    const user = this.#userOf(id);
    if (user !== undefined) {
      throw new PlatformError('layer_in_use', `${user} stands on the layer ${id}.`, { details: { layer: id, user } });
    }
    this.#layers.delete(id);
    await this.#remove(id, this.#paths.layer(id)).catch((error: unknown) => {
      this.#layers.set(id, manifest);
      throw error;
    });
  }

  async flatten(id: LayerId): Promise<Layer> {
    const { driver, operations } = this.#options;
    const flattens = this.#stackOf(id);
    return await this.#whileOpening(flattens, async () => {
      const [uppermost] = await this.#verified(flattens);
      if (flattens.length === 1) return layerView(uppermost!);
      const { base } = uppermost!;
      return await this.#makeLayer({ base, parents: [], flattens }, (data) =>
        driver.build(data, async (directory) => {
          for (const tree of treeNames) {
            const layers = flattens.map((each) => join(dataOf(this.#paths.layer(each)), tree));
            await operations.flatten({ layers, to: join(directory, tree) });
          }
        }),
      );
    });
  }

  async restack(id: WritableId, flattened: LayerId): Promise<Writable> {
    return await this.#writableLock.run(id, async () => {
      const record = this.#get(id);
      return await this.#whileOpening([flattened], async () => {
        const [manifest] = await this.#verified([flattened]);
        if (manifest?.flattens?.join() !== record.parents.join()) {
          const message = `The layer ${flattened} does not say what lies under ${id}.`;
          throw new PlatformError('layer_incompatible', message);
        }
        const restacked = { ...record, parents: [flattened] };
        try {
          await writeRecord(this.#paths.writable(id), restacked);
        } catch (error) {
          throw asStorageError(error, `${id} cannot be put on another layer`);
        }
        this.#writables.set(id, restacked);
        await this.#options.faults.hit('layers-restack-written');
        return this.#view(restacked);
      });
    });
  }

  async usageOf(id: WritableId | LayerId): Promise<Usage> {
    const { driver } = this.#options;
    if (isId('writable', id)) {
      return await driver.usageOf(dataOf(this.#paths.writable(this.#get(id).id)), { isFixed: false });
    }
    if (!this.#layers.has(id)) throw notFound(id);
    return await driver.usageOf(dataOf(this.#paths.layer(id)), { isFixed: true });
  }

  async setLimit(id: WritableId, limitBytes: number): Promise<void> {
    await this.#options.driver.setLimit(dataOf(this.#paths.writable(this.#get(id).id)), limitBytes);
  }

  async collect(options: { readonly referenced: Iterable<LayerId>; readonly minAgeMs?: number }): Promise<LayerId[]> {
    const kept = new Set<LayerId>(options.referenced);
    const before = this.#options.clock.nowMs() - (options.minAgeMs ?? defaultMinAgeMs);
    for (const { id, createdAtMs } of this.#layers.values()) if (createdAtMs > before) kept.add(id);
    for (const id of [...kept]) for (const parent of this.#layers.get(id)?.parents ?? []) kept.add(parent);
    // From the top: what stands on others goes before them.
    const rest = [...this.#layers.values()].filter(({ id }) => !kept.has(id));
    const removed: LayerId[] = [];
    for (const { id } of rest.toSorted((a, b) => b.parents.length - a.parents.length)) {
      // Somebody may have begun to use it, or removed it, since the look above.
      if (!this.#layers.has(id) || this.#userOf(id) !== undefined) continue;
      await this.removeLayer(id);
      removed.push(id);
    }
    return removed;
  }

  async maintain(): Promise<void> {
    await this.#options.driver.maintain();
  }

  async listQuarantine(): Promise<readonly string[]> {
    return (await readdir(this.#paths.quarantine)).sort();
  }

  async close(): Promise<void> {
    await this.#options.driver.close({ isUnused: this.#writables.size === 0 });
  }

  /** What the layer is made of comes from `fill`; it is visible when the rename is done. */
  async #makeLayer(content: NewLayer, fill: (data: string) => Promise<void>): Promise<Layer> {
    const { faults } = this.#options;
    const manifest = this.#manifestOf(content);
    const directory = this.#paths.unfinished(manifest.id);
    await this.#making(directory, 'a layer cannot be made', async () => {
      await writeManifest(directory, manifest);
      await faults.hit('layers-make-described');
      await fill(dataOf(directory));
      await faults.hit('layers-make-filled');
      await syncDirectory(directory);
      await rename(directory, this.#paths.layer(manifest.id));
      await syncDirectory(this.#paths.layers);
    });
    this.#layers.set(manifest.id, manifest);
    await faults.hit('layers-make-named');
    return layerView(manifest);
  }

  /** The content of a writable layer that nobody uses becomes the uppermost layer under it. */
  async #moveDown(record: WritableRecord): Promise<Layer> {
    const { base, parents } = record;
    const manifest = this.#manifestOf({ base, parents, flattens: null });
    const directory = this.#paths.unfinished(manifest.id);
    const parts: ContentMoveParts = { ...this.#options, paths: this.#paths };
    await this.#making(directory, 'a layer cannot be made', async () => {
      await writeManifest(directory, manifest);
      await this.#options.faults.hit('layers-make-described');
      const moved = await moveContent(parts, record, manifest.id);
      this.#writables.set(record.id, moved);
    });
    this.#layers.set(manifest.id, manifest);
    await this.#options.faults.hit('layers-make-named');
    return layerView(manifest);
  }

  #manifestOf(content: NewLayer): LayerManifest {
    const { driver, clock } = this.#options;
    if (content.parents.length >= parentsMax) {
      const message = `At most ${parentsMax} layers may lie on each other; flatten them first.`;
      throw new PlatformError('limit_exceeded', message);
    }
    return newManifest({ id: newId('layer'), driver: driver.kind, createdAtMs: clock.nowMs(), ...content });
  }

  /** Makes room and the directory, and leaves nothing of it when the work fails. */
  async #making(directory: string, what: string, work: () => Promise<void>): Promise<void> {
    const { driver, log } = this.#options;
    try {
      await driver.maintain();
      await mkdir(directory, { mode: 0o700 });
      await work();
    } catch (error) {
      await driver.remove(directory).catch((cause: unknown) => {
        log.error('Something half-made is left until the storage is opened again.', { directory, error: cause });
      });
      throw asStorageError(error, what);
    }
  }

  /** From the rename on it is gone; what is left is removed now or at the next opening. */
  async #remove(id: LayerId | WritableId, path: string): Promise<void> {
    const { driver, faults, log } = this.#options;
    const removed = this.#paths.removed(id);
    try {
      await rename(path, removed);
      await syncDirectory(this.#paths.trash);
    } catch (error) {
      if (!(await exists(removed))) throw asStorageError(error, `${id} cannot be removed`);
    }
    await faults.hit('layers-remove-renamed');
    await driver.remove(removed).catch((error: unknown) => {
      log.error('Something removed is left until the storage is opened again.', { id, error });
    });
  }

  /** The stack counts as used until the work is done. */
  async #whileOpening<Result>(stack: readonly LayerId[], work: () => Promise<Result>): Promise<Result> {
    this.#opening.add(stack);
    try {
      return await work();
    } finally {
      this.#opening.delete(stack);
    }
  }

  /** Every layer is read again before it is used; a damaged one is put aside and refused. */
  async #verified(ids: readonly LayerId[]): Promise<LayerManifest[]> {
    if (ids.length > parentsMax)
      throw new PlatformError('limit_exceeded', `At most ${parentsMax} layers may lie on each other.`);
    return await Promise.all(
      ids.map(async (id) => {
        if (!this.#layers.has(id)) throw notFound(id);
        const path = this.#paths.layer(id);
        return await readLayer(path).catch(async (cause: unknown) => {
          // Of two that find it, one puts it aside.
          if (this.#layers.delete(id)) await putAside(this.#paths, path);
          throw new PlatformError('layer_damaged', `The layer ${id} is damaged and put aside.`, { cause });
        });
      }),
    );
  }

  #userOf(id: LayerId): string | undefined {
    for (const writable of this.#writables.values()) if (writable.parents.includes(id)) return writable.id;
    for (const layer of this.#layers.values()) if (layer.parents.includes(id)) return layer.id;
    for (const stack of this.#opening) if (stack.includes(id)) return 'a writable layer that is being opened';
    return undefined;
  }

  /** Uppermost first. */
  #stackOf(id: LayerId): LayerId[] {
    const manifest = this.#layers.get(id);
    if (manifest === undefined) throw notFound(id);
    return [id, ...manifest.parents];
  }

  #get(id: WritableId): WritableRecord {
    const record = this.#writables.get(id);
    if (record === undefined) throw notFound(id);
    return record;
  }

  #view({ id, base, parents }: WritableRecord): Writable {
    return { id, base, parents, directory: dataOf(this.#paths.writable(id)) };
  }
}

function layerView({ id, base, parents, createdAtMs, flattens }: LayerManifest): Layer {
  return { id, base, parents, createdAtMs, flattens: flattens ?? undefined };
}

function notFound(id: LayerId | WritableId): PlatformError {
  return new PlatformError('layer_not_found', `There is no ${id} in the storage of this node.`);
}
