/**
 * What of the headers goes through a preview, in each direction.
 *
 *  - Headers that are about one connection end there (RFC 9110, 7.6.1).
 *  - Our own credentials never go in, wherever they stand. Who asks and under which address is said by us alone.
 *  - What a service says goes out, except for what would count beyond its own preview. By path it shares the API's origin and maybe its host
 *    name with other services of the machine, so it neither gets nor sets cookies, and browsers are told to treat its pages as of no origin.
 */
import type { IncomingMessage } from 'node:http';
import { previewToken } from '../../protocol/index.ts';
import type { PreviewAddress } from './preview-addresses.ts';
import { withoutOwnCookie } from './preview-visitor.ts';

/** Names and values in turn, as Node's `rawHeaders` has them. */
export type HeaderList = string[];

const ofOneConnection: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'http2-settings', 'expect'],
]);

/** Where proxies write who asked; from a visitor they are claims. */
const aboutTheVisitor =
  /^(forwarded|via|x-forwarded-.*|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|(cf|fastly|fly)-.*ip|x-original-.*|x-rewrite-url)$/;

/** What lets a visitor in is not for the service. */
const tokenHeaders: ReadonlySet<string> = new Set([previewToken.header.toLowerCase(), 'e2b-traffic-access-token']);

/** A key or a token of this platform. */
const ownSecret = /\b(atoll|e2b)_(prv)?[0-9a-f]{40}\b/;

/** These count for a whole host, a whole domain, or later visits. */
const beyondItself: ReadonlySet<string> = new Set([
  ...['alt-svc', 'clear-site-data', 'nel', 'public-key-pins', 'report-to', 'strict-transport-security'],
]);
const beyondItsPath: ReadonlySet<string> = new Set(['set-cookie', 'service-worker-allowed']);

/** Everything but `allow-same-origin`. */
const noOrigin =
  'sandbox allow-downloads allow-forms allow-modals allow-orientation-lock allow-pointer-lock allow-popups allow-presentation allow-scripts';

/** The headers of a request as the service gets them, without what tells the length of its body. */
export function headersInward(
  request: IncomingMessage,
  address: PreviewAddress,
  options: { readonly scheme: 'http' | 'https' },
): HeaderList {
  const listed = listedIn(request.headers.connection);
  const headers: HeaderList = [];
  for (const [name, value] of pairsOf(request.rawHeaders)) {
    const key = name.toLowerCase();
    if (key === 'host' || key === 'content-length' || ofOneConnection.has(key) || listed.has(key)) continue;
    if (tokenHeaders.has(key) || aboutTheVisitor.test(key) || holdsSecret(key, value)) continue;
    const passed = key === 'cookie' ? cookieInward(value, address) : value;
    if (passed !== '' || value === '') headers.push(name, passed);
  }
  const host = request.headers.host ?? '';
  headers.push('Host', address.requestHost ?? (address.mode === 'host' ? host : `localhost:${address.port}`));
  headers.push('X-Forwarded-For', request.socket.remoteAddress ?? 'unknown');
  headers.push('X-Forwarded-Host', host, 'X-Forwarded-Proto', options.scheme);
  if (address.mode === 'path') headers.push('X-Forwarded-Prefix', address.prefix);
  return headers;
}

/** The headers of an answer as the visitor gets them. */
export function headersOutward(answer: IncomingMessage, address: PreviewAddress): HeaderList {
  const listed = listedIn(answer.headers.connection);
  const headers: HeaderList = [];
  for (const [name, value] of pairsOf(answer.rawHeaders)) {
    const key = name.toLowerCase();
    if (ofOneConnection.has(key) || listed.has(key) || beyondItself.has(key)) continue;
    if (address.mode === 'path' && beyondItsPath.has(key)) continue;
    // Of two lengths the parser has used the chunks'; a visitor must not be told the other one.
    if (key === 'content-length' && answer.headers['transfer-encoding'] !== undefined) continue;
    const passed = key === 'set-cookie' ? cookieOutward(value) : value;
    if (passed !== undefined) headers.push(name, passed);
  }
  if (address.mode === 'path') headers.push('Content-Security-Policy', noOrigin);
  return headers;
}

function* pairsOf(raw: readonly string[]): Generator<readonly [name: string, value: string]> {
  for (let i = 0; i + 1 < raw.length; i += 2) yield [raw[i]!, raw[i + 1]!];
}

/** Names that a Connection header declares to be about this connection too. */
function listedIn(connection: string | undefined): ReadonlySet<string> {
  return new Set((connection ?? '').split(',').map((name) => name.trim().toLowerCase()));
}

function holdsSecret(key: string, value: string): boolean {
  if (key === 'cookie') return false; // Taken out pair by pair.
  if (ownSecret.test(value)) return true;
  const basic = key === 'authorization' ? /^basic +(\S+)/i.exec(value)?.[1] : undefined;
  return basic !== undefined && ownSecret.test(Buffer.from(basic, 'base64').toString('latin1'));
}

function cookieInward(cookie: string, address: PreviewAddress): string {
  return address.mode === 'path' ? '' : withoutOwnCookie(cookie);
}

/** For this host name only, and never ours. */
function cookieOutward(cookie: string): string | undefined {
  if (cookie.split('=', 1)[0]!.trim() === previewToken.cookie) return undefined;
  return cookie
    .split(';')
    .filter((part, index) => index === 0 || !/^\s*domain\s*(=|$)/i.test(part))
    .join(';');
}
