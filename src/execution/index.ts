/** Runs commands inside a boundary: the client of init. */

export type { ControlConnection } from './control-connection.ts';
export { InitRefusal } from './control-connection.ts';
export { type ExecContext, exec } from './exec.ts';
export { fileAction } from './files/actions.ts';
export type { FileContext } from './files/call.ts';
export { fileChanges, type TreeMarks } from './files/changes.ts';
export { readFile, readTree, writeFile, writeTree } from './files/transfers.ts';
export { listBelow, openBelow, type SeenEntry } from './files/tree-look.ts';
export { watchFiles } from './files/watch.ts';
export { findRun } from './find-run.ts';
export { InitClient } from './init-client.ts';
export type { EndCause, InputOrder, RunEntry } from './init-protocol.ts';
export { inputLimitBytes, refusalCodes, watcherNumber } from './init-protocol.ts';
export type { JournalRecord } from './journal-format.ts';
export { JournalReader } from './journal-reader.ts';
export { openRelay } from './open-relay.ts';
export { probePort } from './probe-port.ts';
export { absoluteCwd } from './run-request.ts';
export {
  type ExecInSessionOrder,
  execInSession,
  type OpenSessionOrder,
  openSession,
  SessionBusy,
  type SessionOutcome,
  type SetSessionEnvOrder,
  type ShellExit,
  type StartInSessionOrder,
  sessionDirectory,
  setSessionEnv,
  startInSession,
} from './sessions/index.ts';
export { type StartRunOrder, startRun } from './start-run.ts';
export { parseWaitStatus } from './wait-status.ts';
