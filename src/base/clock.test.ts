import { uptime } from 'node:os';
import { expect, test } from 'vitest';
import { SystemClock, systemTimers } from './clock.ts';

test('boot time lies between two readings of the uptime and never goes back', () => {
  const before = uptime() * 1000;
  const clock = new SystemClock();
  const readings = Array.from({ length: 1000 }, () => clock.bootMs());
  const after = uptime() * 1000;

  expect(readings.every(Number.isSafeInteger)).toBe(true);
  expect(readings).toEqual(readings.toSorted((a, b) => a - b));
  // The file that anchors it counts in steps of 10 ms, rounded down.
  expect(readings[0]).toBeGreaterThanOrEqual(before - 11);
  expect(readings.at(-1)).toBeLessThanOrEqual(after + 11);
});

test('two clocks of one boot agree on its id', () => {
  expect(new SystemClock().bootId).toMatch(/^[0-9a-f-]{36}$/);
  expect(new SystemClock().bootId).toBe(new SystemClock().bootId);
});

test('the time of day is in whole milliseconds', () => {
  const before = Date.now();
  const now = new SystemClock().nowMs();
  expect(now).toBeGreaterThanOrEqual(before);
  expect(Number.isSafeInteger(now)).toBe(true);
});

test('a timer runs once, unless it is cancelled', async () => {
  const cancelled = Promise.withResolvers<never>();
  systemTimers.after(0, () => cancelled.reject(new Error('ran')))();
  await new Promise<void>((resolve) => void systemTimers.after(1, resolve));
  cancelled.promise.catch(() => expect.unreachable());
});
