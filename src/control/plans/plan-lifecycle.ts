/**
 * Decides every change of a plan's state; changes nothing itself. The promises of each state are in protocol/plan-state.ts. A pair that is not
 * decided here is refused: with `plan_busy` while something is under way, and with `plan_wrong_state` otherwise.
 */
import { assertNever } from '../../base/index.ts';
import {
  busyPlanStates,
  type MemberFailure,
  type PlanCheckpointId,
  type PlanCommitId,
  type PlanState,
  PlatformError,
  type SandboxId,
} from '../../protocol/index.ts';

export type PlanEvent =
  /** Members may be added or removed. */
  | { readonly kind: 'change' }
  | { readonly kind: 'commit'; readonly commitId: PlanCommitId; readonly fence: number }
  | { readonly kind: 'revert'; readonly revertId: PlanCommitId; readonly fence: number }
  /** Every target has its version. */
  | { readonly kind: 'decided' }
  /** No target was changed, or not all of them where that was asked for. */
  | { readonly kind: 'abandoned' }
  | { readonly kind: 'rollBack'; readonly fence: number }
  /** Nothing was changed: the members could not be had. */
  | { readonly kind: 'rollBackRefused' }
  | { readonly kind: 'rolledBack'; readonly failures: readonly MemberFailure[] }
  | { readonly kind: 'restore'; readonly checkpointId: PlanCheckpointId; readonly fence: number }
  | { readonly kind: 'restoreRefused' }
  | { readonly kind: 'memberRestored'; readonly sandboxId: SandboxId }
  | { readonly kind: 'restoreDelayed'; readonly failures: readonly MemberFailure[] }
  | { readonly kind: 'restored' }
  /** Another coordinator goes on. */
  | { readonly kind: 'takenOver'; readonly fence: number }
  | { readonly kind: 'delete' };

export type PlanEventKind = PlanEvent['kind'];

export function nextPlanState(state: PlanState, event: PlanEvent): PlanState {
  switch (state.kind) {
    case 'open':
      if (event.kind === 'change' || event.kind === 'delete') return state;
      if (event.kind === 'commit') return committing(event.commitId, event.fence, null);
      if (event.kind === 'rollBack') return { kind: 'rollingBack', fence: event.fence, before: null };
      if (event.kind === 'restore') {
        const { checkpointId, fence } = event;
        return { kind: 'restoring', checkpointId, fence, done: [], failures: [] };
      }
      break;
    case 'committing':
      if (event.kind === 'decided') {
        const { commitId, revertsId } = state;
        return revertsId === null
          ? { kind: 'committed', commitId }
          : { kind: 'reverted', commitId: revertsId, revertId: commitId };
      }
      if (event.kind === 'abandoned') {
        return state.revertsId === null ? { kind: 'open' } : { kind: 'committed', commitId: state.revertsId };
      }
      if (event.kind === 'takenOver') return { ...state, fence: event.fence };
      break;
    case 'committed':
      if (event.kind === 'revert') return committing(event.revertId, event.fence, state.commitId);
      if (event.kind === 'delete') return state;
      break;
    case 'reverted':
      if (event.kind === 'delete') return state;
      break;
    case 'rollingBack':
      if (event.kind === 'rolledBack') return afterRollback(event.failures);
      if (event.kind === 'rollBackRefused') {
        return state.before === null ? { kind: 'open' } : { kind: 'rollbackIncomplete', failures: state.before };
      }
      if (event.kind === 'takenOver') return { ...state, fence: event.fence };
      break;
    case 'rolledBack':
      if (event.kind === 'delete') return state;
      break;
    case 'rollbackIncomplete':
      if (event.kind === 'rollBack') return { kind: 'rollingBack', fence: event.fence, before: state.failures };
      if (event.kind === 'delete') return state;
      break;
    case 'restoring':
      if (event.kind === 'memberRestored') return { ...state, done: [...state.done, event.sandboxId] };
      if (event.kind === 'restoreDelayed') return { ...state, failures: [...event.failures] };
      if (event.kind === 'restored') return { kind: 'open' };
      // Once a member has its files it goes forward only.
      if (event.kind === 'restoreRefused' && state.done.length === 0) return { kind: 'open' };
      if (event.kind === 'takenOver') return { ...state, fence: event.fence };
      // One that waits for a member may wait for ever: it is given up with its plan.
      if (event.kind === 'delete' && state.failures.length > 0) return state;
      break;
    default:
      assertNever(state);
  }
  throw refused(state, event.kind);
}

function committing(commitId: PlanCommitId, fence: number, revertsId: PlanCommitId | null): PlanState {
  return { kind: 'committing', commitId, fence, revertsId };
}

function afterRollback(failures: readonly MemberFailure[]): PlanState {
  return failures.length === 0 ? { kind: 'rolledBack' } : { kind: 'rollbackIncomplete', failures: [...failures] };
}

function refused(state: PlanState, event: PlanEventKind): PlatformError {
  const details = { state: state.kind, ...('commitId' in state && { commitId: state.commitId }) };
  const isBusy = busyPlanStates.some((kind) => kind === state.kind);
  const message = isBusy
    ? `The plan is ${state.kind}: "${event}" has to wait.`
    : `A plan that is ${state.kind} cannot take "${event}".`;
  return new PlatformError(isBusy ? 'plan_busy' : 'plan_wrong_state', message, { details });
}
