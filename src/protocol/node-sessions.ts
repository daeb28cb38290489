/**
 * What control asks of a node about sessions: persistent shells that somebody asked for. Part of NodeApi; the same rules hold.
 *
 *  - `createSession` is exact: repeated with the same session id it answers with the session that is there, and starts nothing. Of one name
 *    at most one session lives; while it does, another create of it is `session_exists`. A dead one is replaced only by a create.
 *  - One thing at a time happens in a session, in the order in which orders reach the node, whether or not what is in front succeeds.
 *  - What waits has changed nothing: it leaves at its queue timeout or when its signal aborts, and never runs then.
 *  - A session that has ended stays so. It is told with its exit to whoever asks for it (`session_terminated`), until it is forgotten.
 *  - A run in a session is exact like any other: the sandbox refuses a run id that was started before.
 */
import type { ProcessId, SessionId } from './ids.ts';
import type { ExecOrder, ExecOutcome, LifeOrder } from './node-api.ts';
import type { NodeProcess, StartProcessOrder } from './node-processes.ts';

export interface CreateSessionOrder extends LifeOrder {
  readonly sessionId: SessionId;
  /** Another handle that its caller chose; one living session has it. */
  readonly name: string | null;
  /** null: the caller brought none. Refused unless it is the current one, while a lease is held. */
  readonly leaseToken: number | null;
  /** Where the shell begins. */
  readonly cwd: string | null;
  /** On top of the sandbox's; null unsets. */
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
  /** Of a command that brings none of its own; null: no limit. */
  readonly timeoutMs: number | null;
  /** The program; null: bash. */
  readonly shell: string | null;
}

/** A session by its id or its name, in the life that the order names. By name it is the newest. */
export interface SessionOrder extends LifeOrder {
  readonly session: string;
}

/** What waits for its turn in a session. */
export interface SessionTurn extends SessionOrder {
  readonly leaseToken: number | null;
  /** How long it may wait before it begins; null: as long as it takes. */
  readonly queueTimeoutMs: number | null;
}

export const sessionEndReasons = ['exited', 'timeout', 'killed', 'out_of_memory', 'crashed', 'sandbox_ended'] as const;

/**
 * `exited`: by itself. `timeout`: of a command in it. `killed`: through the API. `crashed`: by a signal that nobody asked for here.
 * `sandbox_ended`: with everything else.
 */
export type SessionEndReason = (typeof sessionEndReasons)[number];

/** How a shell ended. `exitCode` is null when nobody saw the end. */
export interface SessionEnd {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly reason: SessionEndReason;
  readonly endedAtMs: number;
}

export interface NodeSession {
  readonly sessionId: SessionId;
  readonly generation: number;
  readonly name: string | null;
  /** Of the shell, inside the sandbox. */
  readonly pid: number;
  readonly shell: string;
  readonly user: string | null;
  readonly timeoutMs: number | null;
  readonly startedAtMs: number;
  /** null while it lives. */
  readonly end: SessionEnd | null;
  /** Where the shell is now, also while a command runs; null when it has ended, or where that cannot be told. */
  readonly cwd: string | null;
  /** What runs in it now. */
  readonly current: { readonly runId: string; readonly sinceMs: number } | null;
  /** How many wait behind it. */
  readonly queued: number;
}

/** Without a shell of its own, so the command is a text. */
export interface SessionExecOrder
  extends SessionTurn,
    Pick<ExecOrder, 'runId' | 'cwd' | 'env' | 'stdin' | 'timeoutMs' | 'outputLimitBytes'> {
  readonly command: string;
}

export interface SessionExecOutcome extends ExecOutcome {
  readonly sessionId: SessionId;
  /** How long it waited for its turn. */
  readonly queuedMs: number;
  /** Set when the shell ended in this command. */
  readonly sessionEnded: SessionEnd | null;
}

export interface SetSessionEnvOrder extends SessionTurn {
  readonly runId: string;
  /** null unsets. All of it or nothing. */
  readonly env: Readonly<Record<string, string | null>>;
}

/** Launched from a copy of the shell as it is at its turn; nothing is written back. */
export interface StartSessionProcessOrder
  extends SessionTurn,
    Omit<StartProcessOrder, 'command' | 'user' | 'leaseToken' | keyof LifeOrder> {
  readonly processId: ProcessId;
  readonly command: string;
  /** It outlives the session. */
  readonly detach: boolean;
}

export interface DeleteSessionOrder extends SessionOrder {
  readonly leaseToken: number | null;
}

export interface NodeSessions {
  createSession(order: CreateSessionOrder): Promise<NodeSession>;
  getSession(order: SessionOrder): Promise<NodeSession>;
  /** Those that live first, the newest first in each. */
  listSessions(order: LifeOrder): Promise<readonly NodeSession[]>;
  /** `signal`: what waits leaves the queue; what runs is killed, and its session with it. */
  execInSession(order: SessionExecOrder, signal?: AbortSignal): Promise<SessionExecOutcome>;
  setSessionEnv(order: SetSessionEnvOrder): Promise<void>;
  startSessionProcess(order: StartSessionProcessOrder): Promise<NodeProcess>;
  /** Kills everything of it at once, what waits included, and forgets it. */
  deleteSession(order: DeleteSessionOrder): Promise<void>;
}
