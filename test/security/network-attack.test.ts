/** A sandbox that does not keep to its address. Each attack succeeds where the guard against it is left out. */
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { addressOf, NetworkRig, networkNeeds, patience, reach } from '../support/network-rig.ts';
import { initPid } from '../support/node-leftovers.ts';
import { testWith } from '../support/requires.ts';
import { world } from '../support/test-world.ts';

const test = testWith(...networkNeeds);
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
let rig: NetworkRig;
let attacker: Sandbox;
let victim: Sandbox;
let victimAddress: string;

beforeAll(async () => {
  if (networkNeeds.some((need) => need.missing() !== undefined)) return;
  rig = await NetworkRig.open();
  attacker = await rig.create();
  victim = await rig.create();
  victimAddress = await addressOf(victim);
});
afterAll(async () => {
  await rig?.close();
});

/** Writes what comes to the victim's port into a file, and says when it listens. */
async function listen(port: number): Promise<() => Promise<string>> {
  const file = `/root/heard-${port}`;
  const program = `use Socket; $|=1; socket(S,PF_INET,SOCK_DGRAM,0); bind(S,sockaddr_in(${port},INADDR_ANY)) or die; open(F,">","${file}"); F->autoflush(1); print F "listening\\n"; while(recv(S,$_,999,0)){print F "$_\\n"}`;
  await victim.processes.start(['perl', '-MIO::Handle', '-e', program]);
  const heard = async () => (await victim.exec(`cat ${file}`)).stdout;
  await expect.poll(heard, patience).toContain('listening');
  return heard;
}

/** A datagram of the attacker's making: from any address, past every rule of its own kernel. */
function forge(options: { from: string; fromPort: number; to: string; text: string }): string[] {
  const { from, fromPort, to, text } = options;
  const program = `use Socket; socket(S,PF_INET,SOCK_RAW,255) or die "socket $!"; $u=pack("nnnn",${fromPort},${world.port},8+length("${text}"),0)."${text}";
    $p=pack("CCnnnCCna4a4",0x45,0,20+length($u),7,0,64,17,0,inet_aton("${from}"),inet_aton("${to}")).$u; send(S,$p,0,sockaddr_in(0,inet_aton("${to}"))) or die "send $!"`;
  return ['perl', '-e', program];
}

async function send(sandbox: Sandbox, options: Parameters<typeof forge>[0]): Promise<void> {
  expect(await sandbox.exec(forge(options))).toMatchObject({ exitCode: 0, stderr: '' });
}

test('a packet with a neighbour’s source address goes nowhere', async () => {
  const heard = await listen(5555);
  // The answer goes to whoever the source says: the victim hears it when the forged question passes.
  const to = world.resolver;
  await send(attacker, { from: victimAddress, fromPort: 5555, to, text: 'forged' });
  await send(victim, { from: victimAddress, fromPort: 5555, to, text: 'own' });
  await expect.poll(heard, patience).toContain('own to ');
  expect(await heard()).not.toContain('forged');
  const unguarded = await listen(5557);
  await rig.withoutGuard('early', () => send(attacker, { from: victimAddress, fromPort: 5557, to, text: 'unguarded' }));
  await expect.poll(unguarded, patience).toContain('unguarded to ');
});

test('a packet that claims to be the machine’s or the world’s goes nowhere', async () => {
  const counted = async () => {
    const listed = await rig.machine.onHost('nft', 'list', 'table', 'inet', 'watch');
    return Number(/packets (\d+)/.exec(listed)?.[1]);
  };
  const watch = `add table inet watch; add chain inet watch seen { type filter hook prerouting priority -400; }; add rule inet watch seen ip saddr { ${world.host[0]}, ${world.web} } udp dport ${world.port} iifname "atoll*" counter`;
  await rig.machine.onHost('nft', watch);
  for (const from of [world.host[0], world.web]) {
    await send(attacker, { from, fromPort: 5560, to: world.resolver, text: 'forged' });
  }
  expect(await reach(attacker, world.web)).toContain(world.web);
  expect(await counted()).toBe(0);
  await rig.withoutGuard('early', () =>
    send(attacker, { from: world.web, fromPort: 5561, to: world.resolver, text: 'x' }),
  );
  await expect.poll(counted, patience).toBe(1);
  await rig.machine.onHost('nft', 'delete table inet watch');
});

