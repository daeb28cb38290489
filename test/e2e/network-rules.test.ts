/** Lists of what a sandbox may and may not reach, and what a change of them does to connections that are open. */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { networkNames } from '../../src/isolation/network/plan.ts';
import type { Sandbox } from '../../src/sdk/index.ts';
import {
  addressOf,
  growthWhile,
  NetworkRig,
  networkNeeds,
  openStream,
  patience,
  reach,
} from '../support/network-rig.ts';
import { testWith } from '../support/requires.ts';
import { world } from '../support/test-world.ts';

const test = testWith(...networkNeeds);
const connections = '/proc/net/nf_conntrack';
const shown = testWith(...networkNeeds, {
  name: 'connections',
  missing: () => (existsSync(connections) ? undefined : 'a kernel that shows its connections as a file'),
});
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
const everything = [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }];
const tcp = (port: number) => ({ protocol: 'tcp' as const, ports: [{ from: port, to: port }] });
const forgedSource = '2001:db8:bad::1';
/** A neighbour solicitation to an address beyond the router, with a checksum that is right. */
const forgedSolicitation = `use Socket qw(:all);
my ($from, $to) = map { inet_pton(AF_INET6, $_) } '${forgedSource}', '${world.web6}';
my $body = pack('CCnN', 135, 0, 0, 0) . $to;
my $sum = 0;
$sum += $_ for unpack('n*', $from . $to . pack('NN', length $body, 58) . $body);
$sum = ($sum & 0xffff) + ($sum >> 16) for 1, 2;
substr($body, 2, 2) = pack('n', ~$sum & 0xffff);
socket(my $out, AF_INET6, SOCK_RAW, 255) or die "socket: $!";
my $packet = pack('NnCC', 6 << 28, length $body, 58, 255) . $from . $to . $body;
send($out, $packet, 0, pack_sockaddr_in6(0, $to)) or die "send: $!";`;
let rig: NetworkRig;
let witness: Sandbox;

beforeAll(async () => {
  if (networkNeeds.some((need) => need.missing() !== undefined)) return;
  rig = await NetworkRig.open();
  witness = await rig.create();
});
afterAll(async () => {
  await rig?.close();
});

test('what is denied is not reached, by address and by port, over IPv4 and IPv6', async () => {
  const deny = [{ cidr: `${world.otherWeb}/32` }, { cidr: '2001:db8:2::/48', ...tcp(world.otherPort) }];
  const sandbox = await rig.create({ network: { mode: 'full', deny } });
  expect(await reach(sandbox, world.otherWeb)).toBeUndefined();
  expect(await reach(witness, world.otherWeb)).toContain(world.otherWeb);
  expect(await reach(sandbox, world.web)).toContain(world.web);
  expect(await reach(sandbox, world.web6, world.otherPort)).toBeUndefined();
  expect(await reach(sandbox, world.web6)).toContain(world.web6);
  await sandbox.delete();
});

test('what is allowed is reached though everything else is denied, and only on its ports', async () => {
  const allow = [{ cidr: world.web, ...tcp(world.port) }, { cidr: world.web6 }];
  const sandbox = await rig.create({ network: { mode: 'full', allow, deny: everything } });
  expect(await reach(sandbox, world.web)).toContain(world.web);
  expect(await reach(sandbox, world.web, world.otherPort)).toBeUndefined();
  expect(await reach(sandbox, world.otherWeb)).toBeUndefined();
  expect(await reach(sandbox, world.web6, world.otherPort)).toContain(world.web6);
  await sandbox.delete();
});

test('a private network is reached where it is allowed by name, and the machine on it never', async () => {
  await rig.machine.onHost('sysctl', '-qw', 'net.ipv4.conf.lan.forwarding=1');
  const sandbox = await rig.create({ network: { mode: 'full', allow: [{ cidr: '10.77.0.0/24' }] } });
  expect(await reach(sandbox, world.lan)).toContain(`from ${world.lan} `);
  expect(await reach(witness, world.lan)).toBeUndefined();
  expect(await reach(sandbox, world.host[1])).toBeUndefined();
  await rig.machine.onHost('sysctl', '-qw', 'net.ipv4.conf.lan.forwarding=0');
  await sandbox.delete();
});

