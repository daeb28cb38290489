/** What became of a mutation that was made under an idempotency key. */
import { isId, PlatformError, type ResultOf, type routes } from '../protocol/index.ts';
import type { OperationRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';

export class Operations {
  readonly #context: ControlContext;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** By operation id, or by `key:` and the idempotency key. */
  async get(caller: Caller, reference: string): Promise<ResultOf<typeof routes.getOperation>> {
    const found = await this.#context.store.read(async (tables) => {
      if (isId('operation', reference)) return await tables.operations.find(reference);
      if (!reference.startsWith('key:')) return undefined;
      return await tables.operations.findByKey({ teamId: caller.teamId, key: reference.slice(4) });
    });
    if (found === undefined || found.teamId !== caller.teamId) {
      throw new PlatformError('operation_not_found', `There is no operation "${reference}", or it is no longer kept.`);
    }
    return {
      id: found.id,
      kind: found.kind,
      subjectId: found.subjectId,
      state: this.#stateOf(found),
      startedAt: new Date(found.startedAtMs).toISOString(),
      finishedAt: found.finishedAtMs === null ? null : new Date(found.finishedAtMs).toISOString(),
      answer: found.answer === null ? null : (JSON.parse(found.answer) as unknown),
    };
  }

  #stateOf(record: OperationRecord): 'started' | 'finished' | 'interrupted' {
    if (record.answer !== null) return 'finished';
    return record.serverRun === this.#context.serverRun ? 'started' : 'interrupted';
  }

  /** Forgets what is past its time. */
  async trim(): Promise<void> {
    const before = this.#context.clock.nowMs() - this.#context.settings.operationsKeptMs;
    await this.#context.store.transact(async (tables) => {
      await tables.operations.removeStartedBefore(before);
      await tables.events.trim(this.#context.settings.eventsKept);
    });
  }
}
