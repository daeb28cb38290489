import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { requires, testWith } from '../../test/support/requires.ts';
import { newId } from '../protocol/index.ts';
import { Cgroups } from './cgroups.ts';

const test = testWith(requires.root, requires.cgroups);
const limits = { memoryBytes: 64 * 1024 * 1024, cpuMillis: 500, processes: 32, diskBytes: null };
let cgroups: Cgroups;

beforeEach(async () => {
  cgroups = await Cgroups.open({ dataDirectory: `/nowhere/${newId('node')}` });
});

afterEach(async () => {
  for (const name of await cgroups.list()) await cgroups.remove(name);
  await cgroups.removeRoots();
});

test('a group has its limits, and is gone after its removal', async () => {
  const { cgroup, v1Groups } = await cgroups.make('sbxa', limits);
  const directories = [join(cgroup, 'run'), ...v1Groups];
  const read = async (name: string) =>
    (await Promise.all(directories.map((directory) => readFile(join(directory, name), 'utf8').catch(() => '')))).join(
      '',
    );
  expect((await read('pids.max')).replaceAll('max\n', '')).toBe('32\n');
  expect((await read('memory.max')) + (await read('memory.limit_in_bytes'))).toContain(`${limits.memoryBytes}\n`);
  expect((await read('cpu.max')) + (await read('cpu.cfs_quota_us'))).toMatch(/^50000( |\n)/);
  expect(await cgroups.list()).toEqual(['sbxa']);
  await cgroups.remove('sbxa');
  await cgroups.remove('sbxa');
  expect(await cgroups.list()).toEqual([]);
});

test('a limit that cannot be set is an error, and nothing is left', async () => {
  const refused = cgroups.make('sbxb', { ...limits, processes: 10 ** 12 });
  await expect(refused).rejects.toMatchObject({ code: 'isolation_failed' });
  expect(await cgroups.list()).toEqual([]);
});

test('kill ends what is inside, also below, and waits for it', async () => {
  const { cgroup } = await cgroups.make('sbxc', limits);
  const child = spawn('sleep', ['1000']);
  const exited = once(child, 'exit');
  await writeFile(join(cgroup, 'run', 'cgroup.procs'), `${child.pid}`);
  expect(await cgroups.isPopulated('sbxc')).toBe(true);
  await cgroups.kill('sbxc');
  expect(await cgroups.isPopulated('sbxc')).toBe(false);
  expect(await exited).toEqual([null, 'SIGKILL']);
});
