/** Who belongs to a plan, at every point of a commit: the seed race, and everything that would move a member under it. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { PlatformError, planLimits, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';

let rig: PlanRig;
let one: WorkspaceId;
let two: WorkspaceId;
let first: SandboxId;
let second: SandboxId;
let plan: string;
beforeEach(async () => {
  rig = await PlanRig.open();
  one = await rig.workspace('one');
  two = await rig.workspace('two');
  first = await rig.sandbox(one);
  second = await rig.sandbox(two);
  rig.write(first, one, { mine: '1' });
  rig.write(second, two, { mine: '2' });
  plan = (await rig.create('p', [first])).id;
});
afterEach(() => rig.close());

/** Every place where somebody else could come in between. */
const points = [
  'after-plan-committing',
  'after-plan-leases',
  'after-plan-collected',
  'after-plan-combined',
  'after-plan-checked',
  'before-plan-decision',
] as const;

for (const point of points) {
  test(`C84: C6: the list is read, changed and committed: at "${point}" nobody gets in or out`, async () => {
    const gate = rig.rig.faults.hold(point);
    const committing = rig.commit(plan);
    await gate.reached;
    expect(await codeOf(rig.add(plan, second))).toBe('plan_busy');
    expect(await codeOf(rig.remove(plan, first))).toBe('plan_busy');
    expect(await codeOf(rig.delete(plan, { discard: true }))).toBe('plan_busy');
    expect(await codeOf(rig.create('another', [first]))).toBe('plan_member_taken');
    gate.open();
    const result = await committing;
    // What is told, what is published and who belongs to it are the same list.
    expect(result.members.map(({ sandboxId }) => sandboxId)).toEqual([first]);
    expect((await rig.get(plan)).members.map(({ sandboxId }) => sandboxId)).toEqual([first]);
    expect(await rig.model.head(one)).toHaveProperty('mine');
    expect(await rig.model.head(two)).not.toHaveProperty('mine');
  });
}

test('C84: a change that is asked for together with a commit is wholly before it or wholly after it', async () => {
  for (let round = 0; round < 20; round++) {
    const boxes = [await rig.sandbox(one), await rig.sandbox(two)];
    rig.write(boxes[0]!, one, { [`r${round}`]: 'a' });
    rig.write(boxes[1]!, two, { [`r${round}`]: 'b' });
    const id = (await rig.create(`race${round}`, [boxes[0]!])).id;
    const asked = [() => rig.commit(id), () => codeOf(rig.add(id, boxes[1]!))] as const;
    const [result, added] =
      round % 2 === 0
        ? await Promise.all([asked[0](), asked[1]()])
        : await Promise.all([asked[1](), asked[0]()]).then(([b, a]) => [a, b] as const);
    const members = (await rig.get(id)).members.map(({ sandboxId }) => sandboxId);
    expect(result.members.map(({ sandboxId }) => sandboxId)).toEqual(members);
    expect(members.includes(boxes[1]!)).toBe(added === 'done');
    expect(Object.keys(await rig.model.head(two)).includes(`r${round}`)).toBe(added === 'done');
  }
});

test('C7: C10: while it commits nothing runs in a member, and none is stopped, restored, paused or deleted', async () => {
  const checkpoint = await rig.rig.checkpoint(first);
  const gate = rig.rig.faults.hold('after-plan-collected');
  const committing = rig.commit(plan);
  await gate.reached;
  const refusal = await rig.rig.exec(first).catch((error: PlatformError) => error);
  expect(refusal).toMatchObject({ code: 'lease_held', details: { holder: `plan ${plan}` } });
  for (const effect of [
    () => rig.rig.stop(first),
    () => rig.rig.pause(first),
    () => rig.rig.restore(first, checkpoint.id),
    () => rig.rig.delete(first),
  ]) {
    expect(await codeOf(effect())).toBe('lease_held');
  }
  expect(await codeOf(rig.rig.delete(first, {}, { force: true })), 'not by force either').toBe('plan_busy');
  gate.open();
  expect((await committing).state).toBe('committed');
  expect(await codeOf(rig.rig.exec(first))).toBe('done');
  expect(await codeOf(rig.rig.delete(first))).toBe('done');
});

test('C7: a member is pinned from the beginning, also while its lease is waited for', async () => {
  const held = await rig.rig.acquire([first]);
  const committing = rig.commit(plan, { waitMs: 60_000 });
  await rig.rig.quiet();
  expect((await rig.get(plan)).state.kind).toBe('committing');
  expect(await codeOf(rig.rig.delete(first, { leaseToken: held.grants[0]!.token }))).toBe('plan_busy');
  await rig.rig.release(held.id);
  expect((await committing).state).toBe('committed');
});

test('C9: C79: a member in which somebody works is waited for with a limit, and who holds it is told', async () => {
  const held = await rig.rig.acquire([first], { holder: 'an agent', reason: 'builds' });
  expect(await rig.commit(plan)).toMatchObject({
    state: 'aborted',
    retryable: true,
    error: { code: 'lease_held', details: { holder: 'an agent', reason: 'builds', resource: first } },
  });
  const late = rig.commit(plan, { waitMs: 1_000 });
  await rig.rig.quiet();
  rig.rig.clock.step(1_000);
  expect(await late).toMatchObject({
    state: 'aborted',
    error: { code: 'lease_wait_timeout', details: { holder: 'an agent' } },
  });
  const patient = rig.commit(plan, { waitMs: 60_000 });
  await rig.rig.quiet();
  rig.write(first, one, { late: 'written under the lease' });
  await rig.rig.release(held.id);
  expect((await patient).state).toBe('committed');
  expect(await rig.model.head(one)).toHaveProperty('late');
});

