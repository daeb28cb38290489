/** What an apply or an undo did to the repositories and directories of this machine, for people. */
import type { ApplyResult, TargetResult } from '../checkout/index.ts';
import { printable, readableTable } from './readable.ts';

const sentences: Readonly<Record<ApplyResult['state'], string>> = {
  applied: 'Applied everywhere. "atoll undo" takes it back.',
  nothing: 'There was nothing to change.',
  conflict: 'Nothing was changed: there are conflicts.',
  refused: 'Nothing was changed: a target cannot be used.',
  busy: 'Nothing was changed: another program is at work in a target.',
  aborted: 'Nothing was changed. Asking again may succeed.',
  conflictPending:
    'A target was changed in the middle of it and is left as it was; the others are applied. Settle it, then apply again.',
  inDoubt: 'Decided, and not yet done everywhere. Apply again, or "atoll plan applied", goes on.',
  undone: 'Everything is as it was before.',
  undoIncomplete:
    'The targets that are named below are not as they were; the others are. Settle them, then undo again.',
};

export function applyText(result: ApplyResult): string {
  const rows = result.targets.map((target) => [
    printable(target.workspace),
    printable(target.branch === null ? target.path : `${target.path}#${target.branch}`),
    target.state,
    String(target.files),
    `+${target.insertions} -${target.deletions}`,
  ]);
  const table = rows.length === 0 ? '' : readableTable(['WORKSPACE', 'TARGET', 'STATE', 'FILES', 'LINES'], rows);
  const sentence = result.dryRun && result.state === 'applied' ? 'It can be applied.' : sentences[result.state];
  return `${sentence}\n${table}${result.targets.map(obstacles).join('')}`;
}

export function appliedTable(results: readonly ApplyResult[]): string {
  if (results.length === 0) return 'Nothing is applied here.\n';
  const rows = results.map((result) => [
    printable(result.planName),
    result.state,
    result.finishedAt,
    result.targets.map(({ workspace, path }) => printable(`${workspace}=${path}`)).join(' '),
  ]);
  return readableTable(['PLAN', 'STATE', 'WHEN', 'TARGETS'], rows);
}

function obstacles({ workspace, conflicts, error }: TargetResult): string {
  const lines = conflicts.map(({ path, reason }) => `  ${printable(workspace)}: ${printable(path)} (${reason})\n`);
  return `${lines.join('')}${error === null ? '' : `  ${printable(workspace)}: ${printable(error.message)} (${error.code})\n`}`;
}
