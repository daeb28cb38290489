import { expect, test } from 'vitest';
import { RandomPool } from './random-pool.ts';

test('no byte of the source is given out twice, whatever sizes are asked for', () => {
  let next = 0;
  const pool = new RandomPool((bytes) => bytes.fill(++next));
  const first = pool.fill(new Uint8Array(4_000));
  const second = pool.fill(new Uint8Array(200));
  const large = pool.fill(new Uint8Array(5_000));
  const third = pool.fill(new Uint8Array(32));

  expect([first[0], second[0], large[0], third[0]]).toEqual([1, 2, 3, 2]);
});

test('the system gives other bytes each time', () => {
  const pool = new RandomPool();
  const seen = new Set(Array.from({ length: 1_000 }, () => pool.fill(new Uint8Array(16)).join()));
  expect(seen.size).toBe(1_000);
});
