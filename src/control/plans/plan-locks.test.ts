/** The order of locks around plans, as it is watched in every test run, and what is held while a commit is prepared. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { askFor, KeyedMutex, whileHeld } from '../../base/index.ts';
import { newId, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';
import { PlanLeases } from './plan-leases.ts';
import { PlanRuns } from './plan-runs.ts';

let rig: PlanRig;
let one: WorkspaceId;
let box: SandboxId;
beforeEach(async () => {
  rig = await PlanRig.open();
  one = await rig.workspace('one');
  box = await rig.sandbox(one);
});
afterEach(() => rig.close());

const lane = { name: 'lane', rank: 1 };

test('C77: a plan is asked for before its members and targets, and these before lanes: another order is refused', async () => {
  const plan = (await rig.create('p', [box])).id;
  rig.write(box, one, { mine: '1' });
  // Under a lane, as a careless caller would have it.
  const under = whileHeld(askFor(lane, 'sbx'), () => rig.commit(plan));
  await expect(under).rejects.toThrow('The lock "plan"');
  expect((await rig.get(plan)).state.kind).toBe('open');
  // One plan under another, as a check that commits would have it.
  const runs = new PlanRuns(rig.rig.clock);
  const what = { kind: 'commit', by: rig.rig.caller.keyId, startedAtMs: 0 } as const;
  const nested = runs.begin(newId('plan'), what, () => runs.begin(newId('plan'), what, async () => {}));
  await expect(nested).rejects.toThrow('The lock "plan"');
  expect(runs.size).toBe(0);
  expect((await rig.commit(plan)).state).toBe('committed');
});

test('C77: members are leased by id, then targets by id, whatever order they are given in', async () => {
  const taken: string[][] = [];
  const leases = {
    take: async ({ resources }: { resources: string[] }) => {
      taken.push(resources);
      return { tokens: resources.map(() => 1), resources };
    },
  };
  const keeper = {
    over: () => new AbortController().signal,
    end: async () => {},
    closing: new AbortController().signal,
  };
  const context = { timers: rig.rig.clock, clock: rig.rig.clock, logger: { warn: () => {} } };
  const held = new PlanLeases(context as never, { leases, keeper } as never);
  const ids = [newId('sandbox'), newId('sandbox'), newId('sandbox')];
  const targets = [newId('workspace'), newId('workspace')];
  const wish = {
    plan: { id: newId('plan'), teamId: newId('team'), name: 'p' },
    turn: 1,
    keyId: newId('key'),
    reason: '',
  };
  const signal = new AbortController().signal;
  for (const members of [ids, ids.toReversed()]) {
    await held.holding({ ...wish, members, targets: targets.toReversed(), waitMs: 0, signal }, async () => {});
  }
  const expected = [...ids].sort().concat([...targets].sort().map((id) => `name:workspace/${id}` as never));
  expect(taken).toEqual([expected, expected]);
});

test('C78: a transaction of the store takes no lock and waits for nothing else', async () => {
  const lock = new KeyedMutex<string>({ name: 'any', rank: 1 });
  await expect(rig.rig.store.transact(() => lock.run('a', async () => {}))).rejects.toThrow('The lock "any"');
  await expect(rig.rig.store.transact(() => delay(5))).rejects.toThrow();
  await expect(rig.rig.store.transact(async ({ plans }) => (await plans.list({}, { limit: 1 })).length)).resolves.toBe(
    0,
  );
});

test('C29: everything that was prepared is held at its home until the decision, and the versions after it', async () => {
  const plan = (await rig.create('p', [box])).id;
  rig.write(box, one, { mine: '1' });
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan);
  await gate.reached;
  expect(rig.holds).toEqual([expect.stringContaining(`plan/${plan}/cmt`)]);
  gate.open();
  const { id } = await committing;
  expect(rig.holds).toEqual([`plan/${plan}/${id}`]);
});

test('C82: C5: the lease of a plan that is asked for twice by one process is refused the second time as anybody’s', async () => {
  const plans = [(await rig.create('a', [box])).id];
  const other = await rig.sandbox(one);
  plans.push((await rig.create('b', [other])).id);
  rig.write(box, one, { a: '1' });
  rig.write(other, one, { b: '1' });
  const gate = rig.rig.faults.hold('after-plan-leases');
  const first = rig.commit(plans[0]!);
  await gate.reached;
  const second = await rig.commit(plans[1]!);
  expect(second).toMatchObject({
    state: 'aborted',
    error: { code: 'lease_held', details: { holder: `plan ${plans[0]}`, resource: `name:workspace/${one}` } },
  });
  expect(await codeOf(rig.rollBack(plans[0]!))).toBe('plan_busy');
  gate.open();
  expect((await first).state).toBe('committed');
  expect((await rig.commit(plans[1]!)).state).toBe('committed');
});

test('a lease that is lost at the last moment is found by the transaction itself', async () => {
  const plan = (await rig.create('p', [box])).id;
  rig.write(box, one, { mine: '1' });
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan);
  await gate.reached;
  // Behind the back of everybody: what counts is what the store says when it is decided.
  await rig.rig.store.transact(async ({ leases }) => {
    const resource = `name:workspace/${one}`;
    const row = (await leases.find({ teamId: rig.rig.caller.teamId, resource }))!;
    await leases.put({ ...row, holder: null });
  });
  gate.open();
  expect(await committing).toMatchObject({ state: 'aborted', error: { code: 'plan_commit_expired' } });
  expect((await rig.model.workspace(one))!.headNumber).toBe(1);
});

test('a lease that is held for long is renewed, and one that cannot be renewed ends the commit', async () => {
  const plan = (await rig.create('p', [box])).id;
  rig.write(box, one, { mine: '1' });
  const gate = rig.rig.faults.hold('after-plan-collected');
  const committing = rig.commit(plan);
  await gate.reached;
  for (let turn = 0; turn < 10; turn++) {
    rig.rig.clock.step(20_000);
    await rig.rig.quiet();
  }
  expect(await rig.rig.leases()).toHaveLength(1);
  gate.open();
  expect((await committing).state).toBe('committed');
});

test('members that were attached elsewhere while their lease was waited for are not committed half', async () => {
  const two = await rig.workspace('two');
  const plan = (await rig.create('p', [box])).id;
  rig.write(box, one, { mine: '1' });
  const held = await rig.rig.acquire([box]);
  const committing = rig.commit(plan, { waitMs: 60_000 });
  await rig.rig.quiet();
  await rig.model.attach(box, two);
  await rig.rig.release(held.id);
  expect(await committing).toMatchObject({ state: 'aborted', retryable: true, error: { code: 'plan_interrupted' } });
  expect((await rig.commit(plan)).state).toBe('committed');
});
