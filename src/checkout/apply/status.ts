/** What was applied here and can still be undone, oldest first. Settles what was cut off before it tells. */
import type { ApplyResult } from './plan-target.ts';
import { recover } from './recover.ts';
import { resultOf } from './result.ts';
import { type ApplyOptions, withRun } from './run-context.ts';

export function applyStatus(options: ApplyOptions): Promise<readonly ApplyResult[]> {
  return withRun(options, async (run) => {
    const journals = await recover(run);
    return journals.map((journal) =>
      resultOf(journal, { finishedAtMs: journal.finishedAtMs ?? journal.startedAtMs, warnings: [] }),
    );
  });
}
