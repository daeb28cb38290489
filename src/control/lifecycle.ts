/**
 * Decides every change of a sandbox's state; changes nothing itself. The promises of each state are in
 * protocol/sandbox-state.ts. A pair that is not decided here is refused with `sandbox_wrong_state`.
 */
import { assertNever } from '../base/index.ts';
import { PlatformError, type SandboxState, type StopReason } from '../protocol/index.ts';

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
      if (event.kind === 'start') return state;
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

/** When a transition is overdue: past this, reconcile settles it one way or the other. */
export function transitionDeadline(state: SandboxState): number | undefined {
  return 'untilMs' in state ? state.untilMs : undefined;
}
