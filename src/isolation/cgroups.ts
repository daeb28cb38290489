/**
 * The control groups of one node: a group `atoll-<hash of the data directory>` in each hierarchy, and in it one group a sandbox.
 *
 *   v2    <root>/<sandbox>/init     init itself: a freeze, a fork bomb or a memory hog does not hit it
 *         <root>/<sandbox>/run      commands; limited, frozen and killed here
 *   v1    <root>/<sandbox>          commands, once per controller that v2 does not have
 *
 * Invariants:
 *  - A group counts as made only when every limit stands; otherwise nothing of it is left and `isolation_failed` tells which.
 *  - `remove` kills whatever is inside first. It may be repeated, also for a group that is not there.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { PlatformError, type SandboxLimits, type SandboxLoad } from '../protocol/index.ts';
import { type CgroupLayout, findCgroupLayout, type LimitController, limitControllers } from './cgroup-layout.ts';
import { readLoad } from './cgroup-load.ts';

const cpuPeriodUs = 100_000;
/** The kernel's smallest quota. */
const cpuQuotaMinUs = 1_000;
const emptyTimeoutMs = 30_000;
const pollMaxMs = 20;

/** What a group can limit. */
export type GroupLimits = Omit<SandboxLimits, 'diskBytes'>;

/** What the spawner has to know of a sandbox's groups. */
export interface SandboxGroup {
  readonly cgroup: string;
  readonly v1Groups: readonly string[];
}

export class Cgroups {
  readonly #layout: CgroupLayout;
  readonly #name: string;

  private constructor(layout: CgroupLayout, name: string) {
    this.#layout = layout;
    this.#name = name;
  }

  static async open(options: { readonly dataDirectory: string }): Promise<Cgroups> {
    const layout = await findCgroupLayout({ ownMountPoint: join(options.dataDirectory, 'cgroup2') });
    const hash = createHash('sha256').update(options.dataDirectory).digest('hex').slice(0, 16);
    const cgroups = new Cgroups(layout, `atoll-${hash}`);
    await cgroups.#makeRoots();
    return cgroups;
  }

