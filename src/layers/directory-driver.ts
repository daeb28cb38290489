/**
 * Layers as plain directories, on any file system. A writable layer that nobody uses becomes a layer by rename, at any size; one in use is
 * copied, sharing blocks where the file system can.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerOperations } from '../isolation/index.ts';
import { PlatformError } from '../protocol/index.ts';
import { makeEmptyTrees } from './layer-data.ts';
import { type LayerDriver, treeNames } from './layer-driver.ts';
import type { LiveFreeze, Usage } from './layer-store.ts';

export class DirectoryDriver implements LayerDriver {
  readonly kind = 'directory';
  readonly hasQuotas = false;
  readonly movesContent = true;
  readonly forksBy = 'stack';
  readonly isTransactional = false;
  readonly charges = undefined;
  readonly liveFreeze: LiveFreeze;
  readonly #operations: LayerOperations;

  private constructor(operations: LayerOperations, liveFreeze: LiveFreeze) {
    this.#operations = operations;
    this.liveFreeze = liveFreeze;
  }

  static async open(options: {
    readonly root: string;
    readonly operations: LayerOperations;
  }): Promise<DirectoryDriver> {
    const { operations, root } = options;
    const liveFreeze = await operations.probeSharedBlocks(root).then(
      () => 'reflink' as const,
      () => 'copy' as const,
    );
    return new DirectoryDriver(operations, liveFreeze);
  }

  /** The tops look like those of the layer: overlayfs shows them, so a mode that a sandbox gave `/` would be lost otherwise. */
  async makeWritable(path: string, from: string | undefined): Promise<void> {
    await mkdir(path, { mode: 0o700 });
    await makeEmptyTrees(path);
    if (from === undefined) return;
    for (const name of treeNames) await this.#operations.dress({ from: join(from, name), to: join(path, name) });
  }

  async freeze(options: { readonly from: string; readonly to: string }): Promise<number> {
    await this.build(options.to, async (directory) => {
      for (const name of treeNames) {
        await this.#operations.copy({ from: join(options.from, name), to: join(directory, name) });
      }
    });
    return 0;
  }

  async build(path: string, fill: (directory: string) => Promise<void>): Promise<void> {
    await mkdir(path, { mode: 0o700 });
    await fill(path);
    await this.#operations.sync(path);
  }

  async remove(path: string): Promise<void> {
    await this.#operations.removeTree(path);
  }

  async usageOf(path: string): Promise<Usage> {
    let bytes = 0;
    for (const name of treeNames) bytes += (await this.#operations.sizeOf(join(path, name))).bytes;
    return { bytes, exclusiveBytes: undefined, limitBytes: undefined };
  }

  async setLimit(): Promise<void> {
    throw new PlatformError(
      'storage_unsupported',
      'The size of a sandbox cannot be limited here: its files are kept in plain directories, which have no quotas.',
    );
  }

  async maintain(): Promise<void> {}

  async close(): Promise<void> {}
}
