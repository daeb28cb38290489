/** Networks as the command line writes them. */
import { InvalidArgumentError } from 'commander';
import { addressRange, type NetworkPolicy, type NetworkRule, PlatformError } from '../protocol/index.ts';

export interface NetworkOptions {
  readonly network?: NetworkPolicy['mode'];
  readonly allow?: NetworkRule[];
  readonly deny?: NetworkRule[];
}

export const ruleHelp = 'such as 203.0.113.0/24, 2001:db8::/32,tcp:443, 10.0.0.0/8,udp:5000-6000, all; repeatable';

export function parseMode(text: string): NetworkPolicy['mode'] {
  if (text !== 'none' && text !== 'full') throw new InvalidArgumentError('It is none or full.');
  return text;
}

/** `RANGE[,PROTOCOL[:PORT[-PORT]]]`, or `all` for both kinds of addresses. */
export function collectRule(text: string, earlier: readonly NetworkRule[] = []): NetworkRule[] {
  const match = /^([^,]+)(?:,(tcp|udp)(?::(\d{1,5})(?:-(\d{1,5}))?)?)?$/.exec(text);
  const ranges = match?.[1] === 'all' ? ['0.0.0.0/0', '::/0'] : [match?.[1] ?? ''];
  if (match === null || ranges.some((range) => addressRange(range) === undefined)) {
    throw new InvalidArgumentError('It is RANGE[,tcp|udp[:PORT[-PORT]]], such as 203.0.113.0/24,tcp:443.');
  }
  const [, , protocol, from, to] = match;
  const rule = {
    ...(protocol !== undefined && { protocol: protocol as 'tcp' | 'udp' }),
    ...(from !== undefined && { ports: [{ from: Number(from), to: Number(to ?? from) }] }),
  };
  return [...earlier, ...ranges.map((cidr) => ({ cidr, ...rule }))];
}

/** Lists without a mode mean `full`; undefined: nothing was said. */
export function networkOf({ network, ...lists }: NetworkOptions): NetworkPolicy | undefined {
  const isSaid = network !== undefined || lists.allow !== undefined || lists.deny !== undefined;
  return isSaid ? policyOf(network ?? 'full', lists) : undefined;
}

export function policyOf(mode: NetworkPolicy['mode'], { allow, deny }: Omit<NetworkOptions, 'network'>): NetworkPolicy {
  if (mode === 'full') return { mode, allow: allow ?? [], deny: deny ?? [] };
  if (allow !== undefined || deny !== undefined) {
    throw new PlatformError('invalid_request', '--allow and --deny mean nothing without a network.');
  }
  return { mode };
}

export function readableNetwork(network: NetworkPolicy): string {
  if (network.mode === 'none') return 'none';
  const parts = [
    ...network.allow.map((rule) => `allow ${readableRule(rule)}`),
    ...network.deny.map((rule) => `deny ${readableRule(rule)}`),
  ];
  return ['full', ...parts].join('; ');
}

export function readableRule({ cidr, protocol, ports }: NetworkRule): string {
  const texts = ports?.map(({ from, to }) => (from === to ? String(from) : `${from}-${to}`)).join(' ');
  return [cidr, ...(protocol === undefined ? [] : [texts === undefined ? protocol : `${protocol}:${texts}`])].join(',');
}
