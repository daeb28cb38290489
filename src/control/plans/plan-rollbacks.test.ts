/** Rollback, checkpoints and restore of plans, and what fails on the way. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { nodeAway } from '../../../test/support/fake-node.ts';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { PlatformError, planLimits, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';

let rig: PlanRig;
let one: WorkspaceId;
let boxes: SandboxId[];
let plan: string;
beforeEach(async () => {
  rig = await PlanRig.open();
  one = await rig.workspace('one', { file: 'base', gone: 'x' });
  boxes = [await rig.sandbox(one), await rig.sandbox(one), await rig.sandbox(one)];
  for (const [index, box] of boxes.entries()) rig.write(box, one, { file: `${index}`, gone: null, added: 'y' });
  plan = (await rig.create('p', boxes)).id;
});
afterEach(() => rig.close());

const filesOf = (box: SandboxId) => Object.fromEntries(rig.model.filesOf(box, one));
const base = { file: 'base', gone: 'x' };

test('C46: C49: a rollback puts every member back to its base as a whole, and a second one changes nothing', async () => {
  const ended = await rig.rollBack(plan);
  expect(ended.state).toEqual({ kind: 'rolledBack' });
  expect(boxes.map(filesOf)).toEqual([base, base, base]);
  let steps = 0;
  rig.model.onStep = async () => void steps++;
  expect(await rig.rollBack(plan)).toEqual(ended);
  expect(steps).toBe(0);
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.rig.events('plan.')).map(({ kind }) => kind).slice(-2)).toEqual([
    'plan.rolling_back',
    'plan.rolled_back',
  ]);
});

test('C45: C47: C48: members that fail are listed exactly, the others are done, and it can be asked for again', async () => {
  rig.model.onStep = async (step, about) => {
    if (step === 'drop' && about === boxes[0]) throw new PlatformError('file_not_usable', 'residue');
    if (step === 'drop' && about === boxes[2]) throw new Error('a bug');
  };
  const incomplete = await rig.rollBack(plan);
  expect(incomplete.state).toEqual({
    kind: 'rollbackIncomplete',
    failures: [
      { sandboxId: boxes[0], code: 'file_not_usable', message: 'residue' },
      { sandboxId: boxes[2], code: 'internal', message: 'Error: a bug' },
    ],
  });
  expect(filesOf(boxes[1]!)).toEqual(base);
  expect(await codeOf(rig.commit(plan)), 'never taken for done or open').toBe('plan_wrong_state');
  rig.model.onStep = async () => {};
  expect((await rig.rollBack(plan)).state).toEqual({ kind: 'rolledBack' });
  expect(boxes.map(filesOf)).toEqual([base, base, base]);
});

test('C50: a member that is gone counts as done, and what was read from it is still held', async () => {
  rig.write(boxes[0]!, one, { clash: '1' });
  rig.write(boxes[1]!, one, { clash: '2' });
  const conflict = await rig.commit(plan);
  expect(conflict.state).toBe('conflict');
  await rig.rig.delete(boxes[0]!);
  expect((await rig.rollBack(plan)).state).toEqual({ kind: 'rolledBack' });
  expect(rig.holds).toContain(`plan/${plan}/${conflict.id}`);
  expect(conflict.retained).toEqual([{ workspaceId: one, hold: `plan/${plan}/${conflict.id}` }]);
});

test('C50: one that goes away in the middle counts as done too', async () => {
  rig.model.onStep = async (step, about) => {
    if (step === 'drop' && about === boxes[0]) throw new PlatformError('sandbox_not_found', 'gone');
  };
  expect((await rig.rollBack(plan)).state).toEqual({ kind: 'rolledBack' });
});

test('a rollback whose members are held by somebody changes nothing, and the plan is as it was', async () => {
  const held = await rig.rig.acquire([boxes[1]!], { holder: 'an agent' });
  expect(await codeOf(rig.rollBack(plan))).toBe('lease_held');
  expect((await rig.get(plan)).state).toEqual({ kind: 'open' });
  expect(filesOf(boxes[0]!)).toHaveProperty('added');
  await rig.rig.release(held.id);
  expect((await rig.rollBack(plan)).state.kind).toBe('rolledBack');
});

test('C58: a checkpoint of a plan has all members, taken while every one of them stands still', async () => {
  const gate = rig.rig.faults.hold('after-plan-members-paused');
  const making = rig.checkpoint(plan, { name: 'before' });
  await gate.reached;
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(Array(3).fill('paused'));
  expect(await codeOf(rig.rig.exec(boxes[0]!))).not.toBe('done');
  gate.open();
  const made = await making;
  expect(made).toMatchObject({ name: 'before', state: 'ready', planId: plan });
  expect(made.members.map(({ sandboxId }) => sandboxId)).toEqual(boxes);
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(Array(3).fill('running'));
  expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([made]);
});

test('C62: a checkpoint of a member that is not there is an error when it is made, and leaves nothing', async () => {
  await rig.rig.delete(boxes[1]!);
  expect(await codeOf(rig.checkpoint(plan))).toBe('plan_members_unfit');
  expect(await codeOf(rig.checkpoint((await rig.create('none')).id))).toBe('plan_members_unfit');
  expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
  expect(rig.rig.node.branches.checkpoints.size).toBe(0);
});

test('C62: C81: one that fails midway is removed, and the members go on', async () => {
  rig.rig.node.fail('checkpoint', { when: 'before', error: nodeAway() });
  expect(await codeOf(rig.checkpoint(plan))).toBe('node_unavailable');
  expect((await rig.plans.checkpoints.list(rig.rig.caller, plan)).items).toEqual([]);
  expect(rig.rig.node.branches.checkpoints.size).toBe(0);
  expect((await rig.get(plan)).members.map(({ sandbox }) => sandbox!.state)).toEqual(Array(3).fill('running'));
});

test('C59: a restore gives every member its files of the checkpoint, or is refused before the first', async () => {
  const { id, members } = await rig.checkpoint(plan);
  const late = await rig.sandbox(one);
  await rig.add(plan, late);
  const refusal = await rig.restore(plan, id).catch((error: PlatformError) => error);
  expect(refusal).toMatchObject({
    code: 'plan_members_unfit',
    details: { members: [{ sandboxId: late, code: 'checkpoint_not_found' }] },
  });
  expect((await rig.get(plan)).state.kind).toBe('open');
  await rig.remove(plan, late);
  expect((await rig.restore(plan, id)).state.kind).toBe('open');
  for (const { sandboxId } of members) expect((await rig.rig.get(sandboxId)).generation).toBe(2);
  expect((await rig.rig.get(late)).generation).toBe(1);
  expect((await rig.rig.events('plan.member_restored')).length).toBe(3);
});

test('C59: a member that fails is tried again until it has its files, by the server itself if need be', async () => {
  const { id } = await rig.checkpoint(plan);
  for (let time = 0; time < 4; time++) rig.rig.node.fail('restore', { when: 'before', error: nodeAway() });
  const restoring = rig.restore(plan, id);
  for (let turn = 0; turn < 4; turn++) {
    await rig.rig.quiet();
    rig.rig.clock.step(500);
  }
  const { state } = await restoring;
  if (state.kind === 'restoring') {
    expect(state.failures.length).toBeGreaterThan(0);
    expect(await codeOf(rig.commit(plan)), 'C60: not committed meanwhile').toBe('plan_busy');
    const recovering = rig.recover();
    for (let turn = 0; turn < 4; turn++) {
      await rig.rig.quiet();
      rig.rig.clock.step(500);
    }
    await recovering;
  }
  expect((await rig.get(plan)).state.kind).toBe('open');
  for (const box of boxes) expect((await rig.rig.get(box)).generation).toBeGreaterThan(1);
});

test('a restore that waits for a member that never comes back is given up with its plan, and members are free', async () => {
  const { id } = await rig.checkpoint(plan);
  for (let time = 0; time < 100; time++) rig.rig.node.fail('restore', { when: 'before', error: nodeAway() });
  const restoring = rig.restore(plan, id);
  for (let turn = 0; turn < 4; turn++) {
    await rig.rig.quiet();
    rig.rig.clock.step(500);
  }
  expect((await restoring).state).toMatchObject({ kind: 'restoring', failures: [{}, {}, {}] });
  expect(await codeOf(rig.rig.delete(boxes[0]!, {}, { force: true }))).toBe('plan_busy');
  expect(await codeOf(rig.delete(plan))).toBe('plan_unmerged');
  await rig.delete(plan, { discard: true });
  expect(await codeOf(rig.get(plan))).toBe('plan_not_found');
  expect((await rig.create('next', boxes)).state.kind).toBe('open');
  expect(await rig.rig.leases()).toEqual([]);
});

test('C60: a restore is refused while the plan commits, and after that a revert is what there is', async () => {
  const { id } = await rig.checkpoint(plan);
  for (const [index, box] of boxes.entries()) rig.write(box, one, { file: 'base', [`own${index}`]: 'x', added: null });
  const gate = rig.rig.faults.hold('after-plan-collected');
  const committing = rig.commit(plan);
  await gate.reached;
  expect(await codeOf(rig.restore(plan, id))).toBe('plan_busy');
  gate.open();
  expect((await committing).state).toBe('committed');
  expect(await codeOf(rig.restore(plan, id))).toBe('plan_wrong_state');
});

test('C61: C63: nothing that a checkpoint of a plan is made of is removed before it, and its size is counted', async () => {
  const made = await rig.checkpoint(plan);
  const { caller, control } = rig.rig;
  const own = made.members[0]!.checkpointId;
  expect(await codeOf(control.checkpoints.delete(caller, own, {}))).toBe('plan_busy');
  rig.rig.clock.step(400 * 24 * 3600_000);
  await rig.rig.reconcile();
  const sizes = await rig.rig.store.read(async ({ checkpoints }) => checkpoints.totalBytes(caller.teamId));
  expect(sizes).toBe(made.sizeBytes);
  await control.plans.checkpoints.delete(caller, plan, {}, made.id);
  expect(rig.rig.node.branches.checkpoints.size).toBe(0);
  expect(await codeOf(control.plans.checkpoints.delete(caller, plan, {}, made.id))).toBe('plan_not_found');
});

test('C63: checkpoints are bounded, and deletion while another is made disturbs neither', async () => {
  const { caller, control } = rig.rig;
  const old = await rig.checkpoint(plan);
  const gate = rig.rig.faults.hold('after-plan-members-kept');
  const making = rig.checkpoint(plan);
  await gate.reached;
  await control.plans.checkpoints.delete(caller, plan, {}, old.id);
  expect(await codeOf(rig.checkpoint(plan)), 'one at a time').toBe('plan_busy');
  gate.open();
  const made = await making;
  expect((await control.plans.checkpoints.list(caller, plan)).items.map(({ id }) => id)).toEqual([made.id]);
  const record = (await rig.rig.store.read(({ plans }) => plans.findCheckpoint(made.id)))!;
  await rig.rig.store.transact(async ({ plans }) => {
    for (let index = 1; index < planLimits.checkpoints; index++) {
      const id = `pck${String(index).padStart(20, '0')}` as typeof made.id;
      await plans.putCheckpoint({ ...record, id });
    }
  });
  expect(await codeOf(rig.checkpoint(plan))).toBe('limit_exceeded');
});
