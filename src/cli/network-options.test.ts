import { expect, test } from 'vitest';
import { collectRule, networkOf, policyOf, readableNetwork } from './network-options.ts';

test('rules are ranges with a protocol and ports behind a comma', () => {
  expect(collectRule('10.0.0.0/8')).toEqual([{ cidr: '10.0.0.0/8' }]);
  expect(collectRule('2001:db8::/32,tcp:443')).toEqual([
    { cidr: '2001:db8::/32', protocol: 'tcp', ports: [{ from: 443, to: 443 }] },
  ]);
  expect(collectRule('1.2.3.4,udp:5000-6000', [{ cidr: '::1' }])).toEqual([
    { cidr: '::1' },
    { cidr: '1.2.3.4', protocol: 'udp', ports: [{ from: 5000, to: 6000 }] },
  ]);
  expect(collectRule('all,tcp')).toEqual([
    { cidr: '0.0.0.0/0', protocol: 'tcp' },
    { cidr: '::/0', protocol: 'tcp' },
  ]);
  for (const wrong of ['', 'example.com', '1.2.3.4:80', '1.2.3.4,icmp', '1.2.3.4,tcp:', '1.2.3.4,tcp:1,2']) {
    expect(() => collectRule(wrong), wrong).toThrow('RANGE');
  }
});

test('lists without a mode mean full, and mean nothing with none', () => {
  expect(networkOf({})).toBeUndefined();
  expect(networkOf({ network: 'none' })).toEqual({ mode: 'none' });
  expect(networkOf({ deny: [{ cidr: '::/0' }] })).toEqual({ mode: 'full', allow: [], deny: [{ cidr: '::/0' }] });
  expect(() => policyOf('none', { allow: [{ cidr: '::/0' }] })).toThrow('mean nothing');
});

test('a network is shown as it is written', () => {
  expect(readableNetwork({ mode: 'none' })).toBe('none');
  const [rule] = collectRule('10.0.0.0/8,tcp:1-2');
  expect(readableNetwork({ mode: 'full', allow: [rule!], deny: collectRule('all') })).toBe(
    'full; allow 10.0.0.0/8,tcp:1-2; deny 0.0.0.0/0; deny ::/0',
  );
});
