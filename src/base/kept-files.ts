/**
 * A directory of files by name, written as streams: a name leads to a whole file or to none, whatever dies. Names are letters and digits only,
 * so none leads elsewhere.
 */
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from './assert.ts';
import { syncDirectory } from './durable-file.ts';

export class KeptFiles {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** What an earlier process left half-written is removed. */
  static async open(directory: string): Promise<KeptFiles> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(directory)) {
      if (name.startsWith('.')) await rm(join(directory, name), { force: true });
    }
    return new KeptFiles(directory);
  }

  async write(name: string, bytes: AsyncIterable<Uint8Array>): Promise<{ readonly sizeBytes: number }> {
    const path = this.#path(name);
    const temporary = join(this.#directory, `.${name}.tmp`);
    let sizeBytes = 0;
    try {
      const file = await open(temporary, 'w', 0o600);
      try {
        for await (const chunk of bytes) {
          await file.writeFile(chunk);
          sizeBytes += chunk.byteLength;
        }
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
    await syncDirectory(this.#directory);
    return { sizeBytes };
  }

  async read(name: string): Promise<AsyncIterable<Uint8Array>> {
    // Opened at once: one that is removed meanwhile is read to its end.
    const file = await open(this.#path(name), 'r');
    return createReadStream('', { fd: file });
  }

  async remove(name: string): Promise<void> {
    await rm(this.#path(name), { force: true });
  }

  async list(): Promise<{ readonly name: string; readonly writtenAtMs: number }[]> {
    const names = (await readdir(this.#directory)).filter((name) => !name.startsWith('.'));
    const found = await Promise.all(
      names.map(async (name) => {
        const entry = await stat(join(this.#directory, name)).catch(() => undefined);
        return entry === undefined ? [] : [{ name, writtenAtMs: Math.floor(entry.mtimeMs) }];
      }),
    );
    return found.flat();
  }

  #path(name: string): string {
    assert(/^[A-Za-z0-9]+$/.test(name), 'A name is letters and digits.');
    return join(this.#directory, name);
  }
}
