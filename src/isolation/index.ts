/** The only code that asks the kernel for a boundary. */
export { Cgroups, type SandboxGroup } from './cgroups.ts';
export { type Finding, runDoctor } from './doctor.ts';
export { LayerOperations, type SubvolumeQuota } from './layer-operations.ts';
export { Spawner } from './spawner.ts';
export type { CreateRequest, OpenGuard } from './spawner-protocol.ts';
