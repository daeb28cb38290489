import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { requires, testWith } from '../../../test/support/requires.ts';
import { networkLimits, networkPolicy } from '../../protocol/index.ts';
import { networkNames, networkPlan, networkSlots } from './plan.ts';
import { hasOwnRules, hostTable, noHostTable, noSandboxRules, routerTable, sandboxRules, textLimit } from './rules.ts';

const plan = networkPlan(networkNames('/x'), { subnet: 3, hasIpv6: true });
const policy = networkPolicy.parse({
  mode: 'full',
  allow: [
    {
      cidr: '10.1.2.3/16',
      protocol: 'tcp',
      ports: [
        { from: 80, to: 80 },
        { from: 70, to: 79 },
        { from: 443, to: 443 },
      ],
    },
  ],
  deny: [{ cidr: '0.0.0.0/0' }, { cidr: '2001:db8::/32', protocol: 'udp' }],
});
const withNft = testWith(requires.root, requires.program('nft'), requires.program('unshare'));
const load = (text: string) =>
  execFileSync('unshare', ['--net', 'sh', '-c', 'nft -f - && nft list ruleset'], { input: text, encoding: 'utf8' });

test('lists become rules for both directions, allow before deny', () => {
  const lines = sandboxRules({ slot: 5, policy })
    .split('\n')
    .filter((line) => line.startsWith('add rule'));
  expect(lines).toEqual([
    'add rule inet atoll out_s5 ip daddr 10.1.0.0/16 tcp dport { 70-80, 443-443 } accept',
    'add rule inet atoll in_s5 ip saddr 10.1.0.0/16 tcp sport { 70-80, 443-443 } accept',
    'add rule inet atoll out_s5 ip daddr 0.0.0.0/0 goto refuse',
    'add rule inet atoll in_s5 ip saddr 0.0.0.0/0 drop',
    'add rule inet atoll out_s5 ip6 daddr 2001:db8:0:0:0:0:0:0/32 meta l4proto udp goto refuse',
    'add rule inet atoll in_s5 ip6 saddr 2001:db8:0:0:0:0:0:0/32 meta l4proto udp drop',
  ]);
});

test('a sandbox without lists needs no rules of its own', () => {
  expect(hasOwnRules({ mode: 'none' })).toBe(false);
  expect(hasOwnRules({ mode: 'full', allow: [], deny: [] })).toBe(false);
  expect(hasOwnRules(policy)).toBe(true);
});

/** As long as a policy can be. */
const longest = networkPolicy.parse({
  mode: 'full',
  ...Object.fromEntries(
    ['allow', 'deny'].map((list) => [
      list,
      Array.from({ length: networkLimits.rules }, (_, index) => ({
        cidr: `2001:db8:ffff:ffff:ffff:ffff:ffff:${(0xff00 + index).toString(16)}`,
        protocol: 'tcp',
        ports: [{ from: 10_001, to: 20_002 }],
      })),
    ]),
  ),
});

test('whatever sandboxes there are, no text is too long, and a sandbox whose lists come later reaches nothing until then', () => {
  const policies = Array.from({ length: networkSlots }, (_, slot) => ({ slot, policy: longest }));
  const texts = routerTable(plan, { resolverPort: 5353, policies, machine: [] });
  expect(texts.length).toBeGreaterThan(2);
  for (const text of texts) expect(Buffer.byteLength(text)).toBeLessThanOrEqual(textLimit);
  const last = `out_s${networkSlots - 1}`;
  expect(texts[0]).toContain(`add rule inet atoll ${last} drop\n`);
  expect(texts[0]).toContain(`: jump ${last} }`);
  expect(texts.at(-1)).toContain(`flush chain inet atoll ${last}\n`);
  expect(texts.filter((text) => text.includes('delete table'))).toEqual([texts[0]]);
});

withNft('the kernel takes the tables, takes them again, and forgets a sandbox whether it knew it or not', () => {
  const options = {
    resolverPort: 5353,
    policies: [{ slot: 5, policy }],
    machine: ['203.0.113.1', '::1', '203.0.113.1'],
    opened: ['eth0'],
  };
  const once = routerTable(plan, options).join('') + hostTable(plan, options);
  const shown = load(once);
  expect(shown).toContain('"s5" : jump out_s5');
  expect(load(once + once)).toBe(shown);
  expect(load(once + sandboxRules({ slot: 5, policy }))).toBe(shown);
  const gone = load(once + noSandboxRules(5) + noSandboxRules(6));
  expect(gone).not.toContain('s5');
  expect(gone).not.toContain('s6');
  expect(load(hostTable(plan, options) + noHostTable(plan) + noHostTable(plan))).toBe('');
});
