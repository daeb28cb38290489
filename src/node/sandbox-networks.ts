/**
 * Which sandbox of the node has which place in the router, and what it may reach. Callers hold the sandbox's lock.
 *
 * Invariants:
 *  - A sandbox is in #places exactly while its policy is `full` and its life is begun or beginning.
 *  - No two sandboxes hold the same slot, and a slot is free only when the router has no rules for it.
 *  - Rules stand before the link does, and go after it: there is no moment in which more is reached than the policy says.
 *  - Every link that an earlier node left is either in #places or gone before the router's tables are made anew: a link without a place
 *    would have no rules.
 *  - The router is made when the first sandbox needs it. The truth about what a sandbox should have is its record.
 */
import { randomInt } from 'node:crypto';
import { BackgroundLoop, type FaultPoints, KeyedMutex, type Logger } from '../base/index.ts';
import {
  address4Of,
  type Cgroups,
  hasOwnRules,
  type NetworkLink,
  type NetworkPlan,
  networkLink,
  networkSlots,
  Router,
  type Spawner,
} from '../isolation/index.ts';
import { type NetworkPolicy, noNetwork, PlatformError, type SandboxId } from '../protocol/index.ts';
import { IdSlots } from './id-slots.ts';
import { Resolver, type ResolverOptions } from './resolver/resolver.ts';
import { writeResolverFile } from './sandbox-files.ts';

/** How long a machine's firewall that was loaded anew may lack our table. */
const keepIntervalMs = 10_000;

interface Place {
  readonly slot: number;
  policy: NetworkPolicy;
}

export interface SandboxNetworksOptions {
  readonly dataDirectory: string;
  readonly spawner: Spawner;
  readonly cgroups: Cgroups;
  readonly faults: FaultPoints;
  readonly log: Logger;
  readonly resolver?: ResolverOptions;
}

/** A running sandbox as its record has it. */
export interface RunningSandbox {
  readonly sandboxId: SandboxId;
  readonly directory: string;
  readonly policy: NetworkPolicy;
}

export class SandboxNetworks {
  readonly #options: SandboxNetworksOptions;
  readonly #router: Router;
  readonly #slots: IdSlots;
  readonly #places = new Map<string, Place>();
  readonly #resolver: Resolver;
  /** Guards the router's tables: making them, and the rules of sandboxes that have some. Rank 3. */
  readonly #routerLock = new KeyedMutex<'router'>({ name: 'router', rank: 3 });
  readonly #keeping: BackgroundLoop;
  /** Sandboxes that ran when the node started and whose links are still to be found; undefined: all links have their places. */
  #unplaced: Map<string, RunningSandbox> | undefined;
  #plan: NetworkPlan | undefined;
  #resolverPort = 0;
  /** Whether something of the router may be on the machine. */
  #isTouched = false;

