/** Checkpoint, restore, fork, pause and resume at gates: what races them, what fails, what dies. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import { type CheckpointId, isPlatformError, routes, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

/** Both sides show this map, and nothing is left to settle. */
async function expectMap(sandboxId: SandboxId, metadata: Record<string, string>): Promise<void> {
  expect((await rig.get(sandboxId)).metadata).toEqual(metadata);
  expect(rig.node.sandboxes.get(sandboxId)!.settings.metadata).toEqual(metadata);
  expect((await rig.reconcile({ dryRun: true })).actions).toEqual([]);
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (error: unknown) => (isPlatformError(error) ? error.code : String(error)),
  );

// ---- K9: a patch races each of them, and is neither lost nor reverted

test('K9: a patch that races a checkpoint holds, and the checkpoint has the map of its instant', async () => {
  const { id } = await rig.create({ metadata: { step: '1' } });
  const gate = rig.node.hold('checkpoint');
  const making = rig.checkpoint(id);
  await gate.reached;
  const patching = rig.patch(id, { step: '2' });
  await rig.quiet();
  gate.open();
  const [checkpoint] = await Promise.all([making, patching]);
  expect(checkpoint.metadata).toEqual({ step: '1' });
  expect(rig.node.branches.checkpoints.get(checkpoint.id)!.metadata).toEqual({ step: '1' });
  await expectMap(id, { step: '2' });
});

test('K9: a patch that races a pause, and one while it is paused, are there when it is resumed', async () => {
  const { id } = await rig.create({ metadata: { step: '1' } });
  const pauseGate = rig.node.hold('pause');
  const pausing = rig.pause(id);
  await pauseGate.reached;
  const racing = rig.patch(id, { step: '2' });
  pauseGate.open();
  await Promise.all([pausing, racing]);
  await expectMap(id, { step: '2' });
  await rig.patch(id, { during: 'pause' });

  const resumeGate = rig.node.hold('resume');
  const resuming = rig.resume(id);
  await resumeGate.reached;
  const late = rig.patch(id, { step: '3' });
  resumeGate.open();
  await Promise.all([resuming, late]);

  await expectMap(id, { step: '3', during: 'pause' });
});

for (const mode of ['memory', 'files'] as const) {
  test(`K9: K10: what a ${mode} pause resumes with is the live map, in place before it is running`, async () => {
    const { id } = await rig.create({ metadata: { step: '1' } });
    await rig.pause(id, {}, mode);
    await rig.patch(id, { step: '2' });
    const resumed = mode === 'memory' ? 'resume' : 'startSandbox';
    const gate = rig.node.hold(resumed);
    const resuming = rig.resume(id);
    await gate.reached;
    expect((await rig.get(id)).state).toBe('resuming');
    expect(await codeOf(rig.exec(id))).toBe('sandbox_paused');
    gate.open();
    await resuming;
    await expectMap(id, { step: '2' });
  });
}

test('K9: a restore does not take the metadata back, nor a patch that races it', async () => {
  const { id } = await rig.create({ metadata: { step: '1' } });
  const checkpoint = await rig.checkpoint(id);
  await rig.patch(id, { step: '2' });
  const gate = rig.node.hold('restore');
  const restoring = rig.restore(id, checkpoint.id);
  await gate.reached;
  const racing = rig.patch(id, { raced: 'yes' });
  gate.open();
  await Promise.all([restoring, racing]);
  expect(rig.node.branches.files.get(id)).toBe(checkpoint.id);
  await expectMap(id, { step: '2', raced: 'yes' });
});

test('K9: K11: a patch that races a fork holds for the source; forks have the map of the instant, or the one given', async () => {
  const { id } = await rig.create({ metadata: { step: '1' } });
  const gate = rig.node.hold('createSandbox');
  const forking = rig.fork(id, { count: 2 });
  await gate.reached;
  await rig.patch(id, { step: '2' });
  gate.open();
  const { items } = await forking;
  expect(items.map(({ sandbox }) => sandbox?.metadata)).toEqual([{ step: '1' }, { step: '1' }]);
  await expectMap(id, { step: '2' });
  const given = await rig.fork(id, { metadata: { own: 'map' } });
  expect(given.items[0]!.sandbox!.metadata).toEqual({ own: 'map' });
  const checkpoint = await rig.checkpoint(id);
  expect((await rig.create({ checkpoint: checkpoint.id })).metadata).toEqual({ step: '2' });
  expect((await rig.create({ checkpoint: checkpoint.id, metadata: {} })).metadata).toEqual({});
});

