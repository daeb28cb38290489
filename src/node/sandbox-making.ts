/** Makes a sandbox from nothing, all or nothing. Its directory gets its name last: whoever sees it there sees it complete. */
import { rename } from 'node:fs/promises';
import { type Clock, type FaultPoints, type Logger, syncDirectory } from '../base/index.ts';
import type { InitClient } from '../execution/index.ts';
import type { CreateSandboxOrder, SandboxId } from '../protocol/index.ts';
import { deadlineOf } from './deadline.ts';
import type { NodePaths } from './node-paths.ts';
import { type NodeRecord, writeRecord } from './node-record.ts';
import { writeMetadata, writeOwnNames } from './sandbox-files.ts';
import type { SandboxLives } from './sandbox-lives.ts';
import type { SpareDirectories } from './spare-directories.ts';
import type { Foundation } from './templates/sandbox-templates.ts';

export interface SandboxMakingParts {
  readonly paths: NodePaths;
  readonly lives: SandboxLives;
  readonly spares: SpareDirectories;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly log: Logger;
}

export class SandboxMaking {
  readonly #parts: SandboxMakingParts;

  constructor(parts: SandboxMakingParts) {
    this.#parts = parts;
  }

  /** The rename at the end is the commit: before it, everything is removed again, by us or by the next start of the node. */
  async make(
    order: CreateSandboxOrder,
    { slot, foundation }: { readonly slot: number; readonly foundation: Foundation },
  ): Promise<{ record: NodeRecord; client: InitClient }> {
    const { paths, lives, spares, clock, faults } = this.#parts;
    const { sandboxId, generation, version, mark, spec, settings } = order;
    const { layers, usrLayers, template } = foundation;
    const record: NodeRecord = {
      format: 1,
      ...{ mark, spec, generation, version, settings, slot },
      deadlineBootMs: deadlineOf(settings, clock),
      ...{ layers, usrLayers, ...(template !== undefined && { template }) },
      bootId: clock.bootId,
      life: { kind: 'running' },
    };
    const directory = paths.unfinished(sandboxId);
    let client: InitClient | undefined;
    try {
      await spares.take(directory);
      await writeOwnNames(directory, sandboxId);
      // The record reaches the disk while the spawner works. Metadata is for the commands, and none is admitted yet.
      const written = Promise.all([writeRecord(directory, record), writeMetadata(directory, settings)]);
      const [begun, wrote] = await Promise.allSettled([lives.begin(record, directory), written]);
      if (begun.status === 'fulfilled') client = begun.value;
      if (begun.status === 'rejected') throw begun.reason;
      if (wrote.status === 'rejected') throw wrote.reason;
      await faults.hit('node-create-before-commit');
      await rename(directory, paths.sandbox(sandboxId));
      await syncDirectory(paths.sandboxes);
      return { record, client: begun.value };
    } catch (error) {
      await client?.close();
      await this.#remove(sandboxId, error);
      throw error;
    }
  }

  async #remove(sandboxId: SandboxId, cause: unknown): Promise<void> {
    const { lives, paths, log } = this.#parts;
    try {
      await lives.clear(sandboxId);
      await lives.removeTree(paths.unfinished(sandboxId));
    } catch (error) {
      // The next start of the node removes it; the caller hears why the sandbox could not be made.
      log.error('A half-made sandbox is left behind until the node starts again.', { sandboxId, cause, error });
    }
  }
}
