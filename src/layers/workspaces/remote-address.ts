/** Which git remotes the node talks to, and at which address: a name is resolved once, judged, and git is bound to what was judged. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { PlatformError } from '../../protocol/index.ts';
import { closedHostReason, hostOf, mayReach, type RemoteRules } from '../remote-rules.ts';

export interface JudgedRemote {
  readonly url: string;
  /** As a URL has it, without path: what credentials are for. */
  readonly origin: string;
  readonly protocol: 'https' | 'http';
  /** As curl takes it: `host:port:address,address`; null where the host is an address already. */
  readonly resolve: string | null;
}

const urlMaxCharacters = 2_000;
const usualPorts = { 'https:': '443', 'http:': '80' } as const;

export async function judgeRemote(
  text: string,
  options: { readonly rules: RemoteRules; readonly hasCredentials: boolean },
): Promise<JudgedRemote> {
  const url = parseRemote(text);
  const host = hostOf(url);
  const isAllowed = options.rules.allowedHosts.includes(host);
  if (options.hasCredentials && url.protocol === 'http:' && !isAllowed) {
    throw refused('Credentials are not sent over http; use https.');
  }
  const addresses = isIP(host) === 0 ? await addressesOf(host) : [host];
  if (!mayReach(host, addresses, options.rules)) throw refused(`${host} ${closedHostReason}`);
  const port = url.port === '' ? usualPorts[url.protocol as keyof typeof usualPorts] : url.port;
  const shown = addresses.map((address) => (isIP(address) === 6 ? `[${address}]` : address));
  return {
    url: url.href,
    origin: url.origin,
    protocol: url.protocol === 'https:' ? 'https' : 'http',
    resolve: isIP(host) === 0 ? `${host}:${port}:${shown.join(',')}` : null,
  };
}

function parseRemote(text: string): URL {
  if (text.length > urlMaxCharacters) throw refused('The address of the remote is too long.');
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\/[^/]/i.test(text) || !['https:', 'http:'].includes(url.protocol)) {
    throw refused('The address of a remote begins with https:// or http://.');
  }
  if (url.username !== '' || url.password !== '') throw refused('Credentials do not belong into the address.');
  if (url.search !== '' || url.hash !== '') throw refused('The address of a remote has no query.');
  if (/[\0\r\n]/.test(text) || url.hostname === '') throw refused('This is no address of a remote.');
  return url;
}

async function addressesOf(host: string): Promise<readonly string[]> {
  try {
    const found = await lookup(host, { all: true, verbatim: true });
    return found.map(({ address }) => address);
  } catch (cause) {
    throw new PlatformError('workspace_remote_failed', `The name ${host} is not known.`, { cause });
  }
}

function refused(message: string): PlatformError {
  return new PlatformError('invalid_request', message, { details: { path: 'url' } });
}
