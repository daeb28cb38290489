import { expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import { newId } from '../protocol/index.ts';
import { SandboxLanes } from './sandbox-lanes.ts';

const sandboxId = newId('sandbox');

test('works of one sandbox run one at a time, in the order they arrived; others beside them', async () => {
  const lanes = new SandboxLanes();
  const order: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = lanes.run(sandboxId, async () => {
    order.push('first begins');
    await gate.promise;
    order.push('first ends');
  });
  const second = lanes.run(sandboxId, async () => order.push('second'));
  await lanes.run(newId('sandbox'), async () => order.push('beside'));
  expect(lanes.busy).toBe(1);
  gate.resolve();
  await Promise.all([first, second]);
  expect(order).toEqual(['first begins', 'beside', 'first ends', 'second']);
  expect(lanes.busy).toBe(0);
});

test('a sandbox is settled before the first who enters, in doubt before the next, and otherwise not', async () => {
  const lanes = new SandboxLanes();
  const settled: boolean[] = [];
  lanes.settleWith(async (_lane, { isInDoubt }) => void settled.push(isInDoubt));
  await lanes.run(sandboxId, async () => {});
  await lanes.run(sandboxId, async (lane) => lanes.doubt(lane));
  expect(lanes.doubtful).toEqual([sandboxId]);
  expect(lanes.isInDoubt(sandboxId)).toBe(true);
  await lanes.run(sandboxId, async () => expect(lanes.isInDoubt(sandboxId)).toBe(false));
  await lanes.run(sandboxId, async () => {});
  expect(settled).toEqual([false, true]);
});

test('one that was compared with all others is not settled again, one that is forgotten is', async () => {
  const lanes = new SandboxLanes();
  let settled = 0;
  lanes.settleWith(async () => void settled++);
  lanes.markCompared(sandboxId);
  await lanes.run(sandboxId, async () => {});
  expect(settled).toBe(0);
  await lanes.run(sandboxId, async (lane) => {
    lanes.doubt(lane);
    lanes.forget(lane);
  });
  expect(lanes.doubtful).toEqual([]);
  await lanes.run(sandboxId, async () => {});
  expect(settled).toBe(1);
});

test('while it cannot be settled nobody enters, and it stays in doubt; only a deletion passes', async () => {
  const lanes = new SandboxLanes();
  lanes.settleWith(() => Promise.reject(nodeAway()));
  lanes.markCompared(sandboxId);
  await lanes.run(sandboxId, async (lane) => lanes.doubt(lane));
  const work = async () => 'entered';
  await expect(lanes.run(sandboxId, work)).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(lanes.isInDoubt(sandboxId)).toBe(true);
  expect(await lanes.runUnsettled(sandboxId, work)).toBe('entered');
});

test('K7: an update in doubt is settled before the next one, and what comes late is refused by its version', async () => {
  await using rig = await ControlRig.open();
  const { id } = await rig.create();
  const late = rig.node.loseInFlight('applySettings');
  await expect(rig.patch(id, { a: 'late' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.patch(id, { b: '1' });
  await late.arrive();
  expect(rig.node.sandboxes.get(id)!.settings.metadata).toEqual({ b: '1' });
  expect((await rig.get(id)).metadata).toEqual({ b: '1' });
});

test('a node that fails with a bug of its own leaves the sandbox in doubt, not unchanged', async () => {
  await using rig = await ControlRig.open();
  const { id } = await rig.create();
  rig.node.fail('applySettings', { when: 'after', error: new Error('A bug.') });
  await expect(rig.patch(id, { a: '1' })).rejects.toThrow('A bug.');
  expect(await rig.patch(id, { b: '1' })).toEqual({ metadata: { a: '1', b: '1' }, version: 3 });
});

test('K17: a sandbox in doubt on a node that is away can be deleted', async () => {
  await using rig = await ControlRig.open();
  const { id } = await rig.create();
  rig.node.fail('applySettings', { when: 'after', error: lostAnswer() });
  await expect(rig.patch(id, { a: '1' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  rig.node.isAway = true;
  await rig.delete(id);
  expect((await rig.get(id)).state).toBe('deleting');
  rig.node.isAway = false;
  await rig.reconcile();
  expect(rig.node.sandboxes.size).toBe(0);
});
