/**
 * Forks: sandboxes that begin with the files of another as of one instant. One checkpoint that nobody sees is made, every fork is created from
 * it, and it goes away with the call. After a crash it goes away by itself; until then a repeat under the same key makes what is missing.
 */
import { AtMost } from '../base/index.ts';
import {
  type BodyOf,
  type CheckpointId,
  type Conditions,
  isPlatformError,
  newId,
  PlatformError,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { Caller } from './caller.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { ControlContext } from './context.ts';
import { derivedId } from './derived-ids.ts';
import type { LeaseGate } from './lease-gate.ts';
import { checkMetadata } from './metadata-rules.ts';
import type { Mutations, Operation } from './mutations.ts';
import { checkEnvironment, type SandboxCreation } from './sandbox-creation.ts';
import { appendEvents, type SandboxRecords } from './sandbox-records.ts';

type ForkBody = BodyOf<typeof routes.forkSandbox>;
type ForkAnswer = ResultOf<typeof routes.forkSandbox>;

/** How long the checkpoint of a fork that was interrupted waits for a repeat. */
const keptMs = 10 * 60_000;
/** Forks of one call that are made at a time. */
const madeAtOnce = 8;

interface ForkParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly checkpoints: Checkpoints;
  readonly creation: SandboxCreation;
}

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly body: ForkBody;
  readonly operation: Operation;
}

export class Forks {
  readonly #context: ControlContext;
  readonly #parts: ForkParts;

  constructor(context: ControlContext, parts: ForkParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async fork(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: ForkBody): Promise<ForkAnswer> {
    if (caller.sandboxId !== null) {
      throw new PlatformError('forbidden', 'A token of one sandbox makes no others: it could not reach them.');
    }
    if (body.metadata !== 'inherit') checkMetadata(body.metadata);
    checkEnvironment(body.env ?? {});
    const asked = (operation: Operation) => ({ caller, sandboxId, conditions, body, operation });
    return await this.#parts.mutations.run({
      caller,
      kind: 'forkSandbox',
      conditions,
      request: { sandboxId, body },
      subject: () => newId('checkpoint', this.#context.random),
      effect: async (operation) => {
        await this.#take(asked(operation));
        return await this.#makeAll(asked(operation));
      },
      resume: (operation) => this.#resume(asked(operation)),
    });
  }

  /** What was made is the answer; what is missing is made, as long as the checkpoint is there. */
  async #resume(asked: Asked): Promise<ForkAnswer> {
    const checkpoint = await this.#parts.checkpoints.settled(asked.operation.subjectId as CheckpointId);
    if (checkpoint === undefined && !(await this.#isBegun(asked))) await this.#take(asked);
    return await this.#makeAll(asked);
  }

  #isBegun({ caller, body, operation }: Asked): Promise<boolean> {
    const { teamId } = caller;
    return this.#context.store.read(async (tables) => {
      for (let index = 0; index < body.count; index++) {
        const sandboxId = forkIdOf(operation, index);
        if ((await tables.sandboxes.find(sandboxId)) !== undefined) return true;
        if ((await tables.events.list({ teamId, sandboxId, after: 0, limit: 1 })).length > 0) return true;
      }
      return false;
    });
  }

  async #take({ caller, sandboxId, conditions, operation }: Asked): Promise<void> {
    const { gate, checkpoints } = this.#parts;
    await gate.pass(sandboxId, conditions, () =>
      checkpoints.takeOf(caller, sandboxId, conditions, {
        id: operation.subjectId as CheckpointId,
        name: null,
        isHidden: true,
        expiresAtMs: this.#context.clock.nowMs() + keptMs,
        leaseToken: conditions.leaseToken ?? null,
        createdBy: caller.keyId,
      }),
    );
    await this.#context.faults.hit('after-fork-checkpoint');
  }

  async #makeAll(asked: Asked): Promise<ForkAnswer> {
    const { body, operation } = asked;
    const few = new AtMost(madeAtOnce);
    const items = await Promise.all(
      Array.from({ length: body.count }, (_, index) => few.run(() => this.#makeOne(asked, index))),
    );
    await this.#context.faults.hit('after-forks-made');
    await this.#parts.checkpoints.remove(operation.subjectId as CheckpointId);
    await this.#tell(asked, items);
    return { items };
  }

  async #makeOne(asked: Asked, index: number): Promise<ForkAnswer['items'][number]> {
    const { caller, body, operation } = asked;
    const { count: _, metadata, env, network, ...rest } = body;
    const create = {
      ...rest,
      ifExists: 'refuse' as const,
      checkpoint: operation.subjectId as CheckpointId,
      keepCheckpoints: null,
      // They come with the files.
      workspaces: [],
      ...(metadata !== 'inherit' && { metadata }),
      ...(env !== undefined && { env }),
      ...(network !== undefined && { network }),
    };
    try {
      const own = { id: operation.id, subjectId: forkIdOf(operation, index) };
      const { view } = await this.#parts.creation.createOnce(caller, create, own);
      return { sandbox: view, error: null };
    } catch (error) {
      if (!isPlatformError(error)) throw error;
      const { code, message, details } = error;
      // Where nobody knows what became of it, it may be there later: its id finds it.
      return {
        sandbox: null,
        error: { code, message, details: { sandboxId: forkIdOf(operation, index), ...details } },
      };
    }
  }

  async #tell({ sandboxId, caller }: Asked, items: ForkAnswer['items']): Promise<void> {
    const { store, clock, events } = this.#context;
    const made = items.flatMap(({ sandbox }) => (sandbox === null ? [] : [sandbox.id]));
    await store.transact(async (tables) => {
      const source = await tables.sandboxes.find(sandboxId);
      if (source === undefined) return;
      const data = { by: caller.keyId, made, failed: items.length - made.length };
      await appendEvents(tables, { ...source, updatedAtMs: clock.nowMs() }, [{ kind: 'sandbox.forked', data }]);
    });
    events.notify();
  }
}

/** The same in every repeat of the same operation, so that none is made twice. */
export function forkIdOf(operation: Pick<Operation, 'id'>, index: number): SandboxId {
  return derivedId('sandbox', `fork ${operation.id} ${index}`);
}
