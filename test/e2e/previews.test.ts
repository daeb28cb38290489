/** Previews through HTTP, control, node and init, with real services inside real sandboxes: who is let in, and what goes through. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect } from 'vitest';
import { WebSocket } from 'ws';
import { anonymousBytesOf } from '../../bench/system.ts';
import type { Exposure, Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { openVisit, startService, type Visit, type VisitOptions, visit } from '../support/preview-rig.ts';
import { goodService } from '../support/preview-services.ts';
import { touch } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('python3'));

let platform: Platform;
let sandbox: Sandbox;
let preview: Exposure;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
  await startService(sandbox, goodService(3000));
  preview = await sandbox.ports.expose(3000);
});
afterAll(() => platform.close());

interface Echo {
  readonly method: string;
  readonly url: string;
  readonly headers: [string, string][];
  readonly body: string;
  readonly from: number;
}

const see = (url: string, options: VisitOptions = {}) => visit(platform.server.url, url, options);
/** With the token. */
const enter = (path: string, { headers = {}, ...options }: VisitOptions = {}, from: Exposure = preview) =>
  see(new URL(path.replace(/^\//, './'), from.url).href, {
    ...options,
    headers: { 'Atoll-Preview-Token': from.token, ...headers },
  });
const byPath = (exposure: Exposure): Exposure => ({ ...exposure, url: exposure.pathUrl });
const echoOf = ({ text }: Visit) => JSON.parse(text) as Echo;
const header = (echo: Echo, name: string) => echo.headers.filter(([key]) => key === name).map(([, value]) => value);
const errorOf = ({ status, text }: Visit) => ({ status, code: JSON.parse(text).error.code as string });

test('E125: a preview is served by host name and by path, with any method', async () => {
  for (const from of [preview, byPath(preview), { ...preview, url: sandbox.ports.url(3000) }]) {
    const seen = await enter('a/b?c=%20d&e', { method: 'POST', body: 'hello' }, from);
    expect(seen.status).toBe(200);
    expect(echoOf(seen)).toMatchObject({ method: 'POST', url: '/a/b?c=%20d&e', body: 'hello' });
  }
  for (const method of ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PURGE']) {
    expect(echoOf(await enter('/', { method }))).toMatchObject({ method, url: '/', body: '' });
  }
  expect(await enter('/', { method: 'HEAD' })).toMatchObject({ status: 200, text: '' });
  const chunked = await enter('/', { method: 'POST', headers: { 'Transfer-Encoding': 'chunked' }, body: 'in chunks' });
  expect(echoOf(chunked).body).toBe('in chunks');
});

test('E125: without its token nobody gets in, unless the port was declared public', async () => {
  for (const url of [preview.url, preview.pathUrl]) {
    expect(errorOf(await see(url))).toEqual({ status: 401, code: 'preview_token_invalid' });
    const wrong = { 'Atoll-Preview-Token': `atoll_prv${'0'.repeat(40)}` };
    expect(errorOf(await see(url, { headers: wrong }))).toEqual({ status: 401, code: 'preview_token_invalid' });
    // A key of the API is no token.
    const key = { Authorization: `Bearer ${platform.key}`, 'Atoll-Preview-Token': platform.key };
    expect(errorOf(await see(url, { headers: key }))).toEqual({ status: 401, code: 'preview_token_invalid' });
  }
  const opened = await sandbox.ports.expose(3000, { public: true });
  expect(opened).toMatchObject({ public: true, token: preview.token });
  expect((await see(preview.url)).status).toBe(200);
  expect((await see(preview.pathUrl)).status).toBe(200);
  expect(await sandbox.ports.expose(3000)).toMatchObject({ public: true });
  await sandbox.ports.expose(3000, { public: false });
  expect((await see(preview.url)).status).toBe(401);
});

test('E125: a token in the query becomes a cookie of this preview alone, and does not reach the service', async () => {
  const navigation = { Accept: 'text/html' };
  for (const [url, path] of [
    [preview.url, '/'],
    [preview.pathUrl, `/preview/${sandbox.id}/3000/`],
  ] as const) {
    const first = await see(`${url}page?a=1&atoll_preview_token=${preview.token}&b=2`, { headers: navigation });
    expect(first).toMatchObject({ status: 303, text: '' });
    expect(first.headers.location).toBe(`${path}page?a=1&b=2`);
    const [cookie] = first.headers['set-cookie']!;
    expect(cookie).toBe(`atoll_preview=${preview.token}; Path=${path}; HttpOnly; SameSite=Lax`);
    const second = await see(new URL(first.headers.location!, url).href, {
      headers: { ...navigation, Cookie: `own=1; ${cookie!.split(';')[0]}; other=2` },
    });
    expect(second.status).toBe(200);
    expect(second.text).not.toContain(preview.token);
    expect(header(echoOf(second), 'cookie')).toEqual(url === preview.url ? ['own=1; other=2'] : []);
  }
  for (const end of ['', `?a=1&atoll_preview_token=${preview.token}`]) {
    const bare = await see(`${preview.pathUrl.slice(0, -1)}${end}`, { headers: navigation });
    expect(bare).toMatchObject({ status: 308, headers: { location: `/preview/${sandbox.id}/3000/${end}` } });
  }
  // A program gets its answer at once, without the token in what the service sees.
  const direct = await see(`${preview.url}x?atoll_preview_token=${preview.token}`);
  expect(echoOf(direct).url).toBe('/x');
  const bad = await see(`${preview.url}?atoll_preview_token=${preview.token}0`, { headers: navigation });
  expect(errorOf(bad)).toEqual({ status: 401, code: 'preview_token_invalid' });
  expect(bad.headers['set-cookie']).toBeUndefined();
  const elsewhere = await see(`${preview.url}/evil.example/?atoll_preview_token=${preview.token}`, {
    headers: navigation,
  });
  expect(new URL(elsewhere.headers.location!, preview.url).host).toBe(new URL(preview.url).host);
});

test('E125: rotated and revoked tokens are refused at once, and what they had opened is cut', async () => {
  const own = await sandbox.ports.expose(3000);
  const socket = openSocket(own);
  await said(socket, 1);
  const cut = new Promise((resolve) => socket.once('close', resolve));
  const [stream] = await openVisit(platform.server.url, `${own.url}events?until=/none`, {
    headers: { 'Atoll-Preview-Token': own.token },
  });
  const streamCut = expect(stream.toArray()).rejects.toMatchObject({ code: 'ECONNRESET' });
  preview = await sandbox.ports.rotateToken(3000);
  await Promise.all([cut, streamCut]);
  expect(preview.token).not.toBe(own.token);
  expect(errorOf(await enter('/', {}, own))).toEqual({ status: 401, code: 'preview_token_invalid' });
  expect((await enter('/')).status).toBe(200);
  expect((await sandbox.ports.expose(3000)).token).toBe(preview.token);

  await sandbox.ports.unexpose(3000);
  await sandbox.ports.unexpose(3000);
  expect(errorOf(await enter('/'))).toEqual({ status: 404, code: 'port_not_exposed' });
  const again = await sandbox.ports.expose(3000);
  expect(again.token).not.toBe(preview.token);
  expect((await enter('/')).status).toBe(401);
  preview = again;
  await expect(sandbox.ports.rotateToken(9)).rejects.toMatchObject({ code: 'port_not_exposed' });
});

test('E125: what a visitor claims about itself is replaced by what is so', async () => {
  const claims = {
    'X-Forwarded-For': '10.0.0.1',
    'X-Forwarded-Host': 'bank.example',
    'X-Forwarded-Proto': 'https',
    'X-Forwarded-Anything': 'x',
    Forwarded: 'for=10.0.0.1',
    'X-Real-IP': '10.0.0.1',
    'CF-Connecting-IP': '10.0.0.1',
    Via: '1.1 somewhere',
  };
  for (const from of [preview, byPath(preview)]) {
    const echo = echoOf(await enter('/', { headers: { ...claims, 'X-Own': 'kept' } }, from));
    const host = new URL(from.url).host;
    expect(JSON.stringify(echo)).not.toMatch(/10\.0\.0\.1|bank\.example|somewhere|anything/);
    expect(header(echo, 'x-forwarded-for')).toEqual(['127.0.0.1']);
    expect(header(echo, 'x-forwarded-host')).toEqual([host]);
    expect(header(echo, 'x-forwarded-proto')).toEqual(['http']);
    expect(header(echo, 'x-own')).toEqual(['kept']);
    expect(header(echo, 'host')).toEqual([from === preview ? host : 'localhost:3000']);
  }
  const prefixed = echoOf(await enter('/', {}, byPath(preview)));
  expect(header(prefixed, 'x-forwarded-prefix')).toEqual([`/preview/${sandbox.id}/3000`]);
});

test('E125: our credentials do not reach the service, and its own do', async () => {
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
  for (const [name, value] of [
    ['Authorization', `Bearer ${platform.key}`],
    ['Authorization', basic(`x:${platform.key}`)],
    ['X-API-Key', platform.key],
    ['Referer', `${preview.url}?atoll_preview_token=${preview.token}`],
  ] as const) {
    const seen = await enter('/', { headers: { [name]: value } });
    expect(header(echoOf(seen), name.toLowerCase())).toEqual([]);
    expect(seen.text).not.toContain(preview.token);
  }
  const own = echoOf(
    await enter('/', { headers: { Authorization: basic('user:password'), Connection: 'X-Hop', 'X-Hop': '1' } }),
  );
  expect(header(own, 'authorization')).toEqual([basic('user:password')]);
  expect(header(own, 'x-hop')).toEqual([]);
});

test('E125: a service sets no more than its own preview', async () => {
  const host = (await enter('sets')).headers;
  expect(host['set-cookie']).toEqual(['mine=1; Path=/; HttpOnly']);
  expect(host['x-end']).toBe('two');
  expect(host['content-security-policy']).toBe("default-src 'self'");
  const path = (await enter('sets', {}, byPath(preview))).headers;
  expect(path['set-cookie']).toBeUndefined();
  expect(path['service-worker-allowed']).toBeUndefined();
  expect(path['content-security-policy']).toMatch(/^default-src 'self', sandbox (?!.*allow-same-origin)/);
  for (const headers of [host, path]) {
    expect(headers).not.toHaveProperty('clear-site-data');
    expect(headers).not.toHaveProperty('strict-transport-security');
    expect(headers).not.toHaveProperty('x-hop');
  }
});

test('E125: redirects are passed as they are', async () => {
  for (const status of [301, 302, 303, 307, 308]) {
    for (const to of ['/elsewhere', 'https://example.com/x?y']) {
      const seen = await enter(`redirect?status=${status}&to=${encodeURIComponent(to)}`, {}, byPath(preview));
      expect(seen).toMatchObject({ status, headers: { location: to } });
    }
  }
});

test('E125: an event is seen before the next one happens', async () => {
  const go = `/tmp/${randomUUID()}`;
  const [stream] = await openVisit(platform.server.url, `${preview.url}events?until=${go}`, {
    headers: { 'Atoll-Preview-Token': preview.token, Accept: 'text/event-stream' },
  });
  expect(stream.headers['content-type']).toBe('text/event-stream');
  const chunks = stream.setEncoding('utf8')[Symbol.asyncIterator]();
  expect((await chunks.next()).value).toBe('data: first\n\n');
  await touch(sandbox, go);
  expect((await chunks.next()).value).toBe('data: second\n\n');
  expect((await chunks.next()).done).toBe(true);
});

function openSocket(from: Exposure, options: { readonly token?: 'cookie' | 'query' | 'none' } = {}): WebSocket {
  const url = new URL('socket', from.url);
  const headers: Record<string, string> = { Host: url.host };
  if (options.token === undefined) headers['Atoll-Preview-Token'] = from.token;
  if (options.token === 'cookie') headers['Cookie'] = `atoll_preview=${from.token}`;
  const query = options.token === 'query' ? `?atoll_preview_token=${from.token}` : '';
  const server = platform.server.url.replace('http:', 'ws:');
  return new WebSocket(`${server}${url.pathname}${query}`, { headers });
}

/** The first messages of a WebSocket. */
function said(socket: WebSocket, count: number): Promise<string[]> {
  const { promise, resolve, reject } = Promise.withResolvers<string[]>();
  const texts: string[] = [];
  socket.on('message', (data) => {
    texts.push(String(data));
    if (texts.length === count) resolve(texts);
  });
  socket.once('error', reject);
  socket.once('close', () => reject(new Error('It was closed.')));
  return promise;
}

test('E125: a WebSocket goes both ways, by host name and by path, with the token in a header, a cookie or the query', async () => {
  for (const [from, options] of [
    [preview, {}],
    [byPath(preview), {}],
    [preview, { token: 'cookie' }],
    [preview, { token: 'query' }],
  ] as const) {
    const socket = openSocket(from, options);
    const answers = said(socket, 4);
    socket.once('open', () => {
      for (const text of ['one', 'two', 'x'.repeat(10_000)]) socket.send(text);
    });
    expect(await answers).toEqual(['hello from inside', 'one', 'two', 'x'.repeat(10_000)]);
    socket.close();
  }
  const refused = openSocket(preview, { token: 'none' });
  await expect(said(refused, 1)).rejects.toThrow('401');
});

test('a WebSocket that the service refuses is refused with its own answer', async () => {
  const url = new URL(preview.url);
  const socket = new WebSocket(`${platform.server.url.replace('http:', 'ws:')}/plain`, {
    headers: { Host: url.host, 'Atoll-Preview-Token': preview.token },
  });
  const [, answer] = await new Promise<[unknown, NodeJS.ReadableStream & { statusCode: number }]>((resolve) =>
    socket.once('unexpected-response', (...given) => resolve(given as never)),
  );
  expect(answer.statusCode).toBe(200);
  let text = '';
  for await (const chunk of answer) text += chunk;
  expect(JSON.parse(text)).toMatchObject({ url: '/plain' });
});

test('connections inside are used again', async () => {
  const ports = new Set<number>();
  for (let i = 0; i < 10; i++) ports.add(echoOf(await enter('/')).from);
  expect(ports.size).toBeLessThan(10);
});

test(
  '100 MB and more go through in both directions, exactly, and the server holds little of it',
  async () => {
    const mebibyte = 1024 * 1024;
    const count = 200 * mebibyte;
    const memory = () => anonymousBytesOf(platform.server.pid);
    const before = memory();
    let peak = before;
    const [stream] = await openVisit(platform.server.url, `${preview.url}bytes?count=${count}`, {
      headers: { 'Atoll-Preview-Token': preview.token },
    });
    let received = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const isDue = Math.floor(received / (8 * mebibyte)) < Math.floor((received + chunk.byteLength) / (8 * mebibyte));
      if (isDue) peak = Math.max(peak, memory());
      received += chunk.byteLength;
    }
    expect(received).toBe(count);
    // Less than went through, by far: what there is is what the collector has not come to yet.
    expect(peak - before).toBeLessThan(0.75 * count);
    const body = randomBytes(100 * mebibyte);
    const sent = await enter('hash', { method: 'PUT', body });
    const sha256 = createHash('sha256').update(body).digest('hex');
    expect(JSON.parse(sent.text)).toEqual({ sha256, count: body.byteLength });
  },
  { timeout: 180_000 },
);

