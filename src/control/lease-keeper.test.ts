import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer, nodeAway } from '../../test/support/fake-node.ts';
import type { LeaseView, SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

const tokenOf = (lease: LeaseView) => lease.grants[0]!.token;
const onNode = (id: SandboxId) => rig.node.sandboxes.get(id)!.settings;

test('K31: several resources are one lease, all or nothing', async () => {
  const { id } = await rig.create();
  const both = await rig.acquire([id, 'name:a', id]);
  expect(both.grants).toEqual([
    { resource: id, token: 1 },
    { resource: 'name:a', token: 1 },
  ]);
  await expect(rig.acquire(['name:a'])).rejects.toMatchObject({ code: 'lease_held' });
  await rig.release(both.id);
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  await expect(rig.acquire(['name:a', id])).rejects.toMatchObject({ code: 'node_unavailable' });
  expect(tokenOf(await rig.acquire(['name:a']))).toBe(3);
  expect((await rig.events('lease.lost')).length).toBe(0);
});

test('K31: a lease on several resources that fails midway gives back what it had, when its node can be told', async () => {
  const [one, two] = [await rig.create(), await rig.create()];
  const gate = rig.faults.hold('before-acknowledge-lease');
  const acquiring = rig.acquire([one.id, two.id]);
  await gate.reached;
  // What was granted for one sandbox counts as held: reconcile does not take it away.
  expect((await rig.reconcile()).actions).toEqual([]);
  const transact = rig.store.transact.bind(rig.store);
  rig.store.transact = () => {
    rig.store.transact = transact;
    return Promise.reject(new Error('The disk is gone.'));
  };
  rig.node.fail('applySettings', { when: 'before', error: nodeAway() });
  gate.open();
  await expect(acquiring).rejects.toThrow('The disk is gone.');
  await rig.quiet();
  rig.clock.step(1_000);
  await rig.quiet();
  expect([onNode(one.id).leaseHeld, onNode(two.id).leaseHeld]).toEqual([false, false]);
  expect(tokenOf(await rig.acquire([one.id]))).toBe(2);
});

test('K31: overlapping sets in any order are all granted, one at a time: no deadlock, no second holder', async () => {
  const sets = fc.array(fc.uniqueArray(fc.constantFrom('name:a', 'name:b', 'name:c'), { minLength: 1, maxLength: 3 }), {
    minLength: 2,
    maxLength: 8,
  });
  await fc.assert(
    fc.asyncProperty(sets, async (wanted) => {
      const holders = new Map<string, string>();
      const take = async (resources: string[]) => {
        const lease = await rig.acquire(resources, { waitMs: 60_000 });
        for (const resource of resources) {
          expect(holders.get(resource)).toBeUndefined();
          holders.set(resource, lease.id);
        }
        await Promise.resolve();
        for (const resource of resources) holders.delete(resource);
        await rig.release(lease.id);
      };
      await Promise.all(wanted.map(take));
      expect(await rig.leases()).toEqual([]);
    }),
    { numRuns: 30 },
  );
});

test('K32: a jump of the time of day neither frees nor prolongs a lease', async () => {
  await rig.acquire(['name:a'], { ttlMs: 10_000 });
  rig.clock.jump(3600_000);
  rig.clock.step(9_999);
  await rig.quiet();
  expect(await rig.leases()).toMatchObject([{ endsInMs: 1 }]);
  rig.clock.jump(-7200_000);
  rig.clock.step(1);
  await rig.quiet();
  expect(await rig.leases()).toEqual([]);
});

test('K32: after a reboot a holder has a full term again', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 10_000 });
  rig.clock.step(9_000);
  await rig.reboot();
  expect(await rig.leases()).toMatchObject([{ id: lease.id, endsInMs: 10_000 }]);
  await rig.renew(lease);
  await rig.restart();
  rig.clock.step(9_999);
  await rig.quiet();
  expect(await rig.leases()).toMatchObject([{ endsInMs: 1 }]);
});

test('K33: after a crash the same holder goes on with the same token, and nobody else held it', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id, 'name:a'], { ttlMs: 10_000 });
  rig.clock.step(4_000);
  await rig.restart();
  expect(await rig.leases()).toMatchObject([{ id: lease.id, endsInMs: 6_000, holder: 'somebody' }]);
  await expect(rig.acquire([id])).rejects.toMatchObject({ code: 'lease_held' });
  await rig.reconcile();
  await rig.exec(id, { leaseToken: tokenOf(lease) });
  await rig.renew(lease);
  await rig.release(lease.id);
  expect(tokenOf(await rig.acquire([id]))).toBe(2);
});

test('K33: a term that passed while the server was down is over when it is back', async () => {
  const { id } = await rig.create();
  await rig.acquire([id], { ttlMs: 10_000 });
  await rig.crash();
  rig.clock.step(10_000);
  await rig.restart();
  rig.clock.step(0);
  expect(tokenOf(await rig.acquire([id], { waitMs: 60_000 }))).toBe(2);
});

