import { expect, test } from 'vitest';
import { testId } from '../../../test/support/fake-control.ts';
import { EnvdTokens } from './envd-tokens.ts';

const [a, b] = [testId('sandbox', 'a'), testId('sandbox', 'b')];

test('a token is of one sandbox and one secret, and the same whenever it is asked for', () => {
  const tokens = new EnvdTokens(new Uint8Array(32));
  const token = tokens.give(a);
  expect(new EnvdTokens(new Uint8Array(32)).envdTokenOf(a)).toBe(token);
  expect(tokens.verifyEnvdAccess(a, token)).toBe(true);
  for (const wrong of [undefined, '', `${token}0`, token.slice(1), tokens.envdTokenOf(b)]) {
    expect(tokens.verifyEnvdAccess(a, wrong)).toBe(false);
  }
  expect(new EnvdTokens(new Uint8Array(32).fill(1)).verifyEnvdAccess(a, token)).toBe(false);
});

test('of the sandboxes whose token was given out the newest are remembered, and no more than a bound', () => {
  const tokens = new EnvdTokens(new Uint8Array(32));
  tokens.give(a);
  tokens.give(b);
  tokens.give(a);
  expect(tokens.recent()).toEqual([a, b]);
  for (let i = 0; i < 1_500; i++) tokens.give(`sbx${String(i).padStart(20, '0')}` as typeof a);
  expect(tokens.recent().length).toBe(1_000);
  expect(tokens.recent()).not.toContain(a);
});
