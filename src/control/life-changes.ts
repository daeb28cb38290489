/**
 * How the life of a sandbox is changed: under the caller's key, past the gate of its lease, in its lane, checked there. What was interrupted
 * is looked at before it is done again.
 */
import { type Conditions, PlatformError, type SandboxId, type SandboxView } from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { CallParts } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import type { Operation } from './mutations.ts';
import type { Lane } from './sandbox-lanes.ts';
import { lifeIn } from './sandbox-records.ts';

export interface LifeAsked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly kind: string;
  readonly body: unknown;
}

export interface LifeWork {
  readonly effect: (lane: Lane, record: SandboxRecord, operation: Operation) => Promise<SandboxRecord>;
  /** What is left of one that was interrupted in this generation; undefined: it was never begun. */
  readonly rest: (
    lane: Lane,
    record: SandboxRecord,
    begun: { operation: Operation; generation: number },
  ) => Promise<SandboxRecord | undefined>;
}

export class LifeChanges {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  run(asked: LifeAsked, work: LifeWork): Promise<SandboxView> {
    const { caller, sandboxId, conditions, kind, body } = asked;
    const enter = (change: (lane: Lane, record: SandboxRecord) => Promise<SandboxRecord>) =>
      this.#parts.gate.pass(sandboxId, conditions, async () => {
        await this.#parts.records.get(caller, sandboxId);
        const record = await this.#context.lanes.run(sandboxId, async (lane) =>
          change(lane, await this.#parts.records.get(caller, sandboxId)),
        );
        return await this.#parts.records.view(record);
      });
    const checked = async (lane: Lane, record: SandboxRecord, operation: Operation) => {
      await this.#parts.records.check(record, conditions);
      return await work.effect(lane, record, operation);
    };
    return this.#parts.mutations.run({
      caller,
      kind,
      conditions,
      request: { sandboxId, body },
      about: (tables) => lifeIn(tables, sandboxId),
      effect: (operation) => enter((lane, record) => checked(lane, record, operation)),
      // What was begun was admitted, and has itself changed version and generation: only what never was is checked.
      resume: (operation) =>
        enter(async (lane, record) => {
          const begun = { operation, generation: generationOf(operation) };
          return (await work.rest(lane, record, begun)) ?? (await checked(lane, record, operation));
        }),
    });
  }
}

function generationOf(operation: Operation): number {
  return Number(operation.subjectId?.split(' ')[1]);
}

export function overtaken(operation: Operation, why: string): PlatformError {
  const message = `This was interrupted before it could be answered, and is not done again. ${why}`;
  return new PlatformError('operation_in_doubt', message, { details: { operationId: operation.id } });
}
