/**
 * The spawner's operations on trees and file systems, by name. Every path lies below the directory that the spawner was started with,
 * and nothing inside a tree is followed.
 */
import { PlatformError } from '../protocol/index.ts';
import type { Spawner } from './spawner.ts';

/**
 * `full`: a subvolume is charged with what it refers to, shared or not; the cost of a snapshot grows with how many share its files.
 * `simple`: with what was written in it, as long as anything refers to that; at no cost.
 */
export type QuotaKind = 'full' | 'simple';

export interface SubvolumeQuota {
  /** What it is charged with. */
  readonly bytes: number;
  /** What would be free if it went. */
  readonly exclusiveBytes: number;
  /** 0: none. */
  readonly limitBytes: number;
  /** Another whenever something in it has changed. */
  readonly changedIn: number;
}

export class LayerOperations {
  readonly #spawner: Spawner;

  constructor(spawner: Spawner) {
    this.#spawner = spawner;
  }

  /** Waits until nothing that an earlier spawner began still works in the directory. */
  async settle(): Promise<void> {
    await this.#spawner.layer('settle');
  }

  async sync(path: string): Promise<void> {
    await this.#spawner.layer('sync', path);
  }

  /** An exact copy at a path where nothing is yet; blocks are shared where the file system can. */
  async copy(options: { readonly from: string; readonly to: string }): Promise<void> {
    await this.#spawner.layer('copy', options.from, options.to);
  }

  /** Owner, mode, times and attributes of one directory for another. */
  async dress(options: { readonly from: string; readonly to: string }): Promise<void> {
    await this.#spawner.layer('dress', options.from, options.to);
  }

  /** One tree that says on top of anything what these, uppermost first, say. */
  async flatten(options: { readonly layers: readonly string[]; readonly to: string }): Promise<void> {
    await this.#spawner.layer('flatten', options.to, ...options.layers);
  }

  async sizeOf(path: string): Promise<{ bytes: number; entries: number }> {
    const [bytes, entries] = numbersIn(await this.#spawner.layer('size', path), 2);
    return { bytes: bytes!, entries: entries! };
  }

  /** Tries it with two files that have no name; refuses with the reason. */
  async probeSharedBlocks(directory: string): Promise<void> {
    await this.#spawner.layer('clone-probe', directory);
  }

  async makeSubvolume(path: string): Promise<void> {
    await this.#spawner.layer('subvolume', path);
  }

  /** Read-only, and of one instant. Answers the quota of `from` at that instant. */
  async snapshot(options: { readonly from: string; readonly to: string }): Promise<SubvolumeQuota> {
    return quotaIn(await this.#spawner.layer('snapshot', options.from, options.to));
  }

  /** A snapshot that can be written to. */
  async branch(options: { readonly from: string; readonly to: string }): Promise<void> {
    await this.#spawner.layer('branch', options.from, options.to);
  }

  async dropSubvolume(path: string): Promise<void> {
    await this.#spawner.layer('drop', path);
  }

  /** Those that are on stay; `simple` ones are turned on where the kernel has them. Answers which are on. */
  async enableQuotas(path: string, options: { readonly isSimple: boolean }): Promise<QuotaKind> {
    const kind = await this.#spawner.layer(options.isSimple ? 'quota-simple' : 'quota-on', path);
    if (kind === 'full' || kind === 'simple') return kind;
    throw new PlatformError('storage_failed', `The spawner answered "${kind}" where a kind of quotas was asked for.`);
  }

  /** Counted in the subvolume's own tree, in a time that grows with its files. `olderThan`: only what was there when that one was made. */
  async referredBytes(path: string, options: { readonly olderThan?: string } = {}): Promise<number> {
    const { olderThan } = options;
    const [bytes] = numbersIn(await this.#spawner.layer('referred', path, ...(olderThan ? [olderThan] : [])), 1);
    return bytes!;
  }

  async limitSubvolume(path: string, limitBytes: number): Promise<void> {
    await this.#spawner.layer('quota-limit', path, String(limitBytes));
  }

  /** `isFixed`: nobody writes to it, so what was written last is right, and nothing is synced first. */
  async quotaOf(path: string, options: { readonly isFixed: boolean }): Promise<SubvolumeQuota> {
    const operation = options.isFixed ? 'quota-known' : 'quota-usage';
    return quotaIn(await this.#spawner.layer(operation, path));
  }

  /** A new file with all of its blocks set aside. */
  async allocatePool(image: string, bytes: number): Promise<void> {
    await this.#spawner.layer('pool-allocate', image, String(bytes));
  }

  /** Mounts the btrfs in a file, `nosuid,nodev`; one that is mounted there already is left as it is. */
  async mountPool(options: { readonly image: string; readonly point: string }): Promise<void> {
    await this.#spawner.layer('pool-mount', options.image, options.point);
  }

  async growPool(options: { readonly image: string; readonly point: string; readonly bytes: number }): Promise<void> {
    await this.#spawner.layer('pool-grow', options.image, options.point, String(options.bytes));
  }

  /** One that is not mounted is unmounted. */
  async unmountPool(point: string): Promise<void> {
    await this.#spawner.layer('pool-unmount', point);
  }

  /** At any depth; a tree that is not there is removed. */
  async removeTree(path: string): Promise<void> {
    await this.#spawner.remove(path);
  }
}

function quotaIn(text: string): SubvolumeQuota {
  const [bytes, exclusiveBytes, limitBytes, changedIn] = numbersIn(text, 4);
  return { bytes: bytes!, exclusiveBytes: exclusiveBytes!, limitBytes: limitBytes!, changedIn: changedIn! };
}

function numbersIn(text: string, count: number): number[] {
  const numbers = text.split(' ').map(Number);
  if (numbers.length === count && numbers.every((number) => Number.isSafeInteger(number) && number >= 0))
    return numbers;
  throw new PlatformError('storage_failed', `The spawner answered "${text}" where ${count} numbers were asked for.`);
}
