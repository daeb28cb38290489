/**
 * Blobs of registries, kept by digest in a directory of ours.
 *
 * Invariants:
 *  - A file under a digest's name was verified when it was written, and is again before it is used: one that has changed is fetched anew.
 *  - It appears by rename, so whoever finds it finds it whole, and two who fetch the same do no harm.
 *  - What was used within `inUseMs` is not removed: somebody may be about to read it.
 */
import { randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { lstat, mkdir, readdir, rename, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isPlatformError, PlatformError } from '../../../protocol/index.ts';
import type { Descriptor } from '../manifests.ts';
import { VerifiedBlob } from '../verified-blob.ts';

const partialPrefix = 'partial-';
const inUseMs = 60 * 60 * 1_000;
const abandonedMs = 24 * 60 * 60 * 1_000;
const cacheBytesMax = 16 * 1024 ** 3;
const chunkBytes = 256 * 1024;

export class BlobCache {
  readonly #directory: string;
  readonly #bytesMax: number;

  constructor(options: { readonly directory: string; readonly bytesMax?: number }) {
    this.#directory = options.directory;
    this.#bytesMax = options.bytesMax ?? cacheBytesMax;
  }

  /** The blob is here and verified when this returns. */
  async ensure(descriptor: Descriptor, fetchBlob: () => AsyncIterable<Buffer>): Promise<void> {
    const path = this.#pathOf(descriptor);
    if (await isIntact(path, descriptor)) {
      const now = new Date();
      await utimes(path, now, now);
      return;
    }
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const partial = join(this.#directory, `${partialPrefix}${randomBytes(8).toString('hex')}`);
    try {
      await pipeline(
        new VerifiedBlob(fetchBlob(), descriptor),
        createWriteStream(partial, { flags: 'wx', mode: 0o600 }),
      );
      await rename(partial, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      throw new PlatformError('insufficient_storage', 'The disk has no room for the image.', { cause: error });
    } finally {
      await rm(partial, { force: true });
    }
  }

  read(descriptor: Descriptor): AsyncIterable<Buffer> {
    return createReadStream(this.#pathOf(descriptor), { highWaterMark: chunkBytes }) as AsyncIterable<Buffer>;
  }

  /** Removes what was not used for longest until the rest is within bounds, and what a crash left half-fetched. */
  async trim(): Promise<void> {
    const found: { path: string; size: number; usedMs: number }[] = [];
    for (const name of await readdir(this.#directory).catch(() => [])) {
      const path = join(this.#directory, name);
      const stats = await lstat(path).catch(() => undefined);
      if (stats === undefined) continue;
      if (!name.startsWith(partialPrefix)) found.push({ path, size: stats.size, usedMs: stats.mtimeMs });
      else if (Date.now() - stats.mtimeMs > abandonedMs) await rm(path, { force: true });
    }
    let left = found.reduce((sum, { size }) => sum + size, 0);
    for (const { path, size, usedMs } of found.sort((a, b) => a.usedMs - b.usedMs)) {
      if (left <= this.#bytesMax || Date.now() - usedMs < inUseMs) return;
      await rm(path, { force: true });
      left -= size;
    }
  }

  #pathOf({ digest }: Descriptor): string {
    return join(this.#directory, digest.replace(':', '-'));
  }
}

async function isIntact(path: string, descriptor: Descriptor): Promise<boolean> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats === undefined || !stats.isFile() || stats.size !== descriptor.size) return false;
  const blob = new VerifiedBlob(
    createReadStream(path, { highWaterMark: chunkBytes }) as AsyncIterable<Buffer>,
    descriptor,
  );
  try {
    for await (const chunk of blob) void chunk;
    return true;
  } catch (error) {
    if (isPlatformError(error, 'image_refused')) return false;
    throw error;
  }
}
