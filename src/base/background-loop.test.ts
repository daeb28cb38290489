import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { BackgroundLoop } from './background-loop.ts';

function makeLoop(tick: (signal: AbortSignal) => Promise<void>) {
  const clock = new FakeClock();
  const errors: unknown[] = [];
  const loop = new BackgroundLoop({ intervalMs: 1000, tick, onError: (error) => errors.push(error), timers: clock });
  return { clock, errors, loop };
}

/** Until the loop has gone back to waiting for its timer. */
async function idle(clock: FakeClock): Promise<void> {
  while (clock.pendingTimers === 0) await nextTurn();
}

test('it ticks at once, then after each interval', async () => {
  let ticks = 0;
  const { clock, loop } = makeLoop(async () => void ticks++);
  loop.start();
  await idle(clock);
  expect(ticks).toBe(1);

  clock.step(999);
  expect(clock.pendingTimers).toBe(1);
  clock.step(1);
  await idle(clock);
  expect(ticks).toBe(2);
  await loop.close();
  expect(clock.pendingTimers).toBe(0);
});

test('wakes that come during a tick share the next one, and ticks never overlap', async () => {
  const firstBegun = Promise.withResolvers<void>();
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let begun = 0;
  let running = 0;
  let runningMax = 0;
  const { loop } = makeLoop(async () => {
    runningMax = Math.max(runningMax, ++running);
    firstBegun.resolve();
    await gates[begun++]?.promise;
    running--;
  });
  loop.start();
  await firstBegun.promise;
  const wakes = Promise.all([loop.wake(), loop.wake(), loop.wake()]);
  expect(begun).toBe(1);
  gates[0]?.resolve();
  gates[1]?.resolve();
  await wakes;
  expect(begun).toBe(2);
  expect(runningMax).toBe(1);
  await loop.close();
});

test('a failing tick is told and the next one comes', async () => {
  let ticks = 0;
  const { clock, errors, loop } = makeLoop(async () => {
    if (++ticks === 1) throw new Error('first');
  });
  loop.start();
  await idle(clock);
  await loop.wake();
  expect(ticks).toBe(2);
  expect(errors).toEqual([new Error('first')]);
  await loop.close();
});

test('close aborts and waits for the running tick, answers waiting wakes and starts no other', async () => {
  let ticks = 0;
  let ended = false;
  const begun = Promise.withResolvers<void>();
  const { clock, loop } = makeLoop(async (signal) => {
    ticks++;
    begun.resolve();
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    await nextTurn();
    ended = true;
  });
  loop.start();
  await begun.promise;
  const wake = loop.wake();
  await Promise.all([loop.close(), loop.close()]);
  expect(ended).toBe(true);
  await wake;
  await loop.wake();
  expect(ticks).toBe(1);
  expect(clock.pendingTimers).toBe(0);
});

test('a loop that was never started closes, and answers whoever woke it', async () => {
  const { loop } = makeLoop(async () => expect.unreachable());
  const wake = loop.wake();
  await loop.close();
  await wake;
});

test('a tick that wakes its own loop leaves room for others', async () => {
  let ticks = 0;
  const { loop } = makeLoop(async () => {
    ticks++;
    void loop.wake();
  });
  loop.start();
  await nextTurn();
  await nextTurn();
  expect(ticks).toBeLessThan(10);
  await loop.close();
});
