/**
 * The one function that every mutating route goes through. It gives the mutation an operation id and makes its idempotency
 * key mean something: journalled before the effect, answered from the journal ever after.
 *
 * Invariants:
 *  - Under one key an effect is begun at most once by this run of the server; callers at the same time share it.
 *  - A key that was journalled and not answered was interrupted: it is resumed, or said to be in doubt, never simply done again.
 *  - The key is journalled before the effect begins, unless whoever carries the effect out does so once for its subject, and the subject
 *    follows from the key: then it is journalled once, behind the answer and with it, and not synced. A crash that takes it leaves the effect
 *    known by its subject, or has ended the life that the subject names.
 *  - A refusal that promises that nothing was changed, and that may pass later, frees the key; not when it was interrupted
 *    before: the promise is about this attempt, and an earlier one may have taken effect.
 */
import { hash } from 'node:crypto';
import { type Conditions, isErrorCode, newId, type OperationId, PlatformError } from '../protocol/index.ts';
import type { OperationRecord, Readers, Tables } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';

export interface Operation {
  readonly id: OperationId;
  /** What it acts on or makes; chosen before the effect and the same in every repeat. */
  readonly subjectId: string | null;
  /** Of the request, where it came under a key: a repeat that asks for something else has another one. */
  readonly fingerprint?: string;
}

export interface Mutation<Result> {
  readonly caller: Caller;
  /** The route's name. */
  readonly kind: string;
  readonly conditions: Conditions;
  /** Everything that makes this request what it is; the key is refused for another one. */
  readonly request: unknown;
  /** Chosen before the effect: the id of what it makes. */
  readonly subject?: () => string;
  /** Looked up in the transaction that journals the key: the life that it is about. */
  readonly about?: (tables: Readers) => Promise<string | null>;
  /** The subject that follows from the key, where the effect is exact by it: repeated with it, it happens once, or is refused. */
  readonly exactSubject?: (key: string) => string;
  readonly effect: (operation: Operation) => Promise<Result>;
  /** After an interruption. Absent: the effect itself is harmless to repeat. */
  readonly resume?: (operation: Operation) => Promise<Result>;
  /** What of the answer is journalled, where that is not all of it, and how the rest is put back. */
  readonly keep?: (result: Result) => unknown;
  readonly restore?: (kept: unknown, operation: Operation) => Result;
}

type Answer = { readonly ok: true; readonly result: unknown } | { readonly ok: false; readonly error: KeptRefusal };
interface KeptRefusal {
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

type Admission =
  | { readonly kind: 'fresh' | 'interrupted'; readonly operation: Operation }
  | { readonly kind: 'answered'; readonly operation: Operation; readonly answer: Answer };

interface Named {
  readonly key: string;
  readonly fingerprint: string;
}

export class Mutations {
  readonly #context: ControlContext;
  /** Mutations under a key that run now, by team and key. In the map before the first await. */
  readonly #running = new Map<string, { readonly fingerprint: string; readonly result: Promise<unknown> }>();

  constructor(context: ControlContext) {
    this.#context = context;
  }

