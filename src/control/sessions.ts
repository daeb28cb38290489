/**
 * Sessions: persistent shells that somebody asked for. Control checks who may, which life and which lease, and passes on; the node keeps the
 * records and the order of what runs. As for processes, nothing is written to the store, except under an idempotency key.
 */
import {
  type BodyOf,
  type Conditions,
  isId,
  isPlatformError,
  newId,
  PlatformError,
  type ProcessId,
  type ProcessView,
  type ResultOf,
  type RunReport,
  type routes,
  type SandboxId,
  type SessionExecResult,
  type SessionId,
  type SessionView,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import { type CallParts, lifeOrderOf } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { bytesOf, checkCommand, execInDoubt, execResultOf, keepOutput } from './execution.ts';
import type { Mutation, Operation } from './mutations.ts';
import { processViewOf } from './process-views.ts';
import { checkEnvironment } from './sandbox-creation.ts';
import { lifeIn, lifeOf } from './sandbox-records.ts';
import { sessionEndViewOf, sessionViewOf } from './session-views.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;

/** A session of a sandbox that the caller named; the session by id or by name. */
export interface SessionAddress {
  readonly sandboxId: SandboxId;
  readonly session: string;
}

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
}

interface Change<Result> extends Asked {
  readonly kind: keyof Routes;
  readonly request: unknown;
  /** What it makes: its id is chosen with the life that it is for, before the effect. */
  readonly makes?: 'session' | 'process';
  readonly effect: (record: SandboxRecord, operation: Operation) => Promise<Result>;
  /** After an interruption, in the same life. Absent: the effect is exact, or harmless to repeat. */
  readonly resume?: (record: SandboxRecord, operation: Operation, again: () => Promise<Result>) => Promise<Result>;
  readonly keep?: Mutation<Result>['keep'];
}

