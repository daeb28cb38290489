/** Brings a committed plan into the user's own repositories and directories, all or nothing, and takes it back. */
export { type ApplyPlanOptions, applyPlan, type PlanApplication } from './apply-plan.ts';
export { rememberedPlaces, rememberImport, rememberPlace } from './places.ts';
export type {
  AppliedPlan,
  ApplyResult,
  ApplyState,
  PlanTarget,
  TargetConflict,
  TargetPlace,
  TargetResult,
} from './plan-target.ts';
export type { ApplyOptions } from './run-context.ts';
export { applyStatus, lastApplied } from './status.ts';
export { undoLast } from './undo-plan.ts';
