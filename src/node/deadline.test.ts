import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import type { SandboxSettings } from '../protocol/index.ts';
import { deadlineOf, initDeadlineOf, nextDeadline } from './deadline.ts';
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
  const life = { kind: 'running' };
  const record = { settings: kept, deadlineBootMs: deadlineOf(kept, clock), life } as NodeRecord;
  clock.jump(-3_600_000);
  expect(nextDeadline(record, kept, clock)).toBe(record.deadlineBootMs);
  expect(nextDeadline(record, settings(clock.nowMs() + 900), clock)).toBe(clock.bootMs() + 900);
});

test('what is paused has no deadline; what is to be paused at its deadline is ended by init a minute later', () => {
  const clock = new FakeClock();
  const paused = { settings: settings(null), deadlineBootMs: 0, life: { kind: 'paused', atMs: 1 } } as NodeRecord;
  expect(nextDeadline(paused, settings(clock.nowMs() + 500), clock)).toBe(0);
  const pausing = { ...settings(1), onExpiry: 'pause' } as const;
  expect(initDeadlineOf({ settings: pausing, deadlineBootMs: 7 })).toBe(60_007);
  expect(initDeadlineOf({ settings: pausing, deadlineBootMs: 0 })).toBe(0);
  expect(initDeadlineOf({ settings: { ...pausing, onExpiry: 'end' }, deadlineBootMs: 7 })).toBe(7);
});
