/**
 * What passes, as text for `nft`. There are two tables: one in the router's namespace, which knows sandboxes and their rules, and one on
 * the machine, which lets the router out and keeps it from the machine itself. Neither mixes with a firewall that is there already.
 *
 * Invariants:
 *  - Texts are made of numbers, of names of ours and of ranges as `rangeText` writes them.
 *  - Every packet is judged, in both directions, before the state of its connection counts: a change holds for open connections.
 *  - A sandbox without lists needs no text of its own: it is known by the name of its interface.
 *  - A table is replaced in one transaction of the kernel. The lists of sandboxes that do not fit into it follow in others; until then
 *    those sandboxes reach nothing.
 */
import { assert } from '../../base/index.ts';
import {
  addressRange,
  closedRanges,
  type NetworkPolicy,
  type NetworkRule,
  privateRanges,
  rangeText,
} from '../../protocol/index.ts';
import { linkName, type NetworkPlan, uplinkPrefix } from './plan.ts';

/** Of one sandbox at a time: the machine's table of connections is shared by all, and by the machine. */
export const flowsPerSandbox = 4_096;

/**
 * The machine's table of connections keeps what a sandbox leaves behind until its time is over, which for TCP is five days by default. A
 * connection that is quiet for longer than this is forgotten.
 */
const quietTcpSeconds = 3_600;
const quietUdpSeconds = 120;
/** Of one sandbox, new ones. */
const flowsPerSecond = 500;
const flowsBurst = 1_000;

/** Of one sandbox to the resolver. What it drops itself still takes room in a queue that all share. */
const questionsPerSecond = 400;

/** Of one text, in bytes; a frame to the spawner takes twice as much. Lists of one sandbox are far below it (`networkLimits`). */
export const textLimit = 4 * 1024 * 1024;

export interface SlotPolicy {
  readonly slot: number;
  readonly policy: NetworkPolicy;
}

export function hasOwnRules(policy: NetworkPolicy): boolean {
  return policy.mode === 'full' && (policy.allow.length > 0 || policy.deny.length > 0);
}

/**
 * The router's table with every sandbox that has lists, as texts to be given to the kernel one after the other. `resolverPort` is on the
 * machine's end. `machine`: the addresses that the machine has now; its own table refuses them too, and those that it gets later, but may
 * be flushed with the machine's firewall.
 */
export function routerTable(
  plan: NetworkPlan,
  options: {
    readonly resolverPort: number;
    readonly policies: readonly SlotPolicy[];
    readonly machine: readonly string[];
  },
): string[] {
  const own = options.policies.filter(({ policy }) => hasOwnRules(policy));
  const base = `table inet atoll {}
delete table inet atoll
table inet atoll {
  map rules_out { type ifname : verdict; }
  map rules_in { type ifname : verdict; }
  set machine4 { type ipv4_addr; }
  set machine6 { type ipv6_addr; }
  set flows { type ifname; size 65535; flags dynamic; }
  set opening { type ifname; size 65535; flags dynamic; }
  set asking { type ifname; size 65535; flags dynamic; }
  chain early {
    type filter hook prerouting priority raw; policy accept;
    iifname "s*" ${neighbourMessages(plan.router6)} accept
    iifname "s*" fib saddr . iif oif missing drop
    iifname "s*" udp dport 53 ip daddr ${plan.router4} add @asking { iifname limit rate over ${questionsPerSecond}/second burst ${questionsPerSecond} packets } drop
  }
${forgetting('s*')}  chain resolver {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "s*" ip daddr ${plan.router4} meta l4proto { tcp, udp } th dport 53 dnat ip to ${plan.host4}:${options.resolverPort}
  }
  chain input {
    type filter hook input priority filter; policy drop;
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    iifname "s*" icmp type echo-request limit rate 100/second accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    iifname "s*" oifname "s*" goto refuse
    iifname "s*" oifname "up" ct state new ct status ! confirmed add @opening { iifname limit rate over ${flowsPerSecond}/second burst ${flowsBurst} packets } drop
    iifname "s*" oifname "up" ct state new add @flows { iifname ct count over ${flowsPerSandbox} } drop
    iifname "s*" oifname "up" goto out
    iifname "up" oifname "s*" goto in
  }
  chain out {
    ct state { invalid, untracked } drop
    ct status dnat ip daddr ${plan.host4} accept
    ip daddr @machine4 goto refuse
    ip6 daddr @machine6 goto refuse
    ip daddr ${setOf(closedRanges, 4)} goto refuse
    ip6 daddr ${setOf(closedRanges, 6)} goto refuse
    iifname vmap @rules_out
    ip daddr ${setOf(privateRanges, 4)} goto refuse
    ip6 daddr ${setOf(privateRanges, 6)} goto refuse
    accept
  }
  chain in {
    ct state related meta l4proto { icmp, icmpv6 } accept
    ct state != established drop
    ct status dnat ip saddr ${plan.host4} accept
    oifname vmap @rules_in
    ip saddr ${setOf(privateRanges, 4)} drop
    ip6 saddr ${setOf(privateRanges, 6)} drop
    accept
  }
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
}
${machineAddresses(options.machine)}${own.map(closedSandbox).join('')}`;
  const texts = [base];
  for (const sandbox of own) {
    const text = sandboxRules(sandbox);
    const last = texts.at(-1)!;
    if (last.length + text.length <= textLimit) texts[texts.length - 1] = last + text;
    else texts.push(text);
  }
  return texts;
}

