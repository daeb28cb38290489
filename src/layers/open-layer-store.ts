/**
 * Opens the storage of layers in a directory, on what fits the file system there.
 *
 *   the directory is on btrfs                     subvolumes in it
 *   it is not, but a loop device and btrfs work   subvolumes in a pool, a file in the directory
 *   otherwise                                     plain directories
 *
 * What was chosen first is written down and stays: layers of one kind are not found by another, and a pool that cannot be used is an error
 * and no reason to begin anew without it.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type Clock, type FaultPoints, type Logger, writeFileDurably } from '../base/index.ts';
import type { LayerOperations } from '../isolation/index.ts';
import { BtrfsDriver } from './btrfs-driver.ts';
import { DirectoryDriver } from './directory-driver.ts';
import type { LayerDriver } from './layer-driver.ts';
import type { LayerStore } from './layer-store.ts';
import { defaultPoolSizes, LoopPool, type PoolSizes } from './loop-pool.ts';
import { probeStorage, type StorageKind } from './probe-storage.ts';
import { StoredLayers } from './stored-layers.ts';

export interface OpenLayerStoreOptions {
  /** Below the directory of the spawner; absolute, without links. */
  readonly directory: string;
  readonly operations: LayerOperations;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly log: Logger;
  /** Absent: whatever works best. */
  readonly kind?: StorageKind;
  readonly poolSizes?: PoolSizes;
}

const choiceSchema = z.object({ format: z.literal(1), kind: z.enum(['subvolumes', 'pool', 'directories']) });

export async function openLayerStore(options: OpenLayerStoreOptions): Promise<LayerStore> {
  const { directory, operations } = options;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  // A step of a process that was killed must not go on beside ours.
  await operations.settle();
  const storageKind = await chooseKind(options);
  const { root, driver } = await openDriver(storageKind, options);
  return await StoredLayers.open({ ...options, storageKind, root, driver });
}

async function chooseKind(options: OpenLayerStoreOptions): Promise<StorageKind> {
  const { directory, operations, log } = options;
  const file = join(directory, 'storage.json');
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text !== undefined) return choiceSchema.parse(JSON.parse(text)).kind;
  const found =
    options.kind === undefined
      ? await probeStorage({ directory, operations, poolBytes: options.poolSizes?.initialBytes })
      : undefined;
  if (found !== undefined) log.info('The storage of layers is chosen.', { kind: found.kind, reason: found.reason });
  const kind = options.kind ?? found!.kind;
  await writeFileDurably(file, `${JSON.stringify({ format: 1, kind })}\n`);
  return kind;
}

async function openDriver(
  kind: StorageKind,
  options: OpenLayerStoreOptions,
): Promise<{ readonly root: string; readonly driver: LayerDriver }> {
  const { directory, operations } = options;
  switch (kind) {
    case 'pool': {
      const root = join(directory, 'pool');
      const sizes = options.poolSizes ?? defaultPoolSizes;
      const pool = await LoopPool.open({ ...options, image: join(directory, 'pool.btrfs'), point: root, sizes });
      return { root, driver: await BtrfsDriver.open({ root, operations, pool }) };
    }
    case 'subvolumes':
      return { root: directory, driver: await BtrfsDriver.open({ root: directory, operations }) };
    case 'directories':
      return { root: directory, driver: await DirectoryDriver.open({ root: directory, operations }) };
  }
}