test('a rule that could have no effect is refused, and nothing is changed', async () => {
  const { network, version } = witness.view;
  for (const cidr of ['127.0.0.1', '169.254.169.254', '::1', 'fe80::/10', '198.18.0.0/16', '224.0.0.1']) {
    await expect(witness.setNetwork({ mode: 'full', allow: [{ cidr }] }), cidr).rejects.toMatchObject({
      code: 'invalid_request',
    });
  }
  for (const rule of [
    { cidr: '10.0.0.0/33' },
    { cidr: 'web.test' },
    { cidr: '10.0.0.0/8; drop' },
    { cidr: '10.0.0.1', ports: [{ from: 1, to: 2 }] },
  ]) {
    await expect(witness.setNetwork({ mode: 'full', deny: [rule] })).rejects.toMatchObject({ code: 'invalid_request' });
  }
  const lists = { mode: 'none', deny: everything } as never;
  await expect(witness.setNetwork(lists)).rejects.toMatchObject({ code: 'invalid_request' });
  await witness.refresh();
  expect(witness.view).toMatchObject({ network, version });
});

test('a deny ends the open connection it names and no other; a rule about something else ends none', async () => {
  const sandbox = await rig.create();
  const kept = await openStream(sandbox, world.web);
  const cut = await openStream(sandbox, world.otherWeb);
  await sandbox.setNetwork({ mode: 'full', deny: [{ cidr: '198.51.100.99' }] });
  expect(await growthWhile(cut, kept)).toBeGreaterThan(0);
  await sandbox.setNetwork({ mode: 'full', deny: [{ cidr: world.otherWeb }] });
  await expect.poll(() => growthWhile(cut, kept), patience).toBe(0);
  await sandbox.delete();
});

test('taking back what was allowed ends what it had opened', async () => {
  const sandbox = await rig.create({ network: { mode: 'full', allow: [{ cidr: world.otherWeb }], deny: everything } });
  const other = await openStream(witness, world.web);
  const cut = await openStream(sandbox, world.otherWeb);
  expect(await growthWhile(cut, other)).toBeGreaterThan(0);
  await sandbox.setNetwork({ mode: 'full', deny: everything });
  await expect.poll(() => growthWhile(cut, other), patience).toBe(0);
  await sandbox.delete();
});

test('none ends every connection, and full brings the network back for new ones', async () => {
  const sandbox = await rig.create();
  const other = await openStream(witness, world.otherWeb);
  const cut = await openStream(sandbox, world.web);
  expect(await growthWhile(cut, other)).toBeGreaterThan(0);
  await sandbox.setNetwork({ mode: 'none' });
  expect(sandbox.network).toEqual({ mode: 'none' });
  await expect.poll(() => growthWhile(cut, other), patience).toBe(0);
  expect(await reach(sandbox, world.name)).toBeUndefined();
  expect((await sandbox.exec('cat /etc/resolv.conf')).stdout).not.toContain('nameserver');
  await sandbox.setNetwork({ mode: 'full' });
  expect(await reach(sandbox, world.name)).toContain(world.web);
  await sandbox.delete();
});

shown('what a sandbox opened and left is forgotten in an hour, by the router and by the machine', async () => {
  const sandbox = await rig.create();
  await openStream(sandbox, world.web);
  for (const list of [rig.inRouter('cat', connections), rig.machine.onHost('cat', connections)]) {
    const lines = (await list).split('\n').filter((line) => line.includes(` dport=${world.streamPort} `));
    const left = lines.flatMap((line) => / tcp +6 (\d+) ESTABLISHED /.exec(line)?.[1] ?? []).map(Number);
    expect(left.length).toBeGreaterThan(0);
    expect(Math.max(...left)).toBeLessThanOrEqual(3_600);
  }
  await sandbox.delete();
});

test('open connections go on while the server is dead and when it is back', async () => {
  const sandbox = await rig.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } });
  await openStream(sandbox, world.web);
  const pid = (await sandbox.exec('pgrep -x cat')).stdout;
  await rig.platform.restartServer();
  const again = await rig.platform.client.sandboxes.connect(sandbox.id);
  witness = await rig.platform.client.sandboxes.connect(witness.id);
  const size = async () => Number((await again.exec('stat -c %s /root/stream-198-51-100-7')).stdout);
  const before = await size();
  await expect.poll(size, patience).toBeGreaterThan(before + 500);
  expect((await again.exec('pgrep -x cat')).stdout).toBe(pid);
  expect(await reach(again, world.otherWeb)).toBeUndefined();
  await again.delete();
});