/** The addresses that the machine has, in place of those it had. */
export function machineAddresses(addresses: readonly string[]): string {
  const texts = (family: 4 | 6) => {
    const found = addresses.map(addressRange).filter((range) => range?.family === family);
    const unique = new Set(found.map((range) => rangeText(range!).split('/')[0]));
    return unique.size === 0 ? '' : `add element inet atoll machine${family} { ${[...unique].join(', ')} }\n`;
  };
  return `flush set inet atoll machine4\nflush set inet atoll machine6\n${texts(4)}${texts(6)}`;
}

/** The lists of one sandbox, in place of those it had. */
export function sandboxRules({ slot, policy }: SlotPolicy): string {
  assert(policy.mode === 'full');
  const name = linkName(slot);
  const lines = [
    ...policy.allow.map((rule) => [rule, 'accept'] as const),
    ...policy.deny.map((rule) => [rule, undefined] as const),
  ];
  const rules = lines.flatMap(([rule, verdict]) => [
    `add rule inet atoll out_${name} ${matchOf(rule, 'd')} ${verdict ?? 'goto refuse'}`,
    `add rule inet atoll in_${name} ${matchOf(rule, 's')} ${verdict ?? 'drop'}`,
  ]);
  return `${chainsOf(name)}flush chain inet atoll out_${name}
flush chain inet atoll in_${name}
${rules.join('\n')}
${jumpsOf(name)}`;
}

/** Until its lists stand, a sandbox reaches nothing. */
function closedSandbox({ slot }: SlotPolicy): string {
  const name = linkName(slot);
  return `${chainsOf(name)}add rule inet atoll out_${name} drop\nadd rule inet atoll in_${name} drop\n${jumpsOf(name)}`;
}

/** Nothing of its own is left for the sandbox; it does not matter whether there was something. */
export function noSandboxRules(slot: number): string {
  const name = linkName(slot);
  return `${chainsOf(name)}${jumpsOf(name)}delete element inet atoll rules_out { "${name}" : jump out_${name} }
delete element inet atoll rules_in { "${name}" : jump in_${name} }
delete chain inet atoll out_${name}
delete chain inet atoll in_${name}
`;
}

/**
 * The machine's table. It is asked before any translation of addresses, so that what the machine forwards to its own containers counts as
 * the machine too. `opened`: interfaces that forward because of us, and must not begin to forward for others.
 */
