/**
 * Sessions of one sandbox: persistent shells. What is asked of one handle happens in the order in which it was asked; between handles the
 * order is that in which calls reach the server.
 */
import {
  type BodyInputOf,
  isPlatformError,
  PlatformError,
  routes,
  type SessionExecResult as SessionExecAnswer,
  type SessionView,
} from '../protocol/index.ts';
import { CallOrder } from './call-order.ts';
import type { CallOptions } from './connection.ts';
import { definedOf } from './defined-of.ts';
import { type ExecOptions, type ExecResult, execBody, execResultOf } from './exec.ts';
import { Files } from './files.ts';
import { Git, type RunCommand } from './git.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import { Process, Processes, type SandboxBinding } from './processes.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
export type CreateSessionOptions = BodyInputOf<Routes['createSession']> & CallOptions;

/** How long it may wait for its turn; 0: it begins at once or not at all. */
interface QueueOptions {
  readonly queueTimeoutMs?: number;
}

/** `signal`: while it waits it leaves the queue and does not run; when it runs it is killed, and the session with it. */
export type SessionExecOptions = Omit<ExecOptions, 'user'> & QueueOptions;
export type SessionExecResult = ExecResult & Pick<SessionExecAnswer, 'sessionId' | 'queuedMs' | 'sessionEnded'>;
export type StartSessionProcessOptions = Omit<BodyInputOf<Routes['startSessionProcess']>, 'command'> & CallOptions;

/** What a session needs of its sandbox. */
export interface SessionBinding extends SandboxBinding {
  /** A stateless command. */
  readonly run: RunCommand;
}

export class Sessions {
  readonly #binding: SessionBinding;

  constructor(binding: SessionBinding) {
    this.#binding = binding;
  }