  run<Result>(mutation: Mutation<Result>): Promise<Result> {
    const key = mutation.conditions.idempotencyKey;
    if (key === undefined) {
      const id = newId('operation', this.#context.random);
      return mutation.effect({ id, subjectId: mutation.subject?.() ?? null });
    }
    const fingerprint = fingerprintOf(mutation);
    const place = `${mutation.caller.teamId} ${key}`;
    const running = this.#running.get(place);
    if (running !== undefined) {
      if (running.fingerprint !== fingerprint) return Promise.reject(keyReused(key));
      return running.result as Promise<Result>;
    }
    const named = { key, fingerprint };
    const over = () => this.#running.delete(place);
    const isExact = mutation.exactSubject !== undefined;
    const result = isExact ? this.#runExact(mutation, named, over) : this.#runKeyed(mutation, named).finally(over);
    this.#running.set(place, { fingerprint, result });
    return result;
  }

  get running(): number {
    return this.#running.size;
  }

  async #runKeyed<Result>(mutation: Mutation<Result>, named: Named): Promise<Result> {
    const admission = await this.#admit(mutation, named);
    const { operation } = admission;
    if (admission.kind === 'answered') return readAnswer(mutation, operation, admission.answer);
    await this.#context.faults.hit('after-journal-operation');
    let result: Result;
    try {
      const work = admission.kind === 'fresh' ? mutation.effect : (mutation.resume ?? mutation.effect);
      result = await work(operation);
    } catch (error) {
      await this.#settleRefusal(mutation, admission, error);
      throw error;
    }
    await this.#context.faults.hit('before-store-answer');
    await this.#finish(mutation, operation.id, answerOf(mutation, result));
    await this.#context.faults.hit('after-store-answer');
    return result;
  }

  /** Of a mutation with an `exactSubject`. `over` is called when what it left is journalled, which its caller does not wait for. */
  async #runExact<Result>(mutation: Mutation<Result>, named: Named, over: () => void): Promise<Result> {
    let journalled = Promise.resolve();
    try {
      if (await this.#isKnown(mutation, named)) return await this.#runKeyed(mutation, named);
      const record = this.#recordOf(mutation, named, mutation.exactSubject!(named.key));
      try {
        const result = await mutation.effect(record);
        journalled = this.#journalBehind(mutation, record, answerOf(mutation, result));
        return result;
      } catch (error) {
        const left = leftBy(error);
        if (left !== 'nothing') journalled = this.#journalBehind(mutation, record, left === 'doubt' ? null : left);
        throw error;
      }
    } finally {
      void journalled.finally(over);
    }
  }

  async #isKnown<Result>({ caller: { teamId } }: Mutation<Result>, { key }: Named): Promise<boolean> {
    const found = await this.#context.store.read((tables) => tables.operations.findByKey({ teamId, key }));
    return found !== undefined;
  }

