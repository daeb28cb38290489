/** Commits of plans on workspaces in memory: who is let in, what is merged, what is decided, and what is told. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { codeOf, PlanRig } from '../../../test/support/plan-rig.ts';
import { newId, PlatformError, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';

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
});
afterEach(() => rig.close());

/** A plan of both sandboxes, each with a change of its own. */
async function planned(name = 'p'): Promise<string> {
  rig.write(first, one, { mine: name });
  rig.write(second, two, { mine: name });
  return (await rig.create(name, [first, second])).id;
}

async function heads(): Promise<number[]> {
  return [(await rig.model.workspace(one))!.headNumber, (await rig.model.workspace(two))!.headNumber];
}

test('C18: C64: C65: a commit moves every target in one step, and its result tells all of it', async () => {
  const plan = await planned();
  const seen: number[][] = [];
  rig.model.onStep = async () => void seen.push(await heads());
  const result = await rig.commit(plan, { message: 'both', author: { name: 'A', email: 'a@b' } });
  expect(new Set(seen.map(String)), 'nothing moves while it is prepared').toEqual(new Set(['1,1']));
  expect(await heads()).toEqual([2, 2]);
  expect(await rig.model.head(one)).toEqual({ file: 'base', mine: 'p' });
  expect(result).toMatchObject({
    ...{ planId: plan, planName: 'p', mode: 'atomic', state: 'committed', dryRun: false, retryable: false },
    ...{ message: 'both', author: { name: 'A', email: 'a@b' }, by: rig.rig.caller.keyId, error: null },
  });
  expect(result.members.map(({ state, undoable, error }) => ({ state, undoable, error }))).toEqual([
    { state: 'committed', undoable: true, error: null },
    { state: 'committed', undoable: true, error: null },
  ]);
  const [target] = result.members[0]!.targets;
  expect(target).toMatchObject({ ...{ files: 1, insertions: 1, deletions: 0, conflicts: [] }, base: { number: 1 } });
  expect(target).toMatchObject({ before: { number: 1 }, after: { number: 2 } });
  expect(result.targets.map(({ state }) => state)).toEqual(['published', 'published']);
  expect(result.retained.map(({ hold }) => hold)).toEqual(Array(2).fill(`plan/${plan}/${result.id}`));
  expect(Object.keys(result.timings)).toEqual(
    expect.arrayContaining(['waitMs', 'collectMs', 'combineMs', 'checksMs', 'publishMs', 'totalMs']),
  );
  expect(await rig.get(plan)).toMatchObject({ state: { kind: 'committed', commitId: result.id }, commitId: result.id });
  const versions = await rig.rig.store.read(({ workspaces }) => workspaces.versions(one, { limit: 1 }));
  expect(versions[0]).toMatchObject({ planId: plan, sandboxId: first });
});

test('C1: C73: two commits at once run once and have one result, and later ones are the same without an effect', async () => {
  const plan = await planned();
  let collected = 0;
  rig.model.onStep = async (step) => void (step === 'collect' && collected++);
  const results = await Promise.all([rig.commit(plan, { waitMs: 1_000 }), rig.commit(plan, { waitMs: 1_000 })]);
  expect(results[0]).toEqual(results[1]);
  expect(await rig.commit(plan)).toEqual(results[0]);
  expect(await rig.commit(plan, { commitId: newId('planCommit') })).toEqual(results[0]);
  expect(collected).toBe(2);
  expect(await heads()).toEqual([2, 2]);
  expect(rig.plans.running).toBe(0);
});

test('C2: after an abort the same id says so again, and a new one is a new attempt', async () => {
  const plan = await planned();
  const commitId = newId('planCommit');
  rig.model.onStep = async (step) => {
    if (step === 'collect') throw new PlatformError('node_unavailable', 'away');
  };
  const aborted = await rig.commit(plan, { commitId });
  expect(aborted).toMatchObject({ state: 'aborted', retryable: true, error: { code: 'node_unavailable' } });
  rig.model.onStep = async () => {};
  expect(await rig.commit(plan, { commitId })).toEqual(aborted);
  expect(await codeOf(rig.commit(plan, { commitId, message: 'other' }))).toBe('idempotency_key_reused');
  expect(await heads()).toEqual([1, 1]);
  expect((await rig.commit(plan, { commitId: newId('planCommit') })).state).toBe('committed');
});

