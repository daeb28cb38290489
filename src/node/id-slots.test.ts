import { expect, test } from 'vitest';
import { IdSlots, slotCount, uidBaseOf } from './id-slots.ts';

test('ranges never overlap, never touch the ids of the host, and stay positive', () => {
  expect(uidBaseOf(0)).toBe(2 ** 29);
  expect(uidBaseOf(1) - uidBaseOf(0)).toBe(65_536);
  expect(uidBaseOf(slotCount - 1) + 65_536).toBe(2 ** 31);
});

test('a slot is given again only after its release', () => {
  const slots = new IdSlots({ startAt: slotCount - 1 });
  const taken = Array.from({ length: slotCount }, () => slots.take());
  expect(new Set(taken).size).toBe(slotCount);
  expect(() => slots.take()).toThrow(expect.objectContaining({ code: 'limit_exceeded' }));
  slots.release(7);
  expect(slots.take()).toBe(7);
});

test('a slot found on disk is not given to another', () => {
  const slots = new IdSlots({ startAt: 3 });
  expect(slots.takeExactly(3)).toBe(true);
  expect(slots.takeExactly(3)).toBe(false);
  expect(slots.takeExactly(slotCount)).toBe(false);
  expect(slots.take()).toBe(4);
});
