/** What plans ask of the rest of control: the steps on workspaces and sandboxes that are somebody else's to do. */
import type {
  BodyOf,
  GitObjectId,
  KeyId,
  PlanCommitId,
  PlanCommitView,
  routes,
  SandboxId,
  TeamId,
  WorkspaceId,
} from '../../protocol/index.ts';
import type { SandboxRecord } from '../../store/index.ts';
import type { WorkspaceChanges } from '../workspaces/workspace-changes.ts';

/** Members whose files are read at a time: each takes a hidden sandbox. */
export const collectedAtOnce = 8;

export type PlanCheck = BodyOf<typeof routes.commitPlan>['checks'][number];
export type CheckOutcome = PlanCommitView['checks'][number];

export interface DropRequest {
  readonly teamId: TeamId;
  readonly sandboxId: SandboxId;
  readonly leaseToken: number;
  readonly createdBy: KeyId;
}

export interface CheckRequest {
  readonly teamId: TeamId;
  readonly createdBy: KeyId;
  readonly commitId: PlanCommitId;
  /** What the sandbox that checks is made like. */
  readonly like: SandboxRecord;
  /** What it has, and where. */
  readonly targets: readonly {
    readonly workspaceId: WorkspaceId;
    readonly path: string;
    readonly commit: GitObjectId;
  }[];
  readonly checks: readonly PlanCheck[];
}

export interface PlanWork {
  readonly changes: WorkspaceChanges;
  /** Puts a sandbox's checkouts back to their bases, each as a whole; what cannot be removed is an error. Harmless to repeat. */
  drop(request: DropRequest, signal: AbortSignal): Promise<void>;
  treeOf(key: { readonly workspaceId: WorkspaceId; readonly commit: GitObjectId }): Promise<GitObjectId>;
  /** One after another, in a sandbox that is gone afterwards; the first that fails is the last. */
  runChecks(request: CheckRequest, signal: AbortSignal): Promise<readonly CheckOutcome[]>;
}