test('C2: a second commit that joined one that failed is told of that failure', async () => {
  const plan = await planned();
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  rig.model.onStep = async (step) => {
    if (step !== 'collect') return;
    reached.resolve();
    await gate.promise;
    throw new PlatformError('node_unavailable', 'away');
  };
  const leading = rig.commit(plan);
  await reached.promise;
  const joining = rig.commit(plan, { waitMs: 1_000 });
  await rig.rig.quiet();
  gate.resolve();
  expect(await joining).toEqual(await leading);
  expect((await joining).state).toBe('aborted');
});

test('C3: plans on other targets run at the same time', async () => {
  rig.write(first, one, { mine: 'a' });
  rig.write(second, two, { mine: 'b' });
  const plans = [(await rig.create('a', [first])).id, (await rig.create('b', [second])).id];
  const both = Promise.withResolvers<void>();
  let inside = 0;
  rig.model.onStep = async (step) => {
    if (step !== 'collect') return;
    if (++inside === 2) both.resolve();
    await both.promise;
  };
  const results = await Promise.all(plans.map((plan) => rig.commit(plan)));
  expect(results.map(({ state }) => state)).toEqual(['committed', 'committed']);
});

test('C4: C20: plans on one target follow each other, and the second is merged with what the first made', async () => {
  const other = await rig.sandbox(one);
  rig.write(first, one, { left: '1' });
  rig.write(other, one, { right: '2' });
  const plans = [(await rig.create('a', [first])).id, (await rig.create('b', [other])).id];
  let inside = 0;
  let most = 0;
  rig.model.onStep = async (step) => {
    if (step !== 'combine') return;
    most = Math.max(most, ++inside);
    await rig.rig.quiet();
    inside--;
  };
  const results = await Promise.all(plans.map((plan) => rig.commit(plan, { waitMs: 60_000 })));
  expect(most).toBe(1);
  expect(results.map(({ targets }) => targets[0]!.after!.number).sort()).toEqual([2, 3]);
  expect(await rig.model.head(one)).toEqual({ file: 'base', left: '1', right: '2' });
});

test('C5: plans that name the same targets in another order never wait in a circle', async () => {
  const boxes = await Promise.all(
    [...Array(6)].map((_, index) => rig.sandbox(...(index % 2 ? [one, two] : [two, one]))),
  );
  const plans = await Promise.all(boxes.map(async (box, index) => (await rig.create(`p${index}`, [box])).id));
  for (const [index, box] of boxes.entries()) {
    rig.write(box, one, { [`a${index}`]: 'x' });
    rig.write(box, two, { [`b${index}`]: 'x' });
  }
  const results = await Promise.all(plans.map((plan) => rig.commit(plan, { waitMs: 600_000 })));
  expect(results.map(({ state }) => state)).toEqual(Array(6).fill('committed'));
  expect(await heads()).toEqual([7, 7]);
});

test('C12: nobody changed anything: the result is "nothing", the plan is open; an empty commit has to be asked for', async () => {
  const plan = (await rig.create('p', [first, second])).id;
  expect((await rig.commit(plan)).state).toBe('nothing');
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect(rig.holds).toEqual([]);
  const empty = (await rig.create('none')).id;
  expect((await rig.commit(empty)).state).toBe('nothing');
  expect((await rig.commit(plan, { allowEmpty: true })).state).toBe('committed');
  expect(await heads()).toEqual([1, 1]);
});

