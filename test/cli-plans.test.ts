/** The commands of plans, and the client library beneath them: what they ask of the server, print and exit with. */
import { expect, test } from 'vitest';
import { PlatformError } from '../src/protocol/index.ts';
import { openCliRig } from './support/cli-rig.ts';
import { testCommit, testPlan, testPlanCheckpoint } from './support/fake-control-plans.ts';

const [{ sandboxId }] = testPlan.members as [(typeof testPlan.members)[0]];

test('plans are created, listed, shown, changed, looked at and deleted', async () => {
  await using rig = await openCliRig();
  const { control } = rig.http;
  expect((await rig.run('plan', 'create', 'release', sandboxId)).stdout).toBe(`${testPlan.id}\n`);
  expect(control.last('createPlan').args[2]).toEqual({ name: 'release', members: [sandboxId] });
  expect((await rig.run('plan', 'ls', '--limit', '5')).stdout).toContain('release');
  expect(control.last('listPlans').args[1]).toMatchObject({ limit: 5 });
  expect((await rig.run('plan', 'show', 'release')).stdout).toContain('site@2 /workspace/site');
  expect((await rig.run('plan', 'add', 'release', sandboxId)).exitCode).toBe(0);
  expect(control.last('addPlanMember').args[3]).toBe(sandboxId);
  expect((await rig.run('plan', 'remove', 'release', sandboxId)).exitCode).toBe(0);
  expect((await rig.run('plan', 'status', 'release')).stdout).toContain('4 changed files in 1 checkouts');
  expect((await rig.run('plan', 'rm', 'release', '--discard')).exitCode).toBe(0);
  expect(control.last('deletePlan').args[3]).toEqual({ discard: true });
  expect((await rig.run('plan', 'recover')).stdout).toBe(`${testPlan.id} committing: settled\n`);
  const { recovery } = control.plans as { recovery: { ask: unknown } };
  const failures = [{ sandboxId, code: 'node_unavailable', message: 'Its node is out of reach.' }];
  recovery.ask = async () => ({ actions: [], waiting: [{ planId: testPlan.id, failures }] });
  expect((await rig.run('plan', 'recover')).stdout, 'C57: who is missing').toBe(
    `${testPlan.id} waits for 1 members\n  ${sandboxId}: Its node is out of reach. (node_unavailable)\n`,
  );
});

test('commit takes everything from its options, and prints what came of it', async () => {
  await using rig = await openCliRig();
  const words = ['-m', 'text', '--author', 'A B <a@b>', '--check', 'npm test', '--check-timeout', '1m', '--wait', '2s'];
  const run = await rig.run('plan', 'commit', 'release', ...words, '--best-effort', '--allow-empty', '--dry-run');
  expect(run.stdout).toContain('2 → 3');
  expect(rig.http.control.last('commitPlan').args[3]).toMatchObject({
    ...{ message: 'text', author: { name: 'A B', email: 'a@b' }, mode: 'bestEffort', allowEmpty: true, dryRun: true },
    ...{ checks: [{ command: 'npm test', timeoutMs: 60_000 }], waitMs: 2_000 },
  });
  const json = await rig.run('plan', 'commit', 'release', '--json');
  expect(JSON.parse(json.stdout), 'C67: the document is the result').toEqual(testCommit);
  expect((await rig.run('plan', 'commit', 'release', '--author', 'nobody')).exitCode).toBe(64);
});

