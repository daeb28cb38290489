/** A platform on a machine with an internet of its own, and what tests of the network do in its sandboxes. */
import { expect } from 'vitest';
import { networkNames } from '../../src/isolation/network/plan.ts';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform, type PlatformOptions } from './platform.ts';
import { requires } from './requires.ts';
import { TestWorld, world } from './test-world.ts';

export const networkNeeds = [
  requires.root,
  requires.cgroups,
  ...['nft', 'ip', 'nsenter', 'perl'].map((name) => requires.program(name)),
];

/** A refusal that is silent takes this long to be noticed; an answer is there long before, also on a busy machine. */
const patienceSeconds = 8;
/** Until something that has to happen has happened. */
export const patience = { timeout: 30_000, interval: 100 } as const;

export class NetworkRig {
  readonly machine: TestWorld;
  readonly platform: Platform;

  private constructor(machine: TestWorld, platform: Platform) {
    this.machine = machine;
    this.platform = platform;
  }

  static async open(): Promise<NetworkRig> {
    const machine = await TestWorld.open();
    try {
      return await NetworkRig.on(machine);
    } catch (error) {
      await machine.close();
      throw error;
    }
  }

  /** Another platform on a machine that is there. */
  static async on(machine: TestWorld, options: PlatformOptions = {}): Promise<NetworkRig> {
    return new NetworkRig(machine, await Platform.start({ ...options, world: machine }));
  }

  create(options: Parameters<Platform['client']['sandboxes']['create']>[0] = {}): Promise<Sandbox> {
    return this.platform.client.sandboxes.create(options);
  }

  /** Runs a program in the namespace of the node's router. */
  inRouter(...words: readonly string[]): Promise<string> {
    const { router } = networkNames(this.platform.nodeDirectory);
    return this.machine.onHost('nsenter', `--net=${router}`, '--', ...words);
  }

  /** Does something while a table lacks a guard: a rule that accepts stands before it. */
  async withoutGuard<Result>(
    chain: string,
    work: () => Promise<Result>,
    where: 'router' | 'machine' = 'router',
  ): Promise<Result> {
    const table = where === 'router' ? 'atoll' : networkNames(this.platform.nodeDirectory).hostTable;
    const nft = (...words: readonly string[]) =>
      where === 'router' ? this.inRouter('nft', ...words) : this.machine.onHost('nft', ...words);
    await nft('insert', 'rule', 'inet', table, chain, 'accept');
    try {
      return await work();
    } finally {
      const listed = await nft('-a', 'list', 'chain', 'inet', table, chain);
      const handle = /^\s*accept # handle (\d+)$/m.exec(listed)?.[1];
      await nft('delete', 'rule', 'inet', table, chain, 'handle', handle!);
    }
  }

  async close(): Promise<void> {
    await this.platform.close();
    await this.machine.close();
  }
}

/** What the server at the address says; undefined: it was not reached. */
export async function reach(sandbox: Sandbox, host: string, port: number = world.port): Promise<string | undefined> {
  const { exitCode, stdout } = await sandbox.exec([
    'timeout',
    String(patienceSeconds),
    'bash',
    '-c',
    connectScript(host, port),
  ]);
  return exitCode === 0 ? stdout : undefined;
}

/** The same from the machine itself: whether there is something to be reached. */
export function reachFromHost(machine: TestWorld, host: string, port: number = world.port): Promise<string> {
  return machine.onHost('timeout', String(patienceSeconds), 'bash', '-c', connectScript(host, port));
}

export async function addressOf(sandbox: Sandbox): Promise<string> {
  const { stdout } = await sandbox.exec('ip -4 -o addr show dev eth0');
  const address = /inet ([\d.]+)/.exec(stdout)?.[1];
  expect(address, stdout).toBeDefined();
  return address!;
}

/** A connection that brings bytes for as long as it lives, and a count of them. */
export async function openStream(sandbox: Sandbox, host: string): Promise<() => Promise<number>> {
  const file = `/root/stream-${host.replaceAll(/[^a-z0-9]/gi, '-')}`;
  await sandbox.processes.start(`exec 3<>/dev/tcp/${host}/${world.streamPort}; exec cat <&3 > ${file}`);
  const count = async () => Number((await sandbox.exec(`stat -c %s ${file} 2>/dev/null || echo 0`)).stdout);
  await expect.poll(count, patience).toBeGreaterThan(0);
  return count;
}

/** How much a stream brings while another one brings this much. */
export async function growthWhile(
  stream: () => Promise<number>,
  other: () => Promise<number>,
  bytes = 500,
): Promise<number> {
  const [before, start] = [await stream(), await other()];
  await expect.poll(other, patience).toBeGreaterThan(start + bytes);
  return (await stream()) - before;
}

function connectScript(host: string, port: number): string {
  return `exec 3<>/dev/tcp/${host}/${port} && cat <&3`;
}
