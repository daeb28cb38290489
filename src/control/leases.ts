/**
 * Leases: exclusive rights on sandboxes or names, with growing tokens and an end of their own.
 *
 * Invariants:
 *  - A token is given once. It counts when the sandbox's node has acknowledged it, which is before the caller hears of it.
 *  - Terms are counted in boot time: the time of day does nothing. After a reboot a holder has a full term again.
 *  - The waiting line lives in this process; what is held lives in the store.
 *
 * This class answers callers; LeaseKeeper holds and ends, LeaseQueue decides who is next, LeaseGrants tells store and nodes.
 */
import {
  type BodyOf,
  type Conditions,
  isId,
  type LeaseId,
  type LeaseView,
  leaseLimits,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
} from '../protocol/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { type LeaseKeeper, leaseNotFound } from './lease-keeper.ts';
import { type HeldLease, type LeaseRequest, type LeaseTerms, placesOf } from './lease-types.ts';
import type { Mutations } from './mutations.ts';
import { pause } from './pause.ts';
import type { SandboxRecords } from './sandbox-records.ts';

type AcquireBody = BodyOf<typeof routes.acquireLease>;

export class Leases {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #mutations: Mutations;
  readonly #keeper: LeaseKeeper;
  /** How many connections each lease is bound to. */
  readonly #bindings = new Map<LeaseId, number>();

  constructor(context: ControlContext, parts: { records: SandboxRecords; mutations: Mutations; keeper: LeaseKeeper }) {
    this.#context = context;
    this.#records = parts.records;
    this.#mutations = parts.mutations;
    this.#keeper = parts.keeper;
  }

