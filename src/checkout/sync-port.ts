/** What the cycle needs of a sync engine: send the checkout in, bring changes back. Which files and how is the engine's own business. */
import type { Sandbox } from '../sdk/index.ts';
import type { SyncProgress, SyncStatus } from './sync/index.ts';

export type { SyncProgress };

export interface SyncCall {
  readonly leaseToken: number;
  readonly signal?: AbortSignal;
  readonly dryRun?: boolean;
  /** Only these, from the root of the checkout. */
  readonly paths?: readonly string[];
  readonly onProgress?: (progress: SyncProgress) => void;
}

export interface PushSummary {
  /** False when the sandbox had everything already. */
  readonly applied: boolean;
  readonly files: number;
  readonly bytes: number;
  readonly warnings: readonly string[];
}

export interface PullSummary {
  readonly applied: boolean;
  readonly files: number;
  readonly bytes: number;
  readonly commits: readonly unknown[];
  /** The working tree is as it was when there are any. */
  readonly conflicts: readonly { readonly path: string }[];
  /** Where the sandbox's side lies when something could not be applied. */
  readonly ref: string | null;
  readonly folder: string | null;
  readonly warnings: readonly string[];
}

export interface SyncPort {
  push(sandbox: Sandbox, call: SyncCall): Promise<PushSummary>;
  pull(sandbox: Sandbox, call: SyncCall): Promise<PullSummary>;
  status(sandbox: Sandbox, call?: Pick<SyncCall, 'signal' | 'paths'>): Promise<SyncStatus>;
}
