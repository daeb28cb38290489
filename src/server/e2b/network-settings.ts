/** E2B's network settings as a policy of this platform. What has no counterpart is refused by name. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { fullNetwork, type NetworkPolicy, networkPolicy, noNetwork } from '../../protocol/index.ts';
import type { Shown } from '../control-port.ts';
import { parsePart } from '../invalid-request.ts';
import { E2bError, notSupported } from './e2b-error.ts';

const everyV4 = '0.0.0.0/0';
const everyV6 = '::/0';

export const egressSettings = z.object({
  allowOut: z.array(z.string()).nullish(),
  denyOut: z.array(z.string()).nullish(),
  rules: z.record(z.string(), z.unknown()).nullish(),
  egressProxy: z.unknown().optional(),
});
type EgressSettings = z.output<typeof egressSettings>;

/** undefined: nothing was said, and the server's default holds. */
export function policyOf(egress: EgressSettings, internetAccess: boolean | undefined): NetworkPolicy | undefined {
  if (Object.keys(egress.rules ?? {}).length > 0)
    throw notSupported('Network rules by domain and transforms of requests are');
  if (egress.egressProxy !== undefined && egress.egressProxy !== null) throw notSupported('An egress proxy is');
  const allow = (egress.allowOut ?? []).map(addressOf);
  const deny = (egress.denyOut ?? []).map(addressOf);
  if (allow.length === 0 && (internetAccess === false || isEverything(deny))) return noNetwork;
  if (allow.length === 0 && deny.length === 0) return internetAccess === undefined ? undefined : fullNetwork;
  if (internetAccess === false) deny.push(everyV4);
  if (deny.includes(everyV4) && !deny.includes(everyV6)) deny.push(everyV6);
  const policy = { mode: 'full', allow: allow.filter((cidr) => cidr !== everyV4).map(rule), deny: deny.map(rule) };
  // Allow goes before deny: with everything allowed nothing is denied.
  return parsePart(networkPolicy, 'body', allow.includes(everyV4) ? fullNetwork : policy);
}

/** As a client is shown it. */
export function egressOf(policy: Shown<NetworkPolicy>): { allowOut: string[]; denyOut: string[] } {
  if (policy.mode === 'none') return { allowOut: [], denyOut: [everyV4] };
  const shown = (rules: readonly { readonly cidr: string }[]) =>
    rules.map(({ cidr }) => cidr).filter((cidr) => cidr !== everyV6);
  return { allowOut: shown(policy.allow), denyOut: shown(policy.deny) };
}

function isEverything(deny: readonly string[]): boolean {
  return deny.includes(everyV4);
}

function rule(cidr: string): { cidr: string } {
  return { cidr };
}

function addressOf(text: string): string {
  if (isIP(text.split('/')[0]!) !== 0) return text;
  if (/^[*a-z0-9.-]+$/i.test(text)) throw notSupported(`The domain "${text.slice(0, 100)}" in a network rule is`);
  throw new E2bError(400, `"${text.slice(0, 100)}" is no address and no range of addresses.`);
}
