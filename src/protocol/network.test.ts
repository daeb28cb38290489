import { expect, test } from 'vitest';
import { addressRange, isWithin, rangeText } from './address-ranges.ts';
import { closedRanges, networkLimits, networkPolicy, privateRanges } from './network.ts';

test('ranges are read as they are written, and written plainly', () => {
  const cases: readonly [string, string | undefined][] = [
    ['203.0.113.7', '203.0.113.7/32'],
    ['10.1.2.3/8', '10.0.0.0/8'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['2001:db8::/32', '2001:db8:0:0:0:0:0:0/32'],
    ['::1', '0:0:0:0:0:0:0:1/128'],
    ['::/0', '0:0:0:0:0:0:0:0/0'],
    ['64:ff9b::10.0.0.1', '64:ff9b:0:0:0:0:a00:1/128'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8/128'],
    ['10.0.0.0/33', undefined],
    ['10.0.0', undefined],
    ['010.0.0.1', undefined],
    ['256.0.0.1', undefined],
    ['1:2:3:4:5:6:7:8:9', undefined],
    ['1::2::3', undefined],
    ['1:2:3:4:5:6:7::8:9', undefined],
    ['fe80::1%eth0', undefined],
    ['::/129', undefined],
    ['10.0.0.1 ; drop', undefined],
    ['', undefined],
    [':', undefined],
    ['web.test', undefined],
  ];
  for (const [text, expected] of cases) {
    const range = addressRange(text);
    expect(range && rangeText(range), text).toBe(expected);
  }
});

test('a range is within another of its family that is as wide or wider', () => {
  expect(isWithin('10.1.0.0/16', '10.0.0.0/8')).toBe(true);
  expect(isWithin('10.0.0.0/8', '10.0.0.0/8')).toBe(true);
  expect(isWithin('10.0.0.0/7', '10.0.0.0/8')).toBe(false);
  expect(isWithin('11.0.0.1', '10.0.0.0/8')).toBe(false);
  expect(isWithin('::ffff:10.0.0.1', '10.0.0.0/8')).toBe(false);
  expect(isWithin('fe80::1', 'fe80::/10')).toBe(true);
  expect(isWithin('nothing', '10.0.0.0/8')).toBe(false);
});

test('every range that stands in the tables can be read', () => {
  for (const range of [...closedRanges, ...privateRanges]) expect(addressRange(range), range).toBeDefined();
});

test('a policy is taken whole, with its lists filled in', () => {
  expect(networkPolicy.parse({ mode: 'none' })).toEqual({ mode: 'none' });
  expect(networkPolicy.parse({ mode: 'full' })).toEqual({ mode: 'full', allow: [], deny: [] });
  const rule = { cidr: '10.0.0.0/8', protocol: 'tcp', ports: [{ from: 1, to: 2 }] };
  expect(networkPolicy.parse({ mode: 'full', deny: [rule] })).toEqual({ mode: 'full', allow: [], deny: [rule] });
});

test('what would be ignored or means nothing is refused', () => {
  const refused: readonly unknown[] = [
    {},
    { mode: 'none', deny: [] },
    { mode: 'full', deny: [{ domain: 'example.com' }] },
    { mode: 'full', deny: [{ cidr: 'example.com' }] },
    { mode: 'full', deny: [{ cidr: '10.0.0.1', ports: [{ from: 1, to: 2 }] }] },
    { mode: 'full', deny: [{ cidr: '10.0.0.1', protocol: 'tcp', ports: [{ from: 2, to: 1 }] }] },
    { mode: 'full', deny: [{ cidr: '10.0.0.1', protocol: 'tcp', ports: [] }] },
    { mode: 'full', deny: [{ cidr: '10.0.0.1', protocol: 'icmp' }] },
    { mode: 'full', allow: [{ cidr: '169.254.169.254' }] },
    { mode: 'full', allow: [{ cidr: 'fd00:ec2::254' }] },
    { mode: 'full', deny: Array.from({ length: networkLimits.rules + 1 }, () => ({ cidr: '10.0.0.1' })) },
  ];
  const ports = Array.from({ length: networkLimits.ports }, (_, index) => ({ from: 1 + index, to: 1 + index }));
  const withPorts = (count: number) => ({
    mode: 'full',
    deny: Array.from({ length: count }, () => ({ cidr: '10.0.0.1', protocol: 'tcp', ports })),
  });
  expect(networkPolicy.safeParse(withPorts(networkLimits.portsOfAll / networkLimits.ports)).success).toBe(true);
  expect(networkPolicy.safeParse(withPorts(networkLimits.portsOfAll / networkLimits.ports + 1)).success).toBe(false);
  for (const policy of refused) expect(networkPolicy.safeParse(policy).success, JSON.stringify(policy)).toBe(false);
  // What is only partly closed is not without effect.
  expect(networkPolicy.safeParse({ mode: 'full', allow: [{ cidr: '0.0.0.0/0' }] }).success).toBe(true);
});
