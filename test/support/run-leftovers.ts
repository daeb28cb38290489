/** What a run of tests has left on this machine, told from what others have there by the run's directory. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

export interface RunLeftovers {
  readonly processes: readonly string[];
  readonly groups: readonly string[];
  readonly mounts: readonly string[];
  readonly networks: readonly string[];
  readonly directories: readonly string[];
}

/** Where nodes of tests keep their data, below a temporary directory. */
const nodePlaces = ['', 'node', 'server/node', 'far/node'];

/** `names` is everything that was ever made in the directory. */
export async function findRunLeftovers(directory: string, names: ReadonlySet<string>): Promise<RunLeftovers> {
  const hashes = [...names].flatMap((name) => nodePlaces.map((place) => hashOf(join(directory, name, place))));
  const groupNames = new Set(hashes.map(groupNameOf));
  const networkNames = new Set(hashes.flatMap(networkNamesOf));
  const mounts = (await readFile('/proc/self/mounts', 'utf8').catch(() => '')).split('\n');
  const trees = mounts.map((line) => line.split(' ')).filter(([, , type]) => type?.startsWith('cgroup'));
  const groups = await Promise.all(trees.map(async ([, tree]) => (await list(tree!)).map((name) => join(tree!, name))));
  const networks = [...(await list('/run/netns')), ...(await list('/sys/class/net'))];
  const isOfRun = (name: string) => networkNames.has(name) || name.startsWith(`atest-${basename(directory)}`);
  return {
    processes: await processesOf(directory, groupNames),
    groups: groups.flat().filter((path) => groupNames.has(basename(path))),
    mounts: mounts.filter((line) => line.includes(directory)),
    networks: networks.filter(isOfRun),
    directories: [...(await list(directory)), ...(await list('/dev/shm')).filter((name) => groupNames.has(name))],
  };
}

export function isNothing(left: RunLeftovers): boolean {
  return Object.values(left).every((kind: readonly string[]) => kind.length === 0);
}

export function hashOf(dataDirectory: string): string {
  return createHash('sha256').update(dataDirectory).digest('hex');
}

/** As src/isolation/cgroups.ts names it, and src/node/shared-places.ts a directory in memory. */
export function groupNameOf(hash: string): string {
  return `atoll-${hash.slice(0, 16)}`;
}

/** As src/isolation/network/plan.ts names the namespace and the link. */
function networkNamesOf(hash: string): string[] {
  return [`atoll-${hash.slice(0, 8)}`, `atoll${hash.slice(0, 8)}`];
}

/** Those that were started with the run's directory for temporary files, and those in a group of its nodes. */
async function processesOf(directory: string, groupNames: ReadonlySet<string>): Promise<string[]> {
  const pids = (await list('/proc')).filter((name) => /^\d+$/.test(name) && name !== String(process.pid));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const [environment, groups, status, command] = await Promise.all(
        ['environ', 'cgroup', 'status', 'cmdline'].map((name) => read(`/proc/${pid}/${name}`)),
      );
      const isOfRun =
        environment!.split('\0').includes(`TMPDIR=${directory}`) ||
        groups!.split(/[/\n]/).some((name) => groupNames.has(name));
      // A zombie waits for the machine's own init; vitest's workers end after this.
      if (!isOfRun || /^State:\tZ/m.test(status!) || command!.includes('/vitest/')) return [];
      return [`${pid}: ${command!.replaceAll('\0', ' ')}`];
    }),
  );
  return found.flat();
}

function list(directory: string): Promise<string[]> {
  return readdir(directory).catch(() => []);
}

function read(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => ''); // Gone in between.
}
