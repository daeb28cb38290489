/** What people and scripts are told of an apply to their own repositories. */
import { expect, test } from 'vitest';
import type { ApplyResult } from '../checkout/index.ts';
import { appliedTable, applyText } from './apply-words.ts';
import { exitOfApply } from './plan-exit.ts';

const target: ApplyResult['targets'][number] = {
  ...{ workspaceId: 'wsp1', workspace: 'site', path: '/home/me/site', branch: 'main', state: 'applied' },
  ...{ base: 'a', before: 'a', after: 'b', files: 2, insertions: 3, deletions: 1, conflicts: [], error: null },
  undoable: true,
};
const result: ApplyResult = {
  ...{ id: '1', kind: 'apply', mode: 'atomic', dryRun: false, planId: 'pln1', planName: 'release', commitId: 'cmt1' },
  ...{ state: 'applied', targets: [target], refs: [], warnings: [] },
  ...{ startedAt: '2030-01-01T00:00:00.000Z', finishedAt: '2030-01-01T00:00:01.000Z' },
};

test('every target is a line with its branch and its counts; a trial says that it could be', () => {
  const text = applyText(result);
  expect(text).toMatch(/^Applied everywhere\..*\n/);
  expect(text).toMatch(/site +\/home\/me\/site#main +applied +2 +\+3 -1\n/);
  expect(applyText({ ...result, dryRun: true })).toMatch(/^It can be applied\.\n/);
  const directory = applyText({ ...result, targets: [{ ...target, branch: null }] });
  expect(directory).toMatch(/\/home\/me\/site +applied/);
  expect(applyText({ ...result, state: 'nothing', targets: [] })).toBe('There was nothing to change.\n');
});

test('conflicts and reasons are named by target, without what a terminal would obey', () => {
  const conflicts = [{ path: 'a\u001b[2J', reason: 'edited' as const }];
  const error = { code: 'plan_target_unusable', message: 'It is in the way.' };
  const text = applyText({
    ...result,
    state: 'conflict',
    targets: [{ ...target, state: 'conflict', conflicts, error }],
  });
  expect(text).toMatch(/^Nothing was changed: there are conflicts\.\n/);
  expect(text).toMatch(/ {2}site: a.*\(edited\)\n {2}site: It is in the way\. \(plan_target_unusable\)\n$/);
  expect(text).not.toContain('\u001b');
});

test('what was applied is listed with where it went', () => {
  expect(appliedTable([])).toBe('Nothing is applied here.\n');
  expect(appliedTable([result])).toMatch(/release +applied +2030-01-01T00:00:01\.000Z +site=\/home\/me\/site\n$/);
});

test('C67: every outcome of an apply has its exit code', () => {
  const exits = (['applied', 'nothing', 'undone', 'conflict', 'conflictPending', 'busy', 'aborted'] as const).map(
    (state) => exitOfApply({ ...result, state }),
  );
  expect(exits).toEqual([0, 0, 0, 2, 2, 3, 4]);
  expect([exitOfApply({ ...result, state: 'inDoubt' }), exitOfApply({ ...result, state: 'undoIncomplete' })]).toEqual([
    5, 5,
  ]);
  const refused = { ...target, error: { code: 'permission_denied', message: 'why' } };
  expect(exitOfApply({ ...result, state: 'refused', targets: [target, refused] })).toBe(77);
  expect(exitOfApply({ ...result, state: 'refused' }), 'without a reason').toBe(65);
});