test('K33: a grant on several resources that a crash cut short did not happen', async () => {
  const { id } = await rig.create();
  const gate = rig.faults.hold('before-acknowledge-lease');
  void rig.acquire([id, 'name:a']);
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
  await expect.poll(() => onNode(id).leaseHeld).toBe(false);
  await rig.quiet();
  expect(await rig.leases()).toEqual([]);
  expect(tokenOf(await rig.acquire([id]))).toBe(2);
  expect(tokenOf(await rig.acquire(['name:a']))).toBe(2);
  expect(await rig.events('lease.lost')).toEqual([]);
});

test('K33: a grant that the node has and the record has not is undone, and its token never given again', async () => {
  const { id } = await rig.create();
  const gate = rig.faults.hold('after-apply-settings');
  void rig.acquire([id]);
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
  expect(onNode(id)).toMatchObject({ leaseToken: 1, leaseHeld: true });
  // Stopped and started before anybody compared: the token must not get smaller on the node.
  await rig.stop(id);
  expect(await rig.start(id)).toMatchObject({ state: 'running', lease: null });
  expect(tokenOf(await rig.acquire([id]))).toBe(2);
});

test('K33: a release that the node has and the record has not is carried out after the crash', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id]);
  const gate = rig.faults.hold('after-apply-settings');
  void rig.release(lease.id);
  await gate.reached;
  await rig.crash();
  gate.open();
  await rig.restart();
  await rig.reconcile();
  await rig.quiet();
  expect(await rig.leases()).toEqual([]);
  await rig.exec(id);
  expect(await rig.events('lease.lost')).toHaveLength(1);
});

test.each(['before', 'after'] as const)('a grant whose answer is lost %s its effect is undone', async (when) => {
  const { id } = await rig.create();
  rig.node.fail('applySettings', { when, error: lostAnswer() });
  await expect(rig.acquire([id])).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.quiet();
  expect(onNode(id).leaseHeld).toBe(false);
  await rig.exec(id);
  expect(tokenOf(await rig.acquire([id]))).toBe(when === 'after' ? 2 : 1);
});

test('a grant on a node that is away is refused, and leaves the resource free', async () => {
  const { id } = await rig.create();
  rig.node.isAway = true;
  await expect(rig.acquire([id])).rejects.toMatchObject({ code: 'node_unavailable' });
  rig.node.isAway = false;
  expect(tokenOf(await rig.acquire([id]))).toBe(1);
});

test('a release on a node that is away is accepted, and carried out when it is back', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id], { ttlMs: 3600_000 });
  rig.node.isAway = true;
  await rig.release(lease.id);
  await expect(rig.renew(lease)).rejects.toMatchObject({ code: 'lease_not_found' });
  // Its token still counts there, so the resource is not free.
  await expect(rig.acquire([id])).rejects.toMatchObject({ code: 'lease_held' });
  rig.clock.step(1_000);
  await rig.quiet();
  rig.node.isAway = false;
  const next = rig.acquire([id], { waitMs: 60_000 });
  await rig.quiet();
  rig.clock.step(1_000);
  expect(tokenOf(await next)).toBe(2);
  expect((await rig.events('lease.released')).map((event) => event.data['token'])).toEqual([1]);
});

test('a release that could not be carried out before a crash is not taken back by it', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id], { ttlMs: 3600_000 });
  rig.node.isAway = true;
  await rig.release(lease.id);
  await rig.restart();
  rig.node.isAway = false;
  rig.clock.step(0);
  expect(tokenOf(await rig.acquire([id], { waitMs: 60_000 }))).toBe(2);
});

test.each([
  ['away', 'before', nodeAway],
  ['lost', 'after', lostAnswer],
] as const)(
  'a hand-over that fails (%s) ends the old lease all the same, and the one behind gets it',
  async (_, when, error) => {
    const { id } = await rig.create();
    const old = await rig.acquire([id], { holder: 'old' });
    const unlucky = rig.acquire([id], { waitMs: 60_000 });
    const next = rig.acquire([id], { holder: 'next', waitMs: 60_000 });
    unlucky.catch(() => {});
    await rig.quiet();
    rig.node.fail('applySettings', { when, error: error() });
    await rig.release(old.id);
    await expect(unlucky).rejects.toMatchObject({ code: error().code });
    const lease = await next;
    expect(onNode(id)).toMatchObject({ leaseToken: tokenOf(lease), leaseHeld: true });
    expect(await rig.leases()).toMatchObject([{ id: lease.id, holder: 'next' }]);
    const released = await rig.events('lease.released');
    expect(released.map((event) => event.data['holder'])).toEqual(['old']);
    const rows = await rig.store.read((tables) => tables.leases.listHeld());
    expect(rows.map((row) => row.holder?.leaseId)).toEqual([lease.id]);
  },
);

