/**
 * Finds the one sandbox of a checkout, or makes it.
 *
 * Invariants:
 *  - What cannot be found out is thrown: neither a failed look at a sandbox nor a failed list leads to a creation.
 *  - Whoever creates or resets holds the lease on the checkout's creation, and the sandbox's name is unique on the server: however many ask,
 *    on however many machines, one is made.
 *  - The lock of the cache is taken behind that lease, and held over no call to the server but the creation itself.
 *  - A sandbox is in the cache before anything is done with it.
 */
import { PlatformError } from '../protocol/index.ts';
import type { Atoll, Sandbox, SandboxView } from '../sdk/index.ts';
import type { Cache, CacheLock } from './cache.ts';
import type { LockOwner } from './cache-lock.ts';
import { admitsWorktree, type ClientState, hasWorktree, listFilter, readClientState } from './client-state.ts';
import { createSandbox, withCreationRight } from './creation.ts';
import type { Definition } from './definition.ts';
import type { FoundCheckout } from './find-checkout.ts';
import { type CheckoutIdentity, checkoutKey } from './identity.ts';
import { endSandbox, livenessOf } from './liveness.ts';
import type { Session } from './session.ts';

export interface ResolverOptions {
  readonly client: Atoll;
  readonly cache: Cache;
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly nowMs: () => number;
  /** What a person should know; never a result. */
  readonly say: (text: string) => void;
  readonly onLockWait: (owner: LockOwner | undefined) => void;
  readonly signal?: AbortSignal;
}

export interface Resolved {
  readonly sandbox: Sandbox;
  readonly session: Session;
  readonly how: 'known' | 'adopted' | 'created';
}

/** How often it is begun anew when others end or make sandboxes meanwhile. */
const attemptsMax = 8;
const endTimeoutMs = 60_000;
const pageLimit = 1_000;

export class CheckoutResolver {
  readonly #options: ResolverOptions;
  readonly key: string;

  constructor(options: ResolverOptions) {
    this.#options = options;
    this.key = checkoutKey(options.found.identity, this.serverUrl);
  }

  get serverUrl(): string {
    return this.#options.client.connection.url;
  }

  /** The one that is there. Never creates. */
  async find(): Promise<Resolved | undefined> {
    const known = await this.#known();
    if (known !== undefined) return known;
    const matching = await this.#search();
    return matching === undefined ? undefined : await this.#adopt(matching);
  }

  /** As `find`, for commands that need one. */
  async get(): Promise<Resolved> {
    const resolved = await this.find();
    if (resolved !== undefined) return resolved;
    const { ref } = this.#options.found.identity;
    throw new PlatformError('checkout_without_sandbox', `This checkout (${ref}) has no sandbox yet.`);
  }

  /** The one that is there, or a new one. */
  async ensure(): Promise<Resolved> {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const resolved = (await this.find()) ?? (await this.#create());
      if (resolved !== undefined) return resolved;
    }
    throw new PlatformError('checkout_busy', 'Others make and end the sandbox of this checkout again and again.');
  }

