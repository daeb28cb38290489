/**
 * Which TCP sockets listen in a sandbox, and whose they are, as the kernel tells it to somebody outside. Only numbers lead from one file to
 * the next: a descriptor's link is read and never followed, and no path of the sandbox is used.
 *
 * A process id may be another process's by the time its files are read. What was read counts only when the process is still in the
 * sandbox's groups afterwards.
 */
import { open, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type ListeningPort, PlatformError } from '../protocol/index.ts';
import type { SandboxGroup } from './cgroups.ts';
import { parseSocketTable, type TableSocket } from './socket-table.ts';

/** The kernel lists what listens before what is connected, so more than this of a table is of no use. */
const tableMaxBytes = 1024 * 1024;
/** How much is looked at to find whose a socket is; whose is not found by then stays unknown. */
const processesMax = 4_096;
const descriptorsMax = 32_768;

interface Owner {
  readonly pid: number;
  readonly processName: string;
}

export async function listListeningSockets(
  group: SandboxGroup,
  options: { readonly limit: number },
): Promise<ListeningPort[]> {
  const sockets = (await readTables(group)).slice(0, options.limit);
  const owners = await findOwners(group, new Set(sockets.map(({ inode }) => inode)));
  return sockets
    .map(({ inode, ...socket }) => ({
      ...socket,
      pid: owners.get(inode)?.pid ?? null,
      processName: owners.get(inode)?.processName ?? null,
    }))
    .sort((a, b) => a.port - b.port || a.family - b.family || (a.address < b.address ? -1 : 1));
}

async function readTables(group: SandboxGroup): Promise<TableSocket[]> {
  const initGroup = join(group.cgroup, 'init');
  try {
    const [pid] = await membersOf(initGroup);
    const tables = await Promise.all([4, 6].map((family) => readStart(`/proc/${pid}/net/tcp${family === 6 ? 6 : ''}`)));
    if ((await membersOf(initGroup))[0] !== pid) throw new Error('Its init was replaced meanwhile.');
    return [...parseSocketTable(tables[0]!, 4), ...parseSocketTable(tables[1]!, 6)];
  } catch (cause) {
    throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; its ports cannot be read.', { cause });
  }
}

async function findOwners(group: SandboxGroup, wanted: ReadonlySet<number>): Promise<Map<number, Owner>> {
  const owners = new Map<number, Owner>();
  const budget = { descriptors: descriptorsMax };
  const runs = join(group.cgroup, 'run');
  let processes = 0;
  for (const name of await namesIn(runs)) {
    const directory = join(runs, name);
    for (const pid of await membersOf(directory)) {
      if (owners.size === wanted.size || processes++ >= processesMax || budget.descriptors <= 0) return owners;
      const inodes = (await socketsOf(pid, budget)).filter((inode) => wanted.has(inode) && !owners.has(inode));
      const owner = inodes.length === 0 ? undefined : await ownerOf(pid);
      if (owner === undefined || !(await membersOf(directory)).includes(pid)) continue;
      for (const inode of inodes) owners.set(inode, owner);
    }
  }
  return owners;
}

async function socketsOf(pid: number, budget: { descriptors: number }): Promise<number[]> {
  const inodes: number[] = [];
  for (const descriptor of await namesIn(`/proc/${pid}/fd`)) {
    if (budget.descriptors-- <= 0) break;
    const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => '');
    const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
    if (inode !== undefined) inodes.push(Number(inode));
  }
  return inodes;
}

async function ownerOf(pid: number): Promise<Owner | undefined> {
  try {
    const [status, comm] = await Promise.all([
      readFile(`/proc/${pid}/status`, 'utf8'),
      readFile(`/proc/${pid}/comm`, 'utf8'),
    ]);
    const inner = /^NSpid:.*?(\d+)$/m.exec(status)?.[1];
    // The kernel keeps 15 bytes of it, which may be anything.
    const processName = comm.replace(/\n$/, '').replaceAll(/[\x00-\x1f\x7f]/g, '?');
    return inner === undefined ? undefined : { pid: Number(inner), processName };
  } catch {
    return undefined; // It is gone.
  }
}

async function membersOf(group: string): Promise<number[]> {
  const text = await readFile(join(group, 'cgroup.procs'), 'utf8').catch(() => '');
  return text.split('\n').filter(Boolean).map(Number);
}

async function namesIn(directory: string): Promise<string[]> {
  return (await readdir(directory).catch(() => [])).filter((name) => /^\d+$/.test(name));
}

async function readStart(path: string): Promise<string> {
  await using file = await open(path, 'r');
  const bytes = Buffer.allocUnsafe(tableMaxBytes);
  let length = 0;
  for (;;) {
    const { bytesRead } = await file.read(bytes, length, tableMaxBytes - length, null);
    length += bytesRead;
    if (bytesRead === 0 || length === tableMaxBytes) return bytes.toString('latin1', 0, length);
  }
}
