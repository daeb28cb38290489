/**
 * A btrfs of our own for a data directory that is on something else: a file whose blocks are set aside, mounted `nosuid,nodev` through a
 * loop device. It grows before it is full.
 *
 * Invariants:
 *  - The file gets its name when it holds a whole file system; a crash before leaves one under another name, which the next opening removes.
 *  - One file has one loop device (the spawner looks for it), so the file system is never mounted twice.
 *  - At most one growth runs.
 */
import { execFile } from 'node:child_process';
import { lstat, mkdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { type FaultPoints, type Logger, syncDirectory } from '../base/index.ts';
import type { LayerOperations } from '../isolation/index.ts';
import { PlatformError } from '../protocol/index.ts';
import { asStorageError } from './storage-error.ts';

export interface PoolSizes {
  readonly initialBytes: number;
  /** It grows when less than this is free. */
  readonly reserveBytes: number;
  readonly stepBytes: number;
  readonly limitBytes: number;
}

const gibibyte = 1024 ** 3;
export const defaultPoolSizes: PoolSizes = {
  initialBytes: 4 * gibibyte,
  reserveBytes: 2 * gibibyte,
  stepBytes: 4 * gibibyte,
  limitBytes: 256 * gibibyte,
};

/** Where Debian and others have it, when the path of the process does not. */
const mkfsPrograms = ['mkfs.btrfs', '/usr/sbin/mkfs.btrfs', '/sbin/mkfs.btrfs'] as const;
const mkfsTimeoutMs = 120_000;

export interface LoopPoolOptions {
  readonly image: string;
  readonly point: string;
  readonly sizes: PoolSizes;
  readonly operations: LayerOperations;
  readonly faults: FaultPoints;
  readonly log: Logger;
}

export class LoopPool {
  readonly #options: LoopPoolOptions;
  #growing: Promise<void> | undefined;

  private constructor(options: LoopPoolOptions) {
    this.#options = options;
  }

  /** Makes the file if there is none, and mounts it. A file that is there and cannot be mounted is an error, never replaced. */
  static async open(options: LoopPoolOptions): Promise<LoopPool> {
    const { image, point, operations, faults } = options;
    await mkdir(point, { recursive: true, mode: 0o700 });
    if (!(await exists(image))) await makeImage(options);
    await operations.mountPool({ image, point });
    await faults.hit('layers-pool-mounted');
    // A growth may have been cut short when only the file was larger.
    await operations.growPool({ image, point, bytes: (await stat(image)).size });
    return new LoopPool(options);
  }

  /** Callers at the same time share one growth. */
  ensureRoom(): Promise<void> {
    this.#growing ??= this.#ensureRoom().finally(() => {
      this.#growing = undefined;
    });
    return this.#growing;
  }

  async unmount(): Promise<void> {
    await this.#growing?.catch(() => {});
    await this.#options.operations.unmountPool(this.#options.point);
  }

  async #ensureRoom(): Promise<void> {
    const { image, point, sizes, operations, faults, log } = this.#options;
    const { bavail, bsize } = await statfs(point);
    if (bavail * bsize >= sizes.reserveBytes) return;
    const { size } = await stat(image);
    const bytes = Math.min(size + sizes.stepBytes, sizes.limitBytes);
    if (bytes <= size) return; // Full is then what its users hear.
    try {
      await operations.growPool({ image, point, bytes });
      await faults.hit('layers-pool-grown');
    } catch (error) {
      // There is still room inside; whoever finds none hears it.
      log.error('The pool of layers cannot grow.', { bytes, error });
    }
  }
}

async function makeImage(options: LoopPoolOptions): Promise<void> {
  const { image, sizes, operations, faults } = options;
  const unfinished = `${image}.new`;
  try {
    await rm(unfinished, { force: true });
    await operations.allocatePool(unfinished, sizes.initialBytes);
    await faults.hit('layers-pool-allocated');
    await makeBtrfs(unfinished);
    await faults.hit('layers-pool-formatted');
    await rename(unfinished, image);
    await syncDirectory(dirname(image));
  } catch (error) {
    await rm(unfinished, { force: true }).catch(() => {}); // Otherwise the next opening does.
    throw asStorageError(error, `a pool of ${sizes.initialBytes} bytes cannot be made`);
  }
}

/** Writes an empty btrfs into a file. */
export async function makeBtrfs(image: string): Promise<void> {
  for (const program of mkfsPrograms) {
    try {
      await promisify(execFile)(program, ['-q', '-f', '-L', 'atoll', image], { timeout: mkfsTimeoutMs });
      return;
    } catch (error) {
      const { code, stderr = '' } = error as NodeJS.ErrnoException & { readonly stderr?: string };
      if (code === 'ENOENT') continue;
      const message = `mkfs.btrfs failed: ${stderr.trim().split('\n')[0]}`;
      throw new PlatformError('storage_failed', message, { cause: error });
    }
  }
  throw new PlatformError(
    'storage_unsupported',
    'There is no mkfs.btrfs here; on Debian: apt-get install btrfs-progs.',
  );
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}