test('a sandbox cannot change its own addresses and routes; where somebody else does, nothing outside follows', async () => {
  for (const change of [
    `addr add ${victimAddress}/32 dev eth0`,
    'route replace default dev eth0',
    'link set eth0 down',
  ]) {
    expect(await attacker.exec(`ip ${change}`)).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('not permitted'),
    });
  }
  const pid = await initPid(rig.platform.nodeDirectory, attacker.id);
  const inside = (...words: readonly string[]) =>
    rig.machine.onHost('nsenter', '-t', String(pid), '--net', '--', 'ip', ...words);
  await inside('addr', 'add', `${victimAddress}/32`, 'dev', 'eth0');
  const connect = `use Socket; socket(S,PF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(0,inet_aton("${victimAddress}"))) or die; alarm 5; connect(S,sockaddr_in(${world.port},inet_aton("${world.web}"))) or die; print <S>`;
  expect((await attacker.exec(['perl', '-e', connect])).stdout).toBe('');
  expect((await victim.exec(['perl', '-e', connect])).stdout).toContain(world.web);
  await inside('addr', 'del', `${victimAddress}/32`, 'dev', 'eth0');
  expect(await reach(attacker, world.web)).toContain(world.web);
});

test('a sandbox that claims every address by ARP and ND hears nothing of its neighbours', async () => {
  const gateway = /nameserver ([\d.]+)/.exec((await attacker.exec('cat /etc/resolv.conf')).stdout)?.[1];
  // sockaddr_ll of interface 100, which is eth0; opcode 2 says "this address is mine".
  const claim = `use Socket; for $a ("${victimAddress}","${gateway}","${world.web}") { socket(S,17,SOCK_RAW,0x0300) or die "socket $!"; $m="\\x02\\x11\\x22\\x33\\x44\\x55"; $p="\\xff"x6 .$m.pack("n",0x0806).pack("nnCCn",1,0x0800,6,4,2).$m.inet_aton($a)."\\xff"x6 .inet_aton($a); for (1..20) { send(S,$p,0,pack("SnlSCCa8",17,0x0806,100,0,0,0,"")) or die "send $!" } }`;
  expect(await attacker.exec(['perl', '-e', claim])).toMatchObject({ exitCode: 0, stderr: '' });
  const victim6 = /inet6 (fd[0-9a-f:]+)/.exec((await victim.exec('ip -6 -o addr show dev eth0')).stdout)?.[1];
  const advertise = `use Socket qw(:all); socket(S,AF_INET6,SOCK_RAW,58) or die "socket $!"; setsockopt(S,41,18,pack("i",255)); for $a ("${victim6}","fe80::1") { $p=pack("CCnN",136,0,0,0x60000000).inet_pton(AF_INET6,$a)."\\x02\\x01\\x02\\x11\\x22\\x33\\x44\\x55"; for (1..20) { send(S,$p,0,pack_sockaddr_in6(0,inet_pton(AF_INET6,"ff02::1"),100,0)) or die "send $!" } }`;
  expect(await attacker.exec(['perl', '-e', advertise])).toMatchObject({ exitCode: 0, stderr: '' });
  const neighbours = (await rig.inRouter('ip', 'neigh', 'show'))
    .split('\n')
    .filter((line) => line.includes('02:11:22:33:44:55'));
  expect(neighbours.filter((line) => line.startsWith(victimAddress) || line.startsWith(victim6!))).toEqual([]);
  expect(await reach(victim, world.web6)).toContain(world.web6);
  expect(await reach(victim, world.name)).toContain(world.web);
  expect(await reach(attacker, world.web)).toContain(world.web);
});

test('the resolver answers nobody who has no network', async () => {
  const ask = 'timeout 8 getent ahostsv4 web.test';
  expect((await attacker.exec(ask)).stdout).toContain(world.web);
  await attacker.setNetwork({ mode: 'none' });
  expect((await attacker.exec(ask)).stdout).toBe('');
  await attacker.setNetwork({ mode: 'full' });
  expect((await attacker.exec(ask)).stdout).toContain(world.web);
});
