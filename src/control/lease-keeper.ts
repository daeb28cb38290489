/**
 * Keeps what is held: begins every grant that the queue allows, ends what is due, hands over.
 *
 *   (waiting) ──granted──► held ──released, due, dropped──► ending ──every node knows──► (gone)
 *
 *   held     Its tokens count. The one timer is set for the term that passes next.
 *   ending   It cannot be renewed. Its tokens count until its nodes know better, and its resources stay busy until then.
 *
 * Invariants:
 *  - Grants and ends of one resource never overlap: the queue has it busy in between. Against other changes of a sandbox
 *    its lane is taken.
 *  - A lease is ended once, however many ask.
 *  - After `close` no timer waits and nobody is left in the queue.
 */
import { apartFromLocks } from '../base/index.ts';
import { type LeaseId, PlatformError, type TeamId } from '../protocol/index.ts';
import type { LeaseRecord } from '../store/index.ts';
import type { ControlContext } from './context.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { LeaseGrants } from './lease-grants.ts';
import { LeaseQueue } from './lease-queue.ts';
import {
  type EndReason,
  type HeldLease,
  type LeaseRequest,
  type LeaseTerms,
  placeOf,
  placesOf,
} from './lease-types.ts';
import { pause } from './pause.ts';

/** Between attempts to tell a node that does not answer. */
const retryMs = 1_000;
/** The longest delay that a timer takes. */
const delayMaxMs = 2 ** 31 - 1;

type Tenure =
  | { readonly kind: 'held'; readonly lease: HeldLease; readonly over: AbortController }
  /** `attempted`: the first attempt to end it was made, whatever came of it. */
  | { readonly kind: 'ending'; readonly lease: HeldLease; readonly attempted: Promise<void> };

export class LeaseKeeper {
  readonly #context: ControlContext;
  readonly #grants: LeaseGrants;
  readonly #gate: LeaseGate;
  readonly #queue = new LeaseQueue<LeaseRequest>();
  readonly #tenures = new Map<LeaseId, Tenure>();
  readonly #closing = new AbortController();
  #cancelTimer: () => void = () => {};

  constructor(context: ControlContext, parts: { grants: LeaseGrants; gate: LeaseGate }) {
    this.#context = context;
    this.#grants = parts.grants;
    this.#gate = parts.gate;
  }

