/**
 * Carries grants and ends of leases out on store and nodes. A sandbox's token is applied on its node before it is committed,
 * in the sandbox's lane; a lease on several resources counts only when all have it.
 *
 * Nothing here is undone: a grant that fails midway is cleared by its caller, who keeps the resources busy until then.
 */
import { isId, PlatformError, type SandboxId } from '../protocol/index.ts';
import type { LeaseHolder, LeaseRecord, SandboxRecord, Tables } from '../store/index.ts';
import type { ControlContext } from './context.ts';
import { appendLeaseEvent, type LeasePlace, tellEnd, vacateRow } from './lease-rows.ts';
import type { EndReason, HeldLease, LeaseRequest, LeaseTerms } from './lease-types.ts';
import type { Lane } from './sandbox-lanes.ts';
import { notFound, type SandboxRecords } from './sandbox-records.ts';

interface LeaseMark {
  readonly leaseToken?: number;
  readonly leaseHeld: boolean;
  readonly by: string;
  readonly also: (tables: Tables) => Promise<void>;
}

export class LeaseGrants {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;

  constructor(context: ControlContext, records: SandboxRecords) {
    this.#context = context;
    this.#records = records;
  }

  async announce(request: LeaseRequest): Promise<void> {
    await this.#context.store.transact(async (tables) => {
      for (const resource of request.resources) await this.#tell(tables, 'lease.requested', request, resource, null);
    });
    this.#context.events.notify();
  }

  /** With `ended`, a single resource passes from its holder to this one in one step. */
  async grant(request: LeaseRequest, ended?: EndReason): Promise<HeldLease> {
    const tokens: number[] = [];
    for (const resource of request.resources) tokens.push(await this.#grantOne(request, resource, ended));
    const lease = this.#heldOf(request, tokens);
    if (request.resources.length > 1) await this.#acknowledge(lease);
    return lease;
  }

  /** Whoever has the resource has it no more; harmless to repeat. */
  async vacate(lease: LeaseTerms, resource: string, why: EndReason): Promise<void> {
    if (isId('sandbox', resource)) {
      await this.#context.lanes.run(resource, async (lane) => {
        const record = await this.#records.find(resource);
        if (record !== undefined) await this.vacateSandbox(lane, record, { why, by: lease.keyId });
      });
      return;
    }
    await this.#forget({ teamId: lease.teamId, resource }, why);
  }

  async vacateSandbox(lane: Lane, record: SandboxRecord, end: { why: EndReason; by: string }): Promise<void> {
    const place = { teamId: record.teamId, resource: record.id };
    if (!record.leaseHeld) return await this.#forget(place, end.why);
    const also = (tables: Tables) => vacateRow(tables, place, { why: end.why, atMs: this.#context.clock.nowMs() });
    await this.#mark(lane, record, { leaseHeld: false, by: end.by, also });
  }

  /** The term as it is now; of a lease that has ended meanwhile, nothing. */
  async writeTerm(lease: HeldLease): Promise<void> {
    const { bootId } = this.#context.clock;
    const { ttlMs, endsAtBootMs } = lease;
    await this.#context.store.transact(async (tables) => {
      for (const resource of lease.resources) {
        const row = await tables.leases.find({ teamId: lease.teamId, resource });
        if (row?.holder?.leaseId !== lease.id) continue;
        await tables.leases.put({ ...row, holder: { ...row.holder, ttlMs, endsAtBootMs, bootId } });
      }
    });
  }

  async #grantOne(request: LeaseRequest, resource: string, ended: EndReason | undefined): Promise<number> {
    const isWhole = request.resources.length === 1;
    const put = async (tables: Tables, token: number) => {
      const place = { teamId: request.teamId, resource };
      if (ended !== undefined) await tellEnd(tables, place, { why: ended, atMs: this.#context.clock.nowMs() });
      await tables.leases.put(this.#rowOf(this.#heldOf(request, []), { resource, token, acknowledged: isWhole }));
      if (isWhole) await this.#tell(tables, 'lease.granted', request, resource, token);
    };
    if (isId('sandbox', resource)) return await this.#grantSandbox(request, resource, put);
    const token = await this.#context.store.transact(async (tables) => {
      const row = await tables.leases.find({ teamId: request.teamId, resource });
      const next = (row?.token ?? 0) + 1;
      await put(tables, next);
      return next;
    });
    this.#context.events.notify();
    return token;
  }

  #grantSandbox(
    request: LeaseRequest,
    sandboxId: SandboxId,
    put: (tables: Tables, token: number) => Promise<void>,
  ): Promise<number> {
    return this.#context.lanes.run(sandboxId, async (lane) => {
      const record = await this.#records.get(request, sandboxId);
      checkCanBeLeased(record);
      const token = record.leaseToken + 1;
      const also = (tables: Tables) => put(tables, token);
      await this.#mark(lane, record, { leaseToken: token, leaseHeld: true, by: request.keyId, also });
      return token;
    });
  }

  /** A sandbox that does not run has no node to tell: what it starts with carries the token. */
  async #mark(lane: Lane, record: SandboxRecord, mark: LeaseMark): Promise<void> {
    const { by, also, ...marks } = mark;
    if (record.state.kind === 'running' || record.state.kind === 'paused') {
      await this.#records.change(lane, record, { ...marks, by, operationId: null, events: [], also });
      return;
    }
    const marked = { ...this.#records.withState(record, record.state), ...marks };
    await this.#records.commit(lane, { record: marked, events: [], also });
  }

  async #acknowledge(lease: HeldLease): Promise<void> {
    await this.#context.faults.hit('before-acknowledge-lease');
    await this.#context.store.transact(async (tables) => {
      for (const [index, resource] of lease.resources.entries()) {
        const token = lease.tokens[index]!;
        await tables.leases.put(this.#rowOf(lease, { resource, token, acknowledged: true }));
        await this.#tell(tables, 'lease.granted', lease, resource, token);
      }
    });
    this.#context.events.notify();
  }

  async #forget(place: LeasePlace, why: EndReason): Promise<void> {
    const atMs = this.#context.clock.nowMs();
    await this.#context.store.transact((tables) => vacateRow(tables, place, { why, atMs }));
    this.#context.events.notify();
  }

  #heldOf(request: LeaseTerms, tokens: readonly number[]): HeldLease {
    const { id, teamId, keyId, resources, holder, reason, ttlMs } = request;
    return {
      ...{ id, teamId, keyId, resources, holder, reason, ttlMs, tokens },
      grantedAtMs: this.#context.clock.nowMs(),
      endsAtBootMs: this.#context.clock.bootMs() + ttlMs,
    };
  }

  #rowOf(lease: HeldLease, grant: { resource: string; token: number; acknowledged: boolean }): LeaseRecord {
    const holder: LeaseHolder = {
      leaseId: lease.id,
      name: lease.holder,
      reason: lease.reason,
      keyId: lease.keyId,
      ttlMs: lease.ttlMs,
      grantedAtMs: lease.grantedAtMs,
      bootId: this.#context.clock.bootId,
      endsAtBootMs: lease.endsAtBootMs,
      acknowledged: grant.acknowledged,
    };
    return { teamId: lease.teamId, resource: grant.resource, token: grant.token, holder };
  }

  #tell(tables: Tables, kind: string, lease: LeaseTerms, resource: string, token: number | null): Promise<void> {
    const { id: leaseId, teamId, holder, reason } = lease;
    const atMs = this.#context.clock.nowMs();
    return appendLeaseEvent(tables, kind, { teamId, resource, leaseId, holder, reason, token, atMs });
  }
}

/** In a transition an order is on its way to the node whose settings the grant would not be part of. */
function checkCanBeLeased(record: SandboxRecord): void {
  const { kind } = record.state;
  if (kind === 'deleting') throw notFound(record.id);
  if (kind === 'running' || kind === 'paused' || kind === 'stopped') return;
  const message = `Sandbox ${record.id} is ${kind}: neither running, paused nor stopped.`;
  throw new PlatformError('sandbox_wrong_state', message, { details: { state: kind } });
}
