/** Commit, rollback, restore and recovery of plans, cut off by a SIGKILL of the server at every durable step: every head is before, or every head is after. */
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { newId } from '../../src/protocol/index.ts';
import {
  briskSettings,
  eventually,
  impatient,
  interrupted,
  removeSandboxes,
  untilAnswered,
} from '../support/crashes.ts';
import { headsOf, type PlannedCase, planCase } from '../support/plan-cases.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  const settings = { ...briskSettings, retentionIntervalMs: 300, planRecoveryIntervalMs: 300 };
  platform = await Platform.start({ node: 'process', settings });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

/** The server dies there, over this, and starts again without the fault. */
async function killedAt(point: string, ask: (client: ReturnType<typeof impatient>) => Promise<unknown>): Promise<void> {
  await platform.restartServer(`${point}=crash`);
  await interrupted(platform.server, ask(impatient(platform)));
  await platform.startServer();
}

/** The plan is in a state that stays, and nobody holds its members. */
async function atRest(made: PlannedCase, states: readonly string[]): Promise<void> {
  await eventually(async () => {
    const plan = await platform.client.plans.get(made.plan);
    expect(states).toContain(plan.state.kind);
    expect(plan.members.map(({ sandbox }) => sandbox?.leaseHolder ?? null)).toEqual([null, null]);
    expect(plan.members.map(({ sandbox }) => sandbox?.state)).toEqual(['running', 'running']);
  });
}

for (const point of [
  'after-plan-committing',
  'after-plan-leases',
  'after-collect-checkpoint',
  'after-plan-collected',
  'after-version-held',
  'after-plan-combined',
  'before-plan-decision',
]) {
  test(`C32: C35: C51: a server killed at "${point}" of a commit has moved nothing, and a new commit succeeds`, async () => {
    const made = await planCase(platform.client);
    const commitId = newId('planCommit');
    await killedAt(point, (client) => client.plans.commit(made.plan, { commitId }));
    await atRest(made, ['open']);
    expect(await headsOf(platform.client, made)).toEqual([1, 1]);
    const again = await untilAnswered(() => platform.client.plans.commit(made.plan, { commitId }));
    expect(again).toMatchObject({ state: 'aborted', error: { code: 'plan_interrupted' }, retryable: true });
    expect((await untilAnswered(() => platform.client.plans.commit(made.plan, { waitMs: 30_000 }))).state).toBe(
      'committed',
    );
    expect(await headsOf(platform.client, made)).toEqual([2, 2]);
  });
}

for (const point of ['after-plan-decision', 'after-plan-lease-ended', 'after-plan-released']) {
  test(`C32: C33: C35: a server killed at "${point}" of a commit has moved everything, once`, async () => {
    const made = await planCase(platform.client);
    const commitId = newId('planCommit');
    await killedAt(point, (client) => client.plans.commit(made.plan, { commitId }));
    const result = await untilAnswered(() => platform.client.plans.commit(made.plan, { commitId }));
    expect(result.state).toBe('committed');
    await atRest(made, ['committed']);
    expect(await headsOf(platform.client, made)).toEqual([2, 2]);
    for (const name of made.workspaces) {
      expect((await platform.client.workspaces.diff(name, { from: 1 })).counts.files).toBe(2);
    }
  });
}

for (const point of [
  'after-plan-rolling-back',
  'after-checkout-dropped',
  'before-plan-rolled-back',
  'after-plan-rolled-back',
]) {
  test(`C52: C46: a server killed at "${point}" of a rollback goes through with it`, async () => {
    const made = await planCase(platform.client);
    await killedAt(point, (client) => client.plans.rollBack(made.plan));
    await atRest(made, ['rolledBack']);
    for (const sandbox of made.sandboxes) {
      const again = await platform.client.sandboxes.connect(sandbox.id);
      expect((await again.exec('ls /src')).stdout).toBe('file\n');
    }
    expect(await headsOf(platform.client, made)).toEqual([1, 1]);
  });
}

for (const point of ['after-plan-restoring', 'after-plan-member-restored', 'before-plan-restored']) {
  test(`C59: a server killed at "${point}" of a restore: every member has the files of the checkpoint`, async () => {
    const made = await planCase(platform.client);
    const { id } = await platform.client.plans.checkpoint(made.plan);
    for (const sandbox of made.sandboxes) await sandbox.exec('echo later > /src/later');
    await killedAt(point, (client) => client.plans.restore(made.plan, id));
    await atRest(made, ['open']);
    for (const sandbox of made.sandboxes) {
      const again = await platform.client.sandboxes.connect(sandbox.id);
      expect((await again.exec('ls /src')).stdout).toBe('empty\nmine\n');
    }
  });
}

test('C52: C58: a server killed while it makes a checkpoint, and again while it recovers, leaves none and lets all go on', async () => {
  const made = await planCase(platform.client);
  await platform.restartServer('after-plan-members-paused=crash');
  await interrupted(platform.server, impatient(platform).plans.checkpoint(made.plan));
  await platform.startServer('after-plan-checkpoint-deleting=crash');
  await platform.server.died;
  await platform.startServer();
  await atRest(made, ['open']);
  await eventually(async () => expect(await platform.client.plans.checkpoints(made.plan)).toEqual([]));
});

test('C52: a recovery that is killed is recovered from', async () => {
  const made = await planCase(platform.client);
  await platform.restartServer('after-plan-rolling-back=crash');
  await interrupted(platform.server, impatient(platform).plans.rollBack(made.plan));
  await platform.startServer('after-plan-taken-over=crash');
  await platform.server.died;
  await platform.startServer();
  await atRest(made, ['rolledBack']);
});
