import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { type LeaseView, leaseLimits, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

const tokenOf = (lease: LeaseView) => lease.grants[0]!.token;
const onNode = (id: SandboxId) => rig.node.sandboxes.get(id)!.settings;

test('K25: a lease is acquired, listed with holder, reason and age, renewed and released', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id], { holder: 'me', reason: 'a deployment', ttlMs: 10_000 });
  expect(lease).toMatchObject({ holder: 'me', reason: 'a deployment', endsInMs: 10_000, keyId: rig.caller.keyId });
  expect(lease.grants).toEqual([{ resource: id, token: 1 }]);
  expect(onNode(id)).toMatchObject({ leaseToken: 1, leaseHeld: true });
  expect(await rig.get(id)).toMatchObject({ lease: { holder: 'me', reason: 'a deployment', token: 1 } });
  rig.clock.step(4_000);
  expect(await rig.leases()).toEqual([{ ...lease, endsInMs: 6_000, waiting: 0 }]);
  expect(await rig.leases({ resource: 'name:other' })).toEqual([]);
  expect(await rig.renew(lease)).toMatchObject({ endsInMs: 10_000 });
  expect(await rig.renew(lease, { ttlMs: 20_000 })).toMatchObject({ endsInMs: 20_000, ttlMs: 20_000 });
  await rig.release(lease.id);
  await rig.release(lease.id);
  expect(await rig.leases()).toEqual([]);
  expect(onNode(id)).toMatchObject({ leaseToken: 1, leaseHeld: false });
  expect(await rig.get(id)).toMatchObject({ lease: null });
  await expect(rig.renew(lease)).rejects.toMatchObject({ code: 'lease_not_found' });
});

test('K25: tokens grow by one per grant, of sandboxes and of names, each on its own', async () => {
  const { id } = await rig.create();
  for (const resource of [id, 'name:deploy']) {
    for (const token of [1, 2, 3]) {
      const lease = await rig.acquire([resource]);
      expect(tokenOf(lease)).toBe(token);
      await rig.release(lease.id);
    }
  }
});

test('K25: without patience a held resource is refused at once with the holder named; with it, after the wait', async () => {
  const { id } = await rig.create();
  await rig.acquire([id], { holder: 'first', reason: 'why' });
  await expect(rig.acquire([id])).rejects.toMatchObject({
    code: 'lease_held',
    details: { resource: id, holder: 'first', reason: 'why' },
  });
  const waiting = rig.acquire([id], { waitMs: 5_000 });
  await rig.quiet();
  expect((await rig.leases())[0]).toMatchObject({ waiting: 1 });
  rig.clock.step(5_000);
  await expect(waiting).rejects.toMatchObject({ code: 'lease_wait_timeout', details: { holder: 'first' } });
  expect((await rig.leases())[0]).toMatchObject({ waiting: 0 });
});

test('a grant is effective only when the node has it, and nobody else gets it meanwhile', async () => {
  const { id } = await rig.create();
  const gate = rig.node.hold('applySettings');
  const acquiring = rig.acquire([id]);
  await gate.reached;
  expect(await rig.leases({ resource: id })).toEqual([]);
  await expect(rig.acquire([id])).rejects.toMatchObject({ code: 'lease_held', details: {} });
  gate.open();
  const lease = await acquiring;
  expect(onNode(id).leaseToken).toBe(tokenOf(lease));
});

test('leases belong to a team, and so do names', async () => {
  const lease = await rig.acquire(['name:deploy']);
  const other = {
    ...rig.caller,
    teamId: (await rig.control.who.createTeam(rig.caller, {}, { name: 'b', diskBytes: null })).id,
  };
  const body = { resources: ['name:deploy'], holder: 'them', reason: '', ttlMs: 1_000, waitMs: 0 };
  await rig.control.leases.acquire(other, {}, body);
  await expect(rig.control.leases.renew(other, lease.id, {}, {})).rejects.toMatchObject({ code: 'lease_not_found' });
  await rig.control.leases.release(other, lease.id, {});
  expect(await rig.leases()).toHaveLength(1);
  const { id } = await rig.create();
  await expect(rig.control.leases.acquire(other, {}, { ...body, resources: [id] })).rejects.toMatchObject({
    code: 'sandbox_not_found',
  });
});

