/** What every part of control is given: nothing of it is global, so that a test can hold each piece in its hand. */
import type { Clock, FaultPoints, Logger, Timers } from '../base/index.ts';
import { fullNetwork, type NetworkPolicy, type RandomSource, type SandboxLimits } from '../protocol/index.ts';
import type { Store } from '../store/index.ts';
import type { EventHub } from './event-hub.ts';
import type { NodeDirectory } from './node-directory.ts';
import type { SandboxLanes } from './sandbox-lanes.ts';

export interface ControlSettings {
  readonly defaultLimits: SandboxLimits;
  /** Of a sandbox that is created without saying. */
  readonly defaultNetwork: NetworkPolicy;
  readonly sandboxesPerTeam: number;
  /** How long a create, start, stop or delete may take before reconcile settles it. */
  readonly transitionMs: number;
  /** Younger than this, a difference between record and node is left alone: it may be about to vanish. */
  readonly youngMs: number;
  readonly reconcileIntervalMs: number;
  /** How long answers under idempotency keys are kept. */
  readonly operationsKeptMs: number;
  readonly eventsKept: number;
  readonly historyKept: number;
  /** How long a lease outlives the connection it was bound to. */
  readonly leaseGraceMs: number;
  /** How often checkpoints and backups are looked at whose time has come, or that a crash left. */
  readonly retentionIntervalMs: number;
  /** How long what a commit of a plan has read from its members is kept, to find it again. */
  readonly planRefsKeptMs: number;
  /** How often plans are looked at that something was interrupted on, or that have things to tidy up. */
  readonly planRecoveryIntervalMs: number;
}

export const defaultControlSettings: ControlSettings = {
  defaultLimits: { memoryBytes: 2 * 1024 ** 3, cpuMillis: 2_000, processes: 1_024, diskBytes: null },
  defaultNetwork: fullNetwork,
  sandboxesPerTeam: 10_000,
  transitionMs: 60_000,
  youngMs: 60_000,
  reconcileIntervalMs: 30_000,
  operationsKeptMs: 24 * 3600 * 1000,
  eventsKept: 100_000,
  historyKept: 1_000,
  leaseGraceMs: 5_000,
  retentionIntervalMs: 10_000,
  planRefsKeptMs: 7 * 24 * 3600 * 1000,
  planRecoveryIntervalMs: 10_000,
};

export interface ControlContext {
  readonly store: Store;
  readonly nodes: NodeDirectory;
  readonly lanes: SandboxLanes;
  readonly events: EventHub;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly faults: FaultPoints;
  readonly random: RandomSource;
  readonly settings: ControlSettings;
  /** Key and token texts are derived from it; stored outside the database. */
  readonly secret: Uint8Array;
  /** Names this run of the server: an operation begun by another one was interrupted. */
  readonly serverRun: string;
}
