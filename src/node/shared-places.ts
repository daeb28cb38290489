/**
 * Where the files lie that a sandbox sees in /run/atoll. They change with every patch, are written anew whenever a life begins, and need
 * not outlive the machine, so they lie in memory where that can be had: replacing a file on a disk waits for its journal.
 *
 *   sandboxes/<id>/shared ──► /dev/shm/atoll-<of the data directory>/<name>
 *
 * Invariants:
 *  - The parent in memory is ours and closed to everybody else; where it is not, or not in memory, `shared` is a plain directory.
 *  - `shared` leads to a directory that exists whenever a life begins. A boot empties the memory, and a data directory may be moved.
 *  - What nothing leads to goes when the node starts.
 */
import { createHash, randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, readlink, rm, statfs, symlink } from 'node:fs/promises';
import { release } from 'node:os';
import { basename, dirname, join } from 'node:path';

export const sharedName = 'shared';
const memoryDirectory = '/dev/shm';
/** What `statfs` says of a tmpfs. */
const tmpfsType = 0x01021994;
/** The first Linux that maps the ids of a tmpfs into a sandbox. */
const mappedSince = [6, 3] as const;

export class SharedPlaces {
  /** `undefined`: plain directories. */
  readonly #parent: string | undefined;

  constructor(parent: string | undefined) {
    this.#parent = parent;
  }

  static async open(dataDirectory: string): Promise<SharedPlaces> {
    const parent = memoryParentOf(dataDirectory);
    return new SharedPlaces((await canBeUsed(parent)) ? parent : undefined);
  }

  /** In a directory that has none. What it leads to is made by `ready`. */
  async make(directory: string): Promise<void> {
    const path = join(directory, sharedName);
    if (this.#parent === undefined) await mkdir(path, { mode: 0o755 });
    else await symlink(join(this.#parent, randomBytes(9).toString('hex')), path);
  }

  /** Before a life begins. */
  async ready(directory: string): Promise<void> {
    let target = await targetOf(directory);
    if (target !== undefined && dirname(target) !== this.#parent) {
      await rm(join(directory, sharedName));
      await this.make(directory);
      target = await targetOf(directory);
    }
    if (target !== undefined) await this.#makeTarget(target);
  }

  /** Nobody but root comes as far as this; inside it is read-only, and anybody's to read. */
  async #makeTarget(target: string): Promise<void> {
    try {
      await mkdir(target, { mode: 0o755 });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EEXIST') return;
      if (code !== 'ENOENT') throw error;
      await mkdir(dirname(target), { mode: 0o700 });
      await mkdir(target, { mode: 0o755 });
    }
  }

  /** Of a sandbox that is gone, while its directory is still there. */
  async remove(directory: string): Promise<void> {
    const target = await targetOf(directory);
    if (target !== undefined && dirname(target) === this.#parent) await rm(target, { recursive: true, force: true });
  }

  /** What none of these directories leads to. */
  async removeOthers(directories: readonly string[]): Promise<void> {
    if (this.#parent === undefined) return;
    const targets = await Promise.all(directories.map(targetOf));
    const kept = new Set(targets.flatMap((target) => (target === undefined ? [] : [basename(target)])));
    for (const name of await readdir(this.#parent)) {
      if (!kept.has(name)) await rm(join(this.#parent, name), { recursive: true, force: true });
    }
  }

  async close(options: { readonly isEmpty: boolean }): Promise<void> {
    if (options.isEmpty && this.#parent !== undefined) await rm(this.#parent, { recursive: true, force: true });
  }
}

/** One for each data directory of this machine. */
function memoryParentOf(dataDirectory: string): string {
  const hash = createHash('sha256').update(dataDirectory).digest('hex').slice(0, 16);
  return join(memoryDirectory, `atoll-${hash}`);
}

/** Anybody may make names in the memory of a machine: one that is not ours, or open to others, is left alone. */
async function canBeUsed(parent: string): Promise<boolean> {
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const isMapped = major > mappedSince[0] || (major === mappedSince[0] && minor >= mappedSince[1]);
  if (!isMapped || process.geteuid?.() !== 0) return false;
  try {
    if ((await statfs(dirname(parent))).type !== tmpfsType) return false;
    await mkdir(parent, { recursive: true, mode: 0o700 });
    const found = await lstat(parent);
    return found.isDirectory() && found.uid === 0 && (found.mode & 0o077) === 0;
  } catch {
    return false;
  }
}

async function targetOf(directory: string): Promise<string | undefined> {
  try {
    return await readlink(join(directory, sharedName));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // EINVAL: a plain directory.
    if (code === 'EINVAL' || code === 'ENOENT') return undefined;
    throw error;
  }
}
