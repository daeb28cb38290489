/** What a node stands on: its directory, which it alone uses, and what it asks the kernel through. */
import { type Clock, type DirectoryLock, noFaults, SystemClock, silentLogger } from '../base/index.ts';
import { Cgroups, Spawner } from '../isolation/index.ts';
import { type NodeIdentity, openNodeDirectory } from './node-directory.ts';
import type { SandboxNodeOptions } from './node-options.ts';
import { NodePaths } from './node-paths.ts';
import { SandboxNetworks } from './sandbox-networks.ts';
import { SandboxStorage } from './sandbox-storage.ts';
import { SharedPlaces } from './shared-places.ts';

export interface NodeParts {
  readonly options: SandboxNodeOptions;
  readonly identity: NodeIdentity;
  readonly lock: DirectoryLock;
  readonly spawner: Spawner;
  readonly cgroups: Cgroups;
  readonly networks: SandboxNetworks;
  readonly paths: NodePaths;
  readonly storage: SandboxStorage;
  readonly shared: SharedPlaces;
  readonly clock: Clock;
}

/** Refuses when another process uses the directory. When `use` fails, everything is let go again. */
export async function openNodeParts<Result>(
  options: SandboxNodeOptions,
  use: (parts: NodeParts) => Promise<Result>,
): Promise<Result> {
  const { identity, lock, dataDirectory } = await openNodeDirectory(options.dataDirectory);
  const spawner = new Spawner({ program: options.initProgram, directory: dataDirectory });
  try {
    const paths = new NodePaths({ dataDirectory, layersDirectory: options.layersDirectory });
    await spawner.ready();
    const cgroups = await Cgroups.open({ dataDirectory });
    const { log = silentLogger, faults = noFaults, clock = new SystemClock() } = options;
    const networks = new SandboxNetworks({ ...options, dataDirectory, spawner, cgroups, log, faults });
    const kind = options.storage === 'auto' ? undefined : options.storage;
    const storage = await SandboxStorage.open({
      ...{ paths, spawner, clock, faults, log },
      options: { kind, poolSizes: options.poolSizes },
    });
    const shared = await SharedPlaces.open(dataDirectory);
    return await use({ options, identity, lock, spawner, cgroups, networks, paths, storage, shared, clock }).catch(
      async (error: unknown) => {
        await storage.close();
        throw error;
      },
    );
  } catch (error) {
    await spawner.close();
    await lock.release();
    throw error;
  }
}
