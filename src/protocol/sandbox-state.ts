/**
 * The life of one sandbox as the control plane records it. `control/lifecycle.ts` decides every change of it.
 *
 *                       ┌────────── start ───────────┐
 *                       ▼                            │
 *   creating ──► running ──stop──► stopping ──► stopped ◄── starting (failed)
 *       │           ▲                                │         │
 *       └─► failed  └────────────────────────────────┼── starting (started)
 *                                                    ▼
 *   delete is accepted in every state:           deleting ──► (no record)
 *
 *   creating   A node is chosen; something may run there, nobody may use it yet.
 *   running    The node confirmed everything about it. Only here may commands start.
 *   stopping   No new commands. The node may still hold processes.
 *   stopped    No process is left; the files wait for `start`, which begins a new generation, or for `delete`.
 *   starting   A new generation is being made on the files of the earlier one; nobody may use it yet.
 *   deleting   No new commands; process, files and record are going away and cannot come back.
 *   failed     It never ran; nothing is left on the node. Only `delete` is possible.
 *
 * A transition carries `untilMs`: past it, control settles it one way or the other with a reason.
 */
export type StopReason = 'requested' | 'expired' | 'crashed' | 'machine_rebooted' | 'lost';

export type SandboxState =
  | { readonly kind: 'creating'; readonly untilMs: number }
  | { readonly kind: 'running' }
  | { readonly kind: 'stopping'; readonly reason: StopReason; readonly untilMs: number }
  | { readonly kind: 'stopped'; readonly reason: StopReason; readonly atMs: number; readonly note?: string }
  | { readonly kind: 'starting'; readonly previous: StopReason; readonly untilMs: number }
  | { readonly kind: 'deleting'; readonly untilMs: number }
  | { readonly kind: 'failed'; readonly why: string };

export type StateKind = SandboxState['kind'];
export const stateKinds = [
  'creating',
  'running',
  'stopping',
  'stopped',
  'starting',
  'deleting',
  'failed',
] as const satisfies readonly StateKind[];
