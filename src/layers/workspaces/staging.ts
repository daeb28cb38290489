/**
 * A repository beside a workspace's own, in which everything is done that brings new objects: it sees the workspace's objects, and nobody sees
 * its. What is found good is adopted, which is the only way into the workspace; what is not is removed with it.
 *
 * Invariants:
 *  - Objects come into the workspace as packs that are whole and synced before they have their name there: the pack first, its index last, since
 *    git knows a pack by its index.
 *  - A crash leaves a staging directory, which is removed when the node starts, or packs whose objects nothing names.
 */
import { randomBytes } from 'node:crypto';
import { open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type FaultPoints, syncDirectory } from '../../base/index.ts';
import type { GitProgram } from './git-program.ts';
import { makeRepository } from './repository.ts';

export interface StagingOptions {
  readonly git: GitProgram;
  /** The workspace's own repository. */
  readonly repository: string;
  /** Where stagings of it are. */
  readonly parent: string;
  readonly faults: FaultPoints;
}

export class Staging {
  /** The repository of this staging. */
  readonly path: string;
  readonly #options: StagingOptions;

  private constructor(path: string, options: StagingOptions) {
    this.path = path;
    this.#options = options;
  }

  /** It is gone when `work` has ended, however it ended. */
  static async use<Result>(options: StagingOptions, work: (staging: Staging) => Promise<Result>): Promise<Result> {
    const staging = await Staging.open(options);
    try {
      return await work(staging);
    } finally {
      await staging.remove();
    }
  }

  static async open(options: StagingOptions): Promise<Staging> {
    const path = join(options.parent, randomBytes(8).toString('hex'));
    await makeRepository(path, { alternate: join(options.repository, 'objects'), durable: false });
    return new Staging(path, options);
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }

  /** Moves every object of this staging into the workspace, but for those that only served the work. */
  async adopt(except: ReadonlySet<string> = new Set()): Promise<void> {
    await this.#packLoose(except);
    const from = join(this.path, 'objects/pack');
    const to = join(this.#options.repository, 'objects/pack');
    const names = (await readdir(from)).filter((name) => /^pack-[0-9a-f]{40}\.(?:pack|idx)$/.test(name));
    // "pack" stands behind "idx": a pack is in place before git can know of it.
    const ordered = names.toSorted((one, other) => Number(one.endsWith('.idx')) - Number(other.endsWith('.idx')));
    for (const name of ordered) await syncFile(join(from, name));
    await this.#options.faults.hit('workspace-adopt-synced');
    for (const name of ordered) {
      await rename(join(from, name), join(to, name));
      await this.#options.faults.hit('workspace-adopt-moved');
    }
    await syncDirectory(to);
    await this.#options.faults.hit('workspace-adopted');
  }

  async #packLoose(except: ReadonlySet<string>): Promise<void> {
    const ids = (await looseObjects(join(this.path, 'objects'))).filter((id) => !except.has(id));
    if (ids.length === 0) return;
    const stdin = `${ids.join('\n')}\n`;
    const words = ['pack-objects', '-q', '--window=0', join(this.path, 'objects/pack/pack')];
    await this.#options.git.run(this.path, words, { stdin });
  }
}

export async function looseObjects(objects: string): Promise<string[]> {
  const ids: string[] = [];
  for (const directory of await readdir(objects)) {
    if (!/^[0-9a-f]{2}$/.test(directory)) continue;
    for (const name of await readdir(join(objects, directory))) {
      if (/^[0-9a-f]{38}$/.test(name)) ids.push(directory + name);
    }
  }
  return ids;
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
