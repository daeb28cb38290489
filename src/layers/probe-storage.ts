/**
 * Finds out what the storage of layers can stand on, by trying it: a kernel that lists btrfs and a loop device that is there prove nothing.
 * Nothing is left of it.
 */
import { mkdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerOperations } from '../isolation/index.ts';
import { defaultPoolSizes, makeBtrfs } from './loop-pool.ts';

export type StorageKind = 'subvolumes' | 'pool' | 'directories';

export interface StorageFinding {
  readonly kind: StorageKind;
  /** Why it is not a better one; empty when there is none. */
  readonly reason: string;
}

/** The smallest that mkfs.btrfs likes, and some. */
const probeImageBytes = 160 * 1024 ** 2;

/** `directory` is there, and below the spawner's. */
export async function probeStorage(options: {
  readonly directory: string;
  readonly operations: LayerOperations;
  /** What a pool would set aside at first. */
  readonly poolBytes?: number | undefined;
}): Promise<StorageFinding> {
  const { directory, operations, poolBytes = defaultPoolSizes.initialBytes } = options;
  const place = join(directory, 'probe');
  await clear(place, operations);
  await mkdir(place, { mode: 0o700 });
  try {
    const inPlace = await attempt(() => trySubvolumes(place, operations));
    if (inPlace === undefined) return { kind: 'subvolumes', reason: '' };
    const inPool = await attempt(() => tryPool(place, operations, poolBytes));
    if (inPool === undefined) return { kind: 'pool', reason: '' };
    return { kind: 'directories', reason: inPool };
  } finally {
    await clear(place, operations);
  }
}

/** The message of its failure, or undefined. */
async function attempt(work: () => Promise<void>): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** What it makes is named so that `clear` finds it. */
async function trySubvolumes(directory: string, operations: LayerOperations): Promise<void> {
  const [from, to] = [join(directory, 'a'), join(directory, 'b')];
  await operations.makeSubvolume(from);
  await operations.snapshot({ from, to });
  await operations.dropSubvolume(to);
  await operations.dropSubvolume(from);
}

/** A pool is worth it where as much as it sets aside is left to the rest. */
async function tryPool(place: string, operations: LayerOperations, poolBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(place);
  if (bavail * bsize < 2 * poolBytes) {
    const [free, wanted] = [bavail * bsize, poolBytes].map((bytes) => (bytes / 1024 ** 3).toFixed(1));
    throw new Error(`${free} GiB are free, and a pool begins with ${wanted} GiB`);
  }
  const [image, point] = [join(place, 'image'), join(place, 'point')];
  await mkdir(point, { mode: 0o700 });
  await operations.allocatePool(image, probeImageBytes);
  await makeBtrfs(image);
  await operations.mountPool({ image, point });
  await operations.enableQuotas(point, { isSimple: true });
  await trySubvolumes(point, operations);
}

/** Also what a probe left that was killed. */
async function clear(place: string, operations: LayerOperations): Promise<void> {
  await operations.unmountPool(join(place, 'point'));
  for (const name of ['a', 'b']) await operations.dropSubvolume(join(place, name)).catch(() => {}); // Not on btrfs, or not there.
  await operations.removeTree(place);
}
