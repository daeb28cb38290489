/** The daemon's half on one machine: the sandboxes that live here. */
export { NewerDirectory } from './node-directory.ts';
export type { SandboxNodeOptions, StorageChoice } from './node-options.ts';
export { NodeClient, type NodeClientOptions } from './remote/node-client.ts';
export { NodeServer, type NodeServerOptions } from './remote/node-server.ts';
export { SandboxNode } from './sandbox-node.ts';
