/** The rules of plans, their members, commits and checkpoints in a store, for store.contract.ts. */
import { describe, expect, test } from 'vitest';
import { newId } from '../../src/protocol/index.ts';
import { planCheckpointRecord, planCommitRecord, planRecord } from '../support/plan-store-records.ts';
import type { TestDatabase } from './store.contract.ts';

export function describePlanTables(database: () => TestDatabase): void {
  describe('plans', () => {
    test('one is inserted, found by id and name, listed newest first by what is asked, counted and removed', async () => {
      const store = await database().open();
      const teamId = newId('team');
      const old = planRecord({ teamId, name: 'a' });
      const committing = { kind: 'committing', commitId: newId('planCommit'), fence: 3, revertsId: null } as const;
      const young = planRecord({ teamId, state: committing, createdAtMs: old.createdAtMs + 1 });
      const other = planRecord();
      await store.transact(async ({ plans }) => {
        for (const record of [old, young, other]) await plans.insert(record);
      });
      const list = (filter: object, page: object = { limit: 10 }) =>
        store
          .read(({ plans }) => plans.list(filter, page as { limit: number }))
          .then((found) => found.map(({ id }) => id));
      expect(await store.read(({ plans }) => plans.find(young.id))).toStrictEqual(young);
      expect(await store.read(({ plans }) => plans.findByName({ teamId, name: 'a' }))).toStrictEqual(old);
      expect(await store.read(({ plans }) => plans.findByName({ teamId, name: 'b' }))).toBeUndefined();
      expect(await list({ teamId })).toEqual([young.id, old.id]);
      expect(await list({ teamId }, { limit: 1, after: young })).toEqual([old.id]);
      expect(await list({ states: ['committing'] })).toEqual([young.id]);
      expect(await store.read(({ plans }) => plans.count(teamId))).toBe(2);
      await store.transact(({ plans }) => plans.remove(old.id));
      expect(await store.read(({ plans }) => plans.find(old.id))).toBeUndefined();
    });

    test('a name is one plan of a team, and a change counts only on the version before it', async () => {
      const store = await database().open();
      const first = planRecord({ name: 'a' });
      await store.transact(({ plans }) => plans.insert(first));
      const second = planRecord({ name: 'a', teamId: first.teamId });
      await expect(store.transact(({ plans }) => plans.insert(second))).rejects.toMatchObject({ code: 'name_taken' });
      const next = { ...first, state: { kind: 'rolledBack' } as const, version: 2, fence: 1 };
      expect(await store.transact(({ plans }) => plans.update(next))).toBe(true);
      expect(await store.transact(({ plans }) => plans.update(next))).toBe(false);
      expect(await store.read(({ plans }) => plans.find(first.id))).toStrictEqual(next);
    });

    test('members are in their order, lead to their plans, and go with them', async () => {
      const store = await database().open();
      const plan = planRecord();
      const [a, b] = [newId('sandbox'), newId('sandbox')];
      const base = { planId: plan.id, addedAtMs: 1, addedBy: plan.createdBy };
      await store.transact(async ({ plans }) => {
        await plans.insert(plan);
        await plans.putMember({ ...base, sandboxId: a, position: 2 });
        await plans.putMember({ ...base, sandboxId: b, position: 1 });
      });
      const members = () => store.read(({ plans }) => plans.members(plan.id));
      expect((await members()).map(({ sandboxId }) => sandboxId)).toEqual([b, a]);
      expect(await store.read(({ plans }) => plans.plansOf(a))).toStrictEqual([plan]);
      await store.transact(({ plans }) => plans.removeMember({ planId: plan.id, sandboxId: b }));
      expect(await members()).toHaveLength(1);
      await store.transact(({ plans }) => plans.remove(plan.id));
      expect(await store.read(({ plans }) => plans.plansOf(a))).toEqual([]);
    });

    test('commits are kept as a whole, newest first, and found by what they left behind', async () => {
      const store = await database().open();
      const planId = newId('plan');
      const old = planCommitRecord({ planId, left: 'nothing' });
      const young = planCommitRecord({
        ...{
          planId,
          startedAtMs: old.startedAtMs + 1,
          isDryRun: true,
          left: 'refs',
          keptUntilMs: 5,
          result: '{"a":1}',
        },
        ...{ leaseId: newId('lease'), members: [newId('sandbox')], targets: [newId('workspace')], finishedAtMs: 9 },
      });
      await store.transact(async ({ plans }) => {
        for (const record of [old, young]) await plans.putCommit(record);
      });
      expect(await store.read(({ plans }) => plans.findCommit(young.id))).toStrictEqual(young);
      expect(await store.read(({ plans }) => plans.commits(planId, { limit: 10 }))).toStrictEqual([young, old]);
      expect(await store.read(({ plans }) => plans.unfinishedCommits(10))).toStrictEqual([young]);
      await store.transact(({ plans }) => plans.putCommit({ ...young, left: 'nothing' }));
      expect(await store.read(({ plans }) => plans.unfinishedCommits(10))).toEqual([]);
      await store.transact(({ plans }) => plans.removeCommit(old.id));
      expect(await store.read(({ plans }) => plans.findCommit(old.id))).toBeUndefined();
    });

    test('checkpoints are found by plan and state, and tell what they are made of', async () => {
      const store = await database().open();
      const record = planCheckpointRecord();
      const [member] = record.members;
      await store.transact(({ plans }) => plans.putCheckpoint(record));
      const inUse = () => store.read(({ plans }) => plans.isInCheckpoint(member!.checkpointId));
      expect(await store.read(({ plans }) => plans.findCheckpoint(record.id))).toStrictEqual(record);
      expect(await store.read(({ plans }) => plans.checkpoints({ planId: record.planId }))).toStrictEqual([record]);
      expect(await store.read(({ plans }) => plans.checkpoints({ states: ['creating'] }))).toEqual([]);
      expect(await inUse()).toBe(true);
      expect(await store.read(({ plans }) => plans.isInCheckpoint(newId('checkpoint')))).toBe(false);
      await store.transact(({ plans }) => plans.putCheckpoint({ ...record, state: 'deleting' }));
      expect(await inUse()).toBe(false);
      await store.transact(({ plans }) => plans.removeCheckpoint(record.id));
      expect(await store.read(({ plans }) => plans.checkpoints({}))).toEqual([]);
    });
  });
}