  /** Takes up what was held when the server last ran; a grant that was never acknowledged did not happen. */
  async open(): Promise<void> {
    const rows = await this.#context.store.read((tables) => tables.leases.listHeld());
    for (const { lease, isWhole } of leasesOf(rows, this.#context.clock)) {
      this.#queue.occupy(placesOf(lease));
      if (isWhole) this.#tenures.set(lease.id, { kind: 'held', lease, over: new AbortController() });
      else void this.#clear(lease, 'lost', () => {});
    }
    this.#schedule();
  }

  /** What is held stays held, for the server that comes next. */
  close(): void {
    this.#closing.abort();
    this.#cancelTimer();
    for (const request of this.#queue.removeAll()) request.granted.reject(shuttingDown());
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Joins the queue before the first await: the order of arrival is the order of service. */
  async join(request: LeaseRequest): Promise<void> {
    if (this.#closing.signal.aborted) return request.granted.reject(shuttingDown());
    this.#queue.add(request);
    const announced = this.#grants.announce(request);
    this.#pump();
    await announced;
  }

  /** Refuses it with this error, unless its grant has begun. */
  leave(request: LeaseRequest, error: unknown): void {
    if (!this.#queue.remove(request)) return;
    request.granted.reject(error);
    this.#pump();
  }

  /** The lease, while its tokens may be used. */
  find(leaseId: LeaseId): HeldLease | undefined {
    const tenure = this.#tenures.get(leaseId);
    if (tenure?.kind !== 'held' || tenure.lease.endsAtBootMs <= this.#context.clock.bootMs()) return undefined;
    return tenure.lease;
  }

  /** Aborts when the lease is no longer held. */
  over(leaseId: LeaseId): AbortSignal {
    const tenure = this.#tenures.get(leaseId);
    return tenure?.kind === 'held' ? tenure.over.signal : AbortSignal.abort();
  }

  /** Those that are being ended too: their resources are not free yet. */
  listOf(teamId: TeamId): HeldLease[] {
    return [...this.#tenures.values()].map(({ lease }) => lease).filter((lease) => lease.teamId === teamId);
  }

  get count(): number {
    return this.#tenures.size;
  }

  get queue(): Pick<LeaseQueue<LeaseRequest>, 'isBusy' | 'isFree' | 'countWaiting'> {
    return this.#queue;
  }

  async moveEnd(leaseId: LeaseId, term: { ttlMs?: number; endsAtBootMs: number }): Promise<HeldLease> {
    const tenure = this.#tenures.get(leaseId);
    if (tenure?.kind !== 'held') throw leaseNotFound(leaseId);
    const lease = { ...tenure.lease, ...term };
    // In memory before the first await: a timer that is due now must see the new term.
    this.#tenures.set(leaseId, { ...tenure, lease });
    this.#schedule();
    await this.#grants.writeTerm(lease);
    if (this.#tenures.get(leaseId)?.kind !== 'held') throw leaseNotFound(leaseId);
    return lease;
  }

  /** Ends it once. Resolves after the first attempt: where a node cannot be told, it is told when it is back. */
  end(leaseId: LeaseId, why: EndReason): Promise<void> {
    const tenure = this.#tenures.get(leaseId);
    if (tenure === undefined) return Promise.resolve();
    if (tenure.kind === 'ending') return tenure.attempted;
    const { promise: attempted, resolve } = Promise.withResolvers<void>();
    this.#tenures.set(leaseId, { kind: 'ending', lease: tenure.lease, attempted });
    tenure.over.abort();
    void this.#carryOutEnd(tenure.lease, why, resolve);
    return attempted;
  }

  /** A resource is gone, or its node says that its lease is. Whoever tells of it may hold its lane, and does not wait. */
  endOn(resource: string): void {
    for (const { lease } of this.#tenures.values()) {
      if (lease.resources.includes(resource)) void apartFromLocks(() => this.end(lease.id, 'lost'));
    }
  }

  /** Ends what is due. */
  async tick(): Promise<void> {
    const nowMs = this.#context.clock.bootMs();
    const due = [...this.#tenures.values()].filter(({ lease }) => lease.endsAtBootMs <= nowMs);
    await Promise.all(due.map(({ lease }) => this.end(lease.id, 'lost')));
    this.#schedule();
  }

  /** Begins every grant that is possible now. */
  #pump(): void {
    if (this.#closing.signal.aborted) return;
    for (const request of this.#queue.takeReady()) void apartFromLocks(() => this.#grantOrClear(request));
  }

  async #grantOrClear(request: LeaseRequest): Promise<void> {
    const refuse = await this.#grant(request);
    // Some of its resources may have it already. Who is refused finds them free again, unless a node cannot be told.
    if (refuse !== undefined) await this.#clear(request, 'lost', refuse);
  }

  /** Undefined when it is granted, otherwise how to refuse it: when its resources are cleared. */
  async #grant(request: LeaseRequest, ended?: EndReason): Promise<(() => void) | undefined> {
    try {
      const lease = await this.#grants.grant(request, ended);
      this.#tenures.set(lease.id, { kind: 'held', lease, over: new AbortController() });
      request.granted.resolve(lease);
      this.#schedule();
      return undefined;
    } catch (error) {
      return () => request.granted.reject(error);
    }
  }

  async #carryOutEnd(lease: HeldLease, why: EndReason, attempted: () => void): Promise<void> {
    const successor = this.#takeSuccessor(lease);
    const refuse = successor && (await this.#grant(successor, why));
    if (successor === undefined || refuse !== undefined) {
      await this.#clear(lease, why, () => {
        refuse?.();
        attempted();
      });
    }
    attempted();
    if (!this.#closing.signal.aborted) this.#tenures.delete(lease.id);
  }

  /** Who gets it with one order to the node instead of two: the next in line, where both have just this. */
  #takeSuccessor(lease: HeldLease): LeaseRequest | undefined {
    const [place, another] = placesOf(lease);
    return place === undefined || another !== undefined ? undefined : this.#queue.takeSuccessor(place);
  }

  /** Frees every resource, each as soon as its node knows; one whose node does not answer is tried until it does. */
  async #clear(lease: LeaseTerms | HeldLease, why: EndReason, attempted: () => void): Promise<void> {
    let left = lease.resources;
    for (;;) {
      const freed = await Promise.all(left.map((resource) => this.#free(lease, resource, why)));
      left = left.filter((_, index) => !freed[index]);
      if (left.length > 0) await this.#markOver(lease);
      attempted();
      if (left.length === 0) return;
      await pause(this.#context.timers, retryMs, this.#closing.signal);
      if (this.#closing.signal.aborted) return;
    }
  }

  async #free(lease: LeaseTerms, resource: string, why: EndReason): Promise<boolean> {
    try {
      await this.#grants.vacate(lease, resource, why);
    } catch (error) {
      this.#context.logger.warn('a lease could not be ended yet', { leaseId: lease.id, resource, error });
      return false;
    }
    this.#queue.free(placeOf(lease, resource));
    this.#gate.opened(resource);
    this.#pump();
    return true;
  }

  /** What was given up is not given back by a restart. */
  async #markOver(lease: LeaseTerms | HeldLease): Promise<void> {
    if (!('tokens' in lease)) return;
    try {
      await this.#grants.writeTerm({ ...lease, endsAtBootMs: this.#context.clock.bootMs() });
    } catch (error) {
      this.#context.logger.warn('the end of a lease could not be written', { leaseId: lease.id, error });
    }
  }

  /** One timer, for the lease that ends next. */
  #schedule(): void {
    this.#cancelTimer();
    if (this.#closing.signal.aborted) return;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { kind, lease } of this.#tenures.values()) {
      if (kind === 'held') nextMs = Math.min(nextMs, lease.endsAtBootMs);
    }
    if (nextMs === Number.POSITIVE_INFINITY) return;
    const delayMs = Math.min(Math.max(nextMs - this.#context.clock.bootMs(), 0), delayMaxMs);
    this.#cancelTimer = this.#context.timers.after(delayMs, () => void this.tick());
  }
}

export function leaseNotFound(leaseId: LeaseId): PlatformError {
  return new PlatformError('lease_not_found', `There is no lease ${leaseId}, or it has ended.`, {
    details: { leaseId },
  });
}

function shuttingDown(): PlatformError {
  return new PlatformError('shutting_down', 'The server is stopping; the lease was not granted.');
}

/** What the store has, as leases again. Terms of an earlier boot begin anew. */
function leasesOf(
  rows: readonly LeaseRecord[],
  clock: ControlContext['clock'],
): Iterable<{ lease: HeldLease; isWhole: boolean }> {
  const leases = new Map<LeaseId, { lease: HeldLease; isWhole: boolean }>();
  for (const { teamId, resource, token, holder } of rows) {
    if (holder === null) continue;
    const { leaseId: id, keyId, reason, ttlMs, grantedAtMs } = holder;
    const known = leases.get(id);
    const lease: HeldLease = {
      ...{ id, teamId, keyId, holder: holder.name, reason, ttlMs, grantedAtMs },
      resources: [...(known?.lease.resources ?? []), resource],
      tokens: [...(known?.lease.tokens ?? []), token],
      endsAtBootMs: holder.bootId === clock.bootId ? holder.endsAtBootMs : clock.bootMs() + ttlMs,
    };
    leases.set(id, { lease, isWhole: (known?.isWhole ?? true) && holder.acknowledged });
  }
  return leases.values();
}
