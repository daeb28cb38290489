/**
 * The server's directory: who may use it, what lies where.
 *
 *   atoll.db       the store
 *   secret         what key texts are derived from
 *   key            the first key, for the person who runs this
 *   server.json    where the running server listens, for the command line
 *   nodes.json     the nodes known by address
 *   node/          the node of this machine, where it is not a process of its own
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { DirectoryInUse, DirectoryLock, writeFileDurably } from '../base/index.ts';
import { StartError } from './start-error.ts';

const serverFile = z.object({ url: z.string(), pid: z.int() });

export interface LocalServer {
  readonly url: string;
  readonly apiKey: string;
}

export function defaultDataDirectory(): string {
  const chosen = process.env['ATOLL_DATA'];
  if (chosen) return chosen;
  if (process.geteuid?.() === 0) return '/var/lib/atoll';
  return join(process.env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share'), 'atoll');
}

/** What the server of this machine wrote for the command line; undefined if none ever ran, or it may not be read. */
export async function findLocalServer(directory = defaultDataDirectory()): Promise<LocalServer | undefined> {
  try {
    const { url } = serverFile.parse(JSON.parse(await readFile(join(directory, 'server.json'), 'utf8')));
    const apiKey = (await readFile(join(directory, 'key'), 'utf8')).trim();
    return { url, apiKey };
  } catch {
    return undefined;
  }
}

export class DataDirectory {
  readonly path: string;
  readonly #lock: DirectoryLock;

  private constructor(path: string, lock: DirectoryLock) {
    this.path = path;
    this.#lock = lock;
  }

  static async open(path: string, role: string): Promise<DataDirectory> {
    try {
      await mkdir(path, { recursive: true, mode: 0o700 });
      // Sandboxes may leave setuid files below it: nobody else may reach them.
      await chmod(path, 0o700);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new StartError(
        'directory_unusable',
        `The data directory ${path} cannot be used: ${why}. Choose another with --data.`,
        { cause },
      );
    }
    try {
      return new DataDirectory(path, await DirectoryLock.acquire(path, role));
    } catch (cause) {
      if (cause instanceof DirectoryInUse) throw new StartError('directory_in_use', cause.message, { cause });
      throw cause;
    }
  }

  file(name: string): string {
    return join(this.path, name);
  }

  /** 32 bytes, made once. */
  async secret(): Promise<Uint8Array> {
    const path = this.file('secret');
    const found = await readFile(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (found?.byteLength === 32) return found;
    if (found !== undefined) {
      throw new StartError(
        'directory_unusable',
        `${path} does not hold a secret of 32 bytes. Put the right file back: keys depend on it.`,
      );
    }
    const secret = randomBytes(32);
    await writeFileDurably(path, secret);
    return secret;
  }

  async writeKey(key: string): Promise<string> {
    const path = this.file('key');
    await writeFileDurably(path, `${key}\n`);
    return path;
  }

  async writeServer(url: string): Promise<void> {
    await writeFileDurably(this.file('server.json'), `${JSON.stringify({ url, pid: process.pid })}\n`);
  }

  async close(): Promise<void> {
    await rm(this.file('server.json'), { force: true });
    await this.#lock.release();
  }
}