// ---- K16, K17, K18, K39

test('K16: two pauses and two resumes at once have one effect and the same answer', async () => {
  const { id } = await rig.create();
  const [one, two] = await Promise.all([rig.pause(id), rig.pause(id)]);
  expect(one).toEqual(two);
  const [three, four] = await Promise.all([rig.resume(id), rig.resume(id)]);
  expect(three).toEqual(four);
  expect(rig.node.calls.filter((call) => call === 'pause' || call === 'resume')).toEqual(['pause', 'resume']);
});

for (const [call, begin] of [
  ['pause', (id: SandboxId) => rig.pause(id)],
  ['checkpoint', (id: SandboxId) => rig.checkpoint(id)],
] as const) {
  test(`K17: a sandbox can be deleted while its ${call} is on the way, and nothing comes back`, async () => {
    const { id } = await rig.create();
    const gate = rig.node.hold(call);
    const working = codeOf(begin(id));
    await gate.reached;
    const deleting = rig.delete(id);
    gate.open();
    await Promise.all([working, deleting]);
    expect(await codeOf(rig.get(id))).toBe('sandbox_not_found');
    await rig.reconcile();
    expect(rig.node.sandboxes.size).toBe(0);
  });
}

test('K17: a paused sandbox can be stopped and deleted', async () => {
  const { id } = await rig.create();
  await rig.pause(id);
  expect((await rig.stop(id)).state).toBe('stopped');
  const other = await rig.create();
  await rig.pause(other.id, {}, 'files');
  await rig.delete(other.id);
  expect([...rig.node.sandboxes.keys()]).toEqual([id]);
});

test('K39: a pause or checkpoint that the node refuses leaves a running sandbox with its deadline, and no checkpoint', async () => {
  const { id, expiresAt } = await rig.create({ expiresInMs: 3600_000 });
  rig.node.fail('pause', { when: 'before', error: nodeAway() });
  expect(await codeOf(rig.pause(id))).toBe('node_unavailable');
  expect(await rig.get(id)).toMatchObject({ state: 'running', expiresAt });
  rig.node.fail('checkpoint', { when: 'before', error: nodeAway() });
  expect(await codeOf(rig.checkpoint(id))).toBe('node_unavailable');
  const query = { limit: 10 };
  expect((await rig.control.checkpoints.list(rig.caller, query)).items).toEqual([]);
  expect((await rig.exec(id)).exitCode).toBe(0);
});

const transitions = [
  ['pause', 'running', 'paused'],
  ['resume', 'paused', 'running'],
  ['restore', 'running', 'running'],
] as const;
for (const [call, before, after] of transitions) {
  for (const when of ['before', 'after'] as const) {
    test(`K18: a ${call} whose answer is lost ${when} it took effect is settled, one way or the other`, async () => {
      const { id } = await rig.create();
      const { id: checkpointId } = await rig.checkpoint(id);
      if (before === 'paused') await rig.pause(id);
      rig.node.fail(call, { when, error: lostAnswer() });
      const work = {
        pause: () => rig.pause(id),
        resume: () => rig.resume(id),
        restore: () => rig.restore(id, checkpointId),
      };
      expect(await codeOf(work[call]())).toBe('outcome_unknown');
      await rig.reconcile();
      expect((await rig.get(id)).state).toBe(after);
      await rig.patch(id, { still: 'works' });
      expect((await rig.reconcile({ dryRun: true })).actions).toEqual([]);
    });
  }

  test(`K18: a ${call} that the node refuses when it is finished after a crash goes back to "${before}"`, async () => {
    const { id } = await rig.create({ expiresInMs: 3600_000 });
    const { id: checkpointId } = await rig.checkpoint(id);
    if (before === 'paused') await rig.pause(id);
    const gate = rig.faults.hold(
      { pause: 'after-store-pausing', resume: 'after-store-resuming', restore: 'after-store-restoring' }[call],
    );
    const work = {
      pause: () => rig.pause(id),
      resume: () => rig.resume(id),
      restore: () => rig.restore(id, checkpointId),
    };
    void work[call]().catch(() => {});
    await gate.reached;
    await rig.crash();
    gate.open();
    await rig.restart();
    rig.clock.step(120_000);
    rig.node.fail(call, { when: 'before', error: nodeAway() });
    await rig.reconcile();
    await rig.reconcile();
    expect(await rig.get(id)).toMatchObject({ state: before, generation: 1 });
    await rig.patch(id, { still: 'works' });
    expect((await rig.reconcile({ dryRun: true })).actions).toEqual([]);
  });
}

