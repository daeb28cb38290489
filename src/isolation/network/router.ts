/**
 * The router of a node: a network namespace that every sandbox with a network hangs on, and one link from it to the machine.
 *
 *   sandbox eth0 ── s<slot> [ router namespace ] up ── atoll<tag> [ the machine ] ── the world
 *
 * Invariants:
 *  - No sandbox is attached before both tables stand: `open` is done first.
 *  - The machine's end gets its address last. A link without it was cut short, and is made anew.
 *  - What is open on the machine is one namespace, one link, one table and the switches of forwarding.ts; `close` undoes all of them, and
 *    each can be found by name after a crash.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, statfs } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { promisify } from 'node:util';
import type { FaultPoints } from '../../base/index.ts';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import type { Spawner } from '../spawner.ts';
import { canForward6, closeForwarding, findClosed, findOpened, openForwarding } from './forwarding.ts';
import {
  linkName,
  type NetworkNames,
  type NetworkPlan,
  networkNames,
  networkPlan,
  subnetCount,
  subnetOf,
  uplinkPrefix,
} from './plan.ts';
import {
  hostTable,
  machineAddresses,
  noHostTable,
  noSandboxRules,
  routerTable,
  type SlotPolicy,
  sandboxRules,
} from './rules.ts';

const run = promisify(execFile);
/** The type of the filesystem that a file is of when it holds a namespace. */
const namespaceFiles = 0x6e_73_66_73;
const advice =
  'Install nftables and iproute2, run as root on a kernel with nftables (`atoll doctor` tells more), or choose `network: {mode: "none"}`.';

/** A link of a sandbox, as the router has it. */
export interface FoundLink {
  readonly slot: number;
  /** Empty when it was cut short before it had a name. */
  readonly alias: string;
}

export class Router {
  readonly #spawner: Spawner;
  readonly #faults: FaultPoints;
  readonly #names: NetworkNames;
  /** The machine's addresses that the router's table has. */
  #machine: readonly string[] = [];
  /** Whether the last `open` came to its end: tables that are there may lack the lists of sandboxes. */
  #isOpen = false;

  constructor(options: { readonly spawner: Spawner; readonly faults: FaultPoints; readonly dataDirectory: string }) {
    this.#spawner = options.spawner;
    this.#faults = options.faults;
    this.#names = networkNames(options.dataDirectory);
  }