test('K26: while held, effects without the token are refused with the holder named, and reads pass', async () => {
  const { id } = await rig.create();
  const { grants } = await rig.acquire([id], { holder: 'me' });
  const held = { code: 'lease_held', details: { holder: 'me', token: 1 } };
  await expect(rig.exec(id)).rejects.toMatchObject(held);
  await expect(rig.patch(id, { a: '1' })).rejects.toMatchObject(held);
  await expect(rig.stop(id)).rejects.toMatchObject(held);
  await expect(rig.start(id)).rejects.toMatchObject(held);
  await expect(rig.delete(id)).rejects.toMatchObject(held);
  await expect(rig.exec(id, { leaseToken: 7 })).rejects.toMatchObject({
    code: 'lease_lost',
    details: { currentToken: 1, held: true },
  });
  expect(await rig.get(id)).toMatchObject({ state: 'running', metadata: {} });
  await rig.control.metadata.get(rig.caller, id);
  const leaseToken = grants[0]!.token;
  await rig.exec(id, { leaseToken });
  await rig.patch(id, { a: '1' }, { leaseToken });
  await rig.stop(id, { leaseToken });
  await rig.start(id, { leaseToken });
  expect(rig.node.execs.map((order) => order.leaseToken)).toEqual([1]);
});

test('K26: a forced delete passes, and is logged with the lease it passed over', async () => {
  const { id } = await rig.create();
  await rig.acquire([id], { holder: 'me' });
  await rig.delete(id, {}, { force: true });
  const [deleting] = await rig.events('sandbox.deleting');
  expect(deleting!.data).toMatchObject({ by: rig.caller.keyId, forcedOverLease: 1 });
  await rig.quiet();
  expect(await rig.leases()).toEqual([]);
  expect((await rig.events('lease.')).map((event) => event.kind)).toEqual([
    'lease.requested',
    'lease.granted',
    'lease.lost',
  ]);
});

test('K26: who asked to wait is let in when the lease ends, and refused when the time is over', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id]);
  const waiting = rig.exec(id, { leaseWaitMs: 10_000 });
  const impatient = rig.exec(id, { leaseWaitMs: 1_000 });
  impatient.catch(() => {});
  await rig.quiet();
  rig.clock.step(1_000);
  await expect(impatient).rejects.toMatchObject({ code: 'lease_held' });
  await rig.release(lease.id);
  expect(await waiting).toMatchObject({ exitCode: 0 });
});

test('K26: who waits is not let in when the lease goes to the next in line', async () => {
  const { id } = await rig.create();
  const lease = await rig.acquire([id]);
  const waiting = rig.exec(id, { leaseWaitMs: 60_000 });
  const next = rig.acquire([id], { waitMs: 60_000 });
  await rig.quiet();
  await rig.release(lease.id);
  const second = await next;
  await rig.quiet();
  expect(rig.node.execs).toHaveLength(0);
  await rig.release(second.id);
  await waiting;
});

test('K26: a lease granted while a command was on its way refuses it at the node, and it waits if it may', async () => {
  const { id } = await rig.create();
  const gate = rig.faults.hold('before-exec-on-node');
  const refused = rig.exec(id);
  const waiting = rig.exec(id, { leaseWaitMs: 60_000 });
  await gate.reached;
  const lease = await rig.acquire([id]);
  gate.open();
  await expect(refused).rejects.toMatchObject({ code: 'lease_held' });
  await rig.release(lease.id);
  await waiting;
});

