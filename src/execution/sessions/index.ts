/**
 * The engine of sessions: one bash each, in which commands run one at a time. Queues, names and records are the node's.
 *
 * All of them throw what `exec` and `startRun` throw, and also: `session_shell_not_usable` (openSession), `session_not_found` and
 * `session_terminated` (init does not know the session, or it has ended; nothing ran), and `SessionBusy`.
 *
 * The end of a session is told as that of any run: an event of init whose `run` is the session id, or its entry in `listRuns`. Init kills
 * everything of a session when its shell ends, and whatever was started from it without `detach`.
 */

export { execInSession, setSessionEnv } from './exec-in-session.ts';
export { openSession } from './open-session.ts';
export {
  type ExecInSessionOrder,
  type OpenSessionOrder,
  SessionBusy,
  type SessionOutcome,
  type SetSessionEnvOrder,
  type ShellExit,
  type StartInSessionOrder,
} from './orders.ts';
export { sessionDirectory } from './session-directory.ts';
export { startInSession } from './start-in-session.ts';

// openSession(context: StartRunContext, order: OpenSessionOrder): Promise<number>  - the pid inside
// execInSession(context: ExecContext, order: ExecInSessionOrder, signal?: AbortSignal): Promise<SessionOutcome>
//   An abort, like a timeout, kills the whole session.
// setSessionEnv(context: ExecContext, order: SetSessionEnvOrder): Promise<void>
//   All or nothing; `invalid_request` names a variable that is read-only.
// startInSession(context: StartRunContext, order: StartInSessionOrder): Promise<number>  - the pid inside
// sessionDirectory(context: FileContext, pid: number): Promise<string | null>
//   Of the user of the session; also while a command runs. null: the shell has ended.
// killing: client.control((c) => c.killTree(sessionId)) ends everything of the session.
// RunEntry (listRuns, events) gains: kind: 'plain' | 'session' | 'in session' | 'from session'; session: string | null (the session that a
//   run belongs to, while the run lives), so that a restarted node sees who runs.
