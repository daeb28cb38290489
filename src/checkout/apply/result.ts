/** The result of an apply or an undo, made from its journal or from what kept it from having one. */
import type { PlatformError } from '../../protocol/index.ts';
import type { Journal, JournalTarget } from './journal.ts';
import type {
  ApplyResult,
  ApplyState,
  PlanTarget,
  TargetConflict,
  TargetPlace,
  TargetResult,
  TargetStateName,
} from './plan-target.ts';
import { refNames } from './prepare-target.ts';

export interface TargetOutcome {
  readonly target: JournalTarget;
  readonly state: TargetStateName;
  readonly conflicts?: readonly TargetConflict[];
  readonly error?: PlatformError;
}

interface ResultInput {
  readonly finishedAtMs: number;
  readonly warnings: readonly string[];
  readonly dryRun?: boolean;
  /** Given where the journal does not tell. */
  readonly outcomes?: readonly TargetOutcome[];
  readonly state?: ApplyState;
  /** Why a target is still pending, by its number. */
  readonly errors?: ReadonlyMap<number, PlatformError>;
}

type Told = Pick<Journal, 'id' | 'kind' | 'planId' | 'planName' | 'commitId' | 'startedAtMs'> & {
  readonly targets?: readonly JournalTarget[];
};

export function resultOf(journal: Told, input: ResultInput): ApplyResult {
  const outcomes =
    input.outcomes ??
    (journal.targets ?? []).map((target, number) => outcomeOf(journal.kind, target, input.errors?.get(number)));
  const state = input.state ?? stateOf(journal.kind, outcomes);
  const isKept =
    journal.kind === 'apply' &&
    (state === 'applied' || state === 'conflictPending' || state === 'inDoubt') &&
    input.dryRun !== true;
  return {
    id: journal.id,
    kind: journal.kind,
    mode: 'atomic',
    dryRun: input.dryRun ?? false,
    planId: journal.planId,
    planName: journal.planName,
    commitId: journal.commitId,
    state,
    targets: outcomes.map(targetResult),
    refs: isKept ? outcomes.flatMap((outcome, number) => refsOf(journal.id, number, outcome)) : [],
    startedAt: new Date(journal.startedAtMs).toISOString(),
    finishedAt: new Date(input.finishedAtMs).toISOString(),
    warnings: input.warnings,
  };
}

/** For a target that was refused before it was looked at. */
export function emptyTarget({ workspaceId, workspace, base, commit }: PlanTarget, place: TargetPlace): JournalTarget {
  const { path, branch = null } = place;
  return {
    workspaceId,
    workspace,
    base,
    commit,
    place: { kind: 'directory', path, branch, root: null, syncDirectory: null },
    checkout: {
      root: path,
      kind: 'plain',
      gitDirectory: undefined,
      commonDirectory: undefined,
      directory: '',
      shadow: '',
      isSparse: false,
      isShallow: false,
      excludes: '',
    },
    staging: null,
    gitStaging: null,
    move: null,
    steps: [],
    indexSteps: [],
    makes: [],
    removes: [],
    flip: null,
    insertions: 0,
    deletions: 0,
    state: { kind: 'pending' },
  };
}

function outcomeOf(kind: Journal['kind'], target: JournalTarget, error: PlatformError | undefined): TargetOutcome {
  const { state } = target;
  const why = error === undefined ? {} : { error };
  switch (state.kind) {
    case 'pending':
      return { target, state: kind === 'apply' ? 'inDoubt' : 'undoPending', ...why };
    case 'applied':
      return { target, state: kind === 'apply' ? 'applied' : 'undone' };
    case 'conflictPending':
      return { target, state: kind === 'apply' ? 'conflictPending' : 'undoPending', conflicts: state.conflicts };
    default:
      return { target, state: state.kind };
  }
}

function stateOf(kind: Journal['kind'], outcomes: readonly TargetOutcome[]): ApplyState {
  const has = (state: TargetStateName) => outcomes.some((outcome) => outcome.state === state);
  if (kind === 'undo') return has('undoPending') ? 'undoIncomplete' : 'undone';
  if (has('inDoubt')) return 'inDoubt';
  if (has('conflictPending')) return 'conflictPending';
  if (has('applied')) return 'applied';
  return has('undone') ? 'undone' : 'nothing';
}

function refsOf(id: string, number: number, { target }: TargetOutcome): string[] {
  if (target.move === null || target.state.kind === 'unchanged') return [];
  const { before, after } = refNames(id, number);
  return target.move.from === null ? [after] : [before, after];
}

function targetResult({ target, state, conflicts = [], error }: TargetOutcome): TargetResult {
  const { move, place } = target;
  const message = target.state.kind === 'conflictPending' ? target.state.message : undefined;
  return {
    workspaceId: target.workspaceId,
    workspace: target.workspace,
    path: place.path,
    branch: place.branch,
    state,
    base: target.base,
    before: move?.from ?? null,
    after: move?.to ?? null,
    files: place.root === null ? target.indexSteps.length : target.steps.length,
    insertions: target.insertions,
    deletions: target.deletions,
    conflicts,
    error:
      error !== undefined
        ? { code: error.code, message: error.message }
        : message !== undefined
          ? { code: 'plan_target_unusable', message }
          : null,
    undoable: state === 'applied',
  };
}