  /** Ends what is there, whatever it does, and makes another; nobody gets in between. */
  async reset(): Promise<Resolved> {
    const { client, cache } = this.#options;
    const before = await this.#current();
    return await withCreationRight(this.#options, async (owner) => {
      const ended = cache.find(this.key)?.sandboxId ?? before;
      if (ended !== undefined) await endSandbox(client, ended, { timeoutMs: endTimeoutMs });
      return await this.#make(owner);
    });
  }

  /** Uses a sandbox that somebody names; a choice, so it is not looked at whose it is. */
  async use(sandboxId: string): Promise<Resolved> {
    const liveness = await livenessOf(this.#options.client, sandboxId, this.#options.signal);
    if (liveness.kind !== 'alive') {
      const why = liveness.reason === null ? 'there is no such sandbox' : liveness.reason;
      throw new PlatformError('sandbox_not_found', `${sandboxId} cannot be used: ${why}.`);
    }
    const session = await this.#remember(liveness.sandbox.view);
    return { sandbox: liveness.sandbox, session, how: 'adopted' };
  }

  /** Forgets it here. The sandbox is not asked. */
  async forget(sandboxId: string): Promise<void> {
    await this.#options.cache.withLock(this.#wait(), async (lock) => {
      if (lock.find(this.key)?.sandboxId === sandboxId) lock.remove(this.key);
    });
  }

  /** Counts a command. Answers whether it is time to say, once, that the sandbox is used again. */
  async countExec(): Promise<boolean> {
    const { cache, nowMs } = this.#options;
    return await cache.withLock(this.#wait(), async (lock) => {
      const counted = lock.countExec(this.key, nowMs());
      if (counted === undefined || counted.execCount < 2 || counted.hintShown) return false;
      lock.setHintShown(this.key);
      return true;
    });
  }

  /** In the cache, and there. */
  async #known(): Promise<Resolved | undefined> {
    const session = this.#options.cache.find(this.key) ?? (await this.#rekeyed());
    if (session === undefined || session.sandboxId === null) return undefined;
    const { client, say, signal } = this.#options;
    const liveness = await livenessOf(client, session.sandboxId, signal);
    if (liveness.kind === 'alive') return { sandbox: liveness.sandbox, session, how: 'known' };
    if (liveness.kind === 'failed') {
      say(`The sandbox ${session.sandboxId} is not used again: ${liveness.reason}.`);
      await endSandbox(client, session.sandboxId, { timeoutMs: endTimeoutMs });
    }
    await this.forget(session.sandboxId);
    return undefined;
  }

  /** A detached HEAD that moved on takes its session along, and so does a repository that got its first commit. */
  async #rekeyed(): Promise<Session | undefined> {
    const { cache, found } = this.#options;
    const { identity, commit, git } = found;
    const ours = cache.sessions(this.serverUrl).filter((session) => session.identity.worktree === identity.worktree);
    const fits = async (session: Session) => {
      const { ref, repository } = session.identity;
      if (repository === `local:${identity.worktree}` && ref === identity.ref) return true;
      if (repository !== identity.repository || commit === undefined) return false;
      if (!identity.ref.startsWith('commit:') || !ref.startsWith('commit:')) return false;
      return (await git.ask('merge-base', '--is-ancestor', ref.slice('commit:'.length), commit)).code === 0;
    };
    const match = await findAsync(
      ours.filter((session) => session.identity.configPath === identity.configPath).reverse(),
      fits,
    );
    if (match === undefined) return undefined;
    // The other definitions of the same commit move together with it.
    const { ref, repository } = match.identity;
    const moving = ours.filter((session) => session.identity.ref === ref && session.identity.repository === repository);
    return await cache.withLock(this.#wait(), async (lock) => {
      for (const session of moving) {
        const to = { ...identity, configPath: session.identity.configPath };
        lock.rekey(session.key, { key: checkoutKey(to, this.serverUrl), ref: to.ref, repository: to.repository });
      }
      return lock.find(this.key);
    });
  }

  /** The one on the server that belongs to this checkout: one list call names it, and a look says that it is there. */
  async #search(): Promise<Sandbox | undefined> {
    const { client, found, signal } = this.#options;
    const { identity, machineId } = found;
    const matching: { view: SandboxView; state: ClientState }[] = [];
    // What another branch or commit of this machine uses is not ours, whatever its record still says.
    const taken = this.#options.cache.sessions(this.serverUrl).filter(({ key }) => key !== this.key);
    const filter = { metadata: listFilter(identity), mine: true, limit: pageLimit, ...(signal && { signal }) };
    for await (const view of client.sandboxes.iterate(filter)) {
      const state = readClientState(view.metadata);
      if (state === undefined || view.state === 'failed' || view.state === 'deleting' || state.failure) continue;
      if (taken.some(({ sandboxId }) => sandboxId === view.id)) continue;
      if (admitsWorktree(state, machineId, identity.worktree) && (await this.#fitsRef(state.ref))) {
        matching.push({ view, state });
      }
    }
    const own = matching.filter(({ state }) => hasWorktree(state, identity.worktree));
    const best = own.length > 0 ? own : matching;
    const there = await Promise.all(best.map(({ view }) => livenessOf(client, view.id, signal)));
    const alive = there.flatMap((liveness) => (liveness.kind === 'alive' ? [liveness.sandbox] : []));
    if (alive.length > 1) throw ambiguous(alive);
    return alive[0];
  }

  async #fitsRef(ref: string): Promise<boolean> {
    const { identity, commit, git } = this.#options.found;
    if (ref === identity.ref) return true;
    if (!ref.startsWith('commit:') || !identity.ref.startsWith('commit:') || commit === undefined) return false;
    return (await git.ask('merge-base', '--is-ancestor', ref.slice('commit:'.length), commit)).code === 0;
  }

  async #adopt(sandbox: Sandbox): Promise<Resolved> {
    const { found, say } = this.#options;
    const state = readClientState(sandbox.metadata);
    const isOwn = state !== undefined && hasWorktree(state, found.identity.worktree);
    say(
      isOwn
        ? `Found the sandbox of this checkout again: ${sandbox.id}.`
        : `Using ${sandbox.id}, which you made from another machine for the same repository and branch.`,
    );
    const session = await this.#remember(sandbox.view);
    return { sandbox, session, how: 'adopted' };
  }

  async #create(): Promise<Resolved | undefined> {
    const { cache } = this.#options;
    return await withCreationRight(this.#options, async (owner) => {
      // Another process may have made it while we waited.
      if ((cache.find(this.key)?.sandboxId ?? null) !== null) return undefined;
      return await this.#make(owner);
    });
  }

  /** The caller has the right to it. */
  async #make(owner: string): Promise<Resolved> {
    const { cache, found } = this.#options;
    return await cache.withLock(this.#wait(), async (lock) => {
      const sandbox = await createSandbox(this.#options, owner);
      const session = this.#save(lock, sandbox.view, found.identity);
      return { sandbox, session, how: 'created' as const };
    });
  }

  /** Without looking whether it can be used. */
  async #current(): Promise<string | undefined> {
    const session = this.#options.cache.find(this.key) ?? (await this.#rekeyed());
    return session?.sandboxId ?? (await this.#search())?.id;
  }

  async #remember(view: SandboxView): Promise<Session> {
    const { cache, found } = this.#options;
    return await cache.withLock(this.#wait(), async (lock) => this.#save(lock, view, found.identity));
  }

  #save(lock: CacheLock, view: SandboxView, identity: CheckoutIdentity): Session {
    const { found, nowMs } = this.#options;
    const earlier = lock.find(this.key);
    // Counters are about one sandbox.
    if (earlier !== undefined && earlier.sandboxId !== view.id) lock.remove(this.key);
    lock.save({
      key: this.key,
      serverUrl: this.serverUrl,
      sandboxId: view.id,
      name: view.name ?? '',
      identity,
      root: found.root,
      definition: readClientState(view.metadata)?.definition ?? null,
      execCount: 0,
      lastExecMs: null,
      hintShown: false,
      createdMs: nowMs(),
    });
    return lock.find(this.key)!;
  }

  #wait() {
    const { onLockWait, signal } = this.#options;
    return { onWait: onLockWait, ...(signal && { signal }) };
  }
}

function ambiguous(sandboxes: readonly Sandbox[]): PlatformError {
  const ids = sandboxes.map(({ id }) => id);
  const message = `Several sandboxes belong to this checkout: ${ids.join(', ')}. Choose one with: atoll start --use ID`;
  return new PlatformError('checkout_ambiguous', message, { details: { sandboxIds: ids } });
}

async function findAsync<Item>(
  items: readonly Item[],
  fits: (item: Item) => Promise<boolean>,
): Promise<Item | undefined> {
  for (const item of items) if (await fits(item)) return item;
  return undefined;
}
