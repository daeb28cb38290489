/**
 * Sandbox directories made ahead. A new inode costs most of a millisecond on some file systems and a sandbox needs several of them; a rename
 * costs a tenth of that.
 */
import { randomBytes } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeSandboxDirectory, syncSlots } from './sandbox-files.ts';
import type { SharedPlaces } from './shared-places.ts';
import { Spares } from './spares.ts';

export class SpareDirectories {
  readonly #parent: string;
  readonly #shared: SharedPlaces;
  /** Names of an earlier life of the node are being removed while this one makes its own. */
  readonly #prefix = randomBytes(6).toString('hex');
  readonly #spares: Spares<string>;
  #made = 0;

  constructor(options: { readonly parent: string; readonly shared: SharedPlaces; readonly limit?: number }) {
    this.#parent = options.parent;
    this.#shared = options.shared;
    this.#spares = new Spares({ make: () => this.#make(), limit: options.limit });
  }

  /** Puts a complete directory at `path`, where nothing may be yet. */
  async take(path: string): Promise<void> {
    const spare = this.#spares.take();
    if (spare === undefined) await makeSandboxDirectory(path, this.#shared);
    else await rename(spare, path);
    await this.#shared.ready(path);
  }

  /** What is left is removed when the node starts. */
  async close(): Promise<void> {
    await this.#spares.close();
  }

  async #make(): Promise<string> {
    const path = join(this.#parent, `${this.#prefix}-${this.#made++}`);
    try {
      await makeSandboxDirectory(path, this.#shared);
      await syncSlots(path);
      return path;
    } catch (error) {
      await rm(path, { recursive: true, force: true }).catch(() => {}); // Otherwise the next start of the node does.
      throw error;
    }
  }
}
