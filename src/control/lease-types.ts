/** What a lease is while this process knows of it. */
import { isId, type KeyId, type LeaseId, type TeamId } from '../protocol/index.ts';

export interface LeaseTerms {
  readonly id: LeaseId;
  readonly teamId: TeamId;
  readonly keyId: KeyId;
  readonly resources: readonly string[];
  readonly holder: string;
  readonly reason: string;
  readonly ttlMs: number;
}

/** Somebody who waits, or is being granted what they waited for. */
export interface LeaseRequest extends LeaseTerms {
  readonly places: readonly string[];
  readonly granted: PromiseWithResolvers<HeldLease>;
}

export interface HeldLease extends LeaseTerms {
  /** One per resource, in their order. */
  readonly tokens: readonly number[];
  readonly grantedAtMs: number;
  readonly endsAtBootMs: number;
}

/** `lost` when it was not given up: its term passed, or its sandbox was deleted. */
export type EndReason = 'released' | 'lost';

/** A resource among those of all teams. A sandbox's id is the only one of its kind; a name is its team's own. */
export function placeOf(lease: { readonly teamId: TeamId }, resource: string): string {
  return isId('sandbox', resource) ? resource : `${lease.teamId} ${resource}`;
}

export function placesOf(lease: Pick<LeaseTerms, 'teamId' | 'resources'>): string[] {
  return lease.resources.map((resource) => placeOf(lease, resource));
}