test('C11: C13: C39: members that cannot take part are listed one by one, before anything happens', async () => {
  const plan = await planned();
  const [gone, bare, failed] = [await rig.sandbox(one), await rig.sandbox(), await rig.sandbox(two)];
  for (const id of [gone, bare, failed]) await rig.add(plan, id);
  await rig.rig.delete(gone);
  const record = (await rig.rig.store.read(({ sandboxes }) => sandboxes.find(failed)))!;
  await rig.rig.store.transact(({ sandboxes }) =>
    sandboxes.update({ ...record, version: record.version + 1, state: { kind: 'failed', why: 'no' } }),
  );
  const refusal = await rig.commit(plan).catch((error: PlatformError) => error);
  expect(refusal).toMatchObject({
    code: 'plan_members_unfit',
    details: {
      members: [
        { sandboxId: gone, code: 'sandbox_not_found' },
        { sandboxId: bare, code: 'workspace_not_found' },
        { sandboxId: failed, code: 'sandbox_wrong_state' },
      ],
    },
  });
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect((await rig.plans.commits.list(rig.rig.caller, plan)).items).toEqual([]);
});

test('C13: work that has disappeared is an error, and nothing is published', async () => {
  const plan = await planned();
  rig.model.files.delete(`${second} ${two}`);
  const result = await rig.commit(plan);
  expect(result).toMatchObject({ state: 'aborted', error: { code: 'file_not_found' } });
  expect(result.members.map(({ state }) => state)).toContain('failed');
  expect(await heads()).toEqual([1, 1]);
});

test('C14: C42: two members with one target are merged in the order of members, which is recorded', async () => {
  const other = await rig.sandbox(one);
  rig.write(first, one, { a: '1' });
  rig.write(other, one, { b: '2' });
  const plan = (await rig.create('p', [other, first])).id;
  const result = await rig.commit(plan);
  expect(result.members.map(({ sandboxId }) => sandboxId)).toEqual([other, first]);
  expect(result.members.map(({ position }) => position)).toEqual([1, 2]);
  expect(await rig.model.head(one)).toEqual({ file: 'base', a: '1', b: '2' });
  expect(result.targets).toHaveLength(1);
  const record = await rig.rig.store.read(({ plans }) => plans.findCommit(result.id));
  expect(record!.members).toEqual([other, first]);
});

test('C15: targets that lie in each other are found before anything happens', async () => {
  const box = await rig.sandbox();
  await rig.model.attach(box, one, '/work');
  await rig.model.attach(box, two, '/work/inner');
  const plan = (await rig.create('p', [box])).id;
  expect(await codeOf(rig.commit(plan))).toBe('plan_members_unfit');
});

test('C19: one conflict of many releases all, and the conflicts of all members are reported', async () => {
  const plan = await planned();
  const third = await rig.sandbox(one);
  await rig.add(plan, third);
  rig.write(first, one, { file: 'mine', x: '1' });
  rig.write(third, one, { file: 'theirs', x: '2' });
  rig.write(second, two, { file: 'ours' });
  const outside = await rig.sandbox(two);
  rig.write(outside, two, { file: 'published' });
  await rig.commit((await rig.create('earlier', [outside])).id);
  const before = await heads();
  const result = await rig.commit(plan);
  expect(result.state).toBe('conflict');
  expect(result.members.map(({ state }) => state)).toEqual(['notCommitted', 'conflict', 'conflict']);
  expect(result.members[1]!.targets[0]!.conflicts).toMatchObject([{ path: 'file', withSandboxId: null }]);
  expect(result.members[2]!.targets[0]!.conflicts.map(({ path, withSandboxId }) => [path, withSandboxId])).toEqual([
    ['file', first],
    ['x', first],
  ]);
  expect(await heads()).toEqual(before);
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.get(plan)).state.kind).toBe('open');
});

