/** What was applied here and can still be undone, oldest first. Settles what was cut off before it tells. */
import type { Journal } from './journal.ts';
import type { ApplyResult } from './plan-target.ts';
import { recover } from './recover.ts';
import { resultOf } from './result.ts';
import { type ApplyOptions, withRun } from './run-context.ts';
import { lastApply } from './undo-plan.ts';

export function applyStatus(options: ApplyOptions): Promise<readonly ApplyResult[]> {
  return withRun(options, async (run) => (await recover(run)).map(told));
}

/** What an undo would take back; undefined: nothing. */
export function lastApplied(options: ApplyOptions): Promise<ApplyResult | undefined> {
  return withRun(options, async (run) => {
    const journal = lastApply(await recover(run));
    return journal === undefined ? undefined : told(journal);
  });
}

function told(journal: Journal): ApplyResult {
  return resultOf(journal, { finishedAtMs: journal.finishedAtMs ?? journal.startedAtMs, warnings: [] });
}
