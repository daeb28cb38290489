/** Plans between a look and the act that follows it: what others do in between is seen, and nobody acts on what was true before. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { newId, PlatformError, type SandboxId, type WorkspaceId, workspaceLimits } from '../../protocol/index.ts';

let rig: PlanRig;
let one: WorkspaceId;
let two: WorkspaceId;
let first: SandboxId;
let second: SandboxId;
beforeEach(async () => {
  rig = await PlanRig.open();
  one = await rig.workspace('one');
  two = await rig.workspace('two');
  first = await rig.sandbox(one);
  second = await rig.sandbox(two);
  rig.write(first, one, { mine: '1' });
  rig.write(second, two, { mine: '2' });
});
afterEach(() => rig.close());

async function ticks(count: number): Promise<void> {
  for (let tick = 0; tick < count; tick++) await null;
}

test('C84: a commit or rollback that names a version is of that version, whenever a member is added beside it', async () => {
  for (let delay = 0; delay < 24; delay += 2) {
    const [mine, late] = [await rig.sandbox(one), await rig.sandbox(two)];
    const { id, version: expectedVersion } = await rig.create(`c${delay}`, [mine]);
    const committing = rig.commit(id, { allowEmpty: true }, { expectedVersion });
    await ticks(delay);
    const added = codeOf(rig.add(id, late));
    const members = await committing.then(
      (result) => result.members.map(({ sandboxId }) => sandboxId),
      (error: PlatformError) => error.code,
    );
    expect([[mine], 'version_mismatch'], `after ${delay} ticks`).toContainEqual(members);
    await added;

    const other = await rig.create(`r${delay}`, [await rig.sandbox(one)]);
    const back = codeOf(rig.rollBack(other.id, {}, { expectedVersion: other.version }));
    await ticks(delay);
    const joined = await codeOf(rig.add(other.id, await rig.sandbox(two)));
    if (joined === 'done') expect(await back, `after ${delay} ticks`).toBe('version_mismatch');
    else expect(await back).toBe('done');
  }
});

test('one commit id is one commit, also when two plans ask with it at the same time', async () => {
  const commitId = newId('planCommit');
  const plans = [(await rig.create('p', [first])).id, (await rig.create('q', [second])).id] as const;
  const codes = await Promise.all(plans.map((plan) => codeOf(rig.commit(plan, { commitId }))));
  expect(codes.toSorted()).toEqual(['done', 'idempotency_key_reused']);
  const [winner, loser] = codes[0] === 'done' ? plans : plans.toReversed();
  await rig.recover();
  expect((await rig.get(winner!)).state).toEqual({ kind: 'committed', commitId });
  expect(await rig.commit(winner!, { commitId })).toMatchObject({ state: 'committed', planId: winner });
  expect((await rig.get(loser!)).state).toEqual({ kind: 'open' });
  expect((await rig.commit(loser!)).state).toBe('committed');
});

test('C61: C52: a checkpoint that becomes ready while recovery is busy with another stays', async () => {
  const plan = (await rig.create('p', [first])).id;
  const kept = await rig.checkpoint(plan);
  const record = (await rig.rig.store.read(({ plans }) => plans.findCheckpoint(kept.id)))!;
  const making = rig.rig.faults.hold('after-plan-members-kept');
  const made = rig.checkpoint(plan);
  await making.reached;
  // Another that recovery has to remove, and comes to first: the newest is.
  const left = { ...record, id: newId('planCheckpoint'), state: 'deleting' as const, members: [] };
  const createdAtMs = record.createdAtMs + 3600_000;
  await rig.rig.store.transact(({ plans }) => plans.putCheckpoint({ ...left, createdAtMs }));
  const removing = rig.rig.faults.hold('after-plan-checkpoint-deleting');
  const recovering = rig.recover();
  await removing.reached;
  making.open();
  const { id, members } = await made;
  removing.open();
  await recovering;
  const { items } = await rig.plans.checkpoints.list(rig.rig.caller, plan);
  expect(items.map((item) => [item.id, item.state])).toEqual(
    expect.arrayContaining([
      [id, 'ready'],
      [kept.id, 'ready'],
    ]),
  );
  expect(rig.rig.node.branches.checkpoints.has(members[0]!.checkpointId)).toBe(true);
  expect((await rig.restore(plan, id)).state.kind).toBe('open');
});

test('C58: members are as they were after a checkpoint, also those that somebody paused while it waited for them', async () => {
  const plan = (await rig.create('p', [first, second])).id;
  await rig.rig.stop(second);
  const recorded = rig.rig.faults.hold('after-plan-checkpoint-recorded');
  const making = rig.checkpoint(plan);
  await recorded.reached;
  await rig.rig.pause(first);
  await rig.rig.start(second);
  const paused = rig.rig.faults.hold('after-plan-members-paused');
  recorded.open();
  await paused.reached;
  const states = async () => [(await rig.rig.get(first)).state, (await rig.rig.get(second)).state];
  expect(await states(), 'one that was started stands still too').toEqual(['paused', 'paused']);
  paused.open();
  await making;
  expect(await states()).toEqual(['paused', 'running']);
});

test('C59: a restore under a key that a crash cut off is not done again over what was made since', async () => {
  const plan = (await rig.create('p', [first, second])).id;
  const { id } = await rig.checkpoint(plan);
  for (const [key, point] of [
    ['a', 'after-plan-restoring'],
    ['b', 'after-plan-member-restored'],
    ['c', 'after-plan-restored'],
  ] as const) {
    const gate = rig.rig.faults.hold(point);
    const cut = rig.restore(plan, id, { idempotencyKey: key });
    cut.catch(() => {});
    await gate.reached;
    await rig.rig.crash();
    gate.open();
    await rig.rig.restart();
    await rig.recover();
    expect((await rig.get(plan)).state.kind).toBe('open');
    const before = (await rig.rig.get(first)).generation;
    expect((await rig.restore(plan, id, { idempotencyKey: key })).state.kind).toBe('open');
    expect((await rig.rig.get(first)).generation, `no second time, after a crash at ${point}`).toBe(before);
  }
});

test('C59: C57: a restore under a key that a crash cut off waits for a member that is held, and a repeat does it once', async () => {
  const plan = (await rig.create('p', [first])).id;
  const { id } = await rig.checkpoint(plan);
  const held = await rig.rig.acquire([first], { holder: 'an agent' });
  const answered = rig.rig.faults.hold('after-plan-restoring');
  const cut = rig.restore(plan, id, { idempotencyKey: 'k' });
  cut.catch(() => {});
  await answered.reached;
  await rig.rig.crash();
  answered.open();
  await rig.rig.restart();
  const recovering = rig.recover();
  for (let turn = 0; turn < 8; turn++) {
    await rig.rig.quiet();
    rig.rig.clock.step(1_000);
  }
  const { waiting } = await recovering;
  expect(waiting, 'the agent has the member').toMatchObject([{ planId: plan, failures: [{ sandboxId: first }] }]);
  await rig.rig.release(held.id);
  const { generation } = await rig.rig.get(first);
  expect((await rig.restore(plan, id, { idempotencyKey: 'k' })).state.kind).toBe('open');
  expect((await rig.rig.get(first)).generation).toBe(generation + 1);
  expect((await rig.restore(plan, id, { idempotencyKey: 'k' })).state.kind).toBe('open');
  expect((await rig.rig.get(first)).generation, 'once').toBe(generation + 1);
});

test('a rollback under a key and a version that a crash cut off has been done, and says so', async () => {
  const { id, version: expectedVersion } = await rig.create('p', [first]);
  const gate = rig.rig.faults.hold('after-plan-rolling-back');
  rig.rollBack(id, {}, { idempotencyKey: 'k', expectedVersion }).catch(() => {});
  await gate.reached;
  await rig.rig.crash();
  gate.open();
  await rig.rig.restart();
  await rig.recover();
  expect(await codeOf(rig.rollBack(id, {}, { idempotencyKey: 'k', expectedVersion }))).toBe('done');
});

test('C28: C29: a target that cannot be merged stops the others, and nothing is held behind a dry run', async () => {
  const plan = (await rig.create('p', [first, second])).id;
  const slow = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  rig.model.onStep = async (step, about) => {
    if (step !== 'combine') return;
    if (about === two) {
      begun.resolve();
      await slow.promise;
      return;
    }
    await begun.promise;
    throw new PlatformError('node_unavailable', 'away');
  };
  const trying = rig.commit(plan, { dryRun: true });
  await begun.promise;
  await rig.rig.quiet();
  expect(rig.plans.running, 'it is not over while one of its merges goes on').toBe(1);
  slow.resolve();
  expect(await trying).toMatchObject({ state: 'aborted', error: { code: 'node_unavailable' } });
  await rig.rig.quiet();
  expect(rig.holds).toEqual([]);
});

test('bestEffort: a target that moved once and was merged again is published, and its result says nothing else', async () => {
  const plan = (await rig.create('p', [first])).id;
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan, { mode: 'bestEffort' });
  await gate.reached;
  const other = (await rig.create('q', [await rig.sandbox(one)])).id;
  await rig.rig.store.transact(async ({ workspaces }) => {
    const workspace = (await workspaces.find(one))!;
    const version = (await workspaces.findVersion({ workspaceId: one, number: 1 }))!;
    await workspaces.insertVersion({ ...version, number: 2 });
    await workspaces.update({ ...workspace, headNumber: 2, version: workspace.version + 1 });
  });
  gate.open();
  expect(await committing).toMatchObject({
    ...{ state: 'committed', error: null },
    targets: [{ state: 'published', error: null, after: { number: 3 } }],
  });
  expect((await rig.get(plan)).state.kind).toBe('committed');
  expect((await rig.get(other)).state.kind).toBe('open');
});

test('who asks for a recovery is told of the plans of their own team alone', async () => {
  const plan = (await rig.create('p', [first])).id;
  const gate = rig.rig.faults.hold('after-plan-collected');
  rig.commit(plan).catch(() => {});
  await gate.reached;
  await rig.rig.crash();
  gate.open();
  await rig.rig.restart();
  const stranger = { ...rig.rig.caller, teamId: newId('team') };
  expect(await rig.plans.recovery.ask(stranger)).toEqual({ actions: [], waiting: [] });
  expect((await rig.get(plan)).state.kind, 'it is done for everybody').toBe('open');
});

test('a look at a plan reads as many members at a time as a commit does, however many it has', async () => {
  const boxes: SandboxId[] = [];
  for (let count = 0; count < 12; count++) boxes.push(await rig.sandbox(one));
  const plan = (await rig.create('p', boxes)).id;
  let [present, most] = [0, 0];
  rig.model.onStep = async (step) => {
    if (step !== 'collect') return;
    most = Math.max(most, ++present);
    await rig.rig.quiet();
    present--;
  };
  expect((await rig.status(plan)).members.map(({ error }) => error)).toEqual(boxes.map(() => null));
  expect(most).toBe(8);
});

test('C19: conflicts without a number are counted, and as many are told as anybody reads', async () => {
  const many = Object.fromEntries(
    Array.from({ length: workspaceLimits.conflicts + 200 }, (_, at) => [`f${at}`, 'mine']),
  );
  const other = await rig.sandbox(one);
  rig.write(first, one, many);
  rig.write(other, one, Object.fromEntries(Object.keys(many).map((path) => [path, 'theirs'])));
  const plan = (await rig.create('p', [first, other])).id;
  const { state, error, members } = await rig.commit(plan);
  expect(state).toBe('conflict');
  expect(error!.details).toMatchObject({ count: workspaceLimits.conflicts + 200 });
  expect(error!.details['conflicts']).toHaveLength(workspaceLimits.conflicts);
  expect(members[1]!.targets[0]!.conflicts).toHaveLength(workspaceLimits.conflicts);
});