test('C43: of a commit and a rollback one wins, and the other has a definite answer', async () => {
  const gate = rig.rig.faults.hold('after-plan-collected');
  const committing = rig.commit(plan);
  await gate.reached;
  expect(await codeOf(rig.rollBack(plan))).toBe('plan_busy');
  gate.open();
  expect((await committing).state).toBe('committed');
  expect(await codeOf(rig.rollBack(plan))).toBe('plan_wrong_state');

  const other = (await rig.create('other', [second])).id;
  const rollGate = rig.rig.faults.hold('after-plan-rolling-back');
  const rolling = rig.rollBack(other);
  await rollGate.reached;
  expect(await codeOf(rig.commit(other))).toBe('plan_busy');
  rollGate.open();
  expect((await rolling).state.kind).toBe('rolledBack');
  expect(await codeOf(rig.commit(other))).toBe('plan_wrong_state');
});

test('a sandbox belongs to one plan at a time, and to another when that is over', async () => {
  expect(await codeOf(rig.create('other', [first]))).toBe('plan_member_taken');
  expect(await codeOf(rig.get('other')), 'C72: what is refused leaves nothing behind').toBe('plan_not_found');
  await rig.rollBack(plan);
  const other = await rig.create('other', [first]);
  expect(other.members.map(({ sandboxId }) => sandboxId)).toEqual([first]);
});

test('C72: C75: a name is one plan; a create that is refused leaves nothing, and a deleted name is free at once', async () => {
  expect(await codeOf(rig.create('p'))).toBe('name_taken');
  expect(await codeOf(rig.create('q', [second, 'sbxaaaaaaaaaaaaaaaaaaaa' as SandboxId]))).toBe('sandbox_not_found');
  expect(await codeOf(rig.get('q'))).toBe('plan_not_found');
  const answers = await Promise.all([codeOf(rig.delete(plan, { discard: true })), codeOf(rig.create('p', [second]))]);
  expect(answers[0]).toBe('done');
  if (answers[1] === 'name_taken') await rig.create('p', [second]);
  expect((await rig.get('p')).members.map(({ sandboxId }) => sandboxId)).toEqual([second]);
});

test('adding and removing twice is once; order is the order of adding; limits and versions hold', async () => {
  const before = await rig.get(plan);
  await rig.add(plan, second);
  const again = await rig.add(plan, second);
  expect(again.members.map(({ sandboxId, position }) => [sandboxId, position])).toEqual([
    [first, 1],
    [second, 2],
  ]);
  expect(again.version).toBe(before.version + 1);
  expect(await codeOf(rig.add(plan, second, { expectedVersion: before.version }))).toBe('version_mismatch');
  await rig.remove(plan, first);
  expect((await rig.remove(plan, first)).version).toBe(again.version + 1);
  expect(await codeOf(rig.add('nobody', first))).toBe('plan_not_found');
  const members = Array.from({ length: planLimits.members + 1 }, () => first);
  expect((await rig.create('many', members)).members).toHaveLength(1);
});

test('a plan is found by id and name in its own team alone, and not with a token of one sandbox', async () => {
  const { caller } = rig.rig;
  expect((await rig.get('p')).id).toBe(plan);
  const stranger = { ...caller, teamId: 'teaaaaaaaaaaaaaaaaaaaaa' as never };
  expect(await codeOf(rig.plans.views.get(stranger, plan))).toBe('plan_not_found');
  const inside = { ...caller, sandboxId: first };
  expect(await codeOf(rig.plans.views.get(inside, plan))).toBe('plan_not_found');
  expect(() => rig.plans.create(inside, {}, { name: 'x', members: [] })).toThrow('token');
  const query = { limit: 1 };
  expect((await rig.plans.views.list(inside, query)).items).toEqual([]);
  await rig.create('newer');
  const page = await rig.plans.views.list(caller, query);
  expect(page.items).toHaveLength(1);
  const rest = await rig.plans.views.list(caller, { ...query, cursor: page.nextCursor! });
  expect([...page.items, ...rest.items].map(({ name }) => name).sort()).toEqual(['newer', 'p']);
  expect((await rig.plans.views.list(caller, { limit: 9, state: 'committed' })).items).toEqual([]);
});

test('C70: deletion refuses unmerged work with its counts, unless it is discarded by name', async () => {
  await rig.add(plan, second);
  rig.write(first, one, { another: '1' });
  expect(await rig.status(plan)).toMatchObject({ files: 3, commits: 2, members: [{ error: null }, { error: null }] });
  const refusal = await rig.delete(plan).catch((error: PlatformError) => error);
  expect(refusal).toMatchObject({ code: 'plan_unmerged', details: { files: 3, commits: 2 } });
  expect(rig.holds, 'a look holds nothing').toEqual([]);
  await rig.commit(plan);
  await rig.delete(plan);
  expect(await codeOf(rig.get(plan))).toBe('plan_not_found');
  expect(rig.holds, 'C74: what it held is released with it').toEqual([]);
  const other = (await rig.create('other', [first])).id;
  rig.write(first, one, { more: 'x' });
  await rig.delete(other, { discard: true });
  expect(rig.model.filesOf(first, one).get('more'), 'the sandbox keeps its files').toBe('x');
});

test('C70: work that cannot be looked at counts as unmerged', async () => {
  rig.model.onStep = async () => {
    throw new PlatformError('node_unavailable', 'away');
  };
  expect(await codeOf(rig.delete(plan))).toBe('plan_unmerged');
});
