/** A server that dies at every step of what it does on plans, in memory; with real kills in test/faults/plans-crash.test.ts. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { newId, PlatformError, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';

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

for (const point of [
  'after-plan-committing',
  'after-plan-leases',
  'after-plan-collected',
  'after-plan-combined',
  'after-plan-checked',
  'before-plan-decision',
]) {
  test(`C32: C51: C52: a server that dies at "${point}" has decided nothing, and a new commit succeeds`, async () => {
    const commitId = newId('planCommit');
    await rig.dieAt(point, () => rig.commit(plan, { commitId }));
    expect((await rig.recover()).waiting).toEqual([]);
    expect(await heads()).toEqual([1, 1]);
    expect((await rig.get(plan)).state.kind).toBe('open');
    expect(await rig.commit(plan, { commitId })).toMatchObject({
      ...{ state: 'aborted', retryable: true, error: { code: 'plan_interrupted' } },
    });
    await rig.rig.quiet();
    expect(await rig.rig.leases()).toEqual([]);
    expect((await rig.commit(plan)).state).toBe('committed');
    expect(await heads()).toEqual([2, 2]);
  });
}

for (const point of ['after-plan-decision', 'after-plan-lease-ended', 'after-plan-released']) {
  test(`C32: C33: C35: a server that dies at "${point}" has committed all, and only tidies up`, async () => {
    const commitId = newId('planCommit');
    await rig.dieAt(point, () => rig.commit(plan, { commitId }));
    const result = await rig.commit(plan, { commitId });
    expect(result.state).toBe('committed');
    await rig.recover();
    await rig.recover();
    await rig.rig.quiet();
    expect(await heads()).toEqual([2, 2]);
    expect(await rig.rig.leases()).toEqual([]);
    expect(await rig.commit(plan)).toEqual(result);
    expect((await rig.rig.events('plan.committed')).length, 'C68: told once').toBe(1);
  });
}

test('C51: a coordinator that was replaced is refused in every step that it still takes', async () => {
  const gate = rig.rig.faults.hold('before-plan-decision');
  const zombie = rig.commit(plan);
  await gate.reached;
  // Somebody else takes the plan over while it stands there: by the store, as another server would.
  await rig.rig.store.transact(async ({ plans }) => {
    const record = (await plans.find(plan as never))!;
    const state = { ...record.state, fence: record.fence + 1 } as typeof record.state;
    await plans.update({ ...record, state, fence: record.fence + 1, version: record.version + 1 });
  });
  gate.open();
  expect(await codeOf(zombie)).toBe('plan_commit_expired');
  expect(await heads()).toEqual([1, 1]);
  await rig.recover();
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect((await rig.commit(plan)).state).toBe('committed');
});

test('C51: a coordinator whose lease is lost before the decision does not decide', async () => {
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan);
  await gate.reached;
  const [lease] = await rig.rig.leases();
  await rig.rig.release(lease!.id);
  gate.open();
  expect((await committing).state).toBe('aborted');
  expect(await heads()).toEqual([1, 1]);
});

test('C57: a node that is away while it is prepared aborts; what is left after the decision is tried until it is done', async () => {
  rig.rig.node.isAway = true;
  expect(await rig.commit(plan)).toMatchObject({ state: 'aborted', retryable: true });
  rig.rig.node.isAway = false;
  await rig.rig.quiet();
  const gate = rig.rig.faults.hold('after-plan-decision');
  const committing = rig.commit(plan, { waitMs: 60_000 });
  for (let turn = 0; turn < 5; turn++) {
    await rig.rig.quiet();
    rig.rig.clock.step(1_000);
  }
  await gate.reached;
  rig.rig.node.isAway = true;
  gate.open();
  expect((await committing).state).toBe('committed');
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.leaseHolder)).toEqual(
    Array(2).fill(`plan ${plan}`),
  );
  rig.rig.node.isAway = false;
  for (let turn = 0; turn < 5; turn++) {
    await rig.rig.quiet();
    rig.rig.clock.step(2_000);
  }
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.leaseHolder)).toEqual([null, null]);
});

for (const point of [
  'after-plan-rolling-back',
  'after-plan-member-dropped',
  'before-plan-rolled-back',
  'after-plan-rolled-back',
]) {
  test(`C52: a server that dies at "${point}" of a rollback: it is gone through with`, async () => {
    await rig.dieAt(point, () => rig.rollBack(plan));
    await rig.recover();
    expect((await rig.get(plan)).state).toEqual({ kind: 'rolledBack' });
    expect(rig.model.filesOf(boxes[0]!, one).has('mine')).toBe(false);
    expect(rig.model.filesOf(boxes[1]!, two).has('mine')).toBe(false);
    await rig.rig.quiet();
    expect(await rig.rig.leases()).toEqual([]);
  });
}

test('a rollback that a dead server began is finished by whoever asks for it', async () => {
  await rig.dieAt('after-plan-rolling-back', () => rig.rollBack(plan));
  expect((await rig.rollBack(plan, { waitMs: 60_000 })).state).toEqual({ kind: 'rolledBack' });
});

for (const point of [
  'after-plan-restoring',
  'after-plan-member-restored',
  'before-plan-restored',
  'after-plan-restored',
]) {
  test(`C59: C52: a server that dies at "${point}" of a restore: every member has its files in the end`, async () => {
    const { id } = await rig.checkpoint(plan);
    await rig.dieAt(point, () => rig.restore(plan, id));
    await rig.recover();
    expect((await rig.get(plan)).state.kind).toBe('open');
    for (const box of boxes) expect((await rig.rig.get(box)).generation).toBeGreaterThan(1);
    await rig.rig.quiet();
    expect(await rig.rig.leases()).toEqual([]);
  });
}

for (const point of ['after-plan-checkpoint-recorded', 'after-plan-members-paused', 'after-plan-members-kept']) {
  test(`C58: C61: a server that dies at "${point}" leaves no checkpoint and no member that stands still`, async () => {
    await rig.dieAt(point, () => rig.checkpoint(plan));
    for (let turn = 0; turn < 3; turn++) {
      await rig.recover();
      await rig.rig.quiet();
    }
    expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
    expect(rig.rig.node.branches.checkpoints.size).toBe(0);
    expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(['running', 'running']);
    expect((await rig.checkpoint(plan)).state).toBe('ready');
  });
}

test('C58: C52: a recovery that dies while it removes what was left of a checkpoint leaves no member that stands still', async () => {
  await rig.dieAt('after-plan-members-paused', () => rig.checkpoint(plan));
  await rig.dieAt('after-plan-checkpoint-deleting', () => rig.recover());
  await rig.recover();
  await rig.rig.quiet();
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(['running', 'running']);
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
});

for (const point of ['after-plan-fence-given', 'after-plan-taken-over']) {
  test(`C52: a recovery that dies at "${point}" is recovered from`, async () => {
    await rig.dieAt('after-plan-member-dropped', () => rig.rollBack(plan));
    await rig.dieAt(point, () => rig.recover());
    await rig.recover();
    expect((await rig.get(plan)).state).toEqual({ kind: 'rolledBack' });
    expect(await rig.rig.leases()).toEqual([]);
  });
}

test('C51: C52: a recovery that dies between giving a commit up and ending its lease leaves members that nobody holds', async () => {
  await rig.dieAt('before-plan-decision', () => rig.commit(plan));
  await rig.dieAt('after-plan-fence-given', () => rig.recover());
  expect((await rig.get(plan)).state.kind, 'it is given up').toBe('open');
  expect(
    (await rig.rig.leases()).map(({ holder }) => holder),
    'and its lease is left',
  ).toEqual([`plan ${plan}`]);
  await rig.recover();
  await rig.rig.quiet();
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.commit(plan)).state).toBe('committed');
  expect(await heads()).toEqual([2, 2]);
});

test('C57: whoever a rollback waits for is named: members of a node that is away, and members that somebody holds', async () => {
  await rig.dieAt('after-plan-rolling-back', () => rig.rollBack(plan));
  rig.rig.node.isAway = true;
  const away = await rig.recover();
  expect(away.actions).toEqual([{ kind: 'rollingBack', planId: plan, outcome: 'node_unavailable' }]);
  expect(away.waiting).toEqual([
    {
      planId: plan,
      failures: boxes.map((sandboxId) => ({
        ...{ sandboxId, code: 'node_unavailable', message: expect.stringContaining('out of reach') },
      })),
    },
  ]);
  rig.rig.node.isAway = false;
  await rig.byTheClock(rig.rig.acquire([boxes[1]!], { holder: 'an agent', waitMs: 60_000 }));
  const held = await rig.byTheClock(rig.recover());
  expect(held.waiting).toEqual([
    { planId: plan, failures: [{ sandboxId: boxes[1], code: 'lease_held', message: '"an agent" holds it.' }] },
  ]);
  const [lease] = await rig.rig.leases();
  await rig.rig.release(lease!.id);
  expect((await rig.byTheClock(rig.recover())).waiting).toEqual([]);
  expect((await rig.get(plan)).state).toEqual({ kind: 'rolledBack' });
});

test('C52: recovery is one at a time, and leaves alone what this server does itself', async () => {
  const gate = rig.rig.faults.hold('after-plan-collected');
  const committing = rig.commit(plan);
  await gate.reached;
  const { recovery } = rig.plans;
  const [a, b] = await Promise.all([recovery.run(), recovery.run()]);
  expect(a).toBe(b);
  expect(a).toEqual({ actions: [], waiting: [] });
  gate.open();
  expect((await committing).state).toBe('committed');
});

test('C55: a fresh server lists, shows, commits and rolls back what another made', async () => {
  await rig.rig.restart();
  const { items } = await rig.plans.views.list(rig.rig.caller, { limit: 10 });
  expect(items.map(({ name }) => name)).toEqual(['p']);
  expect((await rig.status(plan)).files).toBe(2);
  expect((await rig.commit(plan)).state).toBe('committed');
  await rig.rig.restart();
  const found = await rig.get(plan);
  expect((await rig.plans.commits.get(rig.rig.caller, plan, found.commitId!)).state).toBe('committed');
  expect(await codeOf(rig.plans.commits.get(rig.rig.caller, plan, newId('planCommit')))).toBe('plan_not_found');
  const other = (await rig.create('q', [boxes[0]!])).id;
  rig.write(boxes[0]!, one, { more: 'x' });
  await rig.rig.restart();
  expect((await rig.rollBack(other)).state.kind).toBe('rolledBack');
});

test('an interrupted commit of bestEffort tells what it had published', async () => {
  await rig.dieAt('after-plan-target', () => rig.commit(plan, { mode: 'bestEffort' }));
  await rig.recover();
  const [commit] = (await rig.plans.commits.list(rig.rig.caller, plan)).items;
  expect(commit).toMatchObject({ state: 'partial', error: { code: 'plan_interrupted' } });
  expect(commit!.targets.filter(({ state }) => state === 'published')).toHaveLength(1);
  expect((await heads()).sort()).toEqual([1, 2]);
  expect((await rig.commit(plan)).state).toBe('committed');
  expect(await heads()).toEqual([2, 2]);
});

test('the same request under an idempotency key is one commit, also across a crash', async () => {
  const conditions = { idempotencyKey: 'key' };
  await rig.dieAt('after-plan-decision', () => rig.commit(plan, {}, conditions));
  const result = await rig.commit(plan, {}, conditions);
  expect(result.state).toBe('committed');
  expect(await heads()).toEqual([2, 2]);
});

test('C81: a server that stops ends what it prepares before the decision', async () => {
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  rig.model.onStep = async (step, _about, signal) => {
    if (step !== 'collect') return;
    reached.resolve();
    signal!.addEventListener('abort', () => gate.resolve());
    await gate.promise;
    throw new PlatformError('node_unavailable', 'aborted');
  };
  const committing = rig.commit(plan);
  await reached.promise;
  await rig.plans.close();
  expect(await committing).toMatchObject({ state: 'aborted', error: { code: 'plan_interrupted' } });
});
