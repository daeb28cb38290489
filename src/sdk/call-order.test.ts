import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { CallOrder } from './call-order.ts';
import { systemClientClock } from './connection.ts';

test('E59: calls are sent in the order in which they were made, also behind one that fails', async () => {
  const order = new CallOrder(systemClientClock);
  const sent: number[] = [];
  const calls = Array.from({ length: 10 }, (_, index) =>
    order.run({}, async () => {
      await new Promise((resolve) => setImmediate(resolve));
      sent.push(index);
      if (index === 2) throw new Error('refused');
      return index;
    }),
  );
  const results = await Promise.allSettled(calls);
  expect(sent).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(1);
});

test('a call that gives up is never sent, and does not let those behind it pass what is in front of it', async () => {
  const order = new CallOrder(systemClientClock);
  const gate = Promise.withResolvers<void>();
  const sent: string[] = [];
  const send = (name: string) => async () => void sent.push(name);
  const first = order.run({}, async () => {
    await gate.promise;
    sent.push('first');
  });
  const abort = new AbortController();
  const late = order.run({ queueTimeoutMs: 1 }, send('late'));
  const left = order.run({ signal: abort.signal }, send('left'));
  const last = order.run({}, send('last'));
  await expect(late).rejects.toMatchObject({ code: 'session_queue_timeout' });
  abort.abort();
  await expect(left).rejects.toMatchObject({ name: 'AbortError' });
  expect(sent).toEqual([]);
  gate.resolve();
  await Promise.all([first, last]);
  expect(sent).toEqual(['first', 'last']);
});

test('what is left of the time to wait goes with the call', async () => {
  let nowMs = 0;
  const clock = { ...systemClientClock, nowMs: () => nowMs };
  const order = new CallOrder(clock);
  const gate = Promise.withResolvers<void>();
  const first = order.run({}, () => gate.promise);
  const second = order.run({ queueTimeoutMs: 60_000 }, async (left) => left);
  nowMs = 20_000;
  gate.resolve();
  await first;
  expect(await second).toEqual({ queueTimeoutMs: 40_000 });
  expect(await order.run({}, async (left) => left)).toEqual({});
});

test('answers are not kept by the order of those that come after them', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const order = new CallOrder(systemClientClock);
  const call = async () => new WeakRef(await order.run({}, async () => ({ stdout: 'x'.repeat(1_000) })));
  const answers = [await call(), await call(), await call()];
  // What was made in a turn of the event loop is held by its WeakRef until that turn is over.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(answers.map((answer) => answer.deref())).toEqual([undefined, undefined, undefined]);
  expect(await order.run({}, async () => 'next')).toBe('next');
});
