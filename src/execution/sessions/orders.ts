/** What can be asked of the engine of sessions, and what it says. The run id of a session is its session id. */
import type { ExecOutcome } from '../../protocol/index.ts';
import type { EndCause } from '../init-protocol.ts';

export interface OpenSessionOrder {
  readonly generation: number;
  readonly sessionId: string;
  readonly leaseToken: number | null;
  /** A bash: a name that is looked up in PATH, or a path. null: `bash`. */
  readonly shell: string | null;
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
}

/** What every run in a session has. */
export interface InSessionOrder {
  readonly generation: number;
  readonly sessionId: string;
  readonly leaseToken: number | null;
}

export interface ExecInSessionOrder extends InSessionOrder {
  readonly runId: string;
  readonly command: string;
  /** For this command; relative to where the session is. null: where the session is. */
  readonly cwd: string | null;
  /** For this command; null unsets. */
  readonly env: Readonly<Record<string, string | null>>;
  readonly stdin: Uint8Array | null;
  readonly timeoutMs: number | null;
  readonly outputLimitBytes: number;
}

/** How a shell ended. */
export interface ShellExit {
  readonly exitCode: number;
  readonly signal: string | null;
  readonly cause: EndCause;
}

export interface SessionOutcome extends ExecOutcome {
  /** Set when the shell ended in this command. */
  readonly sessionEnded: ShellExit | null;
}

/** For good; null unsets. */
export interface SetSessionEnvOrder extends InSessionOrder {
  readonly runId: string;
  readonly env: Readonly<Record<string, string | null>>;
}

export interface StartInSessionOrder extends InSessionOrder {
  readonly processId: string;
  readonly command: string;
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string | null>>;
  readonly stdinOpen: boolean;
  readonly timeoutMs: number | null;
  readonly graceMs: number;
  readonly keepBytes: number;
  /** It outlives the session; any other is killed by init when the session ends. */
  readonly detach: boolean;
}

/** Something else runs in the session; nothing was done. Wait for the end of that run (an event of init) and ask again. */
export class SessionBusy extends Error {
  override readonly name = 'SessionBusy';
}