test('K27: a holder that dies loses the lease after its term, and a waiter gets it at once then', async () => {
  const { id } = await rig.create();
  const lost = await rig.acquire([id], { ttlMs: 10_000 });
  const next = rig.acquire([id], { waitMs: 60_000 });
  await rig.quiet();
  rig.clock.step(9_999);
  await rig.quiet();
  expect(onNode(id).leaseToken).toBe(1);
  await rig.renew(lost);
  rig.clock.step(9_999);
  await rig.quiet();
  expect(onNode(id).leaseToken).toBe(1);
  rig.clock.step(1);
  expect(tokenOf(await next)).toBe(2);
  await expect(rig.renew(lost)).rejects.toMatchObject({ code: 'lease_not_found' });
});

test('K27: a term that is over cannot be renewed, even before it is ended', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 1_000 });
  await rig.crash();
  rig.clock.step(2_000);
  await rig.restart();
  await expect(rig.renew(lease)).rejects.toMatchObject({ code: 'lease_not_found' });
  rig.clock.step(0);
  await expect.poll(() => rig.leases()).toEqual([]);
});

test('K28: a lease bound to a connection is renewed while it lives', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 9_000 });
  const connection = new AbortController();
  const views = rig.control.leases.hold(rig.caller, lease.id, connection.signal)[Symbol.asyncIterator]();
  await views.next();
  for (let third = 0; third < 6; third++) {
    const next = views.next();
    await rig.quiet();
    rig.clock.step(3_000);
    expect((await next).value).toMatchObject({ id: lease.id, endsInMs: 9_000 });
  }
  connection.abort();
  await views.next();
  expect(await rig.leases({ resource: 'name:a' })).toHaveLength(1);
});

/** Opens a connection that holds the lease, and answers when it does. */
async function connect(lease: LeaseView) {
  const connection = new AbortController();
  const views = rig.control.leases.hold(rig.caller, lease.id, connection.signal)[Symbol.asyncIterator]();
  await views.next();
  const rest = views.next();
  return {
    ended: rest.then(({ done }) => done),
    drop: async () => {
      connection.abort();
      await rest;
    },
  };
}

test('K28: a connection that drops leaves a short grace, and then the lease is freed', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 60_000 });
  const connection = await connect(lease);
  await connection.drop();
  expect(await rig.leases()).toMatchObject([{ endsInMs: 5_000 }]);
  const next = rig.acquire(['name:a'], { waitMs: 60_000 });
  await rig.quiet();
  rig.clock.step(5_000);
  expect(tokenOf(await next)).toBe(2);
});

test('K28: who comes back within the grace keeps the lease and its token', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 60_000 });
  await (await connect(lease)).drop();
  rig.clock.step(4_000);
  await connect(lease);
  rig.clock.step(10_000);
  expect(await rig.leases()).toMatchObject([{ id: lease.id, grants: lease.grants }]);
});

test('K28: of two connections the last one to drop leaves the grace', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 60_000 });
  const first = await connect(lease);
  const second = await connect(lease);
  // A renewal beside them does not end them either.
  await rig.renew(lease);
  await first.drop();
  expect(await rig.leases()).toMatchObject([{ endsInMs: 60_000 }]);
  await second.drop();
  expect(await rig.leases()).toMatchObject([{ endsInMs: 5_000 }]);
});

test('K28: a connection hears at once that its lease has ended', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 60_000 });
  const connection = await connect(lease);
  await rig.release(lease.id);
  expect(await connection.ended).toBe(true);
  await expect(connect(lease)).rejects.toMatchObject({ code: 'lease_not_found' });
});

test('K28: a server that stops leaves the holder its whole term', async () => {
  const lease = await rig.acquire(['name:a'], { ttlMs: 60_000 });
  const connection = await connect(lease);
  await rig.shutDown();
  expect(await connection.ended).toBe(true);
  await rig.restart();
  expect(await rig.leases()).toMatchObject([{ id: lease.id, endsInMs: 60_000 }]);
});

