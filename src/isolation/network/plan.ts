/**
 * Names and addresses of a node's network. Everything follows from the node's tag and the number of its subnet, so that what is found on
 * the machine after a crash can be told by name.
 *
 *   198.18.0.0/15 is set aside for tests of network devices: no network that people use has it. Each node takes 4,096 addresses of it.
 *   fdXX:XXXX:XXXX::/64 is made from the tag, as the standard for local addresses asks.
 *
 * Invariant: two slots of a node have different addresses, and none has one of the node's own.
 */
import { createHash } from 'node:crypto';
import type { NetworkLink } from '../spawner-protocol.ts';

/** As native/network.h has it. */
export const networkSlots = 4_000;
const firstAddress = 198 * 2 ** 24 + 18 * 2 ** 16;
const subnetBits = 12;
export const subnetCount = 2 ** (17 - subnetBits);
/** Below it are the node's own addresses. */
const firstSlotOffset = 16;

export const uplinkPrefix = 'atoll';

export interface NetworkNames {
  /** Of the interface on the machine's side. */
  readonly uplink: string;
  readonly namespace: string;
  /** The file that holds the namespace. */
  readonly router: string;
  readonly hostTable: string;
  /** The first three groups of IPv6 addresses. */
  readonly prefix6: string;
}

export function networkNames(dataDirectory: string): NetworkNames {
  const hash = createHash('sha256').update(dataDirectory).digest('hex');
  const tag = hash.slice(0, 8);
  return {
    uplink: `${uplinkPrefix}${tag}`,
    namespace: `atoll-${tag}`,
    router: `/run/netns/atoll-${tag}`,
    hostTable: `atoll_${tag}`,
    prefix6: `fd${hash.slice(8, 10)}:${hash.slice(10, 14)}:${hash.slice(14, 18)}`,
  };
}

export interface NetworkPlan extends NetworkNames {
  readonly subnet: number;
  readonly range4: string;
  readonly range6: string;
  /** The machine's end of the link to the router. */
  readonly host4: string;
  readonly host6: string;
  /** The router's end: gateway of every sandbox, and where their resolver is. */
  readonly router4: string;
  readonly router6: string;
  /** Whether the machine routes IPv6 for sandboxes. */
  readonly hasIpv6: boolean;
}

export function networkPlan(
  names: NetworkNames,
  options: { readonly subnet: number; readonly hasIpv6: boolean },
): NetworkPlan {
  const base = baseOf(options.subnet);
  return {
    ...names,
    ...options,
    range4: `${text4(base)}/${32 - subnetBits}`,
    range6: `${names.prefix6}::/64`,
    host4: text4(base + 1),
    host6: `${names.prefix6}::1`,
    router4: text4(base + 2),
    router6: `${names.prefix6}::2`,
  };
}

/** Which subnet an address of ours is in; undefined: it is none of ours. */
export function subnetOf(address: string): number | undefined {
  const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  const subnet = Math.floor((value - firstAddress) / 2 ** subnetBits);
  return Number.isInteger(value) && subnet >= 0 && subnet < subnetCount ? subnet : undefined;
}

export function address4Of(plan: NetworkPlan, slot: number): string {
  return text4(baseOf(plan.subnet) + firstSlotOffset + slot);
}

export function linkName(slot: number): string {
  return `s${slot}`;
}

export function networkLink(
  plan: NetworkPlan,
  options: { readonly slot: number; readonly alias: string },
): NetworkLink {
  const { slot, alias } = options;
  const link = {
    router: plan.router,
    slot,
    alias,
    address4: bytes4(address4Of(plan, slot)),
    gateway4: bytes4(plan.router4),
  };
  return plan.hasIpv6 ? { ...link, address6: bytes6(plan.prefix6, firstSlotOffset + slot) } : link;
}

function baseOf(subnet: number): number {
  return firstAddress + subnet * 2 ** subnetBits;
}

function text4(value: number): string {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.');
}

function bytes4(text: string): Uint8Array {
  return Uint8Array.from(text.split('.').map(Number));
}

function bytes6(prefix6: string, last: number): Uint8Array {
  const bytes = Buffer.alloc(16);
  for (const [index, group] of prefix6.split(':').entries()) bytes.writeUInt16BE(Number.parseInt(group, 16), index * 2);
  bytes.writeUInt32BE(last, 12);
  return bytes;
}
