/**
 * The lease of whoever works on a plan: on its members by id, then on its targets by id, all or none. Everybody asks in this one order, and the
 * queue grants all of a request or nothing, so plans that share members or targets wait for each other and never in a circle. While it is held,
 * control, node and init refuse every effect on the members that does not bring its tokens.
 */
import { askFor, type LockPlace, whileHeld } from '../../base/index.ts';
import {
  type KeyId,
  type LeaseId,
  type PlanCheckpointId,
  type PlanId,
  PlatformError,
  type SandboxId,
  type WorkspaceId,
} from '../../protocol/index.ts';
import type { PlanRecord, Readers } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import { derivedId } from '../derived-ids.ts';
import type { LeaseKeeper } from '../lease-keeper.ts';
import type { HeldLease } from '../lease-types.ts';
import type { Leases } from '../leases.ts';
import { pause } from '../pause.ts';
import { targetResource } from './plan-records.ts';

/** How long members stay pinned after a coordinator that died. */
const ttlMs = 60_000;
const leaseLock: LockPlace = { name: 'lease of a plan', rank: 0.5 };

export interface LeaseWish {
  readonly plan: Pick<PlanRecord, 'id' | 'teamId' | 'name'>;
  /** Whose turn it is: its fence, or the checkpoint that it makes. Its lease is named after it. */
  readonly turn: number | PlanCheckpointId;
  readonly keyId: KeyId;
  readonly reason: string;
  readonly members: readonly SandboxId[];
  readonly targets: readonly WorkspaceId[];
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** What its holder may do, and until when. */
export interface PlanHold {
  readonly leaseId: LeaseId;
  /** Aborts when the lease is lost, or the caller's signal does. */
  readonly signal: AbortSignal;
  tokenOf(sandboxId: SandboxId): number;
}

export class PlanLeases {
  readonly #context: ControlContext;
  readonly #leases: Leases;
  readonly #keeper: LeaseKeeper;

  constructor(context: ControlContext, parts: { leases: Leases; keeper: LeaseKeeper }) {
    this.#context = context;
    this.#leases = parts.leases;
    this.#keeper = parts.keeper;
  }

  /** Runs the work while it is held, renewed all the time; the lease is ended whatever comes of the work. */
  async holding<Result>(wish: LeaseWish, work: (hold: PlanHold) => Promise<Result>): Promise<Result> {
    const members = [...new Set(wish.members)].sort();
    const targets = [...new Set(wish.targets)].sort();
    const resources = [...members, ...targets.map(targetResource)];
    return await inOrder([...members.map((id) => `member ${id}`), ...targets.map((id) => `target ${id}`)], async () => {
      const { plan, keyId, reason } = wish;
      const id = planLeaseId(plan.id, wish.turn);
      const terms = { id, teamId: plan.teamId, keyId, resources, holder: planHolder(plan.id), reason, ttlMs };
      // An empty lease pins nothing: there is nothing to wait for.
      const lease = resources.length === 0 ? undefined : await this.#leases.take(terms, wish.waitMs, wish.signal);
      const over = lease === undefined ? [] : [this.#keeper.over(id)];
      const done = new AbortController();
      const renewing = lease === undefined ? undefined : this.#renew(lease, done.signal);
      try {
        return await work({
          leaseId: id,
          signal: AbortSignal.any([wish.signal, ...over]),
          tokenOf: (sandboxId) => tokenOf(lease, sandboxId),
        });
      } finally {
        done.abort();
        await renewing;
        await this.end(id);
      }
    });
  }

  /** Of one that is not held: succeeds. */
  async end(leaseId: LeaseId): Promise<void> {
    await this.#keeper.end(leaseId, 'released');
  }

  async #renew(lease: HeldLease, done: AbortSignal): Promise<void> {
    const { timers, clock, logger } = this.#context;
    const until = AbortSignal.any([done, this.#keeper.over(lease.id), this.#keeper.closing]);
    for (;;) {
      await pause(timers, ttlMs / 3, until);
      if (until.aborted) return;
      try {
        await this.#keeper.moveEnd(lease.id, { endsAtBootMs: clock.bootMs() + ttlMs });
      } catch (error) {
        // It ends by itself then, and whoever works under it is told by the signal.
        logger.warn('the lease of a plan could not be renewed', { leaseId: lease.id, error });
      }
    }
  }
}

/** Of whoever works on a plan in this turn: known to those who come after a crash. */
export function planLeaseId(planId: PlanId, turn: LeaseWish['turn']): LeaseId {
  return derivedId('lease', `plan ${planId} ${turn}`);
}

/** How whoever works on a plan is called among those who hold leases. */
export function planHolder(planId: PlanId): string {
  return `plan ${planId}`;
}

/** Inside a transaction: every resource is still this lease's. */
export async function checkLeaseHeld(
  tables: Readers,
  plan: Pick<PlanRecord, 'id' | 'teamId'>,
  held: { readonly leaseId: LeaseId; readonly members: readonly SandboxId[]; readonly targets: readonly WorkspaceId[] },
): Promise<void> {
  for (const resource of [...held.members, ...held.targets.map(targetResource)]) {
    const row = await tables.leases.find({ teamId: plan.teamId, resource });
    if (row?.holder?.leaseId === held.leaseId && row.holder.acknowledged) continue;
    const message = `The lease of ${plan.id} on ${resource} was lost before the decision.`;
    throw new PlatformError('plan_commit_expired', message, { details: { resource } });
  }
}

/** Tells whoever watches the order of locks that these are held, one inside the other. */
function inOrder<Result>(keys: readonly string[], task: () => Promise<Result>): Promise<Result> {
  const [first, ...rest] = keys;
  if (first === undefined) return task();
  return whileHeld(askFor(leaseLock, first, true), () => inOrder(rest, task));
}

function tokenOf(lease: HeldLease | undefined, sandboxId: SandboxId): number {
  const token = lease?.tokens[lease.resources.indexOf(sandboxId)];
  if (token === undefined) throw new Error(`The lease of the plan does not cover ${sandboxId}.`);
  return token;
}
