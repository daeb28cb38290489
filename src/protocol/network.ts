/**
 * What of the network a sandbox reaches. A policy is one whole value: it is chosen at creation, replaced while the sandbox runs, and
 * enforced outside of it.
 *
 * With `full` a packet is judged in this order: what no rule can open (`closedRanges`), `allow`, `deny`, what only a rule opens
 * (`privateRanges`), and the rest passes. A list that is given with `none` would mean nothing, so it is refused.
 */
import { z } from 'zod';
import { addressRange, isWithin } from './address-ranges.ts';

/** `rules` of a list, `ports` of a rule, `portsOfAll` of all rules together; ports count as ranges. */
export const networkLimits = { rules: 128, ports: 16, portsOfAll: 256 } as const;

/** Never reached, whatever a rule says: the machine's and neighbours' side, link-local and metadata addresses, multicast. */
export const closedRanges: readonly string[] = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  '::/96',
  '::ffff:0:0/96',
  'fe80::/10',
  'ff00::/8',
  'fd00:ec2::254/128',
];

/** Reached only where `allow` names them: what is private to the machine's surroundings. */
export const privateRanges: readonly string[] = [
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '100.64.0.0/10',
  '192.0.0.0/24',
  'fc00::/7',
  'fec0::/10',
  '64:ff9b:1::/48',
  // The same private and closed IPv4 addresses behind a NAT64 gateway.
  '64:ff9b::10.0.0.0/104',
  '64:ff9b::172.16.0.0/108',
  '64:ff9b::192.168.0.0/112',
  '64:ff9b::100.64.0.0/106',
  '64:ff9b::127.0.0.0/104',
  '64:ff9b::169.254.0.0/112',
];

const cidr = z
  .string()
  .max(50)
  .refine(
    (text) => addressRange(text) !== undefined,
    'It is an address or a range, such as 203.0.113.0/24 or 2001:db8::/32.',
  );

const port = z.int().min(1).max(65_535);
const portRange = z
  .strictObject({ from: port, to: port })
  .refine(({ from, to }) => from <= to, 'A range of ports begins with the smaller one.');

/** One kind of rule so far: by address. Each kind is told by its own key, so that another can be added beside it. */
const addressRule = z
  .strictObject({
    cidr,
    /** Absent: every protocol. */
    protocol: z.enum(['tcp', 'udp']).optional(),
    /** At the other end. Absent: every port. */
    ports: z.array(portRange).min(1).max(networkLimits.ports).optional(),
  })
  .refine(({ protocol, ports }) => ports === undefined || protocol !== undefined, 'Ports need a protocol: tcp or udp.');

const networkRule = addressRule;
const allowRule = networkRule.refine(
  (rule) => !closedRanges.some((range) => isWithin(rule.cidr, range)),
  'The machine, other sandboxes, loopback, link-local, metadata and multicast addresses cannot be allowed.',
);
const rules = <Rule extends z.ZodType>(rule: Rule) => z.array(rule).max(networkLimits.rules);

export const networkPolicy = z.discriminatedUnion('mode', [
  z.strictObject({ mode: z.literal('none') }),
  z
    .strictObject({
      mode: z.literal('full'),
      allow: rules(allowRule).default([]),
      deny: rules(networkRule).default([]),
    })
    .refine(
      ({ allow, deny }) =>
        [...allow, ...deny].reduce((sum, { ports }) => sum + (ports?.length ?? 0), 0) <= networkLimits.portsOfAll,
      `All rules together have at most ${networkLimits.portsOfAll} ranges of ports.`,
    ),
]);

export type NetworkPolicy = z.output<typeof networkPolicy>;
export type NetworkRule = z.output<typeof networkRule>;

export const noNetwork: NetworkPolicy = { mode: 'none' };
export const fullNetwork: NetworkPolicy = { mode: 'full', allow: [], deny: [] };
