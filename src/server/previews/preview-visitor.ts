/**
 * What a visitor of a preview brings to be let in: its token, in a header, in the query or in the cookie that the query is turned into. None of
 * them is passed to the service.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { previewToken } from '../../protocol/index.ts';
import type { PreviewAddress } from './preview-addresses.ts';

/** Nothing else is written into a cookie. */
const tokenPattern = /^atoll_prv[0-9a-f]{40}$/;

export interface Visitor {
  readonly token: string | undefined;
  /** The service's own path, without the token. */
  readonly target: string;
  /** The token stood in the query, and may be one. */
  readonly isFromQuery: boolean;
}

export function visitorOf(target: string, headers: IncomingHttpHeaders): Visitor {
  const queried = takeQueryToken(target);
  const header = headers[previewToken.header.toLowerCase()];
  const token = (typeof header === 'string' ? header : undefined) ?? queried.token ?? cookieToken(headers.cookie);
  return { token, target: queried.target, isFromQuery: tokenPattern.test(queried.token ?? '') };
}

/** Whether a person looks at it: then the token moves from the address into a cookie, and out of sight. */
export function isNavigation(method: string, headers: IncomingHttpHeaders): boolean {
  if (method !== 'GET' && method !== 'HEAD') return false;
  return headers['sec-fetch-mode'] === 'navigate' || (headers.accept ?? '').includes('text/html');
}

/** The answer to a navigation with the token in its query. */
export function cookieRedirect(
  visitor: Visitor,
  address: PreviewAddress,
  options: { readonly isSecure: boolean },
): Record<string, string> {
  const path = `${address.prefix}${visitor.target}`;
  const secure = options.isSecure ? '; Secure' : '';
  return {
    // A path that begins with two slashes would name another host.
    Location: path.startsWith('//') ? `/.${path}` : path,
    'Set-Cookie': `${previewToken.cookie}=${visitor.token}; Path=${address.prefix}/; HttpOnly; SameSite=Lax${secure}`,
    'Referrer-Policy': 'no-referrer',
  };
}

/** The pairs of a Cookie header without our own. */
export function withoutOwnCookie(cookie: string): string {
  return pairsOf(cookie)
    .filter(({ name }) => name !== previewToken.cookie)
    .map(({ text }) => text)
    .join('; ');
}

function cookieToken(cookie: string | undefined): string | undefined {
  if (cookie === undefined || !cookie.includes(previewToken.cookie)) return undefined;
  return pairsOf(cookie).find(({ name }) => name === previewToken.cookie)?.value;
}

function pairsOf(cookie: string) {
  return cookie.split(';').map((part) => {
    const text = part.trim();
    const equalsAt = text.indexOf('=');
    return { text, name: text.slice(0, Math.max(0, equalsAt)), value: text.slice(equalsAt + 1) };
  });
}

function takeQueryToken(target: string): { readonly token: string | undefined; readonly target: string } {
  if (!target.includes(previewToken.query)) return { token: undefined, target };
  const queryAt = target.indexOf('?');
  if (queryAt === -1) return { token: undefined, target };
  let token: string | undefined;
  // By hand, so that the rest of the query stays as the visitor wrote it.
  const kept = target
    .slice(queryAt + 1)
    .split('&')
    .filter((pair) => {
      if (!pair.startsWith(`${previewToken.query}=`)) return true;
      token = pair.slice(previewToken.query.length + 1);
      return false;
    });
  const query = kept.length === 0 ? '' : `?${kept.join('&')}`;
  return { token, target: target.slice(0, queryAt) + query };
}
