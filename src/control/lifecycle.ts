/**
 * Decides every change of a sandbox's state; changes nothing itself. The promises of each state are in
 * protocol/sandbox-state.ts. A pair that is not decided here is refused with `sandbox_wrong_state`.
 */
import { assertNever } from '../base/index.ts';
import {
  type BeforeRestore,
  type CheckpointId,
  type PauseMode,
  type PauseReason,
  PlatformError,
  type SandboxState,
  type StopReason,
} from '../protocol/index.ts';

export type SandboxEvent =
  /** The node confirmed a new sandbox, or a new generation of one. */
  | { readonly kind: 'confirmed' }
  /** It could not be made, and nothing of it is left on the node. */
  | { readonly kind: 'refused'; readonly why: string; readonly atMs: number }
  | { readonly kind: 'stop'; readonly reason: StopReason; readonly untilMs: number }
  /** No process of it is left on the node. */
  | { readonly kind: 'gone'; readonly reason: StopReason; readonly atMs: number }
  /** A stop did not come to its end in time; the node says that it runs. */
  | { readonly kind: 'stayed' }
  /** It was taken for lost, and its node runs it. */
  | { readonly kind: 'found' }
  | { readonly kind: 'start'; readonly untilMs: number }
  | {
      readonly kind: 'pause';
      readonly mode: PauseMode;
      readonly expiresAtMs: number | null;
      readonly untilMs: number;
    }
  /** The node let it stand still, or has ended every process of it, as the mode says. */
  | {
      readonly kind: 'paused';
      readonly mode: PauseMode;
      readonly reason: PauseReason;
      readonly leftMs: number | null;
      readonly atMs: number;
    }
  | { readonly kind: 'resume'; readonly untilMs: number }
  | {
      readonly kind: 'restore';
      readonly checkpointId: CheckpointId;
      readonly before: BeforeRestore;
      readonly untilMs: number;
    }
  | { readonly kind: 'delete'; readonly untilMs: number };

export type EventKind = SandboxEvent['kind'];

export function nextSandboxState(state: SandboxState, event: SandboxEvent): SandboxState {
  if (event.kind === 'delete') return state.kind === 'deleting' ? state : { kind: 'deleting', untilMs: event.untilMs };
  switch (state.kind) {
    case 'creating':
      if (event.kind === 'confirmed') return { kind: 'running' };
      if (event.kind === 'refused') return { kind: 'failed', why: event.why };
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      break;
    case 'running':
      if (event.kind === 'stop') return { kind: 'stopping', reason: event.reason, untilMs: event.untilMs };
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      if (event.kind === 'start' || event.kind === 'resume') return state;
      if (event.kind === 'pause') {
        const { mode, expiresAtMs, untilMs } = event;
        return { kind: 'pausing', mode, expiresAtMs, untilMs };
      }
      if (event.kind === 'paused') return pausedState(event);
      if (event.kind === 'restore') return restoringState(event);
      break;
    case 'pausing':
      if (event.kind === 'pause') return state; // The first mode stays.
      if (event.kind === 'paused') return pausedState(event);
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      if (event.kind === 'stayed') return { kind: 'running' };
      break;
    case 'paused':
      if (event.kind === 'pause') return state;
      if (event.kind === 'stop') return { kind: 'stopping', reason: event.reason, untilMs: event.untilMs };
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      if (event.kind === 'found') return { kind: 'running' };
      if (event.kind === 'resume') return { kind: 'resuming', paused: state, untilMs: event.untilMs };
      if (event.kind === 'restore') return restoringState(event);
      break;
    case 'resuming':
      if (event.kind === 'resume') return state;
      if (event.kind === 'confirmed') return { kind: 'running' };
      if (event.kind === 'refused') return { ...state.paused, note: event.why };
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      break;
    case 'restoring':
      if (event.kind === 'confirmed') return { kind: 'running' };
      if (event.kind === 'refused') return state.before.state;
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      break;
    case 'stopping':
      if (event.kind === 'stop') return state; // The first reason stays.
      if (event.kind === 'gone') return { kind: 'stopped', reason: state.reason, atMs: event.atMs };
      if (event.kind === 'stayed') return { kind: 'running' };
      break;
    case 'stopped':
      if (event.kind === 'stop' || event.kind === 'gone') return state;
      if (event.kind === 'found') return { kind: 'running' };
      if (event.kind === 'start') return { kind: 'starting', previous: state.reason, untilMs: event.untilMs };
      if (event.kind === 'restore') return restoringState(event);
      break;
    case 'starting':
      if (event.kind === 'confirmed') return { kind: 'running' };
      if (event.kind === 'refused') {
        return { kind: 'stopped', reason: state.previous, atMs: event.atMs, note: event.why };
      }
      if (event.kind === 'gone') return { kind: 'stopped', reason: event.reason, atMs: event.atMs };
      break;
    case 'deleting':
    case 'failed':
      break;
    default:
      assertNever(state);
  }
  const details = { state: state.kind };
  throw new PlatformError('sandbox_wrong_state', `A ${state.kind} sandbox cannot take "${event.kind}".`, { details });
}

function pausedState(event: Extract<SandboxEvent, { kind: 'paused' }>): SandboxState {
  const { mode, reason, atMs, leftMs } = event;
  return { kind: 'paused', mode, reason, atMs, leftMs };
}

function restoringState(event: Extract<SandboxEvent, { kind: 'restore' }>): SandboxState {
  const { checkpointId, before, untilMs } = event;
  return { kind: 'restoring', checkpointId, before, untilMs };
}

/** When a transition is overdue: past this, reconcile settles it one way or the other. */
export function transitionDeadline(state: SandboxState): number | undefined {
  return 'untilMs' in state ? state.untilMs : undefined;
}