test('C21: a target that moves after it was prepared is prepared again; one that never rests aborts the commit', async () => {
  const plan = await planned();
  const move = async (label: string) => {
    const box = await rig.sandbox(one);
    rig.write(box, one, { [label]: label });
    // By the side door, as a commit of one sandbox goes: it has no lease on the target.
    const hold = { teamId: rig.rig.caller.teamId, sandboxId: box, leaseToken: null, createdBy: rig.rig.caller.keyId };
    const [contribution] = await rig.model.collect({ ...hold, hold: 'x' });
    const request = { workspaceId: one, contributions: [contribution!], trailers: [], atMs: 1, hold: 'x' };
    const made = await rig.model.combine({ ...request, author: { name: 'a', email: 'b' }, message: label });
    const version = made.kind === 'prepared' ? made.version : undefined;
    const about = { createdBy: rig.rig.caller.keyId, sandboxId: box, planId: null, atMs: 1 };
    await rig.rig.store.transact((tables) => rig.model.publish(tables, { version: version!, ...about }));
  };
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan);
  await gate.reached;
  await move('outside');
  gate.open();
  expect(await committing).toMatchObject({ state: 'committed' });
  expect(await rig.model.head(one)).toEqual({ file: 'base', mine: 'p', outside: 'outside' });

  const restless = (await rig.create('restless', [await rig.sandbox(one)])).id;
  const [member] = (await rig.get(restless)).members;
  rig.write(member!.sandboxId, one, { late: '1' });
  let moves = 0;
  rig.model.onStep = async (step, about) => {
    if (step !== 'checks' || about === '') return;
    rig.model.onStep = async () => {};
    await move(`again${moves++}`);
    rig.model.onStep = onChecks;
  };
  const onChecks = rig.model.onStep;
  rig.model.check = async ({ checks }) => checks.map(({ command }) => passed(command));
  const result = await rig.commit(restless, { checks: [{ command: 'true' }] });
  expect(result).toMatchObject({ state: 'aborted', error: { code: 'workspace_moved' } });
  expect(moves).toBe(5);
});

const passed = (command: string | string[]) => ({
  ...{ command, exitCode: 0, timedOut: false, output: '', durationMs: 1 },
});

test('C17: C27: checks see the merged result; one that fails, times out or asks for its own commit aborts it', async () => {
  const plan = await planned();
  rig.model.check = async ({ targets, checks, like }) => {
    expect(like.id).toBe(first);
    expect(targets.map(({ commit }) => rig.model.treeOfCommit(commit).get('mine'))).toEqual(['p', 'p']);
    return [{ ...passed(checks[0]!.command), exitCode: 3, output: 'no' }];
  };
  const failed = await rig.commit(plan, { checks: [{ command: 'test' }] });
  expect(failed).toMatchObject({ state: 'aborted', error: { code: 'plan_check_failed' }, retryable: false });
  expect(failed.checks).toMatchObject([{ exitCode: 3, output: 'no' }]);
  rig.model.check = async () => [{ ...passed('slow'), exitCode: null, timedOut: true }];
  expect((await rig.commit(plan, { checks: [{ command: 'slow' }] })).error!.message).toContain('out of time');

  let nested = '';
  rig.model.check = async ({ commitId, checks }) => {
    nested = await codeOf(rig.commit(plan, { withinCommitId: commitId, waitMs: 3_600_000 }));
    return checks.map(({ command }) => passed(command));
  };
  expect((await rig.commit(plan, { checks: [{ command: 'nested' }] })).state).toBe('committed');
  expect(nested).toBe('plan_busy');
});

test('C28: members are read at the same time, and the first that fails stops the others', async () => {
  const plan = await planned();
  const together = Promise.withResolvers<void>();
  let inside = 0;
  let stopped: boolean | undefined;
  rig.model.onStep = async (step, about, signal) => {
    if (step !== 'collect') return;
    if (++inside === 2) together.resolve();
    await together.promise;
    if (about === first) throw new PlatformError('insufficient_storage', 'full');
    await new Promise<void>((resolve) => signal!.addEventListener('abort', () => resolve()));
    stopped = signal!.aborted;
    throw new Error('aborted');
  };
  const result = await rig.commit(plan);
  expect(result).toMatchObject({ state: 'aborted', error: { code: 'insufficient_storage' } });
  expect(stopped).toBe(true);
  expect(result.members.map(({ state }) => state)).toEqual(['failed', 'notCommitted']);
});