test('K29: a holder that wakes up late is refused at the node, though control was passed', async () => {
  const { id } = await rig.create();
  const old = await rig.acquire([id], { ttlMs: 1_000 });
  const gate = rig.faults.hold('before-exec-on-node');
  const late = rig.exec(id, { leaseToken: tokenOf(old) });
  await gate.reached;
  const next = rig.acquire([id], { waitMs: 60_000 });
  await rig.quiet();
  rig.clock.step(1_000);
  await next;
  gate.open();
  await expect(late).rejects.toMatchObject({ code: 'lease_lost' });
  expect(rig.node.execs).toHaveLength(0);
});

test('K30: waiters are served in order; one that gives up or dies delays nobody', async () => {
  const { id } = await rig.create();
  const first = await rig.acquire([id]);
  const order: string[] = [];
  const caller = new AbortController();
  const wait = (holder: string, waitMs: number, signal?: AbortSignal) =>
    rig.acquire([id], { holder, waitMs }, signal).then((lease) => {
      order.push(holder);
      return lease;
    });
  const a = wait('a', 60_000);
  const impatient = wait('impatient', 1_000);
  const dead = wait('dead', 60_000, caller.signal);
  const b = wait('b', 60_000);
  impatient.catch(() => {});
  dead.catch(() => {});
  await rig.quiet();
  rig.clock.step(1_000);
  caller.abort();
  await expect(impatient).rejects.toMatchObject({ code: 'lease_wait_timeout' });
  await expect(dead).rejects.toMatchObject({ code: 'lease_wait_timeout' });
  await rig.release(first.id);
  await rig.release((await a).id);
  expect(tokenOf(await b)).toBe(3);
  expect(order).toEqual(['a', 'b']);
});

test('K30: a caller that is gone when its grant comes gives it back at once', async () => {
  const { id } = await rig.create();
  const caller = new AbortController();
  const gate = rig.node.hold('applySettings');
  const acquiring = rig.acquire([id], {}, caller.signal);
  const next = rig.acquire([id], { waitMs: 60_000 });
  acquiring.catch(() => {});
  await gate.reached;
  caller.abort();
  gate.open();
  await expect(acquiring).rejects.toMatchObject({ code: 'lease_wait_timeout' });
  expect(tokenOf(await next)).toBe(2);
  await expect(rig.acquire([id], { waitMs: 1_000 }, AbortSignal.abort())).rejects.toMatchObject({
    code: 'lease_wait_timeout',
  });
});

test('K30: a request that cannot be announced waits for nothing and holds nothing', async () => {
  const first = await rig.acquire(['name:a']);
  const transact = rig.store.transact.bind(rig.store);
  rig.store.transact = () => Promise.reject(new Error('The disk is gone.'));
  const failing = rig.acquire(['name:a'], { waitMs: 60_000 });
  rig.store.transact = transact;
  await expect(failing).rejects.toThrow('The disk is gone.');
  expect(await rig.leases()).toMatchObject([{ id: first.id, waiting: 0 }]);

  rig.store.transact = () => {
    rig.store.transact = transact;
    return Promise.reject(new Error('The disk is gone.'));
  };
  await expect(rig.acquire(['name:b'])).rejects.toThrow('The disk is gone.');
  await rig.quiet();
  expect(await rig.leases()).toMatchObject([{ id: first.id }]);
});

test('K30: the line has a limit', async () => {
  await rig.acquire(['name:a']);
  const waiting = Array.from({ length: leaseLimits.waitersPerResource }, () =>
    rig.acquire(['name:a'], { waitMs: 1_000 }).catch(() => {}),
  );
  await expect(rig.acquire(['name:a'], { waitMs: 1_000 })).rejects.toMatchObject({ code: 'limit_exceeded' });
  rig.clock.step(1_000);
  await Promise.all(waiting);
});
