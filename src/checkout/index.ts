/** The checkout of a person or agent, and the one sandbox that belongs to it. Client code: it knows the SDK and nothing of a server. */
export {
  type ApplyOptions,
  type ApplyResult,
  applyPlan,
  applyStatus,
  lastApplied,
  type PlanTarget,
  rememberedPlaces,
  rememberImport,
  rememberPlace,
  type TargetPlace,
  type TargetResult,
  undoLast,
} from './apply/index.ts';
export {
  backgroundOf,
  checkBackgroundName,
  findBackground,
  listBackground,
  type StartedBackground,
  startBackground,
  stopBackground,
} from './background.ts';
export { Cache, type CacheOptions } from './cache.ts';
export type { LockOwner } from './cache-lock.ts';
export { type ClientState, readClientState, withoutClientState } from './client-state.ts';
export { type CycleOptions, type CycleResult, type Leased, runCycle } from './cycle.ts';
export {
  type BackgroundDefinition,
  backgroundName,
  type Definition,
  loadDefinition,
  parseDefinition,
} from './definition.ts';
export { definitionNames, type FoundCheckout, findCheckout } from './find-checkout.ts';
export { type HolderView, holderOf } from './hold-lease.ts';
export { noConfig } from './identity.ts';
export { type ListedSandbox, listCheckouts } from './list.ts';
export { stopSandbox } from './liveness.ts';
export { ensureReady } from './readiness.ts';
export { CheckoutResolver, type Resolved } from './resolver.ts';
export { type CollectedRun, runCollected } from './run-command.ts';
export type { Session } from './session.ts';
export { findUndo, openCheckout, pull, push, type SyncStatus, status, undo } from './sync/index.ts';
export type { PullSummary, PushSummary, SyncPort, SyncProgress } from './sync-port.ts';
