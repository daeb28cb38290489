/**
 * Leases: exclusive rights on sandboxes or names, with growing tokens and an end of their own.
 *
 * Invariants:
 *  - A token is given once. It counts when the sandbox's node has acknowledged it, which is before the caller hears of it.
 *  - Terms are counted in boot time: the time of day does nothing. After a reboot a holder has a full term again.
 *  - The waiting line lives in this process; what is held lives in the store.
 *
 * Who holds what is decided by LeaseQueue; this class carries it out. Grants and ends of one resource never overlap, because
 * the queue keeps it busy in between; against other changes of a sandbox its lane is taken.
 */
import {
  type BodyOf,
  type Conditions,
  isId,
  isPlatformError,
  type LeaseId,
  type LeaseView,
  leaseLimits,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { LeaseHolder, LeaseRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { LeaseGrants } from './lease-grants.ts';
import { LeaseQueue } from './lease-queue.ts';
import { type EndReason, type HeldLease, type LeaseRequest, placesOf } from './lease-types.ts';
import type { Mutations } from './mutations.ts';
import type { SandboxRecords } from './sandbox-records.ts';

type AcquireBody = BodyOf<typeof routes.acquireLease>;

export class Leases {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #mutations: Mutations;
  readonly #gate: LeaseGate;
  readonly #grants: LeaseGrants;
  readonly #queue = new LeaseQueue<LeaseRequest>();
  readonly #held = new Map<LeaseId, HeldLease>();
  /** How many connections each lease is bound to. */
  readonly #holds = new Map<LeaseId, number>();
  #cancelTimer: () => void = () => {};
  #isClosed = false;

  constructor(
    context: ControlContext,
    parts: { records: SandboxRecords; mutations: Mutations; gate: LeaseGate; grants: LeaseGrants },
  ) {
    this.#context = context;
    this.#records = parts.records;
    this.#mutations = parts.mutations;
    this.#gate = parts.gate;
    this.#grants = parts.grants;
  }

  /** Takes up what was held when the server last ran; a grant that was never acknowledged did not happen. */
  async open(): Promise<void> {
    const records = await this.#context.store.read((tables) => tables.leases.listHeld());
    for (const lease of groupByLease(records, this.#context.clock)) {
      this.#held.set(lease.id, lease);
      this.#queue.occupy(placesOf(lease));
      if (!lease.isAcknowledged) void this.#end(lease, 'lost');
    }
    this.#schedule();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
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
        const held = this.#held.get(operation.subjectId as LeaseId);
        if (held?.isAcknowledged) return this.#view(held);
        return await this.#acquire(caller, body, newId('lease', this.#context.random), signal);
      },
    });
  }

  async #acquire(caller: Caller, body: AcquireBody, leaseId: LeaseId, signal?: AbortSignal): Promise<LeaseView> {
    const resources = [...new Set<string>(body.resources)];
    for (const resource of resources) {
      if (isId('sandbox', resource)) await this.#records.get(caller, resource);
    }
    const request: LeaseRequest = {
      id: leaseId,
      teamId: caller.teamId,
      keyId: caller.keyId,
      resources,
      places: placesOf({ teamId: caller.teamId, resources }),
      holder: body.holder,
      reason: body.reason,
      ttlMs: body.ttlMs,
      granted: Promise.withResolvers(),
    };
    // Nobody awaits it when the caller gives up first.
    request.granted.promise.catch(() => {});
    if (body.waitMs === 0 && !this.#queue.isFree(request.places)) throw this.#heldError(request);
    const crowded = request.places.find((place) => this.#queue.countWaiting(place) >= leaseLimits.waitersPerResource);
    if (crowded !== undefined) {
      throw new PlatformError(
        'limit_exceeded',
        `${leaseLimits.waitersPerResource} callers wait for this resource already.`,
      );
    }
    // Join the queue before the first await: the order of arrival is the order of service.
    this.#queue.add(request);
    const announced = this.#grants.announce(request);
    this.#pump();
    await announced;
    return this.#view(await this.#waitForGrant(request, body.waitMs, signal));
  }

  async #waitForGrant(request: LeaseRequest, waitMs: number, signal?: AbortSignal): Promise<HeldLease> {
    const givenUp = Promise.withResolvers<'given up'>();
    const giveUp = () => givenUp.resolve('given up');
    // A grant that has begun is waited for: with no patience at all, only the line is not waited in.
    const cancel = this.#context.timers.after(waitMs, giveUp);
    signal?.addEventListener('abort', giveUp);
    if (signal?.aborted) giveUp();
    try {
      const first = await Promise.race([request.granted.promise, givenUp.promise]);
      if (first !== 'given up') return first;
      if (this.#queue.remove(request)) {
        this.#pump();
        throw new PlatformError('lease_wait_timeout', `Not granted within ${waitMs} ms.`, {
          details: this.#holderOf(request),
        });
      }
      const lease = await request.granted.promise;
      if (!signal?.aborted) return lease;
      await this.#end(lease, 'released');
      throw new PlatformError('lease_wait_timeout', 'The caller went away before the lease was granted.');
    } finally {
      cancel();
      signal?.removeEventListener('abort', giveUp);
    }
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
      effect: async () => {
        const lease = this.#get(caller, leaseId);
        return this.#view(await this.#prolong(lease, body.ttlMs ?? lease.ttlMs));
      },
    });
  }

  release(caller: Caller, leaseId: LeaseId, conditions: Conditions): Promise<void> {
    return this.#mutations.run({
      caller,
      kind: 'releaseLease',
      conditions,
      request: { leaseId },
      effect: async () => {
        const lease = this.#held.get(leaseId);
        if (lease !== undefined && lease.teamId === caller.teamId) await this.#end(lease, 'released');
      },
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** Binds the lease to a connection: renewed while it lives, and for a short grace after it. */
  async *hold(caller: Caller, leaseId: LeaseId, signal: AbortSignal): AsyncIterable<LeaseView> {
    let lease = this.#get(caller, leaseId);
    this.#holds.set(leaseId, (this.#holds.get(leaseId) ?? 0) + 1);
    try {
      while (!signal.aborted && this.#held.get(leaseId) === lease) {
        lease = await this.#prolong(lease, lease.ttlMs);
        yield this.#view(lease);
        await this.#pause(lease.ttlMs / 3, signal);
      }
    } finally {
      const left = (this.#holds.get(leaseId) ?? 1) - 1;
      if (left > 0) this.#holds.set(leaseId, left);
      else {
        this.#holds.delete(leaseId);
        const current = this.#held.get(leaseId);
        const graceEnd = this.#context.clock.bootMs() + this.#context.settings.leaseGraceMs;
        if (current !== undefined && current.endsAtBootMs > graceEnd) await this.#moveEnd(current, graceEnd);
      }
    }
  }

  async list(caller: Caller, query: QueryOf<typeof routes.listLeases>): Promise<ResultOf<typeof routes.listLeases>> {
    const items = [];
    for (const lease of this.#held.values()) {
      if (lease.teamId !== caller.teamId || !lease.isAcknowledged) continue;
      if (query.resource !== undefined && !lease.resources.includes(query.resource)) continue;
      const waiting = Math.max(...placesOf(lease).map((place) => this.#queue.countWaiting(place)));
      items.push({ ...this.#view(lease), waiting });
    }
    return { items };
  }

  /** The sandbox is gone, and its lease with it. */
  dropSandbox(sandboxId: SandboxId): void {
    for (const lease of [...this.#held.values()]) {
      if (lease.resources.includes(sandboxId)) void this.#end(lease, 'lost');
    }
    this.#pump();
  }

  /** For reconcile: whether somebody holds what a record says is held. */
  isHeld(resource: string): boolean {
    for (const lease of this.#held.values()) if (lease.resources.includes(resource)) return true;
    return false;
  }

  get heldCount(): number {
    return this.#held.size;
  }

  /** Ends what is due. */
  async tick(): Promise<void> {
    const nowMs = this.#context.clock.bootMs();
    const due = [...this.#held.values()].filter((lease) => lease.isAcknowledged && lease.endsAtBootMs <= nowMs);
    await Promise.all(due.map((lease) => this.#end(lease, 'lost')));
    this.#schedule();
  }

  #get(caller: Caller, leaseId: LeaseId): HeldLease {
    const lease = this.#held.get(leaseId);
    const isOver = lease === undefined || !lease.isAcknowledged || lease.endsAtBootMs <= this.#context.clock.bootMs();
    if (isOver || lease.teamId !== caller.teamId) {
      throw new PlatformError('lease_not_found', `There is no lease ${leaseId}, or it has ended.`, {
        details: { leaseId },
      });
    }
    return lease;
  }

  async #prolong(lease: HeldLease, ttlMs: number): Promise<HeldLease> {
    return await this.#moveEnd({ ...lease, ttlMs }, this.#context.clock.bootMs() + ttlMs);
  }

  async #moveEnd(lease: HeldLease, endsAtBootMs: number): Promise<HeldLease> {
    const moved = { ...lease, endsAtBootMs };
    this.#held.set(lease.id, moved);
    await this.#grants.writeTerm(moved);
    this.#schedule();
    return moved;
  }

  /** Begins every grant that is possible now. */
  #pump(): void {
    if (this.#isClosed) return;
    for (const request of this.#queue.takeReady()) void this.#grant(request);
  }

  async #grant(request: LeaseRequest, ended?: { lease: HeldLease; why: EndReason }): Promise<void> {
    try {
      const lease = await this.#grants.grant(request, ended);
      this.#held.set(lease.id, lease);
      request.granted.resolve(lease);
      this.#schedule();
    } catch (error) {
      this.#queue.free(request.places);
      request.granted.reject(error);
      this.#pump();
    }
  }

  /** Ends it once; a second call joins nothing and does nothing. */
  async #end(lease: HeldLease, why: EndReason): Promise<void> {
    const current = this.#held.get(lease.id);
    if (current === undefined || current.isEnding) return;
    this.#held.set(lease.id, { ...current, isEnding: true });
    try {
      const successor = this.#queue.takeSuccessor(placesOf(current));
      if (successor !== undefined) {
        await this.#grant(successor, { lease: current, why });
        this.#held.delete(lease.id);
        return;
      }
      await this.#grants.end(current, why);
      this.#held.delete(lease.id);
      this.#queue.free(placesOf(current));
      for (const resource of current.resources) this.#gate.opened(resource);
      this.#pump();
    } catch (error) {
      // The node could not be told: the lease stays until it can be, because its token still counts there.
      this.#held.set(lease.id, { ...current, isEnding: false });
      this.#context.logger.warn('a lease could not be ended yet', { leaseId: lease.id, error });
      this.#context.timers.after(1_000, () => void this.#end(current, why));
      if (!isPlatformError(error)) throw error;
    }
  }

  /** One timer, for the lease that ends next. */
  #schedule(): void {
    this.#cancelTimer();
    if (this.#isClosed) return;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const lease of this.#held.values()) if (!lease.isEnding) nextMs = Math.min(nextMs, lease.endsAtBootMs);
    if (nextMs === Number.POSITIVE_INFINITY) return;
    const delayMs = Math.min(Math.max(nextMs - this.#context.clock.bootMs(), 0), 2 ** 31 - 1);
    this.#cancelTimer = this.#context.timers.after(delayMs, () => void this.tick());
  }

  async #pause(delayMs: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#context.timers.after(delayMs, resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
    await promise;
    cancel();
  }

  #view(lease: HeldLease): LeaseView {
    return {
      id: lease.id,
      grants: lease.resources.map((resource, index) => ({ resource, token: lease.tokens[index] ?? 0 })),
      holder: lease.holder,
      reason: lease.reason,
      keyId: lease.keyId,
      ttlMs: lease.ttlMs,
      grantedAt: new Date(lease.grantedAtMs).toISOString(),
      endsInMs: Math.max(0, lease.endsAtBootMs - this.#context.clock.bootMs()),
    };
  }

  #holderOf(request: LeaseRequest): Record<string, unknown> {
    for (const lease of this.#held.values()) {
      const shared = lease.teamId === request.teamId && lease.resources.find((one) => request.resources.includes(one));
      if (shared) return { resource: shared, holder: lease.holder, reason: lease.reason };
    }
    return {};
  }

  #heldError(request: LeaseRequest): PlatformError {
    const details = this.#holderOf(request);
    const who = typeof details['holder'] === 'string' ? `"${details['holder']}"` : 'Somebody';
    return new PlatformError('lease_held', `${who} holds a lease on it, or waits for one.`, { details });
  }
}

/** What the store has, as leases again. Terms of an earlier boot begin anew. */
function groupByLease(records: readonly LeaseRecord[], clock: ControlContext['clock']): HeldLease[] {
  const leases = new Map<LeaseId, HeldLease>();
  for (const record of records) {
    const holder = record.holder as LeaseHolder;
    const known = leases.get(holder.leaseId);
    const isSameBoot = holder.bootId === clock.bootId;
    leases.set(holder.leaseId, {
      id: holder.leaseId,
      teamId: record.teamId,
      keyId: holder.keyId,
      resources: [...(known?.resources ?? []), record.resource],
      tokens: [...(known?.tokens ?? []), record.token],
      holder: holder.name,
      reason: holder.reason,
      ttlMs: holder.ttlMs,
      grantedAtMs: holder.grantedAtMs,
      endsAtBootMs: isSameBoot ? holder.endsAtBootMs : clock.bootMs() + holder.ttlMs,
      isAcknowledged: (known?.isAcknowledged ?? true) && holder.acknowledged,
      isEnding: false,
    });
  }
  return [...leases.values()];
}
