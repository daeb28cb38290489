import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { PlatformError, sessionLimits } from '../protocol/index.ts';
import { SessionQueue } from './session-queue.ts';

const patient = (runId: string) => ({ runId, timeoutMs: null });

function held(queue: SessionQueue, runId: string) {
  const gate = Promise.withResolvers<void>();
  return { done: queue.run(patient(runId), () => gate.promise), open: gate.resolve, fail: gate.reject };
}

test('turns come one at a time and in order, also behind one that fails', async () => {
  const queue = new SessionQueue(new FakeClock());
  const seen: string[] = [];
  let running = 0;
  const first = held(queue, 'first');
  const rest = Array.from({ length: 20 }, (_, index) =>
    queue.run(patient(`${index}`), async () => {
      expect(++running).toBe(1);
      await Promise.resolve();
      seen.push(`${index}`);
      running--;
      if (index === 3) throw new Error('no');
    }),
  );
  expect(queue).toMatchObject({ length: 20, current: { runId: 'first' } });
  const settled = Promise.allSettled(rest);
  first.fail(new Error('it fails'));
  await expect(first.done).rejects.toThrow('it fails');
  const results = await settled;
  expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(1);
  expect(seen).toEqual(Array.from({ length: 20 }, (_, index) => `${index}`));
  expect(queue).toMatchObject({ length: 0, current: null });
});

test('whoever leaves while it waits does not run, and those behind it do', async () => {
  const queue = new SessionQueue(new FakeClock());
  const first = held(queue, 'first');
  const abort = new AbortController();
  const ran: string[] = [];
  const work = (name: string) => async () => void ran.push(name);
  const left = queue.run({ runId: 'left', timeoutMs: null, signal: abort.signal }, work('left'));
  const late = queue.run({ runId: 'late', timeoutMs: 1 }, work('late'));
  const behind = queue.run(patient('behind'), work('behind'));
  abort.abort();
  await expect(left).rejects.toMatchObject({ code: 'session_queue_timeout', retry: 'backoff' });
  await expect(late).rejects.toMatchObject({ code: 'session_queue_timeout' });
  expect(queue.length).toBe(1);
  first.open();
  await behind;
  expect(ran).toEqual(['behind']);
});

test('whoever leaves when its turn was handed over and it has not begun does not run either', async () => {
  const queue = new SessionQueue(new FakeClock());
  const first = held(queue, 'first');
  const abort = new AbortController();
  const ran: string[] = [];
  const left = queue.run({ runId: 'left', timeoutMs: null, signal: abort.signal }, async () => void ran.push('left'));
  const refused = expect(left).rejects.toMatchObject({ code: 'session_queue_timeout' });
  first.open();
  while (queue.current?.runId !== 'left') await Promise.resolve();
  abort.abort();
  await refused;
  expect(ran).toEqual([]);
  expect(queue.current).toBeNull();
});

test('0 is at once or not at all; a full queue takes no more', async () => {
  const queue = new SessionQueue(new FakeClock());
  await queue.run({ runId: 'free', timeoutMs: 0 }, async () => {});
  const first = held(queue, 'first');
  const now = queue.run({ runId: 'now', timeoutMs: 0 }, async () => {});
  await expect(now).rejects.toMatchObject({ code: 'session_queue_timeout', details: { current: 'first' } });
  const waiting = Array.from({ length: sessionLimits.queue }, (_, i) => queue.run(patient(`${i}`), async () => {}));
  await expect(queue.run(patient('more'), async () => {})).rejects.toMatchObject({ code: 'limit_exceeded' });
  first.open();
  await Promise.all(waiting);
});

test('closed, it refuses who waits and who comes, and lets the one in its turn finish', async () => {
  const queue = new SessionQueue(new FakeClock());
  const first = held(queue, 'first');
  const waiting = queue.run(patient('waiting'), async () => {});
  queue.close(() => new PlatformError('session_terminated', 'over'));
  await expect(waiting).rejects.toMatchObject({ code: 'session_terminated' });
  await expect(queue.run(patient('late'), async () => {})).rejects.toMatchObject({ code: 'session_terminated' });
  first.open();
  await first.done;
});
