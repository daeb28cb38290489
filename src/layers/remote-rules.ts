/**
 * Which hosts the node asks for what a team names: git remotes and registries. The node stands where sandboxes and teams do not: what only it
 * reaches is no team's to ask for, unless the operator allows the host by name.
 *
 * Always true: what is judged is what is connected to. A name is resolved once for a connection, so that it cannot mean another address a
 * moment later.
 */
import { type LookupAddress, type LookupAllOptions, lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { closedRanges, isWithin, type PlatformError, privateRanges } from '../protocol/index.ts';

export interface RemoteRules {
  /** Hosts that the operator allows by name (`git.example.internal`, `127.0.0.1`), wherever they lead. */
  readonly allowedHosts: readonly string[];
}

export const noPrivateHosts: RemoteRules = { allowedHosts: [] };

/** As the rules name it: an IPv6 address without the brackets of a URL. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

export function mayReach(host: string, addresses: readonly string[], rules: RemoteRules): boolean {
  return rules.allowedHosts.includes(host) || !addresses.some(isClosed);
}

export const closedHostReason =
  'leads to an address that only this node reaches. An operator can allow the host by name (ATOLL_PRIVATE_HOSTS).';

export type FindAddresses = (
  host: string,
  options: LookupAllOptions,
  callback: (error: NodeJS.ErrnoException | null, found: LookupAddress[]) => void,
) => void;

/** How a connection finds the addresses of its host; fails with what `refuse` makes when one of them may not be reached. */
export function judgedLookup(
  rules: RemoteRules,
  refuse: (host: string) => PlatformError,
  find: FindAddresses = lookup,
): LookupFunction {
  return (host, options, callback) =>
    find(host, { ...options, all: true }, (error, found) => {
      if (error !== null) return callback(error, '');
      const addresses = found.map(({ address }) => address);
      if (!mayReach(host, addresses, rules)) return callback(refuse(host), '');
      if (options.all === true) return callback(null, found);
      callback(null, found[0]!.address, found[0]!.family);
    });
}

/** A host that is an address is connected to without a lookup, and so judged beforehand. */
export function isClosedAddress(host: string, rules: RemoteRules): boolean {
  return isIP(host) !== 0 && !mayReach(host, [host], rules);
}

/** An IPv4 address in the clothes of IPv6 is judged as what it is: `closedRanges` has that whole range. */
function isClosed(address: string): boolean {
  const plain = address.replace(/%.*$/, '');
  return [...closedRanges, ...privateRanges].some((range) => isWithin(plain, range));
}
