/**
 * Tries every guard on this machine and says what works. It tries: a file that is there proves nothing. What is `required` and
 * fails keeps sandboxes from being made; the rest is advice.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { newId } from '../protocol/index.ts';
import { Cgroups } from './cgroups.ts';
import { findMountOf, readMounts } from './mount-table.ts';
import { lookAtFirewall, tryForwarding6, tryNetwork } from './network/probe.ts';
import { Spawner } from './spawner.ts';

export interface Finding {
  readonly name: string;
  readonly ok: boolean;
  readonly required: boolean;
  readonly message: string;
  /** What to do about it; empty when all is well. */
  readonly fix: string;
}

/** Guards that the spawner can try (native/probe.c), and what to do where one fails. */
const spawnerGuards: readonly { readonly guard: string; readonly fix: string }[] = [
  {
    guard: 'user-namespace',
    fix: 'Allow user namespaces: sysctl user.max_user_namespaces, or the security policy that forbids them.',
  },
  { guard: 'pid-namespace', fix: 'Use a kernel with CONFIG_PID_NS, and run as root.' },
  { guard: 'network-namespace', fix: 'Use a kernel with CONFIG_NET_NS, and run as root.' },
  { guard: 'proc-mount', fix: 'Inside a container, start it with an unmasked /proc.' },
  { guard: 'seccomp', fix: 'Use a kernel built with CONFIG_SECCOMP_FILTER.' },
  {
    guard: 'id-mapped-mounts',
    fix: 'Use Linux 5.19 or newer and a file system that can be id-mapped (ext4, xfs, btrfs).',
  },
  { guard: 'overlay', fix: 'Load the overlay module: modprobe overlay.' },
  { guard: 'cgroup2', fix: 'Mount the cgroup v2 tree writable: mount -t cgroup2 none /sys/fs/cgroup.' },
  { guard: 'clone-into-cgroup', fix: 'Use Linux 5.7 or newer, and run the node at the top of the cgroup trees.' },
];
const inotifyInstancesWanted = 1024;

export async function runDoctor(options: {
  readonly dataDirectory: string;
  readonly initProgram: string;
}): Promise<Finding[]> {
  const spawner = new Spawner({ program: options.initProgram });
  try {
    return [
      await attempt('root', 'Run it as root.', async () => {
        if (process.geteuid?.() !== 0) throw new Error('The effective user is not root.');
        return 'Runs as root.';
      }),
      await advise('compiler', 'apt-get install gcc libc6-dev', async () => {
        await promisify(execFile)('cc', ['--version']);
        return 'A C compiler is there.';
      }),
      await attempt('init', 'Build it: native/build.sh', async () => {
        await spawner.ready();
        return `${options.initProgram} starts and speaks our protocol.`;
      }),
      await attempt('cgroups', 'Mount the cgroup trees writable, and run the node at the top of them.', () =>
        tryCgroups(options.dataDirectory),
      ),
      ...(await tryGuards(spawner)),
      await advise('data directory', 'Put the data directory on a file system mounted with nosuid,nodev.', () =>
        lookAtMount(options.dataDirectory),
      ),
      await advise(
        'network',
        'apt-get install nftables iproute2; without them sandboxes are made with `network: none`.',
        () => tryNetwork(spawner),
      ),
      await advise('network IPv6', 'Use Linux 6.17 or newer, or turn on net.ipv6.conf.all.forwarding.', tryForwarding6),
      await advise(
        'firewall',
        'Let it accept input and forwarding from interfaces named atoll*, and answers to them.',
        lookAtFirewall,
      ),
      await advise('inotify', `sysctl fs.inotify.max_user_instances=${inotifyInstancesWanted}`, lookAtInotify),
    ];
  } finally {
    await spawner.close();
  }
}

async function tryGuards(spawner: Spawner): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { guard, fix } of spawnerGuards) {
    findings.push(
      await attempt(guard, fix, async () => {
        await spawner.probe(guard);
        return 'Works.';
      }),
    );
  }
  return findings;
}

async function tryCgroups(dataDirectory: string): Promise<string> {
  const cgroups = await Cgroups.open({ dataDirectory });
  const probe = newId('sandbox');
  try {
    await cgroups.make(probe, { memoryBytes: 64 * 1024 * 1024, cpuMillis: 500, processes: 32 });
    return 'Memory, cpu and process limits can be set.';
  } finally {
    await cgroups.remove(probe);
    await cgroups.removeRoots();
  }
}

async function lookAtMount(dataDirectory: string): Promise<string> {
  const mount = findMountOf(await readMounts(), dataDirectory);
  const missing = ['nosuid', 'nodev'].filter((option) => !mount?.options.has(option));
  if (missing.length === 0) return `${dataDirectory} is on a file system with nosuid,nodev.`;
  throw new Error(
    `${dataDirectory} is on ${mount?.directory ?? 'a file system'} without ${missing.join(',')}: setuid files that sandboxes leave are kept from others only by the directory's mode 0700.`,
  );
}

async function lookAtInotify(): Promise<string> {
  const instances = Number(await readFile('/proc/sys/fs/inotify/max_user_instances', 'utf8'));
  if (instances >= inotifyInstancesWanted) return `${instances} inotify instances a user.`;
  throw new Error(`Only ${instances} inotify instances for each sandbox: some development servers want more.`);
}

function attempt(name: string, fix: string, run: () => Promise<string>): Promise<Finding> {
  return find({ name, fix, required: true }, run);
}

function advise(name: string, fix: string, run: () => Promise<string>): Promise<Finding> {
  return find({ name, fix, required: false }, run);
}

async function find(
  about: { readonly name: string; readonly fix: string; readonly required: boolean },
  run: () => Promise<string>,
): Promise<Finding> {
  try {
    return { name: about.name, ok: true, required: about.required, message: await run(), fix: '' };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { ...about, ok: false, message };
  }
}
