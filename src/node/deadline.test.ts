import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import type { SandboxSettings } from '../protocol/index.ts';
import { deadlineOf, nextDeadline } from './deadline.ts';
import type { NodeRecord } from './node-record.ts';

const settings = (expiresAtMs: number | null) => ({ expiresAtMs }) as SandboxSettings;

test('never is 0; what has passed is not', () => {
  const clock = new FakeClock();
  expect(deadlineOf(settings(null), clock)).toBe(0);
  expect(deadlineOf(settings(clock.nowMs() + 500), clock)).toBe(clock.bootMs() + 500);
  expect(deadlineOf(settings(1), clock)).toBe(1);
});

test('a jump of the wall clock moves no deadline that is kept', () => {
  const clock = new FakeClock();
  const kept = settings(clock.nowMs() + 500);
  const record = { settings: kept, deadlineBootMs: deadlineOf(kept, clock) } as NodeRecord;
  clock.jump(-3_600_000);
  expect(nextDeadline(record, kept, clock)).toBe(record.deadlineBootMs);
  expect(nextDeadline(record, settings(clock.nowMs() + 900), clock)).toBe(clock.bootMs() + 900);
});