test('a sandbox that is deleted takes its lease along; who waited for it is told', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id, 'name:a']);
  const waiting = rig.acquire([id], { waitMs: 60_000 });
  waiting.catch(() => {});
  await rig.quiet();
  await rig.delete(id, { leaseToken: tokenOf(lease) });
  await expect(waiting).rejects.toMatchObject({ code: 'sandbox_not_found' });
  await rig.quiet();
  expect(await rig.leases()).toEqual([]);
  expect(tokenOf(await rig.acquire(['name:a']))).toBe(2);
  expect((await rig.events('lease.lost')).map((event) => event.data['resource'])).toEqual([id, 'name:a']);
});

test('a stopped sandbox can be leased: what it starts with carries the token', async () => {
  const { id } = await rig.create();
  await rig.stop(id);
  const lease = await rig.acquire([id]);
  await rig.start(id, { leaseToken: tokenOf(lease) });
  expect(onNode(id)).toMatchObject({ leaseToken: 1, leaseHeld: true });
  await rig.stop(id, { leaseToken: tokenOf(lease) });
  await rig.release(lease.id);
  await rig.start(id);
  expect(onNode(id)).toMatchObject({ leaseToken: 1, leaseHeld: false });
});

test('a sandbox in a transition cannot be leased, one that is being deleted is not there', async () => {
  const { id } = await rig.create();
  await rig.stop(id);
  rig.node.fail('startSandbox', { when: 'before', error: lostAnswer() });
  await expect(rig.start(id)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(rig.acquire([id])).rejects.toMatchObject({
    code: 'sandbox_wrong_state',
    details: { state: 'starting' },
  });
  rig.node.fail('deleteSandbox', { when: 'before', error: nodeAway() });
  await rig.delete(id);
  await rig.restart();
  rig.node.fail('deleteSandbox', { when: 'before', error: new Error('stuck') });
  await expect(rig.acquire([id])).rejects.toBeDefined();
});

test('a mark of a lease that nobody holds is taken off by reconcile, and who waited is let in', async () => {
  const { id } = await rig.create();
  await rig.acquire([id]);
  await rig.store.transact((tables) =>
    tables.leases.put({ teamId: rig.caller.teamId, resource: id, token: 1, holder: null }),
  );
  await rig.restart();
  const view = await rig.get(id);
  expect(view.lease).toBeNull();
  await expect(rig.exec(id)).rejects.toMatchObject({ code: 'lease_held', details: { holder: 'unknown' } });
  const waiting = rig.exec(id, { leaseWaitMs: 60_000 });
  await rig.quiet();
  expect((await rig.reconcile()).actions).toMatchObject([{ kind: 'release-lease' }]);
  await waiting;
  await rig.stop(id);
});

test('K50: requested, granted, released and lost are ordered events that name holder and token', async () => {
  const { id } = await rig.create();
  const first = await rig.acquire([id], { holder: 'first', reason: 'why' });
  const next = rig.acquire([id], { holder: 'second', waitMs: 60_000, ttlMs: 1_000 });
  await rig.quiet();
  await rig.release(first.id);
  const second = await next;
  rig.clock.step(1_000);
  await rig.quiet();
  const told = (await rig.events('lease.')).map(({ kind, data }) => [
    kind,
    data['holder'],
    data['token'],
    data['leaseId'],
  ]);
  expect(told).toEqual([
    ['lease.requested', 'first', null, first.id],
    ['lease.granted', 'first', 1, first.id],
    ['lease.requested', 'second', null, second.id],
    ['lease.released', 'first', 1, first.id],
    ['lease.granted', 'second', 2, second.id],
    ['lease.lost', 'second', 2, second.id],
  ]);
  const followed = await rig.control.events.list(rig.caller, { sandboxId: id, limit: 100 });
  expect(followed.items.filter((event) => event.kind.startsWith('lease.'))).toHaveLength(6);
});

test('a server that stops refuses who waits, and leaves no timer behind', async () => {
  await rig.acquire(['name:a']);
  const waiting = rig.acquire(['name:a'], { waitMs: 60_000 });
  waiting.catch(() => {});
  await rig.quiet();
  await rig.shutDown();
  await expect(waiting).rejects.toMatchObject({ code: 'shutting_down' });
  await expect(rig.acquire(['name:b'], { waitMs: 60_000 })).rejects.toMatchObject({ code: 'shutting_down' });
  expect(rig.clock.pendingTimers).toBe(0);
});

test('a server that stops while a node cannot be told of an end leaves no timer behind', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id]);
  rig.node.isAway = true;
  await rig.release(lease.id);
  await rig.shutDown();
  expect(rig.clock.pendingTimers).toBe(0);
});
