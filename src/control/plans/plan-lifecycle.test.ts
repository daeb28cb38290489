import { expect, test } from 'vitest';
import { newId, type PlanState, type SandboxId } from '../../protocol/index.ts';
import { nextPlanState, type PlanEvent, type PlanEventKind } from './plan-lifecycle.ts';

type StateKind = PlanState['kind'];

const commitId = newId('planCommit');
const revertId = newId('planCommit');
const checkpointId = newId('planCheckpoint');
const sandboxId = newId('sandbox');
const failure = { sandboxId, code: 'node_unavailable', message: 'away' };

const states: { readonly [Kind in StateKind]: Extract<PlanState, { kind: Kind }> } = {
  open: { kind: 'open' },
  committing: { kind: 'committing', commitId, fence: 1, revertsId: null },
  committed: { kind: 'committed', commitId },
  reverted: { kind: 'reverted', commitId, revertId },
  rollingBack: { kind: 'rollingBack', fence: 1, before: null },
  rolledBack: { kind: 'rolledBack' },
  rollbackIncomplete: { kind: 'rollbackIncomplete', failures: [failure] },
  restoring: { kind: 'restoring', checkpointId, fence: 1, done: [], failures: [] },
};

const events: { readonly [Kind in PlanEventKind]: Extract<PlanEvent, { kind: Kind }> } = {
  change: { kind: 'change' },
  commit: { kind: 'commit', commitId, fence: 2 },
  revert: { kind: 'revert', revertId, fence: 2 },
  decided: { kind: 'decided' },
  abandoned: { kind: 'abandoned' },
  rollBack: { kind: 'rollBack', fence: 2 },
  rollBackRefused: { kind: 'rollBackRefused' },
  rolledBack: { kind: 'rolledBack', failures: [] },
  restore: { kind: 'restore', checkpointId, fence: 2 },
  restoreRefused: { kind: 'restoreRefused' },
  memberRestored: { kind: 'memberRestored', sandboxId },
  restoreDelayed: { kind: 'restoreDelayed', failures: [failure] },
  restored: { kind: 'restored' },
  takenOver: { kind: 'takenOver', fence: 2 },
  delete: { kind: 'delete' },
};

/** Every pair is decided: a new state or event does not compile until its row or column is there. */
function all<Answer extends 'wrong' | 'busy'>(answer: Answer): Record<PlanEventKind, Answer> {
  return {
    ...{ change: answer, commit: answer, revert: answer, decided: answer, abandoned: answer, rollBack: answer },
    ...{ rollBackRefused: answer, rolledBack: answer, restore: answer, restoreRefused: answer, delete: answer },
    ...{ memberRestored: answer, restoreDelayed: answer, restored: answer, takenOver: answer },
  };
}
const none = all('wrong');
const busy = all('busy');
const table: Record<StateKind, Record<PlanEventKind, StateKind | 'wrong' | 'busy'>> = {
  open: {
    ...none,
    change: 'open',
    commit: 'committing',
    rollBack: 'rollingBack',
    restore: 'restoring',
    delete: 'open',
  },
  committing: { ...busy, decided: 'committed', abandoned: 'open', takenOver: 'committing' },
  committed: { ...none, revert: 'committing', delete: 'committed' },
  reverted: { ...none, delete: 'reverted' },
  rollingBack: { ...busy, rolledBack: 'rolledBack', rollBackRefused: 'open', takenOver: 'rollingBack' },
  rolledBack: { ...none, delete: 'rolledBack' },
  rollbackIncomplete: { ...none, rollBack: 'rollingBack', delete: 'rollbackIncomplete' },
  restoring: {
    ...busy,
    memberRestored: 'restoring',
    restoreDelayed: 'restoring',
    restored: 'open',
    restoreRefused: 'open',
    takenOver: 'restoring',
  },
};

for (const [state, row] of Object.entries(table) as [StateKind, Record<PlanEventKind, string>][]) {
  test(`C11: a plan that is ${state} takes what it may and refuses the rest`, () => {
    for (const [event, expected] of Object.entries(row) as [PlanEventKind, string][]) {
      let actual: string;
      try {
        actual = nextPlanState(states[state], events[event]).kind;
      } catch (error) {
        actual = (error as { code: string }).code === 'plan_busy' ? 'busy' : 'wrong';
      }
      expect(actual, event).toBe(expected);
    }
  });
}

test('what was refused or taken back leads to what was there before', () => {
  const reverting = nextPlanState(states.committed, events.revert);
  expect(reverting).toEqual({ kind: 'committing', commitId: revertId, fence: 2, revertsId: commitId });
  expect(nextPlanState(reverting, events.abandoned)).toEqual(states.committed);
  expect(nextPlanState(reverting, events.decided)).toEqual(states.reverted);
  const again = nextPlanState(states.rollbackIncomplete, events.rollBack);
  expect(nextPlanState(again, events.rollBackRefused)).toEqual(states.rollbackIncomplete);
});

test('C45: a rollback with failures is not one that is done, and names them', () => {
  const ended = nextPlanState(states.rollingBack, { kind: 'rolledBack', failures: [failure] });
  expect(ended).toEqual({ kind: 'rollbackIncomplete', failures: [failure] });
});

test('C59: once a member has its files a restore cannot be refused any more', () => {
  const begun = nextPlanState(states.restoring, { kind: 'memberRestored', sandboxId: 'sbx' as SandboxId });
  expect(() => nextPlanState(begun, events.restoreRefused)).toThrow('restoring');
  expect(nextPlanState(begun, events.restoreDelayed)).toMatchObject({ done: ['sbx'], failures: [failure] });
});