  /** Makes the namespace and its link to the machine, or finds them. Nothing passes yet. */
  async connect(): Promise<NetworkPlan> {
    return await orUnavailable(async () => {
      await this.#spawner.openRouter(this.#names.router);
      await this.#faults.hit('node-router-before-link');
      const hasIpv6 = await canForward6();
      const found = this.#findSubnet();
      if (found !== undefined) return networkPlan(this.#names, { subnet: found, hasIpv6 });
      for (const subnet of freeSubnets()) {
        const plan = networkPlan(this.#names, { subnet, hasIpv6 });
        if (await this.#link(plan)) return plan;
      }
      throw new Error(`All ${subnetCount} subnets are taken by other nodes of this machine.`);
    });
  }

  /** Puts both tables in place, whatever was there, and lets the machine forward. */
  async open(
    plan: NetworkPlan,
    options: { readonly resolverPort: number; readonly policies: readonly SlotPolicy[] },
  ): Promise<void> {
    await orUnavailable(async () => {
      const machine = addressesOfMachine();
      const closed = await findClosed();
      const opened = [...new Set([...(await findOpened()), ...closed.interfaces4, ...closed.interfaces6])];
      await this.#nft(hostTable(plan, { resolverPort: options.resolverPort, opened }), 'machine');
      await this.#faults.hit('node-router-between-tables');
      this.#isOpen = false;
      for (const text of routerTable(plan, { ...options, machine })) await this.#nft(text);
      await this.#faults.hit('node-router-before-forwarding');
      await openForwarding(plan.uplink, closed);
      this.#machine = machine;
      this.#isOpen = true;
    });
  }

  /**
   * Looks whether all of it is still there, and puts it back: a firewall that is loaded anew takes our table with it, addresses come, a
   * default route moves. True: it was as it should be.
   */
  async keep(
    plan: NetworkPlan,
    options: { readonly resolverPort: number; readonly policies: readonly SlotPolicy[] },
  ): Promise<boolean> {
    const isLinked = await this.#isLinked(plan);
    if (!isLinked && !(await this.#link(plan))) throw new Error(`${plan.range4} has a route that is not the node's.`);
    if (!isLinked || !this.#isOpen || !(await this.#isWhole(plan))) {
      await this.open(plan, options);
      return false;
    }
    const machine = addressesOfMachine();
    if (machine.join() === this.#machine.join()) return true;
    await this.#nft(machineAddresses(machine));
    this.#machine = machine;
    return true;
  }

  /** Replaces the lists of one sandbox, for open connections too. */
  async setRules(sandbox: SlotPolicy): Promise<void> {
    await this.#nft(sandboxRules(sandbox));
  }

  async clearRules(slot: number): Promise<void> {
    await this.#nft(noSandboxRules(slot));
  }

  /** Cuts a sandbox off. One whose link is gone already is cut off. */
  async detach(slot: number): Promise<void> {
    try {
      await this.#ip(`link delete dev ${linkName(slot)}\n`, this.#names.router);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.includes('Cannot find device')) throw error;
    }
  }

  /**
   * Every link of a sandbox; none where there is no router. A name that holds no namespace was cut short before anything hung on it.
   * Refuses where the links cannot be told. It starts a process, which is why it is for the start of a node.
   */
  async findLinks(): Promise<FoundLink[]> {
    return await orUnavailable(async () => {
      if (!existsSync(this.#names.router) || (await statfs(this.#names.router)).type !== namespaceFiles) return [];
      const { stdout } = await run('ip', ['-n', this.#names.namespace, '-j', 'link', 'show']);
      const links = JSON.parse(stdout) as { ifname: string; ifalias?: string }[];
      return links.flatMap(({ ifname, ifalias = '' }) =>
        /^s\d+$/.test(ifname) ? [{ slot: Number(ifname.slice(1)), alias: ifalias }] : [],
      );
    });
  }

  /** Whether something of ours may be on the machine. */
  hasLeftovers(): boolean {
    return networkInterfaces()[this.#names.uplink] !== undefined || existsSync(this.#names.router);
  }

  /** Takes everything back. May be repeated. */
  async close(): Promise<void> {
    await this.#ip(`link delete dev ${this.#names.uplink}\n`).catch(() => {}); // Not there, or gone with the namespace.
    await this.#spawner.closeRouter(this.#names.router);
    await this.#nft(noHostTable(this.#names), 'machine');
    await closeForwarding();
  }

  async #isLinked(plan: NetworkPlan): Promise<boolean> {
    return this.#findSubnet() === plan.subnet && (await hasRoute(plan));
  }

  async #isWhole(plan: NetworkPlan): Promise<boolean> {
    const closed = await findClosed();
    if (closed.interfaces4.length + closed.interfaces6.length > 0) return false;
    try {
      await this.#nft(`list table inet ${plan.hostTable}\n`, 'machine');
      await this.#nft('list table inet atoll\n');
      return true;
    } catch {
      return false;
    }
  }

  /** False: the subnet has a route already, which another node was faster to make. */
  async #link(plan: NetworkPlan): Promise<boolean> {
    const { uplink, namespace, router4, host4, router6, host6, range4, range6, hasIpv6 } = plan;
    await this.#ip(`link delete dev ${uplink}\n`).catch(() => {}); // What an earlier attempt may have left.
    await this.#ip(`link add ${uplink} type veth peer name up netns ${namespace}\nlink set dev ${uplink} up\n`);
    await this.#faults.hit('node-router-half-linked');
    const inside = [
      `addr add ${router4} peer ${host4} dev up`,
      'link set dev up up',
      `route replace default via ${host4}`,
    ];
    const inside6 = [
      `addr add ${router6}/128 dev up nodad`,
      `route replace ${host6}/128 dev up`,
      `route replace ::/0 via ${host6} dev up`,
    ];
    await this.#ip(lines([...inside, ...(hasIpv6 ? inside6 : [])]), plan.router);
    const outside6 = [
      `addr add ${host6}/128 dev ${uplink} nodad`,
      `route replace ${router6}/128 dev ${uplink}`,
      `route replace ${range6} via ${router6} dev ${uplink}`,
    ];
    const outside = [
      `route add ${range4} via ${router4} dev ${uplink} onlink`,
      `addr add ${host4} peer ${router4} dev ${uplink}`,
    ];
    if (hasIpv6) await this.#ip(lines(outside6));
    try {
      await this.#ip(lines(outside));
      return true;
    } catch (error) {
      if (error instanceof Error && error.message.includes('File exists')) return false;
      throw error;
    }
  }

  #findSubnet(): number | undefined {
    const own = networkInterfaces()[this.#names.uplink] ?? [];
    return own.map(({ address }) => subnetOf(address)).find((subnet) => subnet !== undefined);
  }

  async #nft(input: string, where?: 'machine'): Promise<void> {
    await this.#spawner.runTool({ tool: 'nft', input, ...(where === undefined && { router: this.#names.router }) });
  }

  async #ip(input: string, router?: string): Promise<void> {
    await this.#spawner.runTool({ tool: 'ip', input, ...(router !== undefined && { router }) });
  }
}

/** Refusals by policy say that nothing can be done here; the rest passes. */
async function orUnavailable<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (cause) {
    if (isPlatformError(cause) && cause.code !== 'isolation_failed') throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PlatformError('network_unavailable', `Sandboxes can have no network on this machine. ${why} ${advice}`, {
      cause,
    });
  }
}

function addressesOfMachine(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
  return addresses.sort();
}

/** As far as can be seen: a node that is just making its link has its address last. */
function freeSubnets(): number[] {
  const links = Object.entries(networkInterfaces()).filter(([name]) => name.startsWith(uplinkPrefix));
  const taken = new Set(links.flatMap(([, addresses]) => (addresses ?? []).map(({ address }) => subnetOf(address))));
  return Array.from({ length: subnetCount }, (_, subnet) => subnet).filter((subnet) => !taken.has(subnet));
}

/** The kernel writes addresses as numbers of this machine's byte order, which is little-endian. */
async function hasRoute({ range4, uplink }: NetworkPlan): Promise<boolean> {
  const bytes = Buffer.from(range4.split('/')[0]!.split('.').map(Number));
  const target = bytes.reverse().toString('hex').toUpperCase();
  return (await readFile('/proc/net/route', 'utf8')).includes(`${uplink}\t${target}\t`);
}

function lines(commands: readonly string[]): string {
  return commands.map((command) => `${command}\n`).join('');
}