test('a slow visitor holds the service back, and the server holds nothing of it', async () => {
  const count = 512 * 1024 * 1024;
  await sandbox.exec('rm -f /tmp/sent');
  const [stream, outgoing] = await openVisit(platform.server.url, `${preview.url}bytes?count=${count}`, {
    headers: { 'Atoll-Preview-Token': preview.token },
  });
  const sent = async () => Number((await sandbox.exec('cat /tmp/sent')).stdout);
  let before = -1;
  // It stops somewhere: twice the same after a while in which it could have sent far more.
  await expect
    .poll(
      async () => {
        const now = await sent();
        const isStill = now > 0 && now === before;
        before = now;
        return isStill;
      },
      { ...patience, interval: 500 },
    )
    .toBe(true);
  expect(before).toBeLessThan(64 * 1024 * 1024);
  expect(stream.readableFlowing).not.toBe(true);
  outgoing.destroy();
});

test('E125: a stopped sandbox is not woken, and its exposure is there again when it is started', async () => {
  const own = await platform.client.sandboxes.create();
  await startService(own, goodService(3001));
  const exposure = await own.ports.expose(3001);
  expect((await enter('/', {}, exposure)).status).toBe(200);
  await own.stop();
  const seen = await enter('/', {}, exposure);
  expect(errorOf(seen)).toEqual({ status: 409, code: 'sandbox_wrong_state' });
  expect((await enter('/', {}, byPath(exposure))).status).toBe(409);
  await expect(said(openSocket(exposure), 1)).rejects.toThrow('409');
  expect((await own.refresh()).state).toBe('stopped');
  expect(await own.ports.list()).toMatchObject({ listening: [], exposed: [{ port: 3001, public: false }] });
  await own.start();
  expect(errorOf(await enter('/', {}, exposure))).toEqual({ status: 502, code: 'port_not_open' });
  await startService(own, goodService(3001));
  expect((await enter('/', {}, exposure)).status).toBe(200);
  await own.delete();
  expect(errorOf(await enter('/', {}, exposure))).toEqual({ status: 404, code: 'port_not_exposed' });
});

test('E125: another team neither sees nor changes the ports of a sandbox', async () => {
  const team = await platform.client.teams.create({ name: 'others' });
  const { key } = await platform.client.keys.create({
    name: 'other',
    teamId: team.id,
    scopes: ['sandboxes:read', 'sandboxes:write', 'sandboxes:exec'],
  });
  const call = (method: string, path: string) =>
    fetch(`${platform.server.url}/v1/sandboxes/${sandbox.id}/ports${path}`, {
      method,
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      ...(method === 'POST' && { body: '{}' }),
    });
  for (const [method, path] of [
    ['GET', ''],
    ['POST', '/3000/expose'],
    ['DELETE', '/3000/expose'],
    ['POST', '/3000/rotate'],
  ] as const) {
    expect((await call(method, path)).status).toBe(404);
  }
  expect((await enter('/')).status).toBe(200);
});