test('C67: exit codes: 0 applied, 2 conflict, 3 busy, 4 aborted and worth another try, 5 in doubt; wrong words are none of these', async () => {
  await using rig = await openCliRig();
  const { outcome } = rig.http.control.fakePlans;
  const failed = (code: string) => ({ code, message: 'why', details: {} });
  const exitOf = async (commit: Partial<typeof testCommit>) => {
    outcome.commit = { ...testCommit, ...commit };
    return (await rig.run('plan', 'commit', 'release')).exitCode;
  };
  expect(await exitOf({})).toBe(0);
  expect(await exitOf({ state: 'nothing' })).toBe(0);
  expect(await exitOf({ state: 'conflict' })).toBe(2);
  expect(await exitOf({ state: 'aborted', error: failed('lease_held'), retryable: true })).toBe(3);
  expect(await exitOf({ state: 'aborted', error: failed('node_unavailable'), retryable: true })).toBe(4);
  expect(await exitOf({ state: 'aborted', error: failed('plan_check_failed') })).toBe(73);
  expect(await exitOf({ state: 'preparing' })).toBe(5);
  for (const words of [['commit'], ['commit', 'release', '--unknown'], ['rollback', 'release', '--wait', 'soon']]) {
    expect((await rig.run('plan', ...words)).exitCode, words.join(' ')).toBe(64);
  }
  const { commits } = rig.http.control.plans as { commits: { commit: unknown } };
  commits.commit = async () => {
    throw new PlatformError('plan_busy', 'Somebody commits.', { details: { by: 'key' } });
  };
  const busy = await rig.run('plan', 'commit', 'release', '--json');
  expect(busy.exitCode).toBe(3);
  expect(JSON.parse(busy.stdout)).toMatchObject({ error: { code: 'plan_busy', details: { by: 'key' } } });
  commits.commit = async () => {
    throw new PlatformError('outcome_unknown', 'Nobody knows.');
  };
  expect((await rig.run('plan', 'commit', 'release')).exitCode).toBe(5);
});

test('conflicts and failures are printed with who they concern', async () => {
  await using rig = await openCliRig();
  const [member] = testCommit.members;
  const [target] = member!.targets;
  const sides = { base: null, ours: null, theirs: null, withSandboxId: null };
  const conflicts = [{ path: 'a.txt', kind: 'content' as const, ...sides }];
  rig.http.control.fakePlans.outcome.commit = {
    ...testCommit,
    state: 'conflict',
    members: [{ ...member!, error: { code: 'x', message: 'it broke' }, targets: [{ ...target!, conflicts }] }],
  };
  const { stdout } = await rig.run('plan', 'commit', 'release');
  expect(stdout).toContain(`site:a.txt (content) ${sandboxId} against the head`);
  expect(stdout).toContain('it broke');
});

test('rollback, revert, checkpoint and restore', async () => {
  await using rig = await openCliRig();
  const { control } = rig.http;
  expect((await rig.run('plan', 'rollback', 'release', '--wait', '1s')).stdout).toContain('rolledBack');
  expect(control.last('rollBackPlan').args[3]).toEqual({ waitMs: 1_000 });
  expect((await rig.run('plan', 'revert', 'release', '-m', 'back')).exitCode).toBe(0);
  expect(control.last('revertPlan').args[3]).toMatchObject({ message: 'back' });
  expect((await rig.run('plan', 'checkpoint', 'release', 'before')).stdout).toBe(`${testPlanCheckpoint.id}\n`);
  expect((await rig.run('plan', 'checkpoints', 'release')).stdout).toContain('4 KiB');
  expect((await rig.run('plan', 'restore', 'release', testPlanCheckpoint.id)).exitCode).toBe(0);
  expect(control.last('restorePlan').args[3]).toMatchObject({ checkpoint: testPlanCheckpoint.id });
  expect((await rig.run('plan', 'rm-checkpoint', 'release', testPlanCheckpoint.id)).exitCode).toBe(0);
  const { rollbacks } = control.plans as { rollbacks: { rollBack: unknown } };
  const failures = [{ sandboxId, code: 'file_not_usable', message: 'residue' }];
  rollbacks.rollBack = async () => ({ ...testPlan, state: { kind: 'rollbackIncomplete', failures } });
  const incomplete = await rig.run('plan', 'rollback', 'release');
  expect(incomplete).toMatchObject({ exitCode: 5, stdout: expect.stringContaining('residue') });
});

test('the client library reads single commits and lists', async () => {
  await using rig = await openCliRig();
  const { plans } = rig.http.client();
  expect(await plans.getCommit('release', testCommit.id)).toEqual(testCommit);
  expect(await plans.commits('release')).toEqual([testCommit]);
  expect(rig.http.control.last('getPlanCommit').args[2]).toBe(testCommit.id);
});
