/** Leases as the store has them, and the events that tell of them; what is written here belongs to somebody's transaction. */
import { isId, type TeamId } from '../protocol/index.ts';
import type { LeaseHolder, LeaseRecord, Tables } from '../store/index.ts';
import type { EndReason, LeaseTerms } from './lease-types.ts';

export interface LeasePlace {
  readonly teamId: TeamId;
  readonly resource: string;
}

export interface LeaseEnd {
  readonly why: EndReason;
  readonly atMs: number;
}

/** Nobody holds it from now on. */
export async function vacateRow(tables: Tables, place: LeasePlace, end: LeaseEnd): Promise<void> {
  const row = await tellEnd(tables, place, end);
  if (row !== undefined) await tables.leases.put({ ...row, holder: null });
}

/** The row as its holder leaves it, for whoever replaces it. A grant that was never acknowledged did not happen, so its end is no event. */
export async function tellEnd(tables: Tables, place: LeasePlace, end: LeaseEnd): Promise<LeaseRecord | undefined> {
  const row = await tables.leases.find({ teamId: place.teamId, resource: place.resource });
  if (row === undefined || row.holder === null) return undefined;
  if (row.holder.acknowledged) {
    await appendLeaseEvent(tables, `lease.${end.why}`, { ...place, atMs: end.atMs, ...eventDataOf(row.holder, row) });
  }
  return row;
}

function eventDataOf(holder: LeaseHolder, row: LeaseRecord) {
  return { leaseId: holder.leaseId, holder: holder.name, reason: holder.reason, token: row.token };
}

export async function appendLeaseEvent(
  tables: Tables,
  kind: string,
  lease: LeasePlace &
    Pick<LeaseTerms, 'holder' | 'reason'> & {
      readonly leaseId: string;
      /** null: not yet granted. */
      readonly token: number | null;
      readonly atMs: number;
    },
): Promise<void> {
  const { teamId, resource, atMs, leaseId, holder, reason, token } = lease;
  const sandboxId = isId('sandbox', resource) ? resource : null;
  await tables.events.append({ teamId, sandboxId, kind, atMs, data: { leaseId, resource, holder, reason, token } });
}