test('K35: a restore that is refused leaves the life and the files that were there', async () => {
  const { id } = await rig.create({ expiresInMs: 3600_000 });
  const before = await rig.get(id);
  const { id: checkpointId } = await rig.checkpoint(id);
  rig.node.branches.checkpoints.clear();
  expect(await codeOf(rig.restore(id, checkpointId))).toBe('checkpoint_not_found');
  const { state, generation, expiresAt } = await rig.get(id);
  expect({ state, generation, expiresAt }).toEqual({ state: 'running', generation: 1, expiresAt: before.expiresAt });
  expect(rig.node.branches.files.has(id)).toBe(false);
});

// ---- K22, K36, K40, K45

test('K36: a checkpoint that something is made from is deleted when that is done, and not before', async () => {
  const { id } = await rig.create();
  const checkpoint = await rig.checkpoint(id);
  const gate = rig.node.hold('createSandbox');
  const creating = rig.create({ checkpoint: checkpoint.id });
  await gate.reached;
  const deleting = rig.control.checkpoints.delete(rig.caller, checkpoint.id, {});
  await rig.quiet();
  expect(rig.node.calls).not.toContain('removeCheckpoint');
  gate.open();
  const made = await creating;
  await deleting;
  expect(rig.node.branches.files.get(made.id)).toBe(checkpoint.id);
  expect(rig.node.branches.checkpoints.size).toBe(0);
  expect(await codeOf(rig.create({ checkpoint: checkpoint.id }))).toBe('checkpoint_not_found');
});

for (const point of [
  'after-journal-operation',
  'after-store-checkpoint',
  'after-checkpoint-on-node',
  'before-store-answer',
]) {
  test(`K22: K40: a checkpoint cut off at "${point}" is one when it is asked for again, and none is left over when not`, async () => {
    const { id } = await rig.create();
    const conditions = { idempotencyKey: 'once' };
    await dieAt(point, () => rig.checkpoint(id, conditions));
    const checkpoint = await rig.checkpoint(id, conditions);
    expect(await rig.checkpoint(id, conditions)).toEqual(checkpoint);
    expect([...rig.node.branches.checkpoints.keys()]).toEqual([checkpoint.id]);

    await dieAt(point, () => rig.checkpoint(id, { idempotencyKey: 'never again' }));
    rig.clock.step(120_000);
    await rig.reconcile();
    const { items } = await rig.control.checkpoints.list(rig.caller, { limit: 10 });
    expect(items.every(({ state }) => state === 'ready')).toBe(true);
    expect(new Set(items.map((item) => item.id))).toEqual(new Set(rig.node.branches.checkpoints.keys()));
  });
}

for (const point of [
  ...['after-store-checkpoint', 'after-fork-checkpoint', 'after-create-on-node', 'after-forks-made'],
  'after-store-checkpoint-deleting',
]) {
  test(`K22: K40: a fork cut off at "${point}" makes each fork once, and its checkpoint goes away`, async () => {
    const { id } = await rig.create();
    const conditions = { idempotencyKey: 'once' };
    await dieAt(point, () => rig.fork(id, { count: 3 }, conditions));
    const { items } = await rig.fork(id, { count: 3 }, conditions);
    expect(items.map(({ error }) => error)).toEqual([null, null, null]);
    expect(rig.node.sandboxes.size).toBe(4);
    await rig.control.checkpoints.removalsDone();
    expect(rig.node.branches.checkpoints.size).toBe(0);

    await dieAt(point, () => rig.fork(id, {}, { idempotencyKey: 'never again' }));
    rig.clock.step(3600_000);
    await rig.reconcile();
    expect(rig.node.branches.checkpoints.size).toBe(0);
  });
}

test('K37: a fork that cannot be made says why, and the others are made', async () => {
  const { id } = await rig.create();
  rig.node.fail('createSandbox', { when: 'before', error: nodeAway() });
  const { items } = await rig.fork(id, { count: 3 });
  expect(items.map(({ error }) => error?.code ?? 'made').sort()).toEqual(['made', 'made', 'node_unavailable']);
  expect(rig.node.sandboxes.size).toBe(3);
});