export function hostTable(
  plan: NetworkPlan,
  options: { readonly resolverPort: number; readonly opened: readonly string[] },
): string {
  const { uplink, hostTable: table } = plan;
  const guard = options.opened.map(
    (name) => `    iifname "${name}" oifname != "${uplinkPrefix}*" ct state new ct status ! dnat drop\n`,
  );
  return `table inet ${table} {}
delete table inet ${table}
table inet ${table} {
  chain early {
    type filter hook prerouting priority -290; policy accept;
    iifname "${uplink}" goto from_sandboxes
  }
${forgetting(uplink)}  chain from_sandboxes {
    ${neighbourMessages(plan.host6)} accept
    ip saddr ${plan.range4} ip daddr ${plan.host4} meta l4proto { tcp, udp } th dport ${options.resolverPort} accept
    fib daddr type local reject with icmpx admin-prohibited
    fib daddr type { broadcast, anycast, multicast } drop
    ip saddr ${plan.range4} accept
    ip6 saddr ${plan.range6} accept
    drop
  }
  chain forward {
    type filter hook forward priority -5; policy accept;
    iifname "${uplink}" oifname "${uplinkPrefix}*" drop
    iifname "${uplink}" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
    oifname "${uplink}" ct state != { established, related } drop
${guard.join('')}  }
  chain leaving {
    type nat hook postrouting priority srcnat; policy accept;
    oifname != "${uplink}" ip saddr ${plan.range4} masquerade
    oifname != "${uplink}" ip6 saddr ${plan.range6} masquerade
  }
}
`;
}

export function noHostTable(plan: { readonly hostTable: string }): string {
  return `table inet ${plan.hostTable} {}\ndelete table inet ${plan.hostTable}\n`;
}

/** Part of a table: how long connections that come in here are remembered. It is chosen with their first packet. */
function forgetting(from: string): string {
  const parts = ([4, 6] as const).map((family) => {
    const l3proto = family === 4 ? 'ip' : 'ip6';
    const rule = `    iifname "${from}" meta nfproto ipv${family} ct state new meta l4proto`;
    return {
      policies: `  ct timeout tcp${family} { protocol tcp; l3proto ${l3proto}; policy = { established : ${quietTcpSeconds} }; }
  ct timeout udp${family} { protocol udp; l3proto ${l3proto}; policy = { replied : ${quietUdpSeconds} }; }
`,
      rules: `${rule} tcp ct timeout set "tcp${family}"\n${rule} udp ct timeout set "udp${family}"\n`,
    };
  });
  return `${parts.map(({ policies }) => policies).join('')}  chain remembered {
    type filter hook prerouting priority mangle; policy accept;
${parts.map(({ rules }) => rules).join('')}  }
`;
}

/** Those that stay on a link. One to an address elsewhere would be routed, with a source that nobody has looked at. */
function neighbourMessages(own6: string): string {
  return `icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 daddr { fe80::/10, ff02::/16, ${own6} }`;
}

function chainsOf(name: string): string {
  return `add chain inet atoll out_${name}\nadd chain inet atoll in_${name}\n`;
}

function jumpsOf(name: string): string {
  return `add element inet atoll rules_out { "${name}" : jump out_${name} }
add element inet atoll rules_in { "${name}" : jump in_${name} }
`;
}

function matchOf(rule: NetworkRule, side: 'd' | 's'): string {
  const range = addressRange(rule.cidr);
  assert(range !== undefined, `"${rule.cidr}" is no range.`);
  const address = `${range.family === 4 ? 'ip' : 'ip6'} ${side}addr ${rangeText(range)}`;
  if (rule.protocol === undefined) return address;
  if (rule.ports === undefined) return `${address} meta l4proto ${rule.protocol}`;
  const ports = joined(rule.ports).map(({ from, to }) => `${from}-${to}`);
  return `${address} ${rule.protocol} ${side}port { ${ports.join(', ')} }`;
}

/** The same ports as ranges that do not overlap, which is what a set of the kernel takes. */
function joined(ports: readonly { readonly from: number; readonly to: number }[]): { from: number; to: number }[] {
  const ranges: { from: number; to: number }[] = [];
  for (const { from, to } of [...ports].sort((a, b) => a.from - b.from)) {
    const last = ranges.at(-1);
    if (last !== undefined && from <= last.to + 1) last.to = Math.max(last.to, to);
    else ranges.push({ from, to });
  }
  return ranges;
}

function setOf(ranges: readonly string[], family: 4 | 6): string {
  const chosen = ranges.map(addressRange).filter((range) => range?.family === family);
  return `{ ${chosen.map((range) => rangeText(range!)).join(', ')} }`;
}
