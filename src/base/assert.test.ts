import { expect, test } from 'vitest';
import { AssertionError, assert, assertNever } from './assert.ts';

test('a condition that holds passes, one that does not throws with its message', () => {
  assert('something');
  expect(() => assert(0, 'zero')).toThrow(new AssertionError('zero'));
});

test('a value without a case is named', () => {
  expect(() => assertNever({ kind: 'new' } as never)).toThrow('No case for {"kind":"new"}.');
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  expect(() => assertNever(circular as never)).toThrow(AssertionError);
});
