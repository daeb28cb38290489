import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { NetworkRig, networkNeeds } from '../support/network-rig.ts';
import { testWith } from '../support/requires.ts';

const test = testWith(...networkNeeds);
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

test('200 sandboxes created, used and deleted leave no process, mount, group, namespace, link, table or directory', async () => {
  const rig = await NetworkRig.open();
  const { platform } = rig;
  const first = await platform.client.sandboxes.create();
  await first.exec(['true']);
  await first.delete();
  const before = await takeCensus(rig);
  const ids = new Set([first.id]);

  for (let round = 0; round < 10; round++) {
    await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        const deny = index % 2 === 0 ? [] : [{ cidr: '203.0.113.99' }];
        const sandbox = await platform.client.sandboxes.create({ network: { mode: 'full', deny } });
        ids.add(sandbox.id);
        expect((await sandbox.exec(`(setsid sleep 5555 &) ; echo ${index} > /root/x; cat /root/x`)).stdout).toBe(
          `${index}\n`,
        );
        await sandbox.delete();
      }),
    );
  }

  // The kernel takes the last of a process down after it has been told to.
  await expect.poll(() => takeCensus(rig), { timeout: 30_000, interval: 200 }).toEqual(before);
  const groups = await cgroupDirectories();
  expect(groups.filter((path) => [...ids].some((id) => path.includes(id)))).toEqual([]);
  expect(ids.size).toBe(201);
  await platform.close();
  expect(await rig.machine.census()).toEqual({ links: ['lan', 'lo', 'wan'], tables: [], switches: [] });
  await rig.machine.close();
});

/** What this platform has of the machine: its own, so that others on the machine do not disturb the count. */
async function takeCensus(rig: NetworkRig): Promise<Record<string, unknown>> {
  const { platform, machine } = rig;
  const processes = await descendants(platform.server.pid);
  return {
    processes: processes.length,
    networkNamespaces: new Set(await Promise.all(processes.map((pid) => namespaceOf(pid, 'net')))).size,
    mountNamespaces: new Set(await Promise.all(processes.map((pid) => namespaceOf(pid, 'mnt')))).size,
    mounts: (await readFile(`/proc/${platform.server.pid}/mountinfo`, 'utf8')).split('\n').length,
    network: await machine.census(),
    routerLinks: (await rig.inRouter('ip', '-o', 'link', 'show')).split('\n').length,
    routerChains: (await rig.inRouter('nft', 'list', 'chains')).split('\n').length,
    routerElements: (await rig.inRouter('nft', 'list', 'map', 'inet', 'atoll', 'rules_out')).includes('elements'),
    sandboxDirectories: await readdir(join(platform.dataDirectory, 'server', 'node', 'sandboxes')),
  };
}

/** Everything that was started by a process, directly or not. */
async function descendants(ancestor: number): Promise<number[]> {
  const parents = new Map<number, number>();
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => undefined);
    const parent = stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[1];
    if (parent !== undefined) parents.set(Number(name), Number(parent));
  }
  const isBelow = (pid: number): boolean => {
    for (let at: number | undefined = pid; at !== undefined && at > 1; at = parents.get(at))
      if (at === ancestor) return true;
    return false;
  };
  return [...parents.keys()].filter(isBelow);
}

function namespaceOf(pid: number, kind: string): Promise<string> {
  return readlink(`/proc/${pid}/ns/${kind}`).catch(() => 'gone');
}

async function cgroupDirectories(): Promise<string[]> {
  const found: string[] = [];
  const walk = async (path: string, depth: number): Promise<void> => {
    if (depth > 6) return;
    for (const entry of await readdir(path, { withFileTypes: true }).catch(() => [])) {
      if (!entry.isDirectory()) continue;
      found.push(join(path, entry.name));
      await walk(join(path, entry.name), depth + 1);
    }
  };
  await walk('/sys/fs/cgroup', 0);
  return found;
}
