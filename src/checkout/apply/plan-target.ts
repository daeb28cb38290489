/** What is applied, where, and what came of it: the words that callers of `applyPlan` and `undoLast` give and get. */

/** The result of a plan for one workspace. */
export interface PlanTarget {
  readonly workspaceId: string;
  readonly workspace: string;
  /** The commit that the result stands on. */
  readonly base: string;
  readonly commit: string;
  /** A git bundle that has `commit`, without what is reachable from `since`. Hostile: a sandbox made its content. */
  openBundle(since: readonly string[]): AsyncIterable<Uint8Array>;
}

export interface AppliedPlan {
  readonly planId: string;
  readonly planName: string;
  readonly commitId: string;
}

/** Where a workspace's result goes: a branch of a repository, or a directory without git. */
export interface TargetPlace {
  readonly path: string;
  /** Without it the branch that is checked out there. */
  readonly branch?: string;
}

export interface TargetConflict {
  readonly path: string;
  /**
   * both_changed       the plan and the target made different things of it
   * exists_here        something that git does not track, or a directory, is in its place
   * edited             changed here, staged or not, and not committed
   * changed_meanwhile  changed between the decision and its turn
   */
  readonly reason: 'both_changed' | 'exists_here' | 'edited' | 'changed_meanwhile';
}

export type TargetStateName =
  | 'applied'
  | 'wouldApply'
  | 'unchanged'
  | 'notApplied'
  | 'conflict'
  | 'refused'
  | 'busy'
  | 'conflictPending'
  | 'inDoubt'
  | 'undone'
  | 'undoPending';

export interface TargetError {
  readonly code: string;
  readonly message: string;
}

export interface TargetResult {
  readonly workspaceId: string;
  readonly workspace: string;
  /** The repository or directory. */
  readonly path: string;
  readonly branch: string | null;
  readonly state: TargetStateName;
  readonly base: string;
  /** Commits of the branch; null for a directory, and for a branch without commits. */
  readonly before: string | null;
  readonly after: string | null;
  readonly files: number;
  readonly insertions: number;
  readonly deletions: number;
  readonly conflicts: readonly TargetConflict[];
  readonly error: TargetError | null;
  readonly undoable: boolean;
}

/**
 * applied          every target has its changes
 * nothing          there was nothing to change
 * conflict         no target was changed; every conflict of every target is listed
 * refused          no target was changed; some cannot be used as they are
 * busy             no target was changed; another program is at work in one
 * aborted          no target was changed; asking again may succeed
 * conflictPending  decided, but a target was changed meanwhile and stands as it was; the others have their changes
 * inDoubt          decided, and not yet done everywhere; any later apply, status or undo goes on
 * undone           every target is as it was
 * undoIncomplete   the listed targets are not as they were; the others are
 */
export type ApplyState =
  | 'applied'
  | 'nothing'
  | 'conflict'
  | 'refused'
  | 'busy'
  | 'aborted'
  | 'conflictPending'
  | 'inDoubt'
  | 'undone'
  | 'undoIncomplete';

export interface ApplyResult {
  readonly id: string;
  readonly kind: 'apply' | 'undo';
  readonly mode: 'atomic';
  readonly dryRun: boolean;
  readonly planId: string;
  readonly planName: string;
  readonly commitId: string;
  readonly state: ApplyState;
  readonly targets: readonly TargetResult[];
  /** Kept in the users' repositories until the record expires. */
  readonly refs: readonly string[];
  readonly startedAt: string;
  readonly finishedAt: string;
  readonly warnings: readonly string[];
}