test('C26: no room for the objects is found while it is prepared, and nothing is published', async () => {
  const plan = await planned();
  rig.model.onStep = async (step, about) => {
    if (step === 'combine' && about === two) throw new PlatformError('insufficient_storage', 'full');
  };
  expect(await rig.commit(plan)).toMatchObject({ state: 'aborted', error: { code: 'insufficient_storage' } });
  expect(await heads()).toEqual([1, 1]);
});

test('C30: C56: what was not decided in time is given up, by boot time and not by the time of day', async () => {
  const plan = await planned();
  const gate = rig.rig.faults.hold('before-plan-decision');
  const committing = rig.commit(plan);
  await gate.reached;
  rig.rig.clock.jump(10 * 365 * 24 * 3600_000);
  await rig.rig.quiet();
  expect((await rig.rig.leases()).length, 'a jump of the time of day frees nothing').toBe(1);
  rig.rig.clock.step(31 * 60_000);
  gate.open();
  expect(await committing).toMatchObject({ state: 'aborted', error: { code: 'plan_commit_expired' } });
  expect(await heads()).toEqual([1, 1]);
});

test('a dry run does everything but publish, and leaves the plan open and nothing held', async () => {
  const plan = await planned();
  const result = await rig.commit(plan, { dryRun: true });
  expect(result).toMatchObject({ state: 'committed', dryRun: true });
  expect(result.targets.map(({ state, after }) => [state, after])).toEqual([
    ['wouldPublish', null],
    ['wouldPublish', null],
  ]);
  expect(await heads()).toEqual([1, 1]);
  expect(rig.holds).toEqual([]);
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect((await rig.commit(plan)).state).toBe('committed');
});

test('bestEffort, asked for by name, publishes what it can and says what it could not', async () => {
  const plan = await planned();
  const bare = await rig.sandbox();
  await rig.add(plan, bare);
  const outside = await rig.sandbox(two);
  rig.write(outside, two, { mine: 'other' });
  await rig.commit((await rig.create('earlier', [outside])).id);
  const result = await rig.commit(plan, { mode: 'bestEffort' });
  expect(result).toMatchObject({ state: 'partial', mode: 'bestEffort' });
  expect(result.targets.map(({ workspaceId, state }) => [workspaceId, state]).sort()).toEqual(
    [
      [one, 'published'],
      [two, 'conflict'],
    ].sort(),
  );
  expect(result.members.map(({ state }) => state)).toEqual(['committed', 'conflict', 'failed']);
  expect((await rig.get(plan)).state.kind).toBe('open');
  rig.write(second, two, { mine: null, own: 'x' });
  await rig.remove(plan, bare);
  const whole = await rig.commit(plan, { mode: 'bestEffort' });
  expect(whole.state).toBe('committed');
  expect((await rig.get(plan)).state.kind).toBe('committed');
});

test('C60: a committed plan is taken back by a new version of every target, and only once', async () => {
  const plan = await planned();
  const { id } = await rig.commit(plan);
  const later = await rig.sandbox(one);
  rig.write(later, one, { after: '1' });
  await rig.commit((await rig.create('later', [later])).id);
  const result = await rig.revert(plan);
  expect(result).toMatchObject({ kind: 'revert', state: 'committed' });
  expect(await rig.model.head(one)).toEqual({ file: 'base', after: '1' });
  expect(await rig.model.head(two)).toEqual({ file: 'base' });
  expect(await rig.revert(plan)).toEqual(result);
  expect((await rig.get(plan)).state).toEqual({ kind: 'reverted', commitId: id, revertId: result.id });
  expect(await codeOf(rig.revert((await rig.create('open')).id))).toBe('plan_wrong_state');
  const versions = await rig.rig.store.read(({ workspaces }) => workspaces.versions(two, { limit: 1 }));
  expect(versions[0]).toMatchObject({ kind: 'revert', planId: plan });
});

