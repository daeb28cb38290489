import { expect, test } from 'vitest';
import { SharedLock } from './shared-lock.ts';

test('many use at once; a change waits for them, and whoever comes after it waits for it', async () => {
  const lock = new SharedLock<string>();
  const done: string[] = [];
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const users = gates.map((gate, index) =>
    lock.use('a', async () => {
      done.push(`in ${index}`);
      await gate.promise;
      done.push(`out ${index}`);
    }),
  );
  const change = lock.change('a', async () => void done.push('changed'));
  const late = lock.use('a', async () => void done.push('late'));
  expect(await lock.change('b', async () => 'at once')).toBe('at once');
  gates[1]!.resolve();
  await users[1];
  expect(done).toEqual(['in 0', 'in 1', 'out 1']);
  gates[0]!.resolve();
  await Promise.all([...users, change, late]);
  expect(done.slice(3)).toEqual(['out 0', 'changed', 'late']);
  expect(lock.size).toBe(0);
});

test('what fails passes the turn on', async () => {
  const lock = new SharedLock<string>();
  const fail = async () => Promise.reject(new Error('no'));
  await expect(lock.use('a', fail)).rejects.toThrow('no');
  await expect(lock.change('a', fail)).rejects.toThrow('no');
  expect(await lock.change('a', async () => 'free')).toBe('free');
  expect(lock.size).toBe(0);
});
