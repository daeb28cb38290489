/** What the node does with links that it cannot look at. The router is a namespace of the test's own; orders to it are only noted. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, vi } from 'vitest';
import { requires, testWith } from '../../test/support/requires.ts';
import { noFaults, silentLogger } from '../base/index.ts';
import type { Cgroups, Spawner } from '../isolation/index.ts';
import { networkNames } from '../isolation/network/plan.ts';
import { fullNetwork, noNetwork, type SandboxId } from '../protocol/index.ts';
import { SandboxNetworks } from './sandbox-networks.ts';

const test = testWith(requires.root, requires.program('ip'));
const sandboxId = 'sbx_known' as SandboxId;
let directory: string;
let namespace: string;
let orders: string[];
let networks: SandboxNetworks;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-networks-'));
  await mkdir(join(directory, 'shared'));
  orders = [];
  const spawner = { runTool: async ({ input }: { input: string }) => void orders.push(input) };
  networks = new SandboxNetworks({
    dataDirectory: directory,
    spawner: spawner as unknown as Spawner,
    cgroups: {} as Cgroups,
    faults: noFaults,
    log: silentLogger,
  });
  namespace = networkNames(directory).namespace;
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await networks.close({ isEmpty: false });
  await rm(directory, { recursive: true });
});

test('links that could not be looked at keep their rules, and a sandbox counts as cut off only when its link is gone', async () => {
  const ip = (...words: readonly string[]) => execFileSync('ip', words);
  ip('netns', 'add', namespace);
  try {
    for (const [name, alias] of [
      ['s3', sandboxId],
      ['s4', 'sbx_unknown'],
    ] as const) {
      ip('-n', namespace, 'link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}p`);
      ip('-n', namespace, 'link', 'set', 'dev', name, 'alias', alias);
    }
    vi.stubEnv('PATH', directory);
    await networks.restore([{ sandboxId, directory, policy: fullNetwork }]);
    const cut = { sandboxId, directory, policy: noNetwork };
    const refused = expect.objectContaining({ code: 'network_unavailable' });
    await expect(networks.change(cut)).rejects.toEqual(refused);
    await expect(networks.reserve({ ...cut, policy: fullNetwork })).rejects.toEqual(refused);
    expect(orders).toEqual([]);
    vi.unstubAllEnvs();
    await networks.change(cut);
    expect(orders.sort()).toEqual(['link delete dev s3\n', 'link delete dev s4\n']);
  } finally {
    vi.unstubAllEnvs();
    ip('netns', 'delete', namespace);
  }
});