test('C60: a revert that conflicts changes nothing, and the plan stays committed', async () => {
  const plan = await planned();
  await rig.commit(plan);
  const later = await rig.sandbox(one);
  rig.write(later, one, { mine: 'changed since' });
  await rig.commit((await rig.create('later', [later])).id);
  const result = await rig.revert(plan);
  expect(result).toMatchObject({ state: 'conflict', error: { code: 'workspace_conflict' } });
  expect(result.error!.details['conflicts']).toMatchObject([{ path: 'mine' }]);
  expect((await rig.get(plan)).state.kind).toBe('committed');
  expect(await rig.model.head(two)).toHaveProperty('mine');
});

test('C68: every transition is one event, in order', async () => {
  const plan = await planned();
  await rig.commit(plan, { dryRun: true });
  await rig.commit(plan);
  await rig.commit(plan);
  await rig.revert(plan);
  const kinds = (await rig.rig.events('plan.')).map(({ kind }) => kind);
  expect(kinds).toEqual([
    ...['plan.created', 'plan.member_added', 'plan.member_added', 'plan.committing', 'plan.tried'],
    ...['plan.committing', 'plan.committed', 'plan.reverting', 'plan.reverted'],
  ]);
  const versions = (await rig.rig.events('plan.')).map(({ data }) => data['version'] as number);
  expect(versions).toEqual([...versions].sort((a, b) => a - b));
});

test('C69: C74: C76: refs are kept for days, then released by name; a failure to tidy up fails no commit', async () => {
  const plan = await planned();
  rig.model.holds.get(one)?.add('somebody/else');
  rig.model.holds.set(one, new Set(['somebody/else']));
  const { id } = await rig.commit(plan);
  expect(rig.holds.sort()).toEqual([`plan/${plan}/${id}`, `plan/${plan}/${id}`, 'somebody/else']);
  rig.rig.clock.step(8 * 24 * 3600_000);
  rig.model.onStep = async (step) => {
    if (step === 'release') throw new PlatformError('node_unavailable', 'away');
  };
  expect((await rig.recover()).actions).toEqual([]);
  expect((await rig.commit(plan)).id).toBe(id);
  rig.model.onStep = async () => {};
  expect((await rig.recover()).actions).toEqual([{ kind: 'tidying', planId: plan, outcome: 'done' }]);
  expect(rig.holds).toEqual(['somebody/else']);
});

test('C76: a commit stands when nothing can be tidied up after it', async () => {
  const plan = await planned();
  rig.model.onStep = async (step) => {
    if (step === 'release') throw new Error('a bug');
  };
  expect((await rig.commit(plan, { dryRun: true })).state).toBe('committed');
  expect((await rig.commit(plan)).state).toBe('committed');
});

test('C79: C81: a bug on the way frees everything, and who waited is told whom for', async () => {
  const plan = await planned();
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  rig.model.onStep = async (step) => {
    if (step !== 'combine') return;
    reached.resolve();
    await gate.promise;
    throw new Error('a bug');
  };
  const failing = rig.commit(plan);
  await reached.promise;
  const waiting = rig.commit(plan, { waitMs: 500 }).catch((error: PlatformError) => error);
  await rig.rig.quiet();
  rig.rig.clock.step(500);
  expect(await waiting).toMatchObject({
    code: 'plan_busy',
    details: { planId: plan, kind: 'commit', by: rig.rig.caller.keyId, commitId: expect.any(String) },
  });
  gate.resolve();
  await expect(failing).rejects.toThrow('a bug');
  expect(await rig.rig.leases()).toEqual([]);
  expect((await rig.get(plan)).state.kind).toBe('open');
  expect(rig.plans.running).toBe(0);
  rig.model.onStep = async () => {};
  expect((await rig.commit(plan)).state).toBe('committed');
});
