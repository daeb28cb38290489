/** Puts the parts together: reads configuration, opens the store, starts and stops in order. */
export { defaultDataDirectory, findLocalServer, type LocalServer } from './data-directory.ts';
export { ensureNativeInit } from './native-init.ts';
export { type Diagnosis, runDoctor } from './run-doctor.ts';
export { type RunNodeOptions, type RunningNode, runNode } from './run-node.ts';
export { type RunningServer, type ServeOptions, serve } from './serve.ts';
export { softwareVersion } from './software-version.ts';
export { StartError, type StartErrorCode } from './start-error.ts';
