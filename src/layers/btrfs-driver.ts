/**
 * Layers as subvolumes of btrfs. Freezing is a snapshot, in a time that does not grow with what the layer holds, also while processes
 * write; quotas limit what a writable layer refers to.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerOperations, QuotaKind } from '../isolation/index.ts';
import { makeEmptyTrees } from './layer-data.ts';
import type { LayerDriver, WriterCharges } from './layer-driver.ts';
import type { Usage } from './layer-store.ts';
import type { LoopPool } from './loop-pool.ts';

/** What a subvolume is called while it is being filled. */
const unfinishedSuffix = '.new';

export class BtrfsDriver implements LayerDriver {
  readonly kind = 'btrfs';
  readonly liveFreeze = 'snapshot';
  readonly hasQuotas = true;
  readonly movesContent = false;
  readonly forksBy = 'content';
  readonly isTransactional = true;
  readonly #operations: LayerOperations;
  /** Absent where the data directory itself is on btrfs. */
  readonly #pool: LoopPool | undefined;

  readonly charges: WriterCharges | undefined;

  private constructor(operations: LayerOperations, pool: LoopPool | undefined, quotas: QuotaKind) {
    this.#operations = operations;
    this.#pool = pool;
    if (quotas === 'simple') this.charges = chargesOf(operations);
  }

  static async open(options: {
    readonly root: string;
    readonly operations: LayerOperations;
    readonly pool?: LoopPool | undefined;
  }): Promise<BtrfsDriver> {
    const { root, operations, pool } = options;
    // Simple ones bind a file system to Linux 6.7: one that is ours may have them, and another keeps what it has.
    const quotas = await operations.enableQuotas(root, { isSimple: pool !== undefined });
    return new BtrfsDriver(operations, pool, quotas);
  }

  /**
   * A fork is a branch of the layer and not an empty subvolume above it: subvolumes number their inodes alike, and overlayfs would
   * show two files of two layers under one number.
   */
  async makeWritable(path: string, from: string | undefined): Promise<void> {
    if (from !== undefined) return await this.#operations.branch({ from, to: path });
    await this.#operations.makeSubvolume(path);
    await makeEmptyTrees(path);
  }

  async freeze(options: { readonly from: string; readonly to: string }): Promise<number> {
    return (await this.#operations.snapshot(options)).bytes;
  }

  async build(path: string, fill: (directory: string) => Promise<void>): Promise<void> {
    const unfinished = `${path}${unfinishedSuffix}`;
    await this.#operations.makeSubvolume(unfinished);
    await fill(unfinished);
    await this.#operations.snapshot({ from: unfinished, to: path });
    await this.#operations.dropSubvolume(unfinished);
  }

  /** The directories of the store hold subvolumes one level down, and nothing else that is a directory. */
  async remove(path: string): Promise<void> {
    const entries = await readdir(path, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    for (const entry of entries) {
      if (entry.isDirectory()) await this.#operations.dropSubvolume(join(path, entry.name));
    }
    await this.#operations.removeTree(path);
  }

  async usageOf(path: string, options: { readonly isFixed: boolean }): Promise<Usage> {
    const { bytes, exclusiveBytes, limitBytes } = await this.#operations.quotaOf(path, options);
    return { bytes, exclusiveBytes, limitBytes: limitBytes === 0 ? undefined : limitBytes };
  }

  async setLimit(path: string, limitBytes: number): Promise<void> {
    await this.#operations.limitSubvolume(path, limitBytes);
  }

  async maintain(): Promise<void> {
    await this.#pool?.ensureRoom();
  }

  async close(options: { readonly isUnused: boolean }): Promise<void> {
    if (options.isUnused) await this.#pool?.unmount();
  }
}

function chargesOf(operations: LayerOperations): WriterCharges {
  return {
    charged: (path, options) => operations.quotaOf(path, options),
    limit: (path, chargedBytes) => operations.limitSubvolume(path, chargedBytes),
    referred: (path) => operations.referredBytes(path),
    // Whoever uses it could hide a file from a count that takes its time: a snapshot is counted.
    older: async (path, scratch) => {
      await operations.snapshot({ from: path, to: scratch });
      try {
        return await operations.referredBytes(scratch, { olderThan: path });
      } finally {
        await operations.dropSubvolume(scratch);
      }
    },
  };
}