  constructor(options: SandboxNetworksOptions) {
    this.#options = options;
    this.#router = new Router(options);
    // A place is used again as late as possible: answers to its last holder may still be on their way.
    this.#slots = new IdSlots({ startAt: randomInt(networkSlots), count: networkSlots, what: 'addresses' });
    this.#resolver = new Resolver({ ...options.resolver, log: options.log });
    this.#keeping = new BackgroundLoop({
      intervalMs: keepIntervalMs,
      tick: () => this.#keep(),
      onError: (error) => options.log.error('The network of the sandboxes could not be looked at.', { error }),
    });
  }

  /** What the spawner needs to give a new life its network; undefined: it has none. */
  async reserve(sandbox: RunningSandbox): Promise<NetworkLink | undefined> {
    if (sandbox.policy.mode === 'none') {
      await writeResolverFile(sandbox.directory, undefined);
      return undefined;
    }
    const plan = await this.#ensureRouter();
    await writeResolverFile(sandbox.directory, plan.router4);
    return await this.#take(plan, sandbox);
  }

  /** The life is over, and with it its link. */
  async release(sandboxId: string): Promise<void> {
    this.#unplaced?.delete(sandboxId);
    const place = this.#places.get(sandboxId);
    if (place === undefined) return;
    this.#places.delete(sandboxId);
    this.#forget(place);
    try {
      if (hasOwnRules(place.policy)) await this.#routerLock.run('router', () => this.#router.clearRules(place.slot));
      this.#slots.release(place.slot);
    } catch (error) {
      this.#options.log.error('Network rules are left behind until the node starts again.', { sandboxId, error });
    }
  }

  /** Makes another policy true for a running sandbox, open connections included. When it fails, the earlier one holds. */
  async change(sandbox: RunningSandbox): Promise<void> {
    if (this.#unplaced !== undefined) await this.#routerLock.run('router', () => this.#placeLinks());
    const earlier = this.#places.get(sandbox.sandboxId)?.policy ?? noNetwork;
    try {
      await this.#apply(sandbox);
    } catch (error) {
      await this.#apply({ ...sandbox, policy: earlier }).catch((again: unknown) => {
        const message = 'The network of a sandbox is in doubt until the node starts again.';
        this.#options.log.error(message, { sandboxId: sandbox.sandboxId, error: again });
        throw new PlatformError('outcome_unknown', message, { cause: error });
      });
      throw error;
    }
  }

  /**
   * When the node starts: makes true what the records of running sandboxes say, and removes what no record knows. Where that fails, the
   * rules that stand go on to hold, the node goes on with it, and finding the links is tried again before anything is changed.
   */
  async restore(running: readonly RunningSandbox[]): Promise<void> {
    const wanted = running.filter(({ policy }) => policy.mode === 'full');
    this.#unplaced = new Map(wanted.map((one) => [one.sandboxId, one]));
    try {
      if (wanted.length > 0) await this.#restore(wanted);
      else if (this.#router.hasLeftovers()) await this.#router.close();
      this.#unplaced = undefined;
    } catch (error) {
      this.#options.log.error('The network of the sandboxes is not as it should be.', { error });
    }
  }

  /** With `isEmpty`, no sandbox is left and the machine gets back everything. */
  async close(options: { readonly isEmpty: boolean }): Promise<void> {
    await this.#keeping.close();
    await this.#resolver.close();
    if (options.isEmpty && this.#isTouched) await this.#router.close();
  }

  async #restore(wanted: readonly RunningSandbox[]): Promise<void> {
    const plan = await this.#ensureRouter();
    for (const sandbox of wanted) {
      await writeResolverFile(sandbox.directory, plan.router4);
      if (this.#places.has(sandbox.sandboxId)) continue;
      await this.#attach(plan, sandbox).catch((error: unknown) => {
        this.#options.log.error('A sandbox is without its network.', { sandboxId: sandbox.sandboxId, error });
      });
    }
  }

  /** Under the router's lock: gives every link that is there its place, or cuts it. May be repeated when it fails. */
  async #placeLinks(): Promise<void> {
    if (this.#unplaced === undefined) return;
    for (const { slot, alias } of await this.#router.findLinks()) {
      if (this.#places.get(alias)?.slot === slot) continue;
      const sandbox = this.#unplaced.get(alias);
      const isWanted = sandbox !== undefined && !this.#places.has(alias) && this.#slots.takeExactly(slot);
      if (isWanted) this.#places.set(alias, { slot, policy: sandbox.policy });
      else await this.#router.detach(slot);
    }
    this.#unplaced = undefined;
  }

  async #apply(sandbox: RunningSandbox): Promise<void> {
    const { sandboxId, directory, policy } = sandbox;
    const place = this.#places.get(sandboxId);
    if (policy.mode === 'none') {
      if (place !== undefined) await this.#detach(sandboxId, place);
      return await writeResolverFile(directory, undefined);
    }
    const plan = await this.#ensureRouter();
    await writeResolverFile(directory, plan.router4);
    if (place === undefined) return await this.#attach(plan, sandbox);
    await this.#routerLock.run('router', async () => {
      if (hasOwnRules(policy)) await this.#router.setRules({ slot: place.slot, policy });
      else if (hasOwnRules(place.policy)) await this.#router.clearRules(place.slot);
      place.policy = policy;
    });
  }

  async #attach(plan: NetworkPlan, sandbox: RunningSandbox): Promise<void> {
    const { sandboxId } = sandbox;
    const link = await this.#take(plan, sandbox);
    try {
      await this.#options.faults.hit('node-network-before-attach');
      await this.#options.spawner.attach({ link, cgroup: this.#options.cgroups.groupOf(sandboxId).cgroup });
      await this.#options.faults.hit('node-network-after-attach');
    } catch (error) {
      // A spawner that died midway may have left the link; without it the slot is free again.
      await this.#router.detach(link.slot);
      await this.release(sandboxId);
      throw error;
    }
  }

  async #detach(sandboxId: SandboxId, place: Place): Promise<void> {
    await this.#router.detach(place.slot);
    await this.#options.faults.hit('node-network-after-detach');
    await this.release(sandboxId);
  }

  /** A slot with its rules in place, and nothing linked to it yet. */
  async #take(plan: NetworkPlan, sandbox: RunningSandbox): Promise<NetworkLink> {
    const { sandboxId, policy } = sandbox;
    const place = { slot: this.#slots.take(), policy };
    this.#places.set(sandboxId, place);
    try {
      if (hasOwnRules(policy)) await this.#routerLock.run('router', () => this.#router.setRules(place));
    } catch (error) {
      await this.release(sandboxId);
      throw error;
    }
    this.#admit(plan, place);
    return networkLink(plan, { slot: place.slot, alias: sandboxId });
  }

  #ensureRouter(): Promise<NetworkPlan> {
    if (this.#plan !== undefined) return Promise.resolve(this.#plan);
    return this.#routerLock.run('router', async () => {
      if (this.#plan !== undefined) return this.#plan;
      await this.#placeLinks();
      this.#isTouched = true;
      const plan = await this.#router.connect();
      this.#resolverPort ||= await this.#resolver.listen(plan.host4);
      await this.#router.open(plan, { resolverPort: this.#resolverPort, policies: [...this.#places.values()] });
      for (const place of this.#places.values()) this.#admit(plan, place);
      this.#plan = plan;
      this.#keeping.start();
      return plan;
    });
  }

  /** Under the lock: the whole table is made of the places as they are, and nobody may change them meanwhile. */
  async #keep(): Promise<void> {
    const isWhole = await this.#routerLock.run('router', async () => {
      const options = { resolverPort: this.#resolverPort, policies: [...this.#places.values()] };
      return this.#plan === undefined || (await this.#router.keep(this.#plan, options));
    });
    if (!isWhole) this.#options.log.warn('Something of the network of the sandboxes had gone, and is back.');
  }

  #admit(plan: NetworkPlan, place: Place): void {
    this.#resolver.admit(address4Of(plan, place.slot));
  }

  #forget(place: Place): void {
    if (this.#plan !== undefined) this.#resolver.forget(address4Of(this.#plan, place.slot));
  }
}
