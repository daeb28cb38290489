/**
 * Puts the parts together: reads configuration, opens the store, starts and stops in order. What runs a platform is loaded when it is
 * asked for: most calls of the command line only look for a server.
 */
import type { Diagnosis } from './run-doctor.ts';
import type { RunNodeOptions, RunningNode } from './run-node.ts';
import type { RunningServer, ServeOptions } from './serve.ts';

export { defaultDataDirectory, findLocalServer, type LocalServer } from './data-directory.ts';
export { ensureNativeInit } from './native-init.ts';
export { StartError, type StartErrorCode } from './start-error.ts';
export type { Diagnosis, RunNodeOptions, RunningNode, RunningServer, ServeOptions };

export async function serve(options: ServeOptions): Promise<RunningServer> {
  return (await import('./serve.ts')).serve(options);
}

export async function runNode(options: RunNodeOptions): Promise<RunningNode> {
  return (await import('./run-node.ts')).runNode(options);
}

export async function runDoctor(options: { readonly dataDirectory?: string } = {}): Promise<Diagnosis> {
  return (await import('./run-doctor.ts')).runDoctor(options);
}
