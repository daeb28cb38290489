import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { newId, PlatformError } from '../protocol/index.ts';
import { LeaseGate } from './lease-gate.ts';

const sandboxId = newId('sandbox');
const held = () => new PlatformError('lease_held', 'Somebody holds it.');

function open() {
  const clock = new FakeClock();
  return { clock, gate: new LeaseGate({ clock, timers: clock }) };
}

test('K26: a lease that ends between the refusal and the waiting still lets the waiter in', async () => {
  const { clock, gate } = open();
  let attempts = 0;
  const passing = gate.pass(sandboxId, { leaseWaitMs: 1_000 }, async () => {
    if (++attempts > 1) return 'in';
    gate.opened(sandboxId);
    throw held();
  });
  expect(await passing).toBe('in');
  expect(clock.pendingTimers).toBe(0);
});

test('K26: waiting gives no right: who is refused again waits on, until the time is over', async () => {
  const { clock, gate } = open();
  let attempts = 0;
  const attempted = () => expect.poll(() => attempts);
  const passing = gate.pass(sandboxId, { leaseWaitMs: 1_000 }, async () => {
    attempts++;
    throw held();
  });
  passing.catch(() => {});
  await attempted().toBe(1);
  clock.step(600);
  gate.opened(sandboxId);
  await attempted().toBe(2);
  gate.opened(newId('sandbox'));
  await expect.poll(() => clock.pendingTimers).toBe(1);
  clock.step(400);
  await expect(passing).rejects.toMatchObject({ code: 'lease_held' });
  expect(attempts).toBe(2);
  expect(clock.pendingTimers).toBe(0);
});

test('without patience, and for any other refusal, there is no waiting', async () => {
  const { gate } = open();
  await expect(gate.pass(sandboxId, {}, () => Promise.reject(held()))).rejects.toMatchObject({ code: 'lease_held' });
  const other = new PlatformError('lease_lost', 'Not the current one.');
  const waiting = gate.pass(sandboxId, { leaseWaitMs: 1_000 }, () => Promise.reject(other));
  await expect(waiting).rejects.toBe(other);
});
