/** Plans of a control in memory, for tests of what stands before it: each call is written down and answered with something plausible. */
import type { PlanCheckpointView, PlanCommitView, PlanView } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/index.ts';
import { testAttachment, testWorkspace } from './fake-control-workspaces.ts';

const aDay = '2030-01-01T00:00:00.000Z';
const by = testWorkspace.createdBy;
const { sandboxId } = testAttachment;

export const testPlan: PlanView = {
  id: 'plna0000000000000000000' as PlanView['id'],
  name: 'release',
  state: { kind: 'open' },
  commitId: null,
  version: 2,
  members: [
    {
      ...{ sandboxId, position: 1, addedAt: aDay, addedBy: by },
      sandbox: { name: 'agent', state: 'running', leaseHolder: null },
      attachments: [
        {
          workspaceId: testWorkspace.id,
          workspace: testWorkspace.name,
          path: testAttachment.path,
          base: testAttachment.base,
        },
      ],
    },
  ],
  createdAt: aDay,
  createdBy: by,
  updatedAt: aDay,
};

const after = { number: 3, commit: 'd'.repeat(40) };

export const testCommit: PlanCommitView = {
  id: 'cmta0000000000000000000' as PlanCommitView['id'],
  ...{ planId: testPlan.id, planName: testPlan.name, kind: 'commit', mode: 'atomic', dryRun: false },
  ...{ state: 'committed', retryable: false, message: 'Plan release', author: { name: 'a', email: 'a@b' }, by },
  ...{ startedAt: aDay, finishedAt: aDay },
  targets: [
    {
      ...{ workspaceId: testWorkspace.id, workspace: testWorkspace.name, state: 'published' },
      ...{ base: testAttachment.base, before: testAttachment.base, after, prepared: after.commit },
      ...{ files: 1, insertions: 2, deletions: 3, error: null },
    },
  ],
  members: [
    {
      ...{ position: 1, sandboxId, sandboxName: 'agent', state: 'committed', undoable: true, error: null },
      targets: [
        {
          ...{ workspaceId: testWorkspace.id, workspace: testWorkspace.name, path: testAttachment.path },
          ...{ base: testAttachment.base, before: testAttachment.base, after, files: 1, insertions: 2, deletions: 3 },
          ...{ leftOut: [], conflicts: [] },
        },
      ],
    },
  ],
  checks: [],
  retained: [],
  retainedUntil: null,
  timings: { waitMs: 1, collectMs: 2, combineMs: 3, checksMs: 0, publishMs: 1, totalMs: 7 },
  error: null,
};

export const testPlanCheckpoint: PlanCheckpointView = {
  id: 'pcka0000000000000000000' as PlanCheckpointView['id'],
  ...{ planId: testPlan.id, name: 'before', state: 'ready', members: [], sizeBytes: 4096 },
  ...{ createdAt: aDay, createdBy: by },
};

export interface FakePlans {
  readonly plans: ControlPort['plans'];
  /** What the next commits answer. */
  readonly outcome: { commit: PlanCommitView };
}

export function fakeControlPlans(note: (method: string, ...args: readonly unknown[]) => void): FakePlans {
  const outcome = { commit: testCommit };
  const noted =
    <Args extends readonly unknown[], Result>(method: string, answer: (...args: Args) => Result) =>
    async (...args: Args): Promise<Awaited<Result>> => {
      note(method, ...args);
      return await answer(...args);
    };
  return {
    outcome,
    plans: {
      create: noted('createPlan', (_caller, _conditions, { name }) => ({ ...testPlan, name })),
      add: noted('addPlanMember', () => testPlan),
      remove: noted('removePlanMember', () => testPlan),
      delete: noted('deletePlan', () => undefined),
      views: {
        get: noted('getPlan', () => testPlan),
        list: noted('listPlans', () => ({ items: [testPlan], nextCursor: null })),
        status: noted('getPlanStatus', () => ({
          plan: testPlan,
          members: [
            {
              sandboxId,
              changes: [
                { workspaceId: testWorkspace.id, workspace: testWorkspace.name, files: 4, insertions: 5, deletions: 6 },
              ],
              error: null,
            },
          ],
          ...{ files: 4, commits: 1 },
        })),
      },
      commits: {
        commit: noted('commitPlan', () => outcome.commit),
        revert: noted('revertPlan', () => ({ ...outcome.commit, kind: 'revert' as const })),
        get: noted('getPlanCommit', () => outcome.commit),
        list: noted('listPlanCommits', () => ({ items: [outcome.commit] })),
      },
      rollbacks: {
        rollBack: noted('rollBackPlan', () => ({ ...testPlan, state: { kind: 'rolledBack' as const } })),
      },
      checkpoints: {
        create: noted('createPlanCheckpoint', () => testPlanCheckpoint),
        list: noted('listPlanCheckpoints', () => ({ items: [testPlanCheckpoint] })),
        delete: noted('deletePlanCheckpoint', () => undefined),
      },
      restores: { restore: noted('restorePlan', () => testPlan) },
      recovery: {
        ask: noted('recoverPlans', () => ({
          actions: [{ kind: 'committing', planId: testPlan.id, outcome: 'settled' }],
          waiting: [],
        })),
      },
    },
  };
}
