/** What stands in the way of plans, in memory: targets that move or go, members that cannot be had, keys that are used again, bounds. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { nodeAway } from '../../../test/support/fake-node.ts';
import { moveHead } from '../../../test/support/move-head.ts';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import {
  newId,
  type PlanCommitId,
  PlatformError,
  planLimits,
  type SandboxId,
  type WorkspaceId,
} from '../../protocol/index.ts';

let rig: PlanRig;
let one: WorkspaceId;
let two: WorkspaceId;
let boxes: SandboxId[];
let plan: string;
let heads: () => Promise<number[]>;
beforeEach(async () => {
  rig = await PlanRig.open();
  ({ one, two, boxes, plan, heads } = await rig.planOfTwo());
});
afterEach(() => rig.close());

const key = { idempotencyKey: 'key' };

test('C21: of bestEffort a target that moves at the last moment is left for the next commit; when all move, all are merged again', async () => {
  for (const moved of [[two], [one, two]]) {
    const gate = rig.rig.faults.hold('before-plan-decision');
    const committing = rig.commit(plan, { mode: 'bestEffort' });
    await gate.reached;
    for (const target of moved) await moveHead(rig.rig.store, target);
    gate.open();
    const result = await committing;
    if (moved.length === 2) {
      expect(result.state, 'on the heads as they are then').toBe('committed');
      continue;
    }
    expect(result).toMatchObject({ state: 'partial' });
    const states = result.targets.map(({ workspaceId, state, error }) => [workspaceId, state, error?.code]);
    expect(states.sort()).toEqual(
      [
        [one, 'published', undefined],
        [two, 'notPublished', 'workspace_moved'],
      ].sort(),
    );
    expect(await rig.model.head(two)).not.toHaveProperty('mine');
    rig.write(boxes[0]!, one, { more: '1' });
  }
  expect(await rig.model.head(one)).toMatchObject({ mine: '1', more: '1' });
  expect(await rig.model.head(two)).toMatchObject({ mine: '2' });
});

test('C11: C28: where nobody could be read there is nothing to publish, and everybody is named', async () => {
  rig.model.onStep = async (step) => {
    if (step === 'collect') throw new PlatformError('node_unavailable', 'away');
  };
  const result = await rig.commit(plan, { mode: 'bestEffort' });
  expect(result).toMatchObject({ state: 'aborted', error: { code: 'plan_members_unfit' } });
  expect(result.error!.details['members']).toEqual(
    boxes.map((sandboxId) => ({ sandboxId, code: 'node_unavailable', message: 'away' })),
  );
});

test('C51: a coordinator of bestEffort that was replaced publishes nothing more', async () => {
  const gate = rig.rig.faults.hold('before-plan-decision');
  const zombie = rig.commit(plan, { mode: 'bestEffort' });
  await gate.reached;
  await rig.rig.store.transact(async ({ plans }) => {
    const record = (await plans.find(plan as never))!;
    const state = { ...record.state, fence: record.fence + 1 } as typeof record.state;
    await plans.update({ ...record, state, fence: record.fence + 1, version: record.version + 1 });
  });
  gate.open();
  expect(await codeOf(zombie)).toBe('plan_commit_expired');
  expect(await heads()).toEqual([1, 1]);
});

test('C11: a member whose workspace is going away is named before anything happens', async () => {
  await rig.rig.store.transact(async ({ workspaces }) => {
    const record = (await workspaces.find(two))!;
    await workspaces.update({ ...record, state: 'deleting', version: record.version + 1 });
  });
  expect(await rig.commit(plan).catch((error: PlatformError) => error)).toMatchObject({
    ...{ code: 'plan_members_unfit', details: { members: [{ sandboxId: boxes[1], code: 'workspace_wrong_state' }] } },
  });
  expect(await heads()).toEqual([1, 1]);
});

test('a revert of what was published in a workspace that is gone is refused, and the plan stays committed', async () => {
  await rig.commit(plan);
  await rig.rig.store.transact(async ({ workspaces }) => {
    await workspaces.removeAttachments({ sandboxId: boxes[1]! });
    await workspaces.remove(two);
  });
  expect(await codeOf(rig.revert(plan))).toBe('workspace_not_found');
  expect((await rig.get(plan)).state.kind).toBe('committed');
  expect((await rig.model.workspace(one))!.headNumber).toBe(2);
});

test('what somebody who is gone left in the middle is settled by whoever commits next', async () => {
  await rig.rig.store.transact(async ({ plans }) => {
    const record = (await plans.find(plan as never))!;
    const fence = record.fence + 1;
    const state = { kind: 'committing' as const, commitId: newId('planCommit'), fence, revertsId: null };
    await plans.update({ ...record, state, fence, version: record.version + 1 });
  });
  expect((await rig.commit(plan)).state).toBe('committed');
  expect((await rig.rig.events('plan.')).map(({ kind }) => kind).slice(-4)).toEqual([
    ...['plan.taken_over', 'plan.commit_aborted', 'plan.committing', 'plan.committed'],
  ]);
});

test('attempts are remembered up to a bound, but for those that published something or have something to tidy', async () => {
  await rig.commit(plan, { dryRun: true });
  const [last] = (await rig.plans.commits.list(rig.rig.caller, plan)).items;
  const idOf = (index: number) => `pcm${String(index).padStart(20, '0')}` as PlanCommitId;
  await rig.rig.store.transact(async ({ plans }) => {
    const record = (await plans.findCommit(last!.id))!;
    for (let index = 0; index < planLimits.commits + 5; index++) {
      const about = index === 0 ? { state: 'partial' as const } : index === 1 ? { left: 'refs' as const } : {};
      const ended = { ...record, state: 'aborted' as const, left: 'nothing' as const, startedAtMs: index };
      await plans.putCommit({ ...ended, ...about, id: idOf(index) });
    }
  });
  await rig.commit(plan, { dryRun: true });
  const known = (index: number) => rig.rig.store.read(({ plans }) => plans.findCommit(idOf(index)));
  expect([await known(0), await known(1)].map((found) => found?.id)).toEqual([idOf(0), idOf(1)]);
  expect([await known(2), await known(3)]).toEqual([undefined, undefined]);
  expect((await known(planLimits.commits + 4))?.id, 'the newest stay').toBe(idOf(planLimits.commits + 4));
});

test('plans of a team and members of a plan are bounded', async () => {
  const { store, caller } = rig.rig;
  const record = (await store.read(({ plans }) => plans.find(plan as never)))!;
  await store.transact(async ({ plans }) => {
    for (let index = 2; index < planLimits.members + 1; index++) {
      const sandboxId = `sbx${String(index).padStart(20, '0')}` as SandboxId;
      await plans.putMember({ planId: record.id, sandboxId, position: index + 1, addedAtMs: 0, addedBy: caller.keyId });
    }
    for (let index = 1; index < planLimits.plans; index++) {
      await plans.insert({ ...record, id: newId('plan'), name: `other-${index}` });
    }
  });
  const members = rig.add(plan, await rig.sandbox(one)).catch((error: PlatformError) => error);
  expect(await members).toMatchObject({ code: 'limit_exceeded', details: { limit: planLimits.members } });
  const plans = rig.create('one more').catch((error: PlatformError) => error);
  expect(await plans).toMatchObject({ code: 'limit_exceeded', details: { limit: planLimits.plans } });
});

test('a plan is deleted once under its key, with its checkpoints', async () => {
  await rig.checkpoint(plan);
  expect(rig.rig.node.branches.checkpoints.size).toBe(2);
  await rig.delete(plan, { discard: true }, key);
  await rig.delete(plan, { discard: true }, key);
  expect(rig.rig.node.branches.checkpoints.size).toBe(0);
  expect(await rig.rig.events('plan.deleted')).toHaveLength(1);
});

test('C43: a second rollback waits for the first within its limit, and has the same answer', async () => {
  const gate = rig.rig.faults.hold('after-plan-rolling-back');
  const first = rig.rollBack(plan);
  await gate.reached;
  expect(await codeOf(rig.rollBack(plan)), 'without patience').toBe('plan_busy');
  const second = rig.rollBack(plan, { waitMs: 1_000 });
  await rig.rig.quiet();
  gate.open();
  expect((await first).state).toEqual({ kind: 'rolledBack' });
  expect((await second).state).toEqual({ kind: 'rolledBack' });
  expect(await rig.rig.events('plan.rolled_back')).toHaveLength(1);
});

test('C81: a server that stops amid a rollback leaves it to its next start, which goes through with it', async () => {
  const reached = Promise.withResolvers<void>();
  rig.model.onStep = async (step, _about, signal) => {
    if (step !== 'drop') return;
    reached.resolve();
    await new Promise<void>((resolve) => signal!.addEventListener('abort', () => resolve()));
    throw new PlatformError('node_unavailable', 'aborted');
  };
  const rolling = codeOf(rig.rollBack(plan));
  await reached.promise;
  await rig.plans.close();
  expect(await rolling).toBe('plan_interrupted');
  expect((await rig.get(plan)).state.kind).toBe('rollingBack');
  rig.model.onStep = async () => {};
  await rig.rig.restart();
  await rig.recover();
  expect((await rig.get(plan)).state).toEqual({ kind: 'rolledBack' });
  expect(rig.model.filesOf(boxes[0]!, one).has('mine')).toBe(false);
});

for (const [point, isSame] of [
  ['after-plan-checkpoint-ready', true],
  ['after-plan-members-kept', false],
] as const) {
  test(`C58: under its key a checkpoint that dies at "${point}" is one checkpoint in the end`, async () => {
    await rig.dieAt(point, () => rig.checkpoint(plan, {}, key));
    const before = (await rig.plans.checkpoints.list(rig.rig.caller, plan)).items[0];
    await rig.recover();
    const made = await rig.checkpoint(plan, {}, key);
    expect(made.state).toBe('ready');
    if (isSame) expect(made.id).toBe(before!.id);
    await rig.recover();
    const { items } = await rig.plans.checkpoints.list(rig.rig.caller, plan);
    expect(items.map(({ id }) => id)).toEqual([made.id]);
    expect(rig.rig.node.branches.checkpoints.size).toBe(2);
  });
}

test('C61: a checkpoint that is being made is not deleted; one that cannot be removed yet is, when its node is back', async () => {
  const { checkpoints } = rig.plans;
  const gate = rig.rig.faults.hold('after-plan-members-kept');
  const making = rig.checkpoint(plan);
  await gate.reached;
  const [creating] = (await checkpoints.list(rig.rig.caller, plan)).items;
  expect(await codeOf(checkpoints.delete(rig.rig.caller, plan, {}, creating!.id))).toBe('plan_busy');
  gate.open();
  const made = await making;
  rig.rig.node.isAway = true;
  await checkpoints.delete(rig.rig.caller, plan, key, made.id);
  await checkpoints.delete(rig.rig.caller, plan, key, made.id);
  expect(rig.rig.node.branches.checkpoints.size).toBe(2);
  expect(await codeOf(rig.restore(plan, made.id)), 'it is gone for everybody').toBe('plan_not_found');
  rig.rig.node.isAway = false;
  for (let turn = 0; turn < 3; turn++) {
    rig.rig.clock.step(10_000);
    await rig.rig.quiet();
  }
  expect(rig.rig.node.branches.checkpoints.size).toBe(0);
  expect((await checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
});

test('C62: C81: members whose node goes away while they stand still for a checkpoint go on when it is back', async () => {
  const gate = rig.rig.faults.hold('after-plan-members-paused');
  const making = codeOf(rig.checkpoint(plan));
  await gate.reached;
  rig.rig.node.isAway = true;
  gate.open();
  expect(await making).toBe('node_unavailable');
  await rig.recover();
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(['paused', 'paused']);
  rig.rig.node.isAway = false;
  for (let turn = 0; turn < 6; turn++) {
    rig.rig.clock.step(10_000);
    await rig.rig.quiet();
  }
  await rig.recover();
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(['running', 'running']);
  expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
  expect(await rig.rig.leases()).toEqual([]);
});

test('C59: a restore whose members are held changes nothing; one with a lost checkpoint is refused; under its key it is done once', async () => {
  const { id, members } = await rig.checkpoint(plan);
  const held = await rig.rig.acquire([boxes[1]!], { holder: 'an agent' });
  expect(await codeOf(rig.restore(plan, id))).toBe('lease_held');
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect((await rig.rig.events('plan.')).at(-1)!.kind).toBe('plan.restore_refused');
  await rig.rig.release(held.id);
  for (const box of boxes) expect((await rig.rig.get(box)).generation).toBe(1);
  await rig.dieAt('after-plan-restoring', () => rig.restore(plan, id, key));
  expect((await rig.restore(plan, id, key)).state.kind).toBe('open');
  for (const box of boxes) expect((await rig.rig.get(box)).generation).toBeGreaterThan(1);
  await rig.rig.store.transact(({ checkpoints }) => checkpoints.remove(members[0]!.checkpointId));
  expect(await rig.restore(plan, id).catch((error: PlatformError) => error)).toMatchObject({
    ...{ code: 'plan_members_unfit', details: { members: [{ sandboxId: boxes[0], code: 'checkpoint_not_usable' }] } },
  });
});

test('C57: C59: a restore that was begun goes forward: a node that is away does not end it, and its members are named', async () => {
  const { id } = await rig.checkpoint(plan);
  const gate = rig.rig.faults.hold('after-plan-member-restored');
  rig.rig.node.fail('restore', { when: 'before', error: nodeAway() });
  rig.restore(plan, id).catch(() => {});
  await gate.reached;
  await rig.rig.crash();
  gate.open();
  rig.rig.node.isAway = true;
  await rig.rig.restart();
  const { waiting } = await rig.byTheClock(rig.recover());
  const named = waiting.flatMap(({ failures }) => failures.map(({ sandboxId, code }) => [sandboxId, code]));
  expect((await rig.get(plan)).state, 'one may have its files already').toMatchObject({
    ...{ kind: 'restoring', failures: named.map(([sandboxId, code]) => ({ sandboxId, code })) },
  });
  expect(named.length).toBeGreaterThan(0);
  await rig.byTheClock(rig.recover());
  expect(await rig.rig.events('plan.restore_delayed'), 'told once').toHaveLength(1);
  expect(new Set(named.map(([, code]) => code))).toEqual(new Set(['node_unavailable']));
  rig.rig.node.isAway = false;
  expect((await rig.byTheClock(rig.recover())).waiting).toEqual([]);
  expect((await rig.get(plan)).state.kind).toBe('open');
});
