/** What changes something in a life of a sandbox, a process or a terminal: under the caller's key, for the life it names, with the lease it needs. */
import type { Conditions, LifeOrder, SandboxId } from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { Mutations } from './mutations.ts';
import { lifeIn, type SandboxRecords } from './sandbox-records.ts';

/** What every surface of a sandbox works with. */
export interface CallParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
}

export interface ChangeAsked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly kind: string;
  /** What a repeat under the same key has in common with the first. */
  readonly request: unknown;
}

export interface ChangeOrder extends LifeOrder {
  readonly leaseToken: number | null;
}

export function changeInLife<Result>(
  parts: CallParts,
  asked: ChangeAsked,
  effect: (record: SandboxRecord, order: ChangeOrder) => Promise<Result>,
): Promise<Result> {
  const { caller, sandboxId, conditions, kind, request } = asked;
  return parts.mutations.run({
    ...{ caller, kind, conditions, request },
    about: (tables) => lifeIn(tables, sandboxId),
    effect: () =>
      parts.gate.pass(sandboxId, conditions, async () => {
        const record = await parts.records.openTo(caller, sandboxId, conditions);
        return await effect(record, { ...lifeOrderOf(record), leaseToken: conditions.leaseToken ?? null });
      }),
  });
}

export function lifeOrderOf(record: SandboxRecord): LifeOrder {
  return { sandboxId: record.id, generation: record.generation };
}