  /** Journalled, or found in the journal, when it resolves. */
  #admit<Result>(mutation: Mutation<Result>, named: Named): Promise<Admission> {
    const { store, serverRun } = this.#context;
    const { teamId } = mutation.caller;
    return store.transact(async (tables): Promise<Admission> => {
      const found = await tables.operations.findByKey({ teamId, key: named.key });
      if (found === undefined) {
        const subjectId = mutation.subject?.() ?? (await mutation.about?.(tables)) ?? null;
        const record = this.#recordOf(mutation, named, subjectId);
        await tables.operations.insert(record);
        return { kind: 'fresh', operation: record };
      }
      if (found.fingerprint !== named.fingerprint) throw keyReused(named.key);
      if (found.answer !== null) {
        return { kind: 'answered', operation: found, answer: JSON.parse(found.answer) as Answer };
      }
      if (found.serverRun !== serverRun) {
        const taken = await tables.operations.adopt({ id: found.id, from: found.serverRun, to: serverRun });
        if (!taken) throw new PlatformError('operation_in_doubt', 'Another server has taken this operation over.');
      }
      return { kind: 'interrupted', operation: found };
    });
  }

  /** What is exact by its subject is so without the journal, which then need not outlive the machine. */
  #journal<Result>(mutation: Mutation<Result>, work: (tables: Tables) => Promise<void>): Promise<void> {
    const durability = mutation.exactSubject === undefined ? 'synced' : 'written';
    return this.#context.store.transact(work, { durability });
  }

  #recordOf<Result>(mutation: Mutation<Result>, named: Named, subjectId: string | null): OperationRecord {
    const { clock, random, serverRun } = this.#context;
    return {
      id: newId('operation', random),
      teamId: mutation.caller.teamId,
      key: named.key,
      kind: mutation.kind,
      fingerprint: named.fingerprint,
      subjectId,
      serverRun,
      startedAtMs: clock.nowMs(),
      finishedAtMs: null,
      answer: null,
    };
  }

  async #journalBehind<Result>(
    mutation: Mutation<Result>,
    record: OperationRecord,
    answer: Answer | null,
  ): Promise<void> {
    const finished =
      answer === null ? {} : { finishedAtMs: this.#context.clock.nowMs(), answer: JSON.stringify(answer) };
    try {
      await this.#context.faults.hit('before-store-answer');
      await this.#journal(mutation, (tables) => tables.operations.insert({ ...record, ...finished }));
      await this.#context.faults.hit('after-store-answer');
    } catch (error) {
      // The effect stands; a repeat finds it by its subject.
      this.#context.logger.error('an idempotency key could not be journalled', { operationId: record.id, error });
    }
  }

  async #settleRefusal<Result>(mutation: Mutation<Result>, admission: Admission, error: unknown): Promise<void> {
    const { id } = admission.operation;
    const left = leftBy(error);
    if (left === 'doubt') return;
    if (left !== 'nothing') await this.#finish(mutation, id, left);
    else if (admission.kind === 'fresh') await this.#free(mutation, id);
  }

  async #free<Result>(mutation: Mutation<Result>, id: OperationId): Promise<void> {
    try {
      await this.#journal(mutation, (tables) => tables.operations.remove(id));
    } catch (error) {
      // The refusal stands. The key stays "interrupted": a repeat resumes.
      this.#context.logger.error('an idempotency key could not be freed', { operationId: id, error });
    }
  }

  async #finish<Result>(mutation: Mutation<Result>, id: OperationId, answer: Answer): Promise<void> {
    const finished = { id, finishedAtMs: this.#context.clock.nowMs(), answer: JSON.stringify(answer) };
    try {
      await this.#journal(mutation, (tables) => tables.operations.finish(finished));
    } catch (error) {
      // The effect stands and its caller must hear of it. The key stays "interrupted": a repeat resumes.
      this.#context.logger.error('an answer could not be journalled', { operationId: id, error });
    }
  }
}

function answerOf<Result>({ keep }: Mutation<Result>, result: Result): Answer {
  return { ok: true, result: keep === undefined ? result : keep(result) };
}

/** What an effect that failed leaves of its key: nothing, so that it is free; a doubt, which a repeat resumes; or a refusal for good. */
function leftBy(error: unknown): 'nothing' | 'doubt' | Answer {
  if (!(error instanceof PlatformError) || error.retry === 'unknown' || error.code === 'internal') return 'doubt';
  // Known by its subject alone: the key is another request's.
  if (error.retry === 'backoff' || error.code === 'idempotency_key_reused') return 'nothing';
  const { code, message, details } = error;
  return { ok: false, error: { code, message, details } };
}

function readAnswer<Result>(mutation: Mutation<Result>, operation: Operation, answer: Answer): Result {
  if (answer.ok) {
    return mutation.restore === undefined ? (answer.result as Result) : mutation.restore(answer.result, operation);
  }
  const { code, message, details } = answer.error;
  throw new PlatformError(isErrorCode(code) ? code : 'internal', message, { details });
}

function keyReused(key: string): PlatformError {
  const message = 'This idempotency key was used with another request. Use a new key for a new request.';
  return new PlatformError('idempotency_key_reused', message, { details: { key } });
}

function fingerprintOf(mutation: Pick<Mutation<never>, 'kind' | 'request' | 'conditions'>): string {
  const { generation, expectedVersion } = mutation.conditions;
  const asked = { kind: mutation.kind, request: mutation.request, generation, expectedVersion };
  return hash('sha256', canonicalJson(asked), 'hex');
}

/** The same text for the same data, whatever the order of keys. */
export function canonicalJson(value: unknown): string {
  if (value instanceof Uint8Array) return JSON.stringify(Buffer.from(value).toString('base64'));
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([name, item]) => `${JSON.stringify(name)}:${canonicalJson(item)}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}
