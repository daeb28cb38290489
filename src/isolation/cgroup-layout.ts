/**
 * Where this machine's control groups are. Commands are killed and frozen through the v2 tree everywhere; memory, cpu and process
 * limits are set there too where it has these controllers, and in the v1 hierarchies where those hold them (a hybrid machine).
 */
import { execFile } from 'node:child_process';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PlatformError } from '../protocol/index.ts';
import { type Mount, readMounts } from './mount-table.ts';

export const limitControllers = ['memory', 'cpu', 'pids'] as const;
export type LimitController = (typeof limitControllers)[number];

export interface CgroupLayout {
  /** The mount point of the v2 tree. */
  readonly v2: string;
  readonly v2Controllers: ReadonlySet<LimitController>;
  /** The mount points of v1 controllers that the v2 tree does not have. */
  readonly v1: ReadonlyMap<LimitController, string>;
}

/** Mounts a v2 tree at `ownMountPoint` where the machine has none. */
export async function findCgroupLayout(options: { readonly ownMountPoint: string }): Promise<CgroupLayout> {
  const mounts = await readMounts();
  const v2 = findV2(mounts) ?? (await mountV2(options.ownMountPoint));
  const available = (await readFile(join(v2, 'cgroup.controllers'), 'utf8')).trim().split(' ');
  const layout = layoutOf({ mounts, v2, v2Available: available });
  for (const controller of limitControllers) {
    if (layout.v2Controllers.has(controller) || layout.v1.has(controller)) continue;
    throw new PlatformError(
      'isolation_failed',
      `This machine has no ${controller} controller, neither in the cgroup v2 tree ${v2} nor as a v1 hierarchy.`,
    );
  }
  return layout;
}

export function layoutOf(input: {
  readonly mounts: readonly Mount[];
  readonly v2: string;
  readonly v2Available: readonly string[];
}): CgroupLayout {
  const v2Controllers = new Set(limitControllers.filter((controller) => input.v2Available.includes(controller)));
  const v1 = new Map<LimitController, string>();
  for (const controller of limitControllers) {
    if (v2Controllers.has(controller)) continue;
    const mount = input.mounts.find(({ type, options }) => type === 'cgroup' && options.has(controller));
    if (mount !== undefined) v1.set(controller, mount.directory);
  }
  return { v2: input.v2, v2Controllers, v1 };
}

function findV2(mounts: readonly Mount[]): string | undefined {
  return mounts.find((mount) => mount.type === 'cgroup2' && mount.options.has('rw'))?.directory;
}

async function mountV2(directory: string): Promise<string> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await promisify(execFile)('mount', ['-t', 'cgroup2', '-o', 'nosuid,nodev,noexec', 'cgroup2', directory]);
    return directory;
  } catch (error) {
    throw new PlatformError(
      'isolation_failed',
      `No cgroup v2 tree is mounted, and none can be mounted at ${directory}.`,
      {
        cause: error,
      },
    );
  }
}