  acquire(caller: Caller, conditions: Conditions, body: AcquireBody, signal?: AbortSignal): Promise<LeaseView> {
    return this.#mutations.run({
      caller,
      kind: 'acquireLease',
      conditions,
      request: body,
      subject: () => newId('lease', this.#context.random),
      effect: (operation) => this.#acquire(caller, body, operation.subjectId as LeaseId, signal),
      resume: async (operation) => {
        const held = this.#keeper.find(operation.subjectId as LeaseId);
        if (held !== undefined) return this.#view(held);
        return await this.#acquire(caller, body, newId('lease', this.#context.random), signal);
      },
    });
  }

  async #acquire(caller: Caller, body: AcquireBody, leaseId: LeaseId, signal?: AbortSignal): Promise<LeaseView> {
    const resources = [...new Set<string>(body.resources)];
    for (const resource of resources) {
      if (isId('sandbox', resource)) await this.#records.get(caller, resource);
    }
    const { teamId, keyId } = caller;
    const { holder, reason, ttlMs, waitMs } = body;
    return this.#view(
      await this.take({ id: leaseId, teamId, keyId, resources, holder, reason, ttlMs }, waitMs, signal),
    );
  }

  /** All of the resources or none, after at most this wait. Who holds it ends it through the keeper. */
  async take(terms: LeaseTerms, waitMs: number, signal?: AbortSignal): Promise<HeldLease> {
    const request: LeaseRequest = { ...terms, places: placesOf(terms), granted: Promise.withResolvers() };
    // Nobody awaits it when the caller gives up first.
    request.granted.promise.catch(() => {});
    this.#checkRoom(request, waitMs);
    const joined = this.#keeper.join(request);
    return await this.#waitForGrant(request, joined, { waitMs, signal });
  }

  #checkRoom(request: LeaseRequest, waitMs: number): void {
    const { queue } = this.#keeper;
    if (waitMs === 0 && !queue.isFree(request.places)) throw this.#heldError(request);
    const most = leaseLimits.waitersPerResource;
    if (request.places.every((place) => queue.countWaiting(place) < most)) return;
    throw new PlatformError('limit_exceeded', `${most} callers wait for this resource already.`);
  }

  async #waitForGrant(
    request: LeaseRequest,
    joined: Promise<void>,
    patience: { waitMs: number; signal: AbortSignal | undefined },
  ): Promise<HeldLease> {
    const { waitMs, signal } = patience;
    const { promise: givenUp, resolve } = Promise.withResolvers<'given up'>();
    const giveUp = () => resolve('given up');
    const cancel = this.#context.timers.after(waitMs, giveUp);
    signal?.addEventListener('abort', giveUp);
    if (signal?.aborted) giveUp();
    try {
      await joined;
      const first = await Promise.race([request.granted.promise, givenUp]);
      if (first !== 'given up') return first;
      this.#keeper.leave(request, this.#waitedInVain(request, waitMs));
      // A grant that has begun is waited for: with no patience at all, only the line is not waited in.
      const lease = await request.granted.promise;
      if (!signal?.aborted) return lease;
      throw new PlatformError('lease_wait_timeout', 'The caller went away before the lease was granted.');
    } catch (error) {
      await this.#giveBack(request, error);
      throw error;
    } finally {
      cancel();
      signal?.removeEventListener('abort', giveUp);
    }
  }

  /** A request that fails leaves nobody in the queue and nothing held, however far it had come. */
  async #giveBack(request: LeaseRequest, error: unknown): Promise<void> {
    this.#keeper.leave(request, error);
    const lease = await request.granted.promise.catch(() => undefined);
    if (lease !== undefined) await this.#keeper.end(lease.id, 'released');
  }

  renew(
    caller: Caller,
    leaseId: LeaseId,
    conditions: Conditions,
    body: BodyOf<typeof routes.renewLease>,
  ): Promise<LeaseView> {
    return this.#mutations.run({
      caller,
      kind: 'renewLease',
      conditions,
      request: { leaseId, body },
      effect: async () => this.#view(await this.#prolong(this.#get(caller, leaseId), body.ttlMs)),
    });
  }

  release(caller: Caller, leaseId: LeaseId, conditions: Conditions): Promise<void> {
    return this.#mutations.run({
      caller,
      kind: 'releaseLease',
      conditions,
      request: { leaseId },
      effect: async () => {
        const isOurs = this.#keeper.listOf(caller.teamId).some(({ id }) => id === leaseId);
        if (isOurs) await this.#keeper.end(leaseId, 'released');
      },
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** Binds the lease to a connection: renewed while it lives, and for a short grace after it. */
  async *hold(caller: Caller, leaseId: LeaseId, signal: AbortSignal): AsyncIterable<LeaseView> {
    this.#get(caller, leaseId);
    const until = AbortSignal.any([signal, this.#keeper.over(leaseId), this.#keeper.closing]);
    this.#bindings.set(leaseId, (this.#bindings.get(leaseId) ?? 0) + 1);
    try {
      while (!until.aborted) {
        const lease = await this.#prolong(this.#get(caller, leaseId));
        yield this.#view(lease);
        await pause(this.#context.timers, lease.ttlMs / 3, until);
      }
    } finally {
      await this.#unbind(leaseId);
    }
  }

  async list(caller: Caller, query: QueryOf<typeof routes.listLeases>): Promise<ResultOf<typeof routes.listLeases>> {
    const { queue } = this.#keeper;
    const shown = this.#keeper
      .listOf(caller.teamId)
      .filter(({ resources }) => query.resource === undefined || resources.includes(query.resource));
    const items = shown.map((lease) => {
      const waiting = Math.max(...placesOf(lease).map((place) => queue.countWaiting(place)));
      return { ...this.#view(lease), waiting };
    });
    return { items };
  }

  #get(caller: Caller, leaseId: LeaseId): HeldLease {
    const lease = this.#keeper.find(leaseId);
    if (lease === undefined || lease.teamId !== caller.teamId) throw leaseNotFound(leaseId);
    return lease;
  }

  #prolong(lease: HeldLease, ttlMs = lease.ttlMs): Promise<HeldLease> {
    return this.#keeper.moveEnd(lease.id, { ttlMs, endsAtBootMs: this.#context.clock.bootMs() + ttlMs });
  }

  /** The last connection that drops leaves the grace; one that drops because we stop leaves the whole term. */
  async #unbind(leaseId: LeaseId): Promise<void> {
    const left = (this.#bindings.get(leaseId) ?? 1) - 1;
    if (left > 0) {
      this.#bindings.set(leaseId, left);
      return;
    }
    this.#bindings.delete(leaseId);
    const lease = this.#keeper.find(leaseId);
    const endsAtBootMs = this.#context.clock.bootMs() + this.#context.settings.leaseGraceMs;
    if (this.#keeper.closing.aborted || lease === undefined || lease.endsAtBootMs <= endsAtBootMs) return;
    await this.#keeper.moveEnd(leaseId, { endsAtBootMs });
  }

  #view(lease: HeldLease): LeaseView {
    return {
      id: lease.id,
      grants: lease.resources.map((resource, index) => ({ resource, token: lease.tokens[index]! })),
      holder: lease.holder,
      reason: lease.reason,
      keyId: lease.keyId,
      ttlMs: lease.ttlMs,
      grantedAt: new Date(lease.grantedAtMs).toISOString(),
      endsInMs: Math.max(0, lease.endsAtBootMs - this.#context.clock.bootMs()),
    };
  }

  #waitedInVain(request: LeaseRequest, waitMs: number): PlatformError {
    return new PlatformError('lease_wait_timeout', `Not granted within ${waitMs} ms.`, {
      details: this.#holderOf(request),
    });
  }

  #heldError(request: LeaseRequest): PlatformError {
    const details = this.#holderOf(request);
    const who = 'holder' in details ? `"${details.holder}"` : 'Somebody';
    return new PlatformError('lease_held', `${who} holds a lease on it, or waits for one.`, { details });
  }

  #holderOf(request: LeaseRequest): { resource: string; holder: string; reason: string } | Record<never, never> {
    for (const lease of this.#keeper.listOf(request.teamId)) {
      const resource = lease.resources.find((one) => request.resources.includes(one));
      if (resource !== undefined) return { resource, holder: lease.holder, reason: lease.reason };
    }
    return {};
  }
}
