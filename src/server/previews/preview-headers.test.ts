import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { goodKey, testId } from '../../../test/support/fake-control.ts';
import type { PreviewAddress } from './preview-addresses.ts';
import { headersInward, headersOutward } from './preview-headers.ts';
import { cookieRedirect, isNavigation, visitorOf } from './preview-visitor.ts';

const byHost: PreviewAddress = { sandboxId: testId('sandbox', 'a'), port: 80, mode: 'host', prefix: '', target: '/' };
const byPath: PreviewAddress = { ...byHost, mode: 'path', prefix: '/preview/x/80' };
const token = `atoll_prv${'1'.repeat(40)}`;

/** As Node gives them: all in order, and by name in lower case. */
function message(...raw: string[]): IncomingMessage {
  const headers: Record<string, string> = {};
  for (let i = 0; i < raw.length; i += 2) headers[raw[i]!.toLowerCase()] = raw[i + 1]!;
  return { rawHeaders: raw, headers, socket: { remoteAddress: '::1' } } as unknown as IncomingMessage;
}
const inward = (address: PreviewAddress, ...raw: string[]) =>
  headersInward(message('Host', 'h.localhost', ...raw), address, { scheme: 'http' });

test('inside they are as they were, in order and twice where twice, with who asks set by us', () => {
  expect(inward(byHost, 'X-A', '1', 'x-a', '2', 'Empty', '')).toEqual([
    ...['X-A', '1', 'x-a', '2', 'Empty', '', 'Host', 'h.localhost'],
    ...['X-Forwarded-For', '::1', 'X-Forwarded-Host', 'h.localhost', 'X-Forwarded-Proto', 'http'],
  ]);
});

test('none of our credentials goes in, however it is dressed', () => {
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
  const e2b = `e2b_${'a'.repeat(40)}`;
  const dressed: [string, string][] = [
    ['Authorization', `Bearer ${goodKey}`],
    ['authorization', `bearer   ${e2b}`],
    ['Authorization', basic(`${goodKey}:`)],
    ['X-API-Key', e2b],
    ['ATOLL-PREVIEW-TOKEN', 'anything'],
    ['Referer', `http://x/?atoll_preview_token=${token}`],
    ['Cookie', `atoll_preview=${token}`],
  ];
  const bare = inward(byHost);
  for (const [name, value] of dressed) expect(inward(byHost, name, value)).toEqual(bare);
  expect(inward(byHost, 'Cookie', `a=1; atoll_preview=${token};b=2`).slice(0, 2)).toEqual(['Cookie', 'a=1; b=2']);
  expect(inward(byPath, 'Cookie', 'a=1')).toEqual(inward(byPath));
  expect(inward(byHost, 'Authorization', basic('a:b'))).toContain(basic('a:b'));
});

test('headers of one connection end there, those that Connection lists included', () => {
  const hop = ['Connection', 'close, X-Mine', 'X-Mine', '1', 'Keep-Alive', 'x', 'TE', 'trailers', 'Upgrade', 'h2c'];
  expect(inward(byHost, ...hop, 'Proxy-Authorization', 'x', 'Expect', '100-continue')).toEqual(inward(byHost));
  expect(headersOutward(message(...hop, 'X-End', '2', 'Transfer-Encoding', 'chunked'), byHost)).toEqual(['X-End', '2']);
});

test('a length beside chunks is not told', () => {
  const both = message('Content-Length', '5', 'Transfer-Encoding', 'chunked');
  expect(headersOutward(both, byHost)).toEqual([]);
  expect(headersOutward(message('Content-Length', '5'), byHost)).toEqual(['Content-Length', '5']);
});

test('a cookie of a service is for its own host name, and never takes the place of ours', () => {
  const set = (cookie: string) => headersOutward(message('Set-Cookie', cookie), byHost)[1];
  expect(set('a=1; Domain=example.com; Path=/; Secure')).toBe('a=1; Path=/; Secure');
  expect(set('a=domain=x; DOMAIN = .x ;HttpOnly')).toBe('a=domain=x;HttpOnly');
  for (const ours of ['atoll_preview=x', ' atoll_preview =x; Path=/']) expect(set(ours)).toBeUndefined();
  expect(headersOutward(message('Set-Cookie', 'a=1'), byPath)).toEqual(['Content-Security-Policy', expect.any(String)]);
});

test('a token is taken from header, query or cookie, in this order, and the rest of the query stays as it was', () => {
  const query = `/p?a=%2F&atoll_preview_token=${token}&b`;
  expect(visitorOf(query, {})).toEqual({ token, target: '/p?a=%2F&b', isFromQuery: true });
  expect(visitorOf(query, { 'atoll-preview-token': 'h' })).toMatchObject({ token: 'h', target: '/p?a=%2F&b' });
  expect(visitorOf('/p?c', { cookie: 'x=1; atoll_preview=c; y' })).toEqual({
    ...{ token: 'c', target: '/p?c', isFromQuery: false },
  });
  expect(visitorOf('/atoll_preview_token', { cookie: 'xatoll_preview=c' }).token).toBeUndefined();
  expect(visitorOf(`/p?atoll_preview_token=${token}`, {}).target).toBe('/p');
  const odd = visitorOf('/p?atoll_preview_token=x;Domain=localhost', {});
  expect(odd).toEqual({ token: 'x;Domain=localhost', target: '/p', isFromQuery: false });
});

test('the redirect stays on this host, and its cookie in this preview', () => {
  const visitor = { token, target: '//evil.example/x', isFromQuery: true };
  const { Location } = cookieRedirect(visitor, byHost, { isSecure: false });
  expect(new URL(Location!, 'http://h.localhost').host).toBe('h.localhost');
  expect(cookieRedirect(visitor, byPath, { isSecure: true })['Set-Cookie']).toBe(
    `atoll_preview=${token}; Path=/preview/x/80/; HttpOnly; SameSite=Lax; Secure`,
  );
});

test('only what a person looks at is a navigation', () => {
  expect(isNavigation('GET', { accept: 'text/html,*/*' })).toBe(true);
  expect(isNavigation('GET', { 'sec-fetch-mode': 'navigate' })).toBe(true);
  expect(isNavigation('POST', { accept: 'text/html' })).toBe(false);
  expect(isNavigation('GET', { accept: '*/*' })).toBe(false);
});
