/** The only code that asks the kernel for a boundary. */
export { Cgroups, type SandboxGroup } from './cgroups.ts';
export { type Finding, runDoctor } from './doctor.ts';
export { LayerOperations, type QuotaKind, type SubvolumeQuota } from './layer-operations.ts';
export { listListeningSockets } from './listening-sockets.ts';
export { address4Of, type NetworkPlan, networkLink, networkSlots } from './network/plan.ts';
export { type FoundLink, Router } from './network/router.ts';
export { hasOwnRules } from './network/rules.ts';
export { Spawner } from './spawner.ts';
export type { CreateRequest, NetworkLink, OpenGuard } from './spawner-protocol.ts';
