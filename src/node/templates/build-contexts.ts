/** Archives of files that builds copy from, as they come in pieces. One is gone when its build has ended, or when the node starts. */
import { mkdir, open, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { KeyedMutex } from '../../base/index.ts';
import { type AppendContextOrder, type ContextId, PlatformError } from '../../protocol/index.ts';

export const contextLimitBytes = 512 * 1024 * 1024;
/** Archives that wait for their build, whoever sent them. */
const contextsLimit = 16;

export class BuildContexts {
  readonly #directory: string;
  /** Guards one archive. Rank 3, alone. */
  readonly #lock = new KeyedMutex<ContextId>({ name: 'build context', rank: 3 });
  readonly #known = new Set<ContextId>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  async open(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  async append({ contextId, offset, bytes }: AppendContextOrder): Promise<number> {
    return await this.#lock.run(contextId, async () => {
      if (!this.#known.has(contextId) && this.#known.size >= contextsLimit) await this.#forgetOldest();
      this.#known.add(contextId);
      if (offset + bytes.byteLength > contextLimitBytes) {
        await this.forget(contextId);
        throw new PlatformError('limit_exceeded', 'The files of a definition are more than 512 MiB.');
      }
      const file = await open(this.path(contextId), 'a', 0o600);
      try {
        const { size } = await file.stat();
        if (offset > size) throw new PlatformError('invalid_request', `There are ${size} bytes of these files so far.`);
        const fresh = bytes.subarray(Math.min(bytes.byteLength, size - offset));
        await file.writeFile(fresh);
        return size + fresh.byteLength;
      } finally {
        await file.close();
      }
    });
  }

  async get(contextId: ContextId): Promise<string> {
    const path = this.path(contextId);
    if ((await stat(path).catch(() => undefined)) !== undefined) return path;
    throw new PlatformError('invalid_request', 'The files of this definition are not here; send them again.');
  }

  async forget(contextId: ContextId): Promise<void> {
    this.#known.delete(contextId);
    await rm(this.path(contextId), { force: true });
  }

  path(contextId: ContextId): string {
    return join(this.#directory, `${contextId}.tar`);
  }

  async #forgetOldest(): Promise<void> {
    const [oldest] = this.#known;
    if (oldest !== undefined) await this.forget(oldest);
  }
}
