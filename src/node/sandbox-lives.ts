/**
 * Begins and ends lives: groups, network, the spawner and the connection to init, in that order and back. Callers hold the sandbox's lock and keep
 * the record.
 */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { FaultPoints } from '../base/index.ts';
import { InitClient } from '../execution/index.ts';
import type { Cgroups, OpenGuard, Spawner } from '../isolation/index.ts';
import type { Trees } from '../layers/index.ts';
import { PlatformError, type SandboxId } from '../protocol/index.ts';
import { initDeadlineOf } from './deadline.ts';
import { uidBaseOf } from './id-slots.ts';
import type { NodePaths } from './node-paths.ts';
import type { NodeRecord } from './node-record.ts';
import { endFileName } from './sandbox-files.ts';
import type { SandboxNetworks } from './sandbox-networks.ts';
import type { SandboxStorage } from './sandbox-storage.ts';

/** How long init may take beyond the grace before it is killed. */
const shutdownMarginMs = 5_000;

/** What a life needs of a record. */
export type LifeRecord = Omit<NodeRecord, 'format' | 'writable' | 'fromCheckpoint'>;

export class SandboxLives {
  readonly #cgroups: Cgroups;
  readonly #spawner: Spawner;
  readonly #paths: NodePaths;
  readonly #faults: FaultPoints;
  readonly #openGuards: readonly OpenGuard[];
  readonly #networks: SandboxNetworks;
  readonly #storage: SandboxStorage;

  constructor(options: {
    readonly cgroups: Cgroups;
    readonly spawner: Spawner;
    readonly paths: NodePaths;
    readonly faults: FaultPoints;
    readonly openGuards: readonly OpenGuard[];
    readonly networks: SandboxNetworks;
    readonly storage: SandboxStorage;
  }) {
    this.#cgroups = options.cgroups;
    this.#spawner = options.spawner;
    this.#paths = options.paths;
    this.#faults = options.faults;
    this.#openGuards = options.openGuards;
    this.#networks = options.networks;
    this.#storage = options.storage;
  }

  /** Begins the life that the record describes in `directory`. When it fails, no process and no group is left. */
  async begin(record: NodeRecord, directory: string): Promise<InitClient> {
    const { writable, spec } = record;
    const own = await this.#storage.treesOf(writable);
    const limits = { id: writable, limitBytes: spec.limits.diskBytes };
    return await this.#storage.whileBeginning(limits, () => this.beginOn(record, { directory, own }));
  }

  /** Without `own` it writes to its directory, and not to the storage. */
  async beginOn(
    record: LifeRecord,
    { directory, own }: { readonly directory: string; readonly own?: Trees & { readonly directory: string } },
  ): Promise<InitClient> {
    const { sandboxId } = record.mark;
    const group = await this.#cgroups.make(sandboxId, record.spec.limits);
    try {
      const network = await this.#networks.reserve({ sandboxId, directory, policy: record.settings.network });
      await this.#faults.hit('node-before-spawn');
      await this.#spawner.create({
        ...group,
        id: sandboxId,
        directory,
        ...(own !== undefined && { writable: own.directory }),
        layers: [...(own?.layers ?? []), ...record.layers.map((name) => join(this.#paths.layers, name))],
        usrLayers: [...(own?.usrLayers ?? []), ...record.usrLayers],
        uidBase: uidBaseOf(record.slot),
        deadlineBootMs: initDeadlineOf(record),
        generation: record.generation,
        noNewPrivileges: record.spec.noNewPrivileges,
        fence: record.settings.leaseToken,
        openGuards: this.#openGuards,
        endFile: endFileName(record.generation),
        ...(network !== undefined && { network }),
      });
      await this.#faults.hit('node-after-spawn');
      return await InitClient.connect({ directory, generation: record.generation }).catch((cause: unknown) => {
        // It was there a moment ago: its deadline came first, or somebody killed it.
        throw new PlatformError('sandbox_unavailable', 'The sandbox ended before it could be used.', { cause });
      });
    } catch (error) {
      await this.clear(sandboxId);
      throw error;
    }
  }

  /** Asks init to end everything, and ends it by force when the grace is over. Nothing is left afterwards. */
  async end(sandboxId: SandboxId, options: { readonly client: InitClient; readonly graceMs: number }): Promise<void> {
    const { client, graceMs } = options;
    const patience = new AbortController();
    try {
      // What stands still does not hear that it should end.
      await this.setFrozen(sandboxId, false);
      await client.control((connection) => connection.shutDown(graceMs));
      const waited = delay(graceMs + shutdownMarginMs, undefined, { signal: patience.signal }).catch(() => {});
      await Promise.race([client.gone, waited]);
    } catch {
      // An init that cannot be asked is killed.
    } finally {
      patience.abort();
    }
    await this.clear(sandboxId);
  }

  /** Kills whatever is left of a sandbox, and removes its groups; its link goes with its last process. */
  async clear(sandboxId: string): Promise<void> {
    await this.#cgroups.remove(sandboxId);
    await this.#networks.release(sandboxId);
  }

  /** Whether the commands stand still. */
  async setFrozen(sandboxId: SandboxId, isFrozen: boolean): Promise<void> {
    await this.#cgroups.freeze(sandboxId, isFrozen);
  }

  /** Names that have groups here. */
  async listGroups(): Promise<string[]> {
    return await this.#cgroups.list();
  }

  async removeTree(path: string): Promise<void> {
    await this.#spawner.remove(path);
  }
}
