import { expect, test } from 'vitest';
import { fullNetwork, noNetwork } from '../../protocol/index.ts';
import { egressOf, policyOf } from './network-settings.ts';

test('what is said is what holds, and what is not said is the default', () => {
  expect(policyOf({}, undefined)).toBeUndefined();
  expect(policyOf({}, true)).toEqual(fullNetwork);
  expect(policyOf({}, false)).toEqual(noNetwork);
  expect(policyOf({ denyOut: ['0.0.0.0/0'] }, undefined)).toEqual(noNetwork);
  expect(policyOf({ allowOut: ['0.0.0.0/0'], denyOut: ['8.8.8.8'] }, undefined)).toEqual(fullNetwork);
  expect(policyOf({ denyOut: ['8.8.8.8'] }, undefined)).toEqual({
    ...{ mode: 'full', allow: [], deny: [{ cidr: '8.8.8.8' }] },
  });
  // Who denies everything means IPv6 too.
  const only = { mode: 'full', allow: [{ cidr: '1.1.1.1' }], deny: [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }] };
  expect(policyOf({ allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] }, undefined)).toEqual(only);
  expect(policyOf({ allowOut: ['1.1.1.1'] }, false)).toEqual(only);
  expect(egressOf(policyOf({ allowOut: ['1.1.1.1'] }, false)!)).toEqual({
    ...{ allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] },
  });
});

test('what this platform cannot do is refused by name', () => {
  expect(() => policyOf({ allowOut: ['*.example.com'] }, undefined)).toThrow(/example\.com.*not supported/);
  expect(() => policyOf({ rules: { 'example.com': [] } }, undefined)).toThrow(/not supported/);
  expect(() => policyOf({ egressProxy: { address: 'a:1' } }, undefined)).toThrow(/not supported/);
  expect(() => policyOf({ denyOut: ['not an address!'] }, undefined)).toThrow(/no address/);
  expect(() => policyOf({ allowOut: ['169.254.169.254'], denyOut: ['0.0.0.0/0'] }, undefined)).toThrow();
});
