import { expect, test } from 'vitest';
import { AtMost } from './at-most.ts';

async function ticks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await Promise.resolve();
}

test('never more than the limit run, all of them do, and nothing is left', async () => {
  const few = new AtMost(3);
  let running = 0;
  let runningMax = 0;
  const begun: number[] = [];
  // Late arrivals matter: they must not overtake those who wait.
  await Promise.all(
    Array.from({ length: 60 }, async (_, index) => {
      await ticks(index % 7);
      await few.run(async () => {
        begun.push(index);
        runningMax = Math.max(runningMax, ++running);
        await ticks(1 + (index % 3));
        running--;
      });
    }),
  );
  expect(runningMax).toBe(3);
  expect(begun.length).toBe(60);
  expect(few.size).toBe(0);
});

test('those who wait begin in the order they came', async () => {
  const few = new AtMost(1);
  const gate = Promise.withResolvers<void>();
  const begun: number[] = [];
  const first = few.run(() => gate.promise);
  const rest = [1, 2, 3].map((index) => few.run(async () => void begun.push(index)));
  expect(few.size).toBe(4);
  expect(begun).toEqual([]);
  gate.resolve();
  await Promise.all([first, ...rest]);
  expect(begun).toEqual([1, 2, 3]);
});

test('a task that fails tells its caller alone and passes its turn on', async () => {
  const few = new AtMost(1);
  const failed = few.run(() => Promise.reject(new Error('broken')));
  const next = few.run(async () => 'done');
  await expect(failed).rejects.toThrow('broken');
  expect(await next).toBe('done');
  expect(few.size).toBe(0);
});