  /** Starts a shell. A name that a living session has is `session_exists`; `await using` deletes the session at the end of its block. */
  async create(options: CreateSessionOptions = {}): Promise<Session> {
    const { idempotencyKey = newIdempotencyKey(), leaseToken, generation, expectedVersion, signal, ...body } = options;
    const { connection, sandboxId } = this.#binding;
    const view = await connection.call(routes.createSession, {
      params: { sandboxId },
      ...this.#binding.bound(definedOf({ idempotencyKey, leaseToken, generation, expectedVersion, signal })),
      body,
    });
    return new Session(this.#binding, view);
  }

  /** By id or name; also one that has ended. */
  async get(session: string, options: Look = {}): Promise<Session> {
    const { connection, sandboxId } = this.#binding;
    return new Session(
      this.#binding,
      await connection.call(routes.getSession, { params: { sandboxId, session }, ...options }),
    );
  }

  /** Those that live first, the newest first in each. */
  async list(options: Look = {}): Promise<readonly Session[]> {
    const { connection, sandboxId } = this.#binding;
    const { items } = await connection.call(routes.listSessions, { params: { sandboxId }, ...options });
    return items.map((view) => new Session(this.#binding, view));
  }
}

export class Session implements AsyncDisposable {
  readonly #binding: SessionBinding;
  readonly #order: CallOrder;
  #view: SessionView;

  constructor(binding: SessionBinding, view: SessionView) {
    this.#binding = binding;
    this.#order = new CallOrder(binding.connection.clock);
    this.#view = view;
  }

  get id(): string {
    return this.#view.id;
  }
  get name(): string | null {
    return this.#view.name;
  }
  /** What the server last said about it. */
  get view(): SessionView {
    return this.#view;
  }

  async refresh(options: Look = {}): Promise<this> {
    this.#view = await this.#binding.connection.call(routes.getSession, { params: this.#params, ...options });
    return this;
  }

  /** Runs a text in the shell. A command that fails is a result; one in which the shell ended has `sessionEnded`. */
  exec(command: string, options: SessionExecOptions = {}): Promise<SessionExecResult> {
    const { timeoutMs: _, queueTimeoutMs: __, ...call } = options;
    return this.#order.run(options, async (left) => {
      const answer = await this.#binding.connection.call(routes.execInSession, {
        params: this.#params,
        ...this.#binding.bound(call),
        body: { ...execBody(command, options), command, ...left },
        timeoutMs: null,
      });
      const { sessionId, queuedMs, sessionEnded } = answer;
      return { ...execResultOf(answer), sessionId, queuedMs, sessionEnded };
    });
  }

  /** Sets and unsets (null) exported variables of the shell, all or none. */
  async setEnv(env: Readonly<Record<string, string | null>>, options: CallOptions & QueueOptions = {}): Promise<void> {
    const { idempotencyKey = newIdempotencyKey(), ...call } = options;
    await this.#order.run(options, (left) =>
      this.#binding.connection.call(routes.setSessionEnv, {
        params: this.#params,
        ...this.#binding.bound({ ...call, idempotencyKey }),
        body: { env: { ...env }, ...left },
        timeoutMs: null,
      }),
    );
  }

  /** Processes that begin as a copy of the shell, and end with it unless they are detached. */
  get processes(): SessionProcesses {
    return new SessionProcesses(this.#binding, { sessionId: this.id, order: this.#order });
  }

  /** Files as the session's user; relative paths are below where its shell is, whatever runs in it. */
  get files(): Files {
    return new Files(this.#binding, { session: this.id });
  }

  /** git as stateless commands of the session's user, where its shell is. They do not wait for it and do not see its variables. */
  get git(): Git {
    return new Git(async (command, options) => {
      const { view } = await this.refresh(options.signal ? { signal: options.signal } : {});
      const { user } = view;
      const cwd = placeIn(view, options.cwd);
      return await this.#binding.run(command, { ...(user !== null && { user }), ...options, cwd });
    });
  }

  /** Kills its shell and everything of it at once, and forgets it. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#binding.connection.call(routes.deleteSession, {
      params: this.#params,
      ...this.#binding.bound(options),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.delete();
    } catch (error) {
      if (!isPlatformError(error, 'session_not_found', 'sandbox_not_found')) throw error;
    }
  }

  get #params() {
    return { sandboxId: this.#binding.sandboxId, session: this.#view.id as string };
  }
}

export class SessionProcesses {
  readonly #binding: SandboxBinding;
  readonly #session: { readonly sessionId: string; readonly order: CallOrder };

  constructor(binding: SandboxBinding, session: { readonly sessionId: string; readonly order: CallOrder }) {
    this.#binding = binding;
    this.#session = session;
  }

  /** Waits for its turn in the session; answers as soon as it runs. */
  async start(command: string, options: StartSessionProcessOptions = {}): Promise<Process> {
    const { idempotencyKey = newIdempotencyKey(), leaseToken, generation, expectedVersion, signal, ...body } = options;
    const { connection, sandboxId } = this.#binding;
    const call = definedOf({ idempotencyKey, leaseToken, generation, expectedVersion, signal });
    const { queueTimeoutMs } = body;
    return await this.#session.order.run(definedOf({ queueTimeoutMs, signal }), async (left) => {
      const view = await connection.call(routes.startSessionProcess, {
        params: { sandboxId, session: this.#session.sessionId },
        ...this.#binding.bound(call),
        body: { ...body, command, ...left },
        timeoutMs: null,
      });
      return new Process(this.#binding, view);
    });
  }

  /** One page of those that were started from this session. */
  list(options: Look & { readonly cursor?: string; readonly limit?: number } = {}) {
    return new Processes(this.#binding).list({ ...options, sessionId: this.#session.sessionId });
  }
}

/** Never somewhere else: a session that has ended, or that cannot tell where it is, refuses. */
function placeIn({ id, name, cwd, end }: SessionView, path: string | undefined): string {
  if (end !== null) {
    const message = `The session ${name ?? id} has ended; nothing ran. Create it again to begin a new shell.`;
    throw new PlatformError('session_terminated', message, { details: { sessionId: id, name, ...end } });
  }
  if (path?.startsWith('/')) return path;
  if (cwd !== null) return path === undefined || path === '' ? cwd : `${cwd}/${path}`;
  const message = `Where the session ${name ?? id} is cannot be told now; nothing ran. Give an absolute path.`;
  throw new PlatformError('sandbox_unavailable', message);
}
