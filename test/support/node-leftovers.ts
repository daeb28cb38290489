/** What a node's sandboxes have left on this machine: processes, groups, mounts and directories, in memory too, that name its data directory. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { groupNameOf, hashOf } from './run-leftovers.ts';

export interface Leftovers {
  readonly processes: readonly string[];
  readonly groups: readonly string[];
  readonly mounts: readonly string[];
  readonly directories: readonly string[];
}

export const nothingLeft: Leftovers = { processes: [], groups: [], mounts: [], directories: [] };

export async function findLeftovers(dataDirectory: string): Promise<Leftovers> {
  const root = groupNameOf(hashOf(dataDirectory));
  const mounts = (await readFile('/proc/self/mounts', 'utf8')).split('\n');
  const trees = mounts.map((line) => line.split(' ')).filter(([, , type]) => type?.startsWith('cgroup'));
  const groups = await Promise.all(trees.map(([, directory]) => list(join(directory!, root))));
  const kept = ['sandboxes', 'making', 'trash', 'storage/layers', 'storage/pool'];
  const places = [...kept.map((name) => join(dataDirectory, name)), join('/dev/shm', root)];
  const directories = await Promise.all(places.map(list));
  return {
    processes: await processesIn(root),
    groups: groups.flat(),
    mounts: mounts.filter((line) => line.includes(dataDirectory)),
    directories: directories.flat(),
  };
}

/** The init of a running sandbox, as this machine sees it. */
export async function initPid(dataDirectory: string, sandboxId: string): Promise<number> {
  const [pid, ...others] = await processesIn(`${groupNameOf(hashOf(dataDirectory))}/${sandboxId}/init`);
  if (pid === undefined || others.length > 0) throw new Error(`${sandboxId} has no single init.`);
  return Number(pid);
}

async function processesIn(group: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(pids.map(async (pid) => ((await isIn(pid, group)) ? [pid] : [])));
  return found.flat();
}

/** A zombie is no process of ours any more: it waits for the machine's own init, which takes its time on some machines. */
async function isIn(pid: string, group: string): Promise<boolean> {
  const groups = (await read(`/proc/${pid}/cgroup`)).split('\n');
  if (!groups.some((line) => `${line}/`.includes(`/${group}/`))) return false;
  return !/^State:\tZ/m.test(await read(`/proc/${pid}/status`));
}

async function list(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => join(directory, entry.name));
}

function read(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => ''); // Gone in between.
}