test('K49: metadata, deadline and network change together or not at all', async () => {
  const sandbox = await rig.create({ metadata: { a: '1' } });
  await sandbox.update({ metadata: { a: '2' }, expiresInMs: 600_000, network: { mode: 'none' } });
  expect(sandbox.view).toMatchObject({ metadata: { a: '2' }, network: { mode: 'none' } });
  expect(await reach(sandbox, world.web)).toBeUndefined();
  const stale = { expectedVersion: sandbox.view.version - 1 };
  await expect(sandbox.update({ metadata: { a: '3' }, network: { mode: 'full' } }, stale)).rejects.toMatchObject({
    code: 'version_mismatch',
  });
  expect(await reach(sandbox, world.web)).toBeUndefined();
  await sandbox.refresh();
  expect(sandbox.metadata).toEqual({ a: '2' });
  await sandbox.delete();
});

test('a firewall that is loaded anew takes our table with it: the machine stays out of reach, and the table comes back', async () => {
  const sandbox = await rig.create({ network: { mode: 'full', deny: [{ cidr: world.otherWeb }] } });
  const before = await rig.machine.census();
  await rig.machine.onHost('nft', 'flush', 'ruleset');
  for (const address of world.host) expect(await reach(sandbox, address), address).toBeUndefined();
  await expect.poll(() => rig.machine.census(), patience).toEqual(before);
  await rig.inRouter('nft', 'flush', 'ruleset');
  await expect.poll(() => reach(sandbox, world.name), patience).toContain(world.web);
  expect(await reach(sandbox, world.otherWeb)).toBeUndefined();
  await sandbox.delete();
});

test('a link or a route that somebody removed comes back', async () => {
  const { uplink } = networkNames(rig.platform.nodeDirectory);
  const sandbox = await rig.create();
  const before = await rig.machine.census();
  const routes = () => rig.machine.onHost('ip', '-4', 'route', 'show', 'dev', uplink);
  const [route] = /^198\.\S+\/20/m.exec(await routes())!;
  await rig.machine.onHost('ip', 'route', 'delete', route);
  await expect.poll(routes, patience).toContain(route);
  expect(await reach(sandbox, world.name)).toContain(world.web);
  await rig.machine.onHost('ip', 'link', 'delete', 'dev', uplink);
  await expect.poll(() => reach(sandbox, world.name), patience).toContain(world.web);
  await expect.poll(() => rig.machine.census(), patience).toEqual(before);
  await sandbox.delete();
});

test('a subnet that has a route already is left alone, and the next one is taken', async () => {
  await rig.machine.onHost('ip', 'route', 'add', 'blackhole', '198.18.16.0/20');
  const second = await NetworkRig.on(rig.machine);
  try {
    const sandbox = await second.create();
    expect(await addressOf(sandbox)).toMatch(/^198\.18\.(3[2-9]|4[0-7])\./);
    expect(await reach(sandbox, world.name)).toContain(world.web);
    await sandbox.delete();
  } finally {
    await second.platform.close();
    await rig.machine.onHost('ip', 'route', 'delete', '198.18.16.0/20');
  }
});

test('a neighbour message with a forged source does not leave the router, except where the guards are left out', async () => {
  const { hostTable } = networkNames(rig.platform.nodeDirectory);
  const chain = ['inet', hostTable, 'from_sandboxes'];
  await rig.machine.onHost('nft', 'insert', 'rule', ...chain, 'ip6', 'saddr', forgedSource, 'counter');
  const arrived = async () => {
    expect(await witness.exec(['perl', '-e', forgedSolicitation])).toMatchObject({ exitCode: 0, stderr: '' });
    // What is sent later arrives later.
    expect(await reach(witness, world.web6)).toContain(world.web6);
    const listed = await rig.machine.onHost('nft', 'list', 'chain', ...chain);
    return Number(/counter packets (\d+)/.exec(listed)?.[1]);
  };
  expect(await arrived()).toBe(0);
  expect(await rig.withoutGuard('early', () => rig.withoutGuard('forward', arrived))).toBe(1);
});
