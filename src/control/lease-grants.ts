/**
 * Carries grants and ends of leases out on store and nodes. A sandbox's token is applied on its node before it is committed, in the
 * sandbox's lane; a lease on several resources counts only when all have it, and is taken back as a whole otherwise.
 */
import { isId, type SandboxId } from '../protocol/index.ts';
import type { LeaseHolder, LeaseRecord, SandboxRecord, Tables } from '../store/index.ts';
import type { ControlContext } from './context.ts';
import type { EndReason, HeldLease, LeaseRequest, LeaseTerms } from './lease-types.ts';
import type { Lane } from './sandbox-lanes.ts';
import { notFound, type SandboxRecords, type SettingsUpdate } from './sandbox-records.ts';

interface Ended {
  readonly lease: HeldLease;
  readonly why: EndReason;
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
      for (const resource of request.resources) await this.#append(tables, 'lease.requested', request, resource, null);
    });
    this.#context.events.notify();
  }

  /** With `ended`, the resources pass from one holder to the next in one step each. */
  async grant(request: LeaseRequest, ended?: Ended): Promise<HeldLease> {
    const isSingle = request.resources.length === 1;
    const tokens: number[] = [];
    try {
      for (const resource of request.resources) {
        tokens.push(await this.#grantOne(request, resource, { acknowledged: isSingle, ended }));
      }
      if (!isSingle) await this.#acknowledge(request, tokens);
    } catch (error) {
      const taken = { ...request, resources: request.resources.slice(0, tokens.length) };
      if (tokens.length > 0) await this.end(this.#heldOf(taken, tokens), 'lost');
      throw error;
    }
    return this.#heldOf(request, tokens);
  }

  async end(lease: HeldLease, why: EndReason): Promise<void> {
    for (const [index, resource] of lease.resources.entries()) {
      const token = lease.tokens[index] ?? 0;
      const forget = async (tables: Tables) => {
        await tables.leases.put({ teamId: lease.teamId, resource, token, holder: null });
        await this.#append(tables, `lease.${why}`, lease, resource, token);
      };
      if (!isId('sandbox', resource)) {
        await this.#context.store.transact(forget);
        this.#context.events.notify();
        continue;
      }
      await this.#context.lanes.run(resource, async (lane) => {
        const record = await this.#records.find(resource);
        if (record === undefined || record.leaseToken !== token || !record.leaseHeld) return;
        await this.#change(lane, record, {
          leaseHeld: false,
          by: lease.keyId,
          operationId: null,
          events: [],
          also: forget,
        });
      });
    }
  }

  async writeTerm(lease: HeldLease): Promise<void> {
    await this.#context.store.transact(async (tables) => {
      for (const [index, resource] of lease.resources.entries()) {
        const token = lease.tokens[index] ?? 0;
        const found = await tables.leases.find({ teamId: lease.teamId, resource });
        if (found?.holder?.leaseId !== lease.id) continue;
        await tables.leases.put(this.#recordOf(lease, { resource, token, acknowledged: true }));
      }
    });
  }

  /** Takes the mark of a lease that nobody holds off a sandbox. In its lane. */
  async repair(lane: Lane, record: SandboxRecord): Promise<void> {
    await this.#change(lane, record, { leaseHeld: false, by: 'reconcile', operationId: null, events: [] });
  }

  async #grantOne(request: LeaseRequest, resource: string, how: { acknowledged: boolean; ended: Ended | undefined }) {
    const put = async (tables: Tables, token: number) => {
      await tables.leases.put(
        this.#recordOf(this.#heldOf(request, []), { resource, token, acknowledged: how.acknowledged }),
      );
      if (how.ended !== undefined) {
        await this.#append(tables, `lease.${how.ended.why}`, how.ended.lease, resource, token - 1);
      }
      if (how.acknowledged) await this.#append(tables, 'lease.granted', request, resource, token);
    };
    if (!isId('sandbox', resource)) {
      const token = await this.#context.store.transact(async (tables) => {
        const found = await tables.leases.find({ teamId: request.teamId, resource });
        const next = (found?.token ?? 0) + 1;
        await put(tables, next);
        return next;
      });
      this.#context.events.notify();
      return token;
    }
    return await this.#context.lanes.run(resource, async (lane) => {
      const record = await this.#find(request, resource);
      const token = record.leaseToken + 1;
      await this.#change(lane, record, {
        leaseToken: token,
        leaseHeld: true,
        by: request.keyId,
        operationId: null,
        events: [],
        also: (tables) => put(tables, token),
      });
      return token;
    });
  }

  /** A sandbox that does not run has no node to tell: what it starts with carries the token. */
  async #change(lane: Lane, record: SandboxRecord, update: SettingsUpdate): Promise<void> {
    if (record.state.kind === 'running') {
      await this.#records.change(lane, record, update);
      return;
    }
    const next: SandboxRecord = {
      ...record,
      leaseToken: update.leaseToken ?? record.leaseToken,
      leaseHeld: update.leaseHeld ?? record.leaseHeld,
      version: record.version + 1,
      updatedAtMs: this.#context.clock.nowMs(),
    };
    await this.#records.commit(lane, {
      record: next,
      events: update.events,
      ...(update.also && { also: update.also }),
    });
  }

  async #find(request: LeaseRequest, sandboxId: SandboxId): Promise<SandboxRecord> {
    const record = await this.#records.find(sandboxId);
    if (record === undefined || record.state.kind === 'deleting') throw notFound(sandboxId);
    return await this.#records.get(request, sandboxId);
  }

  async #acknowledge(request: LeaseRequest, tokens: readonly number[]): Promise<void> {
    const held = this.#heldOf(request, tokens);
    await this.#context.store.transact(async (tables) => {
      for (const [index, resource] of request.resources.entries()) {
        const token = tokens[index] ?? 0;
        await tables.leases.put(this.#recordOf(held, { resource, token, acknowledged: true }));
        await this.#append(tables, 'lease.granted', request, resource, token);
      }
    });
    this.#context.events.notify();
  }

  #heldOf(request: LeaseTerms, tokens: readonly number[]): HeldLease {
    const { id, teamId, keyId, resources, holder, reason, ttlMs } = request;
    return {
      ...{ id, teamId, keyId, resources, holder, reason, ttlMs, tokens },
      grantedAtMs: this.#context.clock.nowMs(),
      endsAtBootMs: this.#context.clock.bootMs() + ttlMs,
      isAcknowledged: true,
      isEnding: false,
    };
  }

  #recordOf(lease: HeldLease, grant: { resource: string; token: number; acknowledged: boolean }): LeaseRecord {
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

  async #append(
    tables: Tables,
    kind: string,
    lease: LeaseTerms,
    resource: string,
    token: number | null,
  ): Promise<void> {
    await tables.events.append({
      teamId: lease.teamId,
      sandboxId: isId('sandbox', resource) ? resource : null,
      kind,
      atMs: this.#context.clock.nowMs(),
      data: { leaseId: lease.id, resource, holder: lease.holder, reason: lease.reason, token },
    });
  }
}