test('K45: a checkpoint that its node lost is marked, one without a record is removed when it is old', async () => {
  const { id } = await rig.create();
  const lost = await rig.checkpoint(id);
  rig.node.branches.checkpoints.clear();
  const stray = `chk${'s'.repeat(20)}` as CheckpointId;
  rig.node.branches.checkpoints.set(stray, {
    ...{ checkpointId: stray, sandboxId: id, generation: 1, templateId: 'host', metadata: {}, metadataVersion: 1 },
    ...{ spec: rig.node.sandboxes.get(id)!.spec, createdAtMs: 1, sizeBytes: 1, frozenMs: 0 },
  });
  const { checkpoints } = await rig.reconcile();
  expect(checkpoints.map(({ kind }) => kind).sort()).toEqual(['lose-checkpoint', 'remove-checkpoint']);
  expect(rig.node.branches.checkpoints.size).toBe(0);
  expect(await rig.control.checkpoints.get(rig.caller, lost.id)).toMatchObject({ state: 'lost' });
  expect(await codeOf(rig.restore(id, lost.id))).toBe('checkpoint_not_usable');
});

// ---- deadlines, traffic, disks

test('the deadline waits while it is paused; K13: what its deadline has paused is told, and resumed with five minutes', async () => {
  const { id } = await rig.create({ expiresInMs: 60_000, onExpiry: 'pause' });
  await rig.pause(id);
  rig.clock.step(3600_000);
  const resumed = await rig.resume(id);
  expect(Date.parse(resumed.expiresAt!) - rig.clock.nowMs()).toBe(60_000);
  rig.node.pauseAtDeadline(id, rig.clock.nowMs() + 60_000);
  await expect.poll(async () => (await rig.get(id)).state, { timeout: 10_000 }).toBe('paused');
  expect(await rig.events('sandbox.paused')).toMatchObject([
    { data: { reason: 'requested' } },
    { data: { reason: 'expired' } },
  ]);
  const again = await rig.resume(id);
  expect(Date.parse(again.expiresAt!) - rig.clock.nowMs()).toBe(300_000);
  expect(Date.parse((await rig.pause(id).then(() => rig.resume(id, {}, { expiresInMs: 5_000 }))).expiresAt!)).toBe(
    rig.clock.nowMs() + 5_000,
  );
});

test('traffic resumes a sandbox once where that is set, and not past its lease', async () => {
  const { id } = await rig.create({ autoResume: true });
  await rig.pause(id);
  await Promise.all([rig.exec(id), rig.exec(id), rig.exec(id)]);
  expect(rig.node.calls.filter((call) => call === 'resume')).toHaveLength(1);
  await rig.pause(id);
  const lease = await rig.acquire([id]);
  expect(await codeOf(rig.exec(id))).toBe('lease_held');
  expect((await rig.get(id)).state).toBe('paused');
  expect((await rig.exec(id, { leaseToken: lease.grants[0]!.token })).exitCode).toBe(0);
});

test('a token of one sandbox does not get at the files of another through checkpoints, and makes no forks', async () => {
  const [own, other] = [await rig.create(), await rig.create()];
  const [mine, foreign] = [await rig.checkpoint(own.id), await rig.checkpoint(other.id)];
  const token = { ...rig.caller, sandboxId: own.id };
  const restore = (checkpoint: CheckpointId) => rig.control.restores.restore(token, own.id, {}, { checkpoint });
  expect(await codeOf(restore(foreign.id))).toBe('checkpoint_not_found');
  expect((await restore(mine.id)).generation).toBe(2);
  const body = routes.forkSandbox.body.parse({});
  expect(await codeOf(rig.control.forks.fork(token, own.id, {}, body))).toBe('forbidden');
});

test('a team takes no more on disks than it may', async () => {
  const { caller } = rig;
  await rig.control.who.updateTeam(caller, {}, caller.teamId, { diskBytes: 100 * 2 ** 20 });
  const { id } = await rig.create({ limits: { diskBytes: 64 * 2 ** 20 } });
  expect(await codeOf(rig.create({ limits: { diskBytes: 64 * 2 ** 20 } }))).toBe('limit_exceeded');
  await rig.checkpoint(id);
  await rig.create({ limits: { diskBytes: 32 * 2 ** 20 } });
  await rig.control.who.updateTeam(caller, {}, caller.teamId, { diskBytes: 96 * 2 ** 20 });
  expect(await codeOf(rig.checkpoint(id))).toBe('limit_exceeded');
  expect(await codeOf(rig.fork(id))).toBe('limit_exceeded');
});

/** The server dies at this point of the work, and is started again. */
async function dieAt(point: string, work: () => Promise<unknown>): Promise<void> {
  const gate = rig.faults.hold(point);
  void work().catch(() => {});
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
}
