/** What a sandbox reaches by default, what it never reaches, and what of it lasts. The internet here is a namespace of the test's own. */
import { afterAll, beforeAll, describe, expect, vi } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { addressOf, NetworkRig, networkNeeds, patience, reach, reachFromHost } from '../support/network-rig.ts';
import { testWith } from '../support/requires.ts';
import { world } from '../support/test-world.ts';

const test = testWith(...networkNeeds);
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
let rig: NetworkRig;
let full: Sandbox;
let none: Sandbox;

beforeAll(async () => {
  if (networkNeeds.some((need) => need.missing() !== undefined)) return;
  rig = await NetworkRig.open();
  full = await rig.create();
  none = await rig.create({ network: { mode: 'none' } });
});
afterAll(async () => {
  await rig?.close();
});

describe('with full, which is the default', () => {
  test('the internet is reached by address, over IPv4 and IPv6, from an address of the machine', async () => {
    expect(full.network).toEqual({ mode: 'full', allow: [], deny: [] });
    expect(await reach(full, world.web)).toBe(`from ${world.web} to ${world.host[0]}\n`);
    expect(await reach(full, world.web6)).toBe(`from ${world.web6} to ${world.host[2]}\n`);
  });

  test('names are resolved by the resolvers of the machine, long answers and unknown names too', async () => {
    expect(await reach(full, world.name)).toBe(`from ${world.web} to ${world.host[0]}\n`);
    const { stdout } = await full.exec(
      'getent ahostsv4 long.test | grep -c STREAM; getent ahosts nothing.test; echo $?',
    );
    expect(stdout).toBe('40\n2\n');
    expect((await full.exec('getent ahostsv6 web.test | head -1')).stdout).toContain(world.web6);
  });

  test('a datagram gets its answer', async () => {
    const answer = `hello to ${world.host[0]}`;
    const script = `exec 3<>/dev/udp/${world.resolver}/${world.port}; printf hello >&3; timeout 8 head -c ${answer.length} <&3`;
    expect((await full.exec(['bash', '-c', script])).stdout).toBe(answer);
  });

  test('the machine is not reached on any of its addresses, nor one that it gets later', async () => {
    await rig.machine.onHost('ip', 'addr', 'add', '203.0.113.77/32', 'dev', 'lo');
    for (const address of [...world.host, '203.0.113.77']) {
      expect(await reachFromHost(rig.machine, address), address).toContain(`from ${address} `);
      expect(await reach(full, address), address).toBeUndefined();
    }
    // Two guards refuse it, the router's and the machine's: without both there is a way.
    const open = () => rig.withoutGuard('out', () => reach(full, world.host[0]));
    expect(await rig.withoutGuard('from_sandboxes', open, 'machine')).toContain(`from ${world.host[0]} `);
    // The machine's end of the link, and its loopback through it.
    const nameserver = /nameserver ([\d.]+)/.exec((await full.exec('cat /etc/resolv.conf')).stdout)?.[1];
    for (const address of [nameserver!, nameserver!.replace(/2$/, '1'), '127.0.0.1', 'localhost']) {
      expect(await reach(full, address), address).toBeUndefined();
    }
  });

  test('metadata addresses and private networks are not reached', async () => {
    await rig.machine.onHost('ip', 'route', 'add', '169.254.0.0/16', 'via', '203.0.113.1');
    for (const address of [world.metadata, world.lan]) {
      expect(await reachFromHost(rig.machine, address), address).toContain(`from ${address} `);
      expect(await reach(full, address), address).toBeUndefined();
    }
  });

  test('a neighbour is not reached, except where the guard is left out', async () => {
    const neighbour = await rig.create();
    const address = await addressOf(neighbour);
    const serve = `use Socket; socket(S,PF_INET,SOCK_STREAM,0); setsockopt(S,SOL_SOCKET,SO_REUSEADDR,1); bind(S,sockaddr_in(7777,INADDR_ANY)); listen(S,5); while(accept(C,S)){print C "neighbour\\n"; close C}`;
    await neighbour.processes.start(['perl', '-e', serve]);
    await expect.poll(() => reach(neighbour, '127.0.0.1', 7777), patience).toBe('neighbour\n');
    expect(await reach(neighbour, address, 7777)).toBe('neighbour\n');
    expect(await reach(full, address, 7777)).toBeUndefined();
    expect(await rig.withoutGuard('forward', () => reach(full, address, 7777))).toBe('neighbour\n');
    expect(await reach(full, address, 7777)).toBeUndefined();
    await neighbour.delete();
  });

  test('nobody outside opens a connection into a sandbox', async () => {
    const address = await addressOf(full);
    const serve = `use Socket; socket(S,PF_INET,SOCK_STREAM,0); setsockopt(S,SOL_SOCKET,SO_REUSEADDR,1); bind(S,sockaddr_in(7778,INADDR_ANY)); listen(S,5); while(accept(C,S)){print C "inside\\n"; close C}`;
    await full.processes.start(['perl', '-e', serve]);
    await expect.poll(() => reach(full, address, 7778), patience).toBe('inside\n');
    await expect(reachFromHost(rig.machine, address, 7778)).rejects.toThrow();
    const open = () => rig.withoutGuard('forward', () => reachFromHost(rig.machine, address, 7778));
    expect(await rig.withoutGuard('from_sandboxes', open, 'machine')).toBe('inside\n');
  });
});

