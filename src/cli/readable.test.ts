import { expect, test } from 'vitest';
import { readableBytes, readableSpan, readableTable, readableWhen } from './readable.ts';

test.each([
  [0, '0s'],
  [999, '0s'],
  [12_000, '12s'],
  [70_000, '1m 10s'],
  [3_600_000, '1h'],
  [3_605_000, '1h'],
  [100_000_000, '1d 3h'],
  [-5, '0s'],
])('%d ms reads %s', (ms, text) => {
  expect(readableSpan(ms)).toBe(text);
});

test('a time is told by its distance from now', () => {
  const now = Date.UTC(2030, 0, 1);
  expect(readableWhen('2029-12-31T23:00:00Z', now)).toBe('1h ago');
  expect(readableWhen('2030-01-01T00:00:30Z', now)).toBe('in 30s');
  expect(readableWhen('2030-01-01T00:00:00Z', now)).toBe('now');
  expect(readableWhen(null, now)).toBe('never');
});

test('sizes keep one digit', () => {
  expect([512, 1_536, 2 * 1024 ** 3].map(readableBytes)).toEqual(['512 B', '1.5 KiB', '2 GiB']);
});

test('a table is as wide as its widest cell, and shows control characters as signs', () => {
  expect(
    readableTable(
      ['A', 'B'],
      [
        ['long', 'x\x07'],
        ['s', 'y'],
      ],
    ),
  ).toBe('A     B\nlong  x\u{fffd}\ns     y\n');
});
