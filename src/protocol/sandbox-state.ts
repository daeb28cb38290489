/**
 * The life of one sandbox as the control plane records it. `control/lifecycle.ts` decides every change of it.
 *
 *                       ┌────────── start ───────────┐
 *                       ▼                            │
 *   creating ──► running ──stop──► stopping ──► stopped ◄── starting (failed)
 *       │         ▲ │ ▲ ▲                            │         │
 *       └─► failed│ │ │ └────────────────────────────┼── starting (started)
 *                 │ │ └── restoring ◄── restore ── running, paused, stopped
 *                 │ └──pause──► pausing ──► paused ──resume──► resuming
 *                 └───────────────────────────────────────────────┘
 *                                                    ▼
 *   delete is accepted in every state:           deleting ──► (no record)
 *
 *   creating   A node is chosen; something may run there, nobody may use it yet.
 *   running    The node confirmed everything about it. Only here may commands start.
 *   stopping   No new commands. The node may still hold processes.
 *   stopped    No process is left; the files wait for `start`, which begins a new generation, or for `delete`.
 *   starting   A new generation is being made on the files of the earlier one; nobody may use it yet.
 *   pausing    No new commands. What runs may stand still already, or have ended, as the mode says.
 *   paused     `memory`: every process stands still. `files`: no process is left. There is no deadline; what was left of it waits.
 *   resuming   `memory`: processes may move again. `files`: a new generation is being made. Nobody may use it yet.
 *   restoring  A new generation is being made on the files of a checkpoint; if it cannot be, the state before comes back.
 *   deleting   No new commands; process, files and record are going away and cannot come back.
 *   failed     It never ran; nothing is left on the node. Only `delete` is possible.
 *
 * A transition carries `untilMs`: past it, control settles it one way or the other with a reason.
 */
import type { CheckpointId } from './ids.ts';
import type { PauseMode } from './node-branches.ts';

export type StopReason = 'requested' | 'expired' | 'crashed' | 'machine_rebooted' | 'lost';

/** Why it is paused: somebody asked, or its deadline came. */
export type PauseReason = 'requested' | 'expired';

export interface PausingState {
  readonly kind: 'pausing';
  readonly mode: PauseMode;
  /** The deadline that it has if the pause fails. */
  readonly expiresAtMs: number | null;
  readonly untilMs: number;
}

export interface PausedState {
  readonly kind: 'paused';
  readonly mode: PauseMode;
  readonly reason: PauseReason;
  readonly atMs: number;
  /** What was left of its time; null: it had no deadline. */
  readonly leftMs: number | null;
  /** Why the last resume failed. */
  readonly note?: string;
}

export interface ResumingState {
  readonly kind: 'resuming';
  readonly paused: PausedState;
  readonly untilMs: number;
}

/** What comes back when a restore fails: the life before, and its deadline. */
export interface BeforeRestore {
  readonly state: Exclude<SandboxState, { kind: 'restoring' }>;
  readonly generation: number;
  readonly expiresAtMs: number | null;
}

export interface RestoringState {
  readonly kind: 'restoring';
  readonly checkpointId: CheckpointId;
  readonly before: BeforeRestore;
  readonly untilMs: number;
}

export type SandboxState =
  | { readonly kind: 'creating'; readonly untilMs: number; readonly from?: CheckpointId }
  | { readonly kind: 'running' }
  | { readonly kind: 'stopping'; readonly reason: StopReason; readonly untilMs: number }
  | { readonly kind: 'stopped'; readonly reason: StopReason; readonly atMs: number; readonly note?: string }
  | { readonly kind: 'starting'; readonly previous: StopReason; readonly untilMs: number }
  | PausingState
  | PausedState
  | ResumingState
  | RestoringState
  | { readonly kind: 'deleting'; readonly untilMs: number }
  | { readonly kind: 'failed'; readonly why: string };

export type StateKind = SandboxState['kind'];
export const stateKinds = [
  'creating',
  'running',
  'stopping',
  'stopped',
  'starting',
  'pausing',
  'paused',
  'resuming',
  'restoring',
  'deleting',
  'failed',
] as const satisfies readonly StateKind[];