export class Sessions {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async create(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'createSession'>,
  ): Promise<SessionView> {
    checkEnvironment(body.env ?? {});
    return await this.#change({
      ...{ caller, sandboxId, conditions, request: body },
      kind: 'createSession',
      makes: 'session',
      effect: async (record, operation) => {
        const { name = null, cwd = null, env = {}, user = null, timeoutMs = null, shell = null } = body;
        const sessionId: SessionId = madeBy(operation, 'session') ?? newId('session', this.#context.random);
        const wanted = { sessionId, name, cwd, env, user, timeoutMs, shell };
        const order = { ...lifeOrderOf(record), ...wanted, leaseToken: conditions.leaseToken ?? null };
        await this.#context.faults.hit('before-session-on-node');
        const made = await this.#context.nodes.call(record.nodeId, (node) => node.createSession(order));
        await this.#context.faults.hit('after-session-on-node');
        return sessionViewOf(made, sandboxId);
      },
    });
  }

  async list(caller: Caller, sandboxId: SandboxId): Promise<ResultOf<Routes['listSessions']>> {
    const record = await this.#parts.records.get(caller, sandboxId);
    const found = await this.#context.nodes.call(record.nodeId, (node) => node.listSessions(lifeOrderOf(record)));
    return { items: found.map((session) => sessionViewOf(session, sandboxId)) };
  }

  async get(caller: Caller, address: SessionAddress): Promise<SessionView> {
    const { sandboxId, session } = address;
    const record = await this.#parts.records.get(caller, sandboxId);
    const order = { ...lifeOrderOf(record), session };
    return sessionViewOf(await this.#context.nodes.call(record.nodeId, (node) => node.getSession(order)), sandboxId);
  }

  async exec(
    caller: Caller,
    address: SessionAddress,
    conditions: Conditions,
    body: Body<'execInSession'>,
    signal?: AbortSignal,
  ): Promise<SessionExecResult> {
    checkCommand(body.command);
    checkEnvironment(body.env ?? {});
    const { sandboxId, session } = address;
    return await this.#change<SessionExecResult>({
      ...{ caller, sandboxId, conditions, request: { session, body } },
      kind: 'execInSession',
      effect: async (record, operation) => {
        const { cwd = null, env = {}, timeoutMs = null, queueTimeoutMs = null, command, outputLimitBytes } = body;
        const order = {
          ...{ ...lifeOrderOf(record), session, runId: operation.id, leaseToken: conditions.leaseToken ?? null },
          ...{ command, cwd, env, timeoutMs, queueTimeoutMs, outputLimitBytes },
          stdin: body.stdin === undefined ? null : bytesOf(body.stdin),
        };
        await this.#context.faults.hit('before-session-exec-on-node');
        const outcome = await this.#context.nodes.call(record.nodeId, (node) => node.execInSession(order, signal));
        await this.#context.faults.hit('after-session-exec-on-node');
        const { sessionEnded, sessionId, queuedMs, ...ran } = outcome;
        return {
          ...execResultOf(ran, { record, operation, encoding: body.encoding }),
          ...{ sessionId, queuedMs, sessionEnded: sessionEnded === null ? null : sessionEndViewOf(sessionEnded) },
        };
      },
      // Init knows whether this run was started; one that it does not know has at most waited, and is refused if it runs after all.
      resume: async (record, operation, again) => {
        const run = await this.#findRun(record, operation);
        if (run.kind === 'unknown') return await again();
        throw execInDoubt(operation, run.kind, run.kind === 'ended' ? run.exitCode : null);
      },
      keep: keepOutput,
    });
  }

  async setEnv(
    caller: Caller,
    address: SessionAddress,
    conditions: Conditions,
    body: Body<'setSessionEnv'>,
  ): Promise<void> {
    checkEnvironment(body.env);
    const { sandboxId, session } = address;
    const { env, queueTimeoutMs = null } = body;
    await this.#change({
      ...{ caller, sandboxId, conditions, request: { session, body } },
      kind: 'setSessionEnv',
      effect: async (record, operation) => {
        const turn = { session, queueTimeoutMs, leaseToken: conditions.leaseToken ?? null };
        const order = { ...lifeOrderOf(record), ...turn, runId: operation.id, env };
        await this.#context.nodes.call(record.nodeId, (node) => node.setSessionEnv(order));
        return {};
      },
      // Not simply again: somebody may have set the same names to something else since.
      resume: async (record, operation, again) => {
        const run = await this.#findRun(record, operation);
        if (run.kind === 'unknown') return await again();
        if (run.kind === 'ended' && run.exitCode === 0) return {};
        throw execInDoubt(operation, run.kind, null);
      },
    });
  }

  async startProcess(
    caller: Caller,
    address: SessionAddress,
    conditions: Conditions,
    body: Body<'startSessionProcess'>,
  ): Promise<ProcessView> {
    checkCommand(body.command);
    checkEnvironment(body.env ?? {});
    const { sandboxId, session } = address;
    return await this.#change({
      ...{ caller, sandboxId, conditions, request: { session, body } },
      kind: 'startSessionProcess',
      makes: 'process',
      effect: async (record, operation) => {
        const { name = null, cwd = null, env = {}, timeoutMs = null, queueTimeoutMs = null, stdin, ...rest } = body;
        const processId: ProcessId = madeBy(operation, 'process') ?? newId('process', this.#context.random);
        const order = {
          ...{ ...lifeOrderOf(record), session, processId, leaseToken: conditions.leaseToken ?? null },
          request: operation.fingerprint,
          ...{ ...rest, name, cwd, env, timeoutMs, queueTimeoutMs, stdinOpen: stdin === 'open' },
        };
        const started = await this.#context.nodes.call(record.nodeId, (node) => node.startSessionProcess(order));
        return processViewOf(started, sandboxId);
      },
    });
  }

  async delete(caller: Caller, address: SessionAddress, conditions: Conditions): Promise<void> {
    const { sandboxId, session } = address;
    await this.#change({
      ...{ caller, sandboxId, conditions, request: { session } },
      kind: 'deleteSession',
      effect: async (record) => {
        const order = { ...lifeOrderOf(record), session, leaseToken: conditions.leaseToken ?? null };
        await this.#context.nodes.call(record.nodeId, (node) => node.deleteSession(order));
        return {};
      },
      // By id it is done if it is not there any more; a name may be another session's by now.
      resume: async (_record, operation, again) => {
        if (!isId('session', session)) {
          const message =
            'The session may have been deleted before; one with this name that is there now is left alone.';
          throw new PlatformError('operation_in_doubt', message, { details: { operationId: operation.id } });
        }
        return await again().catch((error: unknown) => {
          if (isPlatformError(error, 'session_not_found')) return {};
          throw error;
        });
      },
    });
  }

  #findRun(record: SandboxRecord, operation: Operation): Promise<RunReport> {
    const order = { ...lifeOrderOf(record), runId: operation.id };
    return this.#context.nodes.call(record.nodeId, (node) => node.findRun(order));
  }

  /** Under the caller's key, for the life it names, with the lease it needs; after a crash only in the life that was meant. */
  #change<Result>(change: Change<Result>): Promise<Result> {
    const { caller, sandboxId, conditions, kind, makes } = change;
    const effect = (operation: Operation) =>
      this.#parts.gate.pass(sandboxId, conditions, async () => {
        const record = await this.#parts.records.openTo(caller, sandboxId, conditions);
        return await change.effect(record, operation);
      });
    return this.#parts.mutations.run<Result>({
      ...{ caller, kind, conditions, request: { sandboxId, request: change.request } },
      about: async (tables) => {
        const life = await lifeIn(tables, sandboxId);
        return life === null || makes === undefined ? life : `${life} ${newId(makes, this.#context.random)}`;
      },
      effect,
      resume: async (operation) => {
        const record = await this.#parts.records.find(sandboxId);
        const isThere = record?.teamId === caller.teamId && record.state.kind === 'running';
        if (!isThere || !isOfLife(operation, lifeOf(record))) throw execInDoubt(operation, 'unknown', null);
        if (change.resume === undefined) return await effect(operation);
        return await change.resume(record, operation, () => effect(operation));
      },
      ...(change.keep && { keep: change.keep }),
    });
  }
}

/** Its subject is the life, and behind it the id of what it makes. */
function isOfLife(operation: Operation, life: string): boolean {
  return operation.subjectId === life || (operation.subjectId?.startsWith(`${life} `) ?? false);
}

function madeBy<Kind extends 'session' | 'process'>(operation: Operation, kind: Kind) {
  const id = operation.subjectId?.split(' ')[2];
  return id !== undefined && isId(kind, id) ? id : undefined;
}
