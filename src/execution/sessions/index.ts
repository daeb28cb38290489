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