test('with none there is a loopback interface and nothing else, not even a resolver', async () => {
  expect((await none.exec('ip -o link show')).stdout.trim().split('\n')).toHaveLength(1);
  for (const address of [world.web, world.web6, world.name, ...world.host]) {
    expect(await reach(none, address), address).toBeUndefined();
  }
  expect((await none.exec('cat /etc/resolv.conf')).stdout).not.toContain('nameserver');
});

test('the network lasts while the server is dead, and is whole when it is back and when the sandbox starts again', async () => {
  const listed = await rig.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } });
  const before = await addressOf(full);
  await rig.platform.restartServer();
  const again = await rig.platform.client.sandboxes.connect(full.id);
  expect(await addressOf(again)).toBe(before);
  expect(await reach(again, world.name)).toContain(world.web);
  const listedAgain = await rig.platform.client.sandboxes.connect(listed.id);
  await listedAgain.stop();
  await listedAgain.start();
  expect(await reach(listedAgain, world.name)).toContain(world.web);
  expect(await reach(listedAgain, world.otherWeb)).toBeUndefined();
  expect(await reach(again, world.otherWeb)).toContain(world.otherWeb);
});

test('on the command line a network is chosen, shown and changed', async () => {
  const made = await rig.platform.cli(
    'create',
    'from-cli',
    '--deny',
    'all',
    '--allow',
    `${world.web},tcp:${world.port}`,
  );
  expect(made).toMatchObject({ code: 0 });
  const sandbox = await rig.platform.client.sandboxes.connect(made.stdout.trim());
  expect(await reach(sandbox, world.web)).toContain(world.web);
  expect(await reach(sandbox, world.web, world.otherPort)).toBeUndefined();
  expect(await reach(sandbox, world.web6)).toBeUndefined();
  const shown = await rig.platform.cli('network', 'show', 'from-cli');
  expect(shown.stdout).toMatch(/^full\n.*allow +198\.51\.100\.7,tcp:8080\n.*deny +0\.0\.0\.0\/0\n.*deny +::\/0\n/s);
  expect(await rig.platform.cli('network', 'set', 'from-cli', 'none')).toMatchObject({ code: 0 });
  expect(await reach(sandbox, world.web)).toBeUndefined();
  expect((await rig.platform.cli('network', 'show', 'from-cli')).stdout).toBe('none\n');
  expect((await rig.platform.cli('network', 'set', 'from-cli', 'none', '--deny', 'all')).code).not.toBe(0);
});
