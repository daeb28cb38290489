/** Runs commands inside a boundary: the client of init. */
export { InitRefusal } from './control-connection.ts';
export { type ExecContext, exec } from './exec.ts';
export { findRun } from './find-run.ts';
export { InitClient } from './init-client.ts';
export { refusalCodes } from './init-protocol.ts';
