/**
 * The marks of one sandbox's trees, in its directory on this machine, out of the sandbox's own sight: a file each, named by its id. They are a
 * convenience and not synced; the newest few are kept, and all go with the sandbox.
 */
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { prepareFile } from '../base/index.ts';
import type { TreeMarks } from '../execution/index.ts';
import { isId, newId } from '../protocol/index.ts';
import { rethrowDiskFull } from './disk-full.ts';

const keptMax = 16;

export class FileMarks implements TreeMarks {
  readonly #directory: string;

  constructor(sandboxDirectory: string) {
    this.#directory = join(sandboxDirectory, 'marks');
  }

  async save(mark: Uint8Array): Promise<string> {
    const name = newId('mark');
    try {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      const prepared = await prepareFile(join(this.#directory, name), mark, { mode: 0o600, durable: false });
      await prepared.commit();
    } catch (error) {
      rethrowDiskFull(error);
    }
    await this.#removeOldest();
    return name;
  }

  async load(name: string): Promise<Uint8Array | undefined> {
    if (!isId('mark', name)) return undefined;
    try {
      return await readFile(join(this.#directory, name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }

  /** Whoever saves at the same time looks too: one that is gone meanwhile is as good as removed. A temporary file of a dead node counts. */
  async #removeOldest(): Promise<void> {
    const names = await readdir(this.#directory);
    if (names.length <= keptMax) return;
    const ages = await Promise.all(
      names.map(async (name) => {
        const found = await stat(join(this.#directory, name)).catch(() => undefined);
        return { name, atMs: found?.mtimeMs ?? 0 };
      }),
    );
    const oldest = ages.sort((a, b) => b.atMs - a.atMs).slice(keptMax);
    await Promise.all(oldest.map(({ name }) => rm(join(this.#directory, name), { force: true })));
  }
}
