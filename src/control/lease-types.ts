/** What a lease is while this process knows of it. */
import type { KeyId, LeaseId, TeamId } from '../protocol/index.ts';

export interface LeaseTerms {
  readonly id: LeaseId;
  readonly teamId: TeamId;
  readonly keyId: KeyId;
  readonly resources: readonly string[];
  readonly holder: string;
  readonly reason: string;
  readonly ttlMs: number;
}

export interface LeaseRequest extends LeaseTerms {
  readonly places: readonly string[];
  readonly granted: PromiseWithResolvers<HeldLease>;
}

export interface HeldLease extends LeaseTerms {
  /** One per resource, in their order. */
  readonly tokens: readonly number[];
  readonly grantedAtMs: number;
  readonly endsAtBootMs: number;
  readonly isAcknowledged: boolean;
  readonly isEnding: boolean;
}

/** `lost` when it was not given up: its term passed, or its sandbox was deleted. */
export type EndReason = 'released' | 'lost';

export function placesOf(lease: Pick<LeaseTerms, 'teamId' | 'resources'>): string[] {
  return lease.resources.map((resource) => `${lease.teamId} ${resource}`);
}
