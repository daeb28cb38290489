/**
 * Sandbox directories made ahead. A new inode costs most of a millisecond on some file systems and a sandbox needs ten of them, which
 * is as long as everything else; a rename costs a tenth of that.
 *
 * Invariants:
 *  - A directory is in #ready only when it is complete, and leaves it before it is given away.
 *  - At most `limit` are ready, and one is being made.
 *  - A failure here is never a caller's: who finds no spare makes its own.
 */
import { randomBytes } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeSandboxDirectory, syncSlots } from './sandbox-files.ts';

const defaultLimit = 16;

export class SpareDirectories {
  readonly #parent: string;
  readonly #limit: number;
  /** Names of an earlier life of the node are being removed while this one makes its own. */
  readonly #prefix = randomBytes(6).toString('hex');
  readonly #ready: string[] = [];
  #made = 0;
  #filling: Promise<void> | undefined;
  #closed = false;

  constructor(options: { readonly parent: string; readonly limit?: number }) {
    this.#parent = options.parent;
    this.#limit = options.limit ?? defaultLimit;
  }

  /** Puts a complete directory at `path`, where nothing may be yet. */
  async take(path: string): Promise<void> {
    const spare = this.#ready.pop();
    this.#fill();
    if (spare === undefined) await makeSandboxDirectory(path);
    else await rename(spare, path);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#filling;
  }

  #fill(): void {
    this.#filling ??= this.#fillUp().finally(() => {
      this.#filling = undefined;
    });
  }

  async #fillUp(): Promise<void> {
    while (!this.#closed && this.#ready.length < this.#limit) {
      const path = join(this.#parent, `${this.#prefix}-${this.#made++}`);
      try {
        await makeSandboxDirectory(path);
        await syncSlots(path);
      } catch {
        await rm(path, { recursive: true, force: true }).catch(() => {}); // Otherwise the next start of the node does.
        return;
      }
      this.#ready.push(path);
    }
  }
}