  groupOf(sandboxId: string): SandboxGroup {
    return {
      cgroup: join(this.#v2Root, sandboxId),
      v1Groups: [...this.#layout.v1.values()].map((mount) => join(mount, this.#name, sandboxId)),
    };
  }

  async make(sandboxId: string, limits: GroupLimits): Promise<SandboxGroup> {
    const group = this.groupOf(sandboxId);
    try {
      await mkdir(group.cgroup);
      await enableControllers(group.cgroup, this.#layout.v2Controllers);
      await Promise.all([mkdir(join(group.cgroup, 'init')), mkdir(join(group.cgroup, 'run'))]);
      await Promise.all(limitControllers.map((controller) => this.#limit(sandboxId, controller, limits)));
      return group;
    } catch (error) {
      await this.remove(sandboxId);
      throw new PlatformError('isolation_failed', `The limits of ${sandboxId} cannot be set: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  /** Kills everything in the sandbox, init too, and waits until nothing is left. */
  async kill(sandboxId: string): Promise<void> {
    const { cgroup } = this.groupOf(sandboxId);
    try {
      await writeFile(join(cgroup, 'cgroup.kill'), '1');
    } catch (error) {
      if (isAbsent(error)) return;
      throw error;
    }
    await this.waitUntilEmpty(sandboxId);
  }

  async waitUntilEmpty(sandboxId: string): Promise<void> {
    const until = performance.now() + emptyTimeoutMs;
    for (let pauseMs = 1; await this.isPopulated(sandboxId); pauseMs = Math.min(pauseMs * 2, pollMaxMs)) {
      if (performance.now() > until) {
        throw new PlatformError('outcome_unknown', `Processes of ${sandboxId} are still there after a kill.`);
      }
      await delay(pauseMs);
    }
  }

  async isPopulated(sandboxId: string): Promise<boolean> {
    try {
      const events = await readFile(join(this.groupOf(sandboxId).cgroup, 'cgroup.events'), 'utf8');
      return /^populated 1$/m.test(events);
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
  }

  /** Refuses with `sandbox_unavailable` where there is no such group. */
  async load(sandboxId: string): Promise<SandboxLoad> {
    const v2Group = join(this.#v2Root, sandboxId, 'run');
    const groupOf = (controller: LimitController) => {
      const mount = this.#layout.v1.get(controller);
      return mount === undefined
        ? { directory: v2Group, isV1: false }
        : { directory: join(mount, this.#name, sandboxId), isV1: true };
    };
    try {
      return await readLoad(groupOf, v2Group);
    } catch (cause) {
      if (!isAbsent(cause)) throw cause;
      throw new PlatformError('sandbox_unavailable', 'The sandbox is ending.', { cause });
    }
  }

  /** Stops or resumes every command of the sandbox; init goes on. */
  async freeze(sandboxId: string, frozen: boolean): Promise<void> {
    await writeFile(join(this.groupOf(sandboxId).cgroup, 'run', 'cgroup.freeze'), frozen ? '1' : '0');
  }

  /** Whether every command stands still; asking for it takes effect later. */
  async isFrozen(sandboxId: string): Promise<boolean> {
    const events = await readFile(join(this.groupOf(sandboxId).cgroup, 'run', 'cgroup.events'), 'utf8');
    return /^frozen 1$/m.test(events);
  }

  async remove(sandboxId: string): Promise<void> {
    await this.kill(sandboxId);
    const { cgroup, v1Groups } = this.groupOf(sandboxId);
    await Promise.all([cgroup, ...v1Groups].map((directory) => removeGroup(directory)));
  }

  /** The names of sandboxes that have a group of any kind here. */
  async list(): Promise<string[]> {
    const names = await Promise.all(this.#roots.map((root) => childGroups(root)));
    return [...new Set(names.flat())];
  }

  /** Removes the node's own groups; only when no sandbox is left in them. */
  async removeRoots(): Promise<void> {
    for (const root of this.#roots) {
      await rmdir(root).catch((error: unknown) => {
        if (!isAbsent(error) && !isBusy(error)) throw error;
      });
    }
  }

  get #v2Root(): string {
    return join(this.#layout.v2, this.#name);
  }

  get #roots(): string[] {
    return [this.#v2Root, ...[...this.#layout.v1.values()].map((mount) => join(mount, this.#name))];
  }

  async #makeRoots(): Promise<void> {
    try {
      for (const root of this.#roots) await mkdir(root, { recursive: true });
      await enableControllers(this.#layout.v2, this.#layout.v2Controllers);
      await enableControllers(this.#v2Root, this.#layout.v2Controllers);
    } catch (error) {
      throw new PlatformError('isolation_failed', `The node's control groups cannot be made: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  async #limit(sandboxId: string, controller: LimitController, limits: GroupLimits): Promise<void> {
    const mount = this.#layout.v1.get(controller);
    if (mount === undefined) return limitV2(join(this.#v2Root, sandboxId, 'run'), controller, limits);
    const directory = join(mount, this.#name, sandboxId);
    await mkdir(directory, { recursive: true });
    await limitV1(directory, controller, limits);
  }
}

async function limitV2(directory: string, controller: LimitController, limits: GroupLimits): Promise<void> {
  switch (controller) {
    case 'memory':
      await writeFile(join(directory, 'memory.max'), String(limits.memoryBytes));
      await writeIfPresent(join(directory, 'memory.swap.max'), '0');
      return;
    case 'cpu':
      return writeFile(join(directory, 'cpu.max'), `${cpuQuotaUs(limits)} ${cpuPeriodUs}`);
    case 'pids':
      return writeFile(join(directory, 'pids.max'), String(limits.processes));
  }
}

async function limitV1(directory: string, controller: LimitController, limits: GroupLimits): Promise<void> {
  switch (controller) {
    case 'memory':
      await writeFile(join(directory, 'memory.limit_in_bytes'), String(limits.memoryBytes));
      // Memory and swap together; absent where the kernel does not count swap.
      await writeIfPresent(join(directory, 'memory.memsw.limit_in_bytes'), String(limits.memoryBytes));
      return;
    case 'cpu':
      await writeFile(join(directory, 'cpu.cfs_period_us'), String(cpuPeriodUs));
      return writeFile(join(directory, 'cpu.cfs_quota_us'), String(cpuQuotaUs(limits)));
    case 'pids':
      return writeFile(join(directory, 'pids.max'), String(limits.processes));
  }
}

function cpuQuotaUs(limits: GroupLimits): number {
  return Math.max(cpuQuotaMinUs, Math.round((limits.cpuMillis * cpuPeriodUs) / 1000));
}

async function enableControllers(directory: string, controllers: ReadonlySet<LimitController>): Promise<void> {
  if (controllers.size === 0) return;
  const file = join(directory, 'cgroup.subtree_control');
  const enabled = (await readFile(file, 'utf8')).trim().split(' ');
  const missing = [...controllers].filter((controller) => !enabled.includes(controller));
  if (missing.length > 0) await writeFile(file, missing.map((controller) => `+${controller}`).join(' '));
}

async function childGroups(directory: string): Promise<string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
}

/** A group stays busy for a moment after its last process is gone. */
async function removeGroup(directory: string): Promise<void> {
  const until = performance.now() + emptyTimeoutMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, pollMaxMs)) {
    try {
      return await rmdir(directory);
    } catch (error) {
      if (isAbsent(error)) return;
      if (!isBusy(error) || performance.now() > until) throw error;
    }
    const children = await childGroups(directory);
    await Promise.all(children.map((child) => removeGroup(join(directory, child))));
    if (children.length === 0) await delay(pauseMs);
  }
}

async function writeIfPresent(path: string, value: string): Promise<void> {
  try {
    await writeFile(path, value, { flag: 'r+' });
  } catch (error) {
    if (!isAbsent(error)) throw error;
  }
}

function isAbsent(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'ENOENT' || code === 'ENODEV';
}

function isBusy(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'EBUSY' || code === 'ENOTEMPTY';
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
