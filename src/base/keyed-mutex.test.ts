import { expect, test } from 'vitest';
import { KeyedMutex } from './keyed-mutex.ts';

async function ticks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await Promise.resolve();
}

test('tasks for one key never overlap, whenever they arrive', async () => {
  const mutex = new KeyedMutex<string>();
  let running = 0;
  let runningMax = 0;
  const task = async () => {
    runningMax = Math.max(runningMax, ++running);
    await ticks(2);
    running--;
  };

  // Late arrivals matter: they meet a key whose first holder is already gone.
  await Promise.all(
    Array.from({ length: 50 }, async (_, i) => {
      await ticks(i % 10);
      await mutex.run('a', task);
    }),
  );

  expect(runningMax).toBe(1);
  expect(mutex.size).toBe(0);
});

test('tasks for one key run in the order they arrived', async () => {
  const mutex = new KeyedMutex<string>();
  const order: number[] = [];
  await Promise.all(
    [3, 1, 2].map((length, index) =>
      mutex.run('a', async () => {
        await ticks(length);
        order.push(index);
      }),
    ),
  );
  expect(order).toEqual([0, 1, 2]);
});

test('different keys run at the same time', async () => {
  const mutex = new KeyedMutex<string>();
  const gate = Promise.withResolvers<void>();
  const held = mutex.run('a', () => gate.promise);
  expect(await mutex.run('b', async () => 'passed')).toBe('passed');
  gate.resolve();
  await held;
});

test('a failing task passes the turn on', async () => {
  const mutex = new KeyedMutex<string>();
  const failing = mutex.run('a', async () => {
    throw new Error('no');
  });
  const next = mutex.run('a', async () => 'next');
  await expect(failing).rejects.toThrow('no');
  expect(await next).toBe('next');
  expect(mutex.size).toBe(0);
});
