/**
 * What `atoll plan commit`, `revert`, `rollback`, `restore`, `apply` and an undo of an apply exit with, where they have more to say than other
 * commands. Everything else exits as everywhere, a word that is missing or malformed too.
 *
 *   0   done, or there was nothing to do
 *   2   a conflict: nothing was published
 *   3   busy: somebody holds a member, a target or the plan
 *   4   aborted, nothing was published; asking again may succeed
 *   5   in doubt, or not finished yet: look before you repeat it
 */
import { assertNever } from '../base/index.ts';
import type { ApplyResult } from '../checkout/index.ts';
import { type ErrorCode, isPlatformError, type PlanCommitView, type PlanView } from '../protocol/index.ts';
import type { CommandCall } from './command-call.ts';
import { exitCodeOf, exitCodes } from './exit-codes.ts';
import { explainError } from './explain-error.ts';

export const planExitCodes = { done: 0, conflict: 2, busy: 3, aborted: 4, inDoubt: 5 } as const;

const busyCodes: ReadonlySet<string> = new Set<ErrorCode>([
  'plan_busy',
  'plan_target_busy',
  'checkout_busy',
  'lease_held',
  'lease_wait_timeout',
]);
const doubtCodes: ReadonlySet<string> = new Set<ErrorCode>(['outcome_unknown', 'operation_in_doubt']);

export function exitOfCommit({ state, retryable, error }: PlanCommitView): number {
  if (state === 'committed' || state === 'nothing') return planExitCodes.done;
  if (state === 'conflict' || state === 'partial') return planExitCodes.conflict;
  if (state === 'preparing' || error === null || doubtCodes.has(error.code)) return planExitCodes.inDoubt;
  if (busyCodes.has(error.code)) return planExitCodes.busy;
  if (retryable) return planExitCodes.aborted;
  return exitCodeOf[error.code as ErrorCode] ?? exitCodes.bug;
}

/** Of an apply to the user's own repositories, and of an undo of one. */
export function exitOfApply({ state, targets }: ApplyResult): number {
  switch (state) {
    case 'applied':
    case 'nothing':
    case 'undone':
      return planExitCodes.done;
    case 'conflict':
    case 'conflictPending':
      return planExitCodes.conflict;
    case 'busy':
      return planExitCodes.busy;
    case 'aborted':
      return planExitCodes.aborted;
    case 'inDoubt':
    case 'undoIncomplete':
      return planExitCodes.inDoubt;
    case 'refused':
      return exitCodeOf[targets.find(({ error }) => error !== null)?.error?.code as ErrorCode] ?? exitCodes.refused;
    default:
      return assertNever(state);
  }
}

export function exitOfPlan({ state }: PlanView): number {
  const isUnfinished = state.kind === 'rollbackIncomplete' || state.kind === 'restoring';
  return isUnfinished ? planExitCodes.inDoubt : planExitCodes.done;
}

/** Runs the command; a refusal that has an exit code of its own here is printed as any other. */
export async function withPlanExit(call: CommandCall, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const exitCode = isPlatformError(error) ? exitOfCode(error.code) : undefined;
    if (exitCode === undefined) throw error;
    const { text, json } = explainError(error);
    if (call.isJson) await call.io.stdout.write(`${JSON.stringify(json)}\n`);
    else await call.io.stderr.write(text);
    call.exitCode = exitCode;
  }
}

function exitOfCode(code: string): number | undefined {
  if (busyCodes.has(code)) return planExitCodes.busy;
  return doubtCodes.has(code) ? planExitCodes.inDoubt : undefined;
}
