/** Leases: rights to act on sandboxes, or on names of the team's own, that end by themselves. */
import {
  type BodyInputOf,
  isPlatformError,
  type LeaseView,
  PlatformError,
  type ResultOf,
  routes,
} from '../protocol/index.ts';
import type { CallOptions, Connection } from './connection.ts';

export type AcquireLeaseOptions = Omit<BodyInputOf<(typeof routes)['acquireLease']>, 'holder'> & {
  /** Shown to those who wait. */
  readonly holder?: string;
} & CallOptions;

export interface HeldLease {
  readonly lease: LeaseView;
  /** Aborts when the lease is lost, or the caller's own signal does. */
  readonly signal: AbortSignal;
}

const defaultHolder = 'atoll-sdk';
/** A lease is renewed so many times per term: two answers may be lost before it is. */
const renewalsPerTerm = 3;

export class Leases {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Waits up to `waitMs`; all of the resources or none. */
  acquire(options: AcquireLeaseOptions): Promise<LeaseView> {
    const { resources, holder = defaultHolder, reason, ttlMs, waitMs, signal, idempotencyKey } = options;
    return this.#connection.call(routes.acquireLease, {
      body: {
        resources,
        holder,
        ...(reason !== undefined && { reason }),
        ...(ttlMs !== undefined && { ttlMs }),
        ...(waitMs !== undefined && { waitMs }),
      },
      timeoutMs: null,
      ...(signal && { signal }),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
    });
  }

  renew(
    leaseId: string,
    options: CallOptions & { readonly ttlMs?: number; readonly timeoutMs?: number } = {},
  ): Promise<LeaseView> {
    const { ttlMs, ...call } = options;
    return this.#connection.call(routes.renewLease, {
      params: { leaseId },
      body: ttlMs === undefined ? {} : { ttlMs },
      ...call,
    });
  }

  async release(leaseId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.releaseLease, { params: { leaseId }, ...options });
  }

  async list(options: { readonly resource?: string; readonly signal?: AbortSignal } = {}) {
    const { resource, signal } = options;
    const answer: ResultOf<(typeof routes)['listLeases']> = await this.#connection.call(routes.listLeases, {
      query: resource === undefined ? {} : { resource },
      ...(signal && { signal }),
    });
    return answer.items;
  }

  /**
   * Runs `work` while holding a lease that is renewed meanwhile, and releases it afterwards. When the lease is lost, the
   * signal given to `work` aborts, and once `work` has ended the call is rejected with `lease_lost`.
   */
  async hold<Result>(options: AcquireLeaseOptions, work: (held: HeldLease) => Promise<Result>): Promise<Result> {
    const lease = await this.acquire(options);
    const lost = new AbortController();
    const over = new AbortController();
    const keeping = this.#keep(lease, { over: over.signal, lose: (error) => lost.abort(error) });
    try {
      const signal = options.signal ? AbortSignal.any([lost.signal, options.signal]) : lost.signal;
      const result = await work({ lease, signal });
      if (lost.signal.aborted) throw lost.signal.reason;
      return result;
    } catch (error) {
      throw lost.signal.aborted ? lost.signal.reason : error;
    } finally {
      over.abort();
      await keeping;
      // If it cannot be said, the lease ends by itself.
      if (!lost.signal.aborted) await this.release(lease.id).catch(() => undefined);
    }
  }

  async #keep(
    lease: LeaseView,
    options: { readonly over: AbortSignal; readonly lose: (error: PlatformError) => void },
  ): Promise<void> {
    const { over, lose } = options;
    const { clock } = this.#connection;
    const stepMs = lease.ttlMs / renewalsPerTerm;
    let endsAtMs = clock.nowMs() + lease.endsInMs;
    while (true) {
      await clock.wait(Math.max(0, Math.min(stepMs, endsAtMs - clock.nowMs())), over);
      if (over.aborted) return;
      const leftMs = endsAtMs - clock.nowMs();
      if (leftMs <= 0)
        return lose(new PlatformError('lease_lost', 'The lease ended: it could not be renewed in time.'));
      const sentAtMs = clock.nowMs();
      try {
        await this.renew(lease.id, { signal: over, timeoutMs: Math.ceil(Math.min(stepMs, leftMs)) });
        // Counted from before the request: the server began the term later than that, never earlier.
        endsAtMs = sentAtMs + lease.ttlMs;
      } catch (error) {
        if (over.aborted) return;
        if (isPlatformError(error, 'lease_not_found', 'lease_lost', 'unauthenticated', 'forbidden')) {
          return lose(new PlatformError('lease_lost', `The lease was lost: ${error.message}`, { cause: error }));
        }
      }
    }
  }
}
