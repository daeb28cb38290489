import { expect, test } from 'vitest';
import { parseRange } from './byte-range.ts';

test.each([
  ['bytes=0-9', { offset: 0, length: 10 }],
  ['bytes=5-', { offset: 5, length: null }],
  ['bytes=-3', { offset: -3, length: null }],
  [' bytes=7-7 ', { offset: 7, length: 1 }],
  ['bytes=9-5', undefined],
  ['bytes=-', undefined],
  ['bytes=1-2,4-5', undefined],
  ['lines=1-2', undefined],
  ['bytes=99999999999999999999-', undefined],
  [undefined, undefined],
])('%s', (header, expected) => {
  expect(parseRange(header)).toEqual(expected);
});
