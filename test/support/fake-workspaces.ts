/**
 * Workspaces for tests of control: the real git stores in a temporary directory, which need neither root nor sandboxes. Only the checkouts are not in
 * sandboxes: they are directories of this machine, which a test fills as it likes.
 */
import { createReadStream } from 'node:fs';
import { lstat, mkdir, readdir, readlink, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type FaultPoints, noFaults } from '../../src/base/index.ts';
import type { RemoteRules, WorkspaceLimits } from '../../src/layers/index.ts';
import type { CheckoutEntry, CheckoutFiles } from '../../src/node/workspaces/checkout-files.ts';
import { WorkspaceHomes } from '../../src/node/workspaces/workspace-homes.ts';
import { type LifeOrder, type NodeWorkspaces, PlatformError, type SandboxId } from '../../src/protocol/index.ts';
import { quickDirectory } from './quick-directory.ts';

export interface LocalWorkspaces {
  readonly workspaces: NodeWorkspaces;
  /** What is at `path` in this sandbox, as a directory here: made, empty, when it is first asked for. */
  checkout(sandboxId: SandboxId, path: string): Promise<string>;
  close(): Promise<void>;
}

const methods: readonly (keyof NodeWorkspaces)[] = [
  ...(['create', 'remove', 'list', 'importBytes', 'importRemote', 'pushRemote', 'exportBytes'] as const),
  ...(['getCommit', 'log', 'diff', 'patch', 'readBlob', 'recordBaseline', 'forgetBaseline', 'collect'] as const),
  ...(['commitTree', 'merge', 'hold', 'release', 'holds', 'tidy'] as const),
];

/** The same workspaces, with something around every call. */
export function aroundWorkspaces(
  find: () => Promise<NodeWorkspaces>,
  around: <Result>(name: keyof NodeWorkspaces, call: () => Promise<Result>) => Promise<Result>,
): NodeWorkspaces {
  const wrapped = methods.map((name) => [
    name,
    (...given: unknown[]) =>
      around(name, async () => {
        const workspaces = await find();
        return await (workspaces[name] as (...given: unknown[]) => Promise<unknown>).apply(workspaces, given);
      }),
  ]);
  return Object.fromEntries(wrapped) as NodeWorkspaces;
}

export async function openLocalWorkspaces(
  options: {
    readonly clock?: Clock;
    readonly faults?: FaultPoints;
    readonly limits?: Partial<WorkspaceLimits>;
    readonly remotes?: RemoteRules;
    readonly directory?: string;
    readonly admitLife?: (life: LifeOrder) => void;
  } = {},
): Promise<LocalWorkspaces> {
  const root = options.directory ?? (await quickDirectory('atoll-workspaces-'));
  const checkoutOf = (sandboxId: SandboxId, path: string) => join(root, 'checkouts', sandboxId, path);
  const homes = new WorkspaceHomes({
    directory: join(root, 'workspaces'),
    clock: options.clock ?? localClock,
    faults: options.faults ?? noFaults,
    limits: options.limits,
    remotes: options.remotes,
    admit: () => {},
    findCheckout: (life, path) => {
      options.admitLife?.(life);
      return directoryCheckout(checkoutOf(life.sandboxId, path));
    },
  });
  await homes.open();
  return {
    workspaces: homes,
    checkout: async (sandboxId, path) => {
      const directory = checkoutOf(sandboxId, path);
      await mkdir(directory, { recursive: true });
      return directory;
    },
    close: async () => {
      await homes.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}

const localClock: Clock = {
  nowMs: () => Date.now(),
  bootMs: () => performance.now(),
  bootId: 'boot',
};

function directoryCheckout(directory: string): CheckoutFiles {
  return {
    list: async (limit) => {
      const entries: CheckoutEntry[] = [];
      await listInto(entries, directory, '', limit);
      return entries;
    },
    read: async (path) => {
      const bytes = Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(path, 'latin1')]);
      const { path: _, ...entry } = await entryOf(directory, path).catch((cause: unknown) => {
        throw new PlatformError('file_not_found', `There is no ${path}.`, { cause });
      });
      return { entry, bytes: createReadStream(bytes) as AsyncIterable<Uint8Array> };
    },
  };
}

async function listInto(entries: CheckoutEntry[], directory: string, below: string, limit: number): Promise<void> {
  const here = Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(below, 'latin1')]);
  const names = await readdir(here, { encoding: 'buffer' }).catch((cause: unknown) => {
    throw new PlatformError('file_not_found', `There is no ${directory}.`, { cause });
  });
  for (const name of names.sort(Buffer.compare)) {
    if (entries.length >= limit) throw new PlatformError('limit_exceeded', 'There is too much.');
    const entry = await entryOf(directory, below + name.toString('latin1'));
    entries.push(entry);
    if (entry.type === 'directory') await listInto(entries, directory, `${entry.path}/`, limit);
  }
}

async function entryOf(directory: string, path: string): Promise<CheckoutEntry> {
  const bytes = Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(path, 'latin1')]);
  const facts = await lstat(bytes, { bigint: true });
  const isLink = facts.isSymbolicLink();
  return {
    path,
    type: isLink ? 'symlink' : facts.isFile() ? 'file' : facts.isDirectory() ? 'directory' : 'other',
    mode: Number(facts.mode) & 0o7777,
    sizeBytes: Number(facts.size),
    modifiedNs: facts.mtimeNs,
    changedNs: facts.ctimeNs,
    inode: facts.ino,
    linkTarget: isLink ? (await readlink(bytes, { encoding: 'buffer' })).toString('latin1') : null,
  };
}
