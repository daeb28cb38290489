/** Services that mean harm, and visitors that do: what they can do to the server, to others, and to each other is nothing. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Exposure, Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { openVisit, startService, visit } from '../support/preview-rig.ts';
import { badService, goodService } from '../support/preview-services.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('python3'));

let platform: Platform;
let sandbox: Sandbox;
let good: Exposure;
let bad: Exposure;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
  await Promise.all([startService(sandbox, goodService(3000)), startService(sandbox, badService(3666))]);
  good = await sandbox.ports.expose(3000, { public: true });
  bad = await sandbox.ports.expose(3666, { public: true });
});
afterAll(() => platform.close());

const isWell = async () => (await visit(platform.server.url, good.url)).status === 200;

for (const [what, path] of [
  ['endless headers', 'endless'],
  ['nothing at all', 'nothing'],
  ['what is not HTTP', 'garbage'],
  ['a change of protocol that nobody asked for', 'lies'],
  ['two lengths for one body', 'twolengths'],
  ['a header with a letter that none has', 'letters'],
]) {
  test(`a service that answers with ${what} is told of as such, and the next visitor is served`, async () => {
    for (const url of [bad.url, bad.pathUrl]) {
      const seen = await visit(platform.server.url, `${url}${path}`);
      expect(seen.status).toBe(502);
      expect(JSON.parse(seen.text).error).toMatchObject({ code: 'preview_failed', requestId: expect.any(String) });
    }
    expect(await isWell()).toBe(true);
  });
}

test('an odd status is passed as it is', async () => {
  expect((await visit(platform.server.url, `${bad.url}status`)).status).toBe(999);
});

test('an answer that is cut short never looks whole', async () => {
  await expect(visit(platform.server.url, `${bad.url}short`)).rejects.toMatchObject({ code: 'ECONNRESET' });
  expect(await isWell()).toBe(true);
});

test('what a service sends behind its answer reaches nobody', async () => {
  for (let i = 0; i < 5; i++) {
    const seen = await visit(platform.server.url, `${bad.url}extra`);
    expect([200, 502]).toContain(seen.status);
    expect(seen.text).not.toContain('stolen');
  }
});

test('a service that is silent holds up its own visitor only, who may leave', async () => {
  const waiting = Array.from({ length: 20 }, () => openVisit(platform.server.url, `${bad.url}silent`));
  const leaving = new AbortController();
  const left = fetch(`${platform.server.url}/preview/${sandbox.id}/3666/silent`, { signal: leaving.signal });
  expect(await isWell()).toBe(true);
  leaving.abort();
  await expect(left).rejects.toThrow();
  // Their connections end with the exposure.
  await sandbox.ports.unexpose(3666);
  for (const one of await Promise.all(waiting)) expect(one[0].statusCode).toBe(401);
  bad = await sandbox.ports.expose(3666, { public: true });
});

test('no more than the limit are let into the previews of one sandbox; others are not touched', async () => {
  const other = await platform.client.sandboxes.create();
  await startService(other, goodService(3000));
  const elsewhere = await other.ports.expose(3000, { public: true });
  const visits = Array.from({ length: 300 }, () => openVisit(platform.server.url, `${bad.url}silent`));
  const refused: number[] = [];
  for (const one of visits) one.then(([{ statusCode }]) => refused.push(statusCode!)).catch(() => {});
  await expect.poll(() => refused.length, patience).toBe(300 - 256);
  expect(new Set(refused)).toEqual(new Set([429]));
  expect((await visit(platform.server.url, elsewhere.url)).status).toBe(200);
  expect((await visit(platform.server.url, good.url)).status).toBe(429);
  await sandbox.ports.unexpose(3666);
  await Promise.allSettled(visits);
  await expect.poll(isWell, patience).toBe(true);
  bad = await sandbox.ports.expose(3666, { public: true });
  await other.delete();
});

/** Bytes as they are, and everything that comes back until the connection ends. */
async function say(text: string): Promise<string> {
  const { hostname, port } = new URL(platform.server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    heard += chunk;
  });
  socket.on('error', () => {});
  socket.write(text);
  await once(socket, 'close');
  return heard;
}

test('a request with two lengths is refused before anything of it goes inside', async () => {
  const { host } = new URL(good.url);
  const heads = [
    'Content-Length: 6\r\nTransfer-Encoding: chunked',
    'Content-Length: 5\r\nContent-Length: 6',
    'Transfer-Encoding: identity, chunked, identity',
    'Transfer-Encoding : chunked',
  ];
  for (const head of heads) {
    const heard = await say(
      `POST / HTTP/1.1\r\nHost: ${host}\r\n${head}\r\n\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    );
    expect(heard).toMatch(/^HTTP\/1\.1 400 /);
    expect(heard).not.toContain('second');
  }
  // The same without the second length goes through.
  const whole = await say(`POST /whole HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok`);
  expect(whole).toContain('"/whole"');
});

test('addresses that are no preview are none, whatever they look like', async () => {
  const { port } = new URL(platform.server.url);
  const hosts = [
    `3000-${sandbox.id}.localhost.evil.example:${port}`,
    `3000-${sandbox.id}localhost:${port}`,
    `x3000-${sandbox.id}.localhost:${port}`,
    `03000-${sandbox.id}.localhost:${port}`,
  ];
  for (const host of hosts) {
    const seen = await visit(platform.server.url, '/', { headers: { Host: host } });
    expect(JSON.parse(seen.text).error.code).toBe('route_not_found');
  }
  for (const path of [
    `/preview/${sandbox.id}`,
    `/preview/${sandbox.id}/0/`,
    '/preview/x/3000/',
    `/preview/${sandbox.id}/99999/`,
  ]) {
    const seen = await visit(platform.server.url, path);
    expect(JSON.parse(seen.text).error.code).toBe('route_not_found');
  }
  const upper = await visit(platform.server.url, '/', { headers: { Host: new URL(good.url).host.toUpperCase() } });
  expect(upper.status).toBe(200);
});

test('what asks for an upgrade that nobody offers is refused on its connection, and an offer of HTTP/2 is passed over', async () => {
  const { host } = new URL(platform.server.url);
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13';
  const refused = await say(`GET /v1/nowhere HTTP/1.1\r\nHost: ${host}\r\n${upgrade}\r\n\r\n`);
  expect(refused).toMatch(/^HTTP\/1\.1 404 [\s\S]*route_not_found/);
  const offer = 'Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk';
  expect(await say(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\n${offer}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
});
