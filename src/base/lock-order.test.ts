import { expect, test } from 'vitest';
import { KeyedMutex } from './keyed-mutex.ts';
import { apartFromLocks, askFor, whileHeld } from './lock-order.ts';
import { SharedLock } from './shared-lock.ts';

const outer = () => new KeyedMutex<string>({ name: 'outer', rank: 1 });
const inner = () => new KeyedMutex<string>({ name: 'inner', rank: 2 });

test('C77: locks in rising rank are granted, and in falling rank refused by name before anybody waits', async () => {
  const [first, second] = [outer(), inner()];
  await expect(first.run('a', () => second.run('b', async () => 'both'))).resolves.toBe('both');
  await expect(second.run('b', () => first.run('a', async () => 'both'))).rejects.toThrow(
    'The lock "outer" of a (rank 1) is asked for under "inner" of b (rank 2)',
  );
  expect([first.size, second.size]).toEqual([0, 0]);
});

test('C77: two keys of one lock are refused, whatever their order, unless the lock has an order of keys', async () => {
  const lock = outer();
  for (const key of ['a', 'b', 'c']) {
    await expect(lock.run('b', () => lock.run(key, async () => {}))).rejects.toThrow('rising rank');
  }
  const place = { name: 'ordered', rank: 1 };
  const take = (first: string, second: string) =>
    whileHeld(askFor(place, first, true), () => whileHeld(askFor(place, second, true), async () => 'both'));
  await expect(take('a', 'b')).resolves.toBe('both');
  await expect(take('b', 'a')).rejects.toThrow('rising rank');
  await expect(take('a', 'a')).rejects.toThrow('rising rank');
});

test('a lock that many use has its place in the order too', async () => {
  const shared = new SharedLock<string>({ name: 'shared', rank: 1.5 });
  const lane = outer();
  await expect(lane.run('a', () => shared.use('x', async () => 'used'))).resolves.toBe('used');
  await expect(shared.use('x', () => lane.run('a', async () => {}))).rejects.toThrow('rising rank');
  await expect(shared.change('x', () => lane.run('a', async () => {}))).rejects.toThrow('rising rank');
  expect(shared.size).toBe(0);
});

test('what was begun under a lock and goes on without it takes its own from the beginning', async () => {
  const [first, second] = [outer(), inner()];
  const gate = Promise.withResolvers<void>();
  let late!: Promise<string>;
  let apart!: Promise<string>;
  await second.run('b', async () => {
    late = gate.promise.then(() => first.run('a', async () => 'late'));
    apart = apartFromLocks(() => first.run('c', async () => 'apart'));
    await apart;
  });
  gate.resolve();
  expect(await Promise.all([late, apart])).toEqual(['late', 'apart']);
});

test('a lock without a place is watched by nobody', async () => {
  const plain = new KeyedMutex<string>();
  await expect(inner().run('b', () => plain.run('a', async () => 'done'))).resolves.toBe('done');
});
