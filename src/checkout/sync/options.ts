/** What callers of push, pull and status give and get. */
import type { PullConflict } from './pull-merge.ts';

export interface SyncProgress {
  /** `done`: nothing follows; whoever shows progress takes it away. */
  readonly phase: 'snapshot' | 'send' | 'apply' | 'receive' | 'done';
  readonly files: number;
  readonly bytes: number;
}

export interface SyncLimits {
  /** Of changed files in one sync, and of one pack. */
  readonly totalBytes: number;
  readonly fileBytes: number;
  readonly files: number;
}

export const defaultSyncLimits: SyncLimits = {
  totalBytes: 2 * 1024 ** 3,
  fileBytes: 512 * 1024 ** 2,
  files: 200_000,
};

/** What happens to untracked files that look like secrets (`.env`, private keys) and that no pattern ignores. */
export type SecretsPolicy = 'skip' | 'refuse' | 'send';

export interface SyncOptions {
  readonly leaseToken?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: SyncProgress) => void;
  /** In the sandbox; /workspace without it. */
  readonly directory?: string;
  /** Only what is at or below these paths, which are relative to the root of the checkout. */
  readonly paths?: readonly string[];
  readonly dryRun?: boolean;
  readonly limits?: Partial<SyncLimits>;
  readonly secretsPolicy?: SecretsPolicy;
  /** Goes on although one side has lost (nearly) everything. */
  readonly allowEmpty?: boolean;
}

export interface PushOptions extends SyncOptions {
  /**
   * What a command has left in the sandbox and nobody has pulled: `pull` brings it here first, `discard` replaces it. Either way it is kept on
   * a ref in the sandbox.
   */
  readonly unpulled?: 'pull' | 'discard';
}

export interface PushResult {
  /** The snapshot that both sides have now. */
  readonly baseline: string;
  readonly head: string | null;
  readonly files: number;
  readonly bytes: number;
  readonly paths: readonly string[];
  /** False when the sandbox had everything already, and on a dry run. */
  readonly applied: boolean;
  /** The checkout in the sandbox had lost its .git, which was made anew. */
  readonly healed: boolean;
  /** What had to be pulled first. */
  readonly pulledFirst: PullResult | null;
  readonly warnings: readonly string[];
}

export interface PullOptions extends SyncOptions {}

export interface PullResult {
  readonly applied: boolean;
  readonly files: number;
  readonly bytes: number;
  readonly paths: readonly string[];
  /** Made in the sandbox, oldest first. */
  readonly commits: readonly { readonly id: string; readonly author: string; readonly subject: string }[];
  /** Whether the local branch moved to the last of them. */
  readonly branchMoved: boolean;
  readonly conflicts: readonly PullConflict[];
  /** Where the sandbox's side lies when something could not be applied. */
  readonly ref: string | null;
  readonly folder: string | null;
  readonly warnings: readonly string[];
}

export interface SyncStatus {
  /** `unknown`: the sandbox cannot be looked into now, because somebody else holds it or it does not run. */
  readonly state: 'never' | 'same' | 'changed' | 'unknown';
  /** What a push would send. */
  readonly local: readonly string[];
  /** What a pull would bring; `HEAD` stands for new commits. null when it is not known. */
  readonly sandbox: readonly string[] | null;
  /** Why it is not known. */
  readonly sandboxUnknown: string | null;
  /** Folders of earlier conflicts that nobody has removed. */
  readonly leftovers: readonly string[];
  /** A pull or an undo was cut short; the next sync finishes it. */
  readonly interrupted: boolean;
}
