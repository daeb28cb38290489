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
import { headsOf, type PlannedCase, planCase, planOf } from '../support/plan-cases.ts';
import { DiedAtStart, Platform } from '../support/platform.ts';
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

test(
  'C32: C35: C51: a server killed at any step before the decision has moved nothing, and a new commit succeeds',
  async () => {
    const made = await planCase(platform.client);
    for (const point of [
      ...['after-plan-committing', 'after-plan-leases', 'after-collect-checkpoint', 'after-plan-collected'],
      ...['after-version-held', 'after-plan-combined', 'before-plan-decision'],
    ]) {
      const commitId = newId('planCommit');
      await killedAt(point, (client) => client.plans.commit(made.plan, { commitId }));
      await atRest(made, ['open']);
      expect(await headsOf(platform.client, made), point).toEqual([1, 1]);
      const again = await untilAnswered(() => platform.client.plans.commit(made.plan, { commitId }));
      expect(again, point).toMatchObject({ state: 'aborted', error: { code: 'plan_interrupted' }, retryable: true });
    }
    expect((await platform.client.plans.commit(made.plan, { waitMs: 30_000 })).state).toBe('committed');
    expect(await headsOf(platform.client, made)).toEqual([2, 2]);
  },
  { timeout: 180_000 },
);

test(
  'C32: C33: C35: a server killed at any step from the decision on has moved everything, once',
  async () => {
    let made = await planCase(platform.client);
    let head = 1;
    for (const point of ['after-plan-decision', 'after-plan-lease-ended', 'after-plan-released']) {
      const commitId = newId('planCommit');
      await killedAt(point, (client) => client.plans.commit(made.plan, { commitId }));
      const result = await untilAnswered(() => platform.client.plans.commit(made.plan, { commitId }));
      expect(result.state, point).toBe('committed');
      await atRest(made, ['committed']);
      head++;
      expect(await headsOf(platform.client, made), point).toEqual([head, head]);
      made = { ...made, plan: await planOf(platform.client, made.sandboxes) };
    }
  },
  { timeout: 120_000 },
);

test(
  'C52: C46: a server killed at any step of a rollback goes through with it',
  async () => {
    let made = await planCase(platform.client);
    for (const point of [
      ...['after-plan-rolling-back', 'after-checkout-dropped', 'before-plan-rolled-back', 'after-plan-rolled-back'],
    ]) {
      await killedAt(point, (client) => client.plans.rollBack(made.plan));
      await atRest(made, ['rolledBack']);
      for (const { id } of made.sandboxes) {
        const sandbox = await platform.client.sandboxes.connect(id);
        expect((await sandbox.exec('ls /src')).stdout, point).toBe('file\n');
      }
      expect(await headsOf(platform.client, made)).toEqual([1, 1]);
      made = { ...made, plan: await planOf(platform.client, made.sandboxes) };
    }
  },
  { timeout: 120_000 },
);

test(
  'C59: a server killed at any step of a restore: every member has the files of the checkpoint',
  async () => {
    const made = await planCase(platform.client);
    const { id: checkpointId } = await platform.client.plans.checkpoint(made.plan);
    for (const point of ['after-plan-restoring', 'after-plan-member-restored', 'before-plan-restored']) {
      for (const { id } of made.sandboxes) {
        await (await platform.client.sandboxes.connect(id)).exec('echo later > /src/later');
      }
      await killedAt(point, (client) => client.plans.restore(made.plan, checkpointId));
      await atRest(made, ['open']);
      for (const { id } of made.sandboxes) {
        const sandbox = await platform.client.sandboxes.connect(id);
        expect((await sandbox.exec('ls /src')).stdout, point).toBe('empty\nmine\n');
      }
    }
  },
  { timeout: 120_000 },
);

test('C52: C58: a server killed while it makes a checkpoint, and again while it recovers, leaves none and lets all go on', async () => {
  const made = await planCase(platform.client);
  await platform.restartServer('after-plan-members-paused=crash');
  await interrupted(platform.server, impatient(platform).plans.checkpoint(made.plan));
  await diesAtStart('after-plan-checkpoint-deleting');
  await platform.startServer();
  await atRest(made, ['open']);
  await eventually(async () => expect(await platform.client.plans.checkpoints(made.plan)).toEqual([]));
});

test('C52: a recovery that is killed is recovered from', async () => {
  const made = await planCase(platform.client);
  await platform.restartServer('after-plan-rolling-back=crash');
  await interrupted(platform.server, impatient(platform).plans.rollBack(made.plan));
  for (const point of ['after-plan-fence-given', 'after-plan-taken-over']) await diesAtStart(point);
  await platform.startServer();
  await atRest(made, ['rolledBack']);
});

/** Recovery is what a server begins with: it dies over it, before it serves or just after. */
async function diesAtStart(point: string): Promise<void> {
  try {
    await platform.startServer(`${point}=crash`);
    await platform.server.died;
  } catch (error) {
    if (!(error instanceof DiedAtStart)) throw error;
  }
}
