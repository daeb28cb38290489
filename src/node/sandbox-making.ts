/** Makes a sandbox from nothing, all or nothing. Its directory gets its name last: whoever sees it there sees it complete. */
import { rename } from 'node:fs/promises';
import { type Clock, type FaultPoints, type Logger, syncDirectory } from '../base/index.ts';
import type { InitClient } from '../execution/index.ts';
import type { Writable } from '../layers/index.ts';
import type { CreateSandboxOrder, SandboxId } from '../protocol/index.ts';
import { deadlineOf } from './deadline.ts';
import type { NodePaths } from './node-paths.ts';
import { type NodeRecord, writeRecord } from './node-record.ts';
import { writeMetadata } from './sandbox-files.ts';
import type { SandboxLives } from './sandbox-lives.ts';
import { writeNames, writeNamesInside } from './sandbox-names.ts';
import type { SandboxStorage } from './sandbox-storage.ts';
import type { SharedPlaces } from './shared-places.ts';
import type { SpareDirectories } from './spare-directories.ts';
import type { Foundation } from './templates/sandbox-templates.ts';
import { owingStart } from './templates/start-command.ts';

export interface SandboxMakingParts {
  readonly paths: NodePaths;
  readonly lives: SandboxLives;
  readonly storage: SandboxStorage;
  readonly shared: SharedPlaces;
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
    const writable = await this.#openWritable(order, foundation);
    const { fromCheckpoint } = order;
    const record = owingStart({
      format: 2,
      ...{ mark, spec, generation, version, settings, slot, fromCheckpoint, writable: writable.id },
      deadlineBootMs: deadlineOf(settings, clock),
      ...{ layers, usrLayers, ...(template !== undefined && { template }) },
      bootId: clock.bootId,
      life: { kind: 'running' },
    });
    const directory = paths.unfinished(sandboxId);
    let client: InitClient | undefined;
    try {
      await spares.take(directory);
      if (fromCheckpoint === null) await writeNames(writable.directory, sandboxId);
      // The record reaches the disk while the spawner works. Metadata is for the commands, and none is admitted yet.
      const written = Promise.all([writeRecord(directory, record), writeMetadata(directory, settings)]);
      const [begun, wrote] = await Promise.allSettled([lives.begin(record, directory), written]);
      if (begun.status === 'fulfilled') client = begun.value;
      if (begun.status === 'rejected') throw begun.reason;
      if (wrote.status === 'rejected') throw wrote.reason;
      if (fromCheckpoint !== null) await this.#nameInside(begun.value, order);
      await faults.hit('node-create-before-commit');
      await rename(directory, paths.sandbox(sandboxId));
      await syncDirectory(paths.sandboxes);
      return { record, client: begun.value };
    } catch (error) {
      await client?.close();
      await this.#remove(sandboxId, writable, error);
      throw error;
    }
  }

  async #openWritable({ fromCheckpoint, spec }: CreateSandboxOrder, { base }: Foundation): Promise<Writable> {
    const { storage, faults } = this.#parts;
    const limits = { base, limitBytes: spec.limits.diskBytes };
    const writable = await (fromCheckpoint === null
      ? storage.openNew(limits)
      : storage.openFrom(fromCheckpoint, limits));
    await faults.hit('node-create-after-writable');
    return writable;
  }

  async #nameInside(client: InitClient, { sandboxId, settings }: CreateSandboxOrder): Promise<void> {
    await writeNamesInside(client, sandboxId, settings.leaseToken).catch((error: unknown) => {
      this.#parts.log.info('A sandbox keeps the names that its checkpoint had.', { sandboxId, error });
    });
  }

  async #remove(sandboxId: SandboxId, writable: Writable, cause: unknown): Promise<void> {
    const { lives, paths, log, storage, shared } = this.#parts;
    try {
      await lives.clear(sandboxId);
      await shared.remove(paths.unfinished(sandboxId));
      await lives.removeTree(paths.unfinished(sandboxId));
      await storage.discard(writable.id);
    } catch (error) {
      // The next start of the node removes it; the caller hears why the sandbox could not be made.
      log.error('A half-made sandbox is left behind until the node starts again.', { sandboxId, cause, error });
    }
  }
}
