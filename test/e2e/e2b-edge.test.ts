/** Ports of sandboxes as E2B's clients reach them: by headers and by host name, open or behind the traffic token, with upgrades. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Platform } from '../support/platform.ts';
import { startService, visit } from '../support/preview-rig.ts';
import { goodService } from '../support/preview-services.ts';

let platform: Platform;
let options: SandboxOpts;
const limitMs = 120_000;
const port = 8_123;

beforeAll(async () => {
  platform = await Platform.start();
  options = {
    apiKey: platform.key.replace('atoll_', 'e2b_'),
    apiUrl: platform.server.url,
    sandboxUrl: platform.server.url,
  };
}, limitMs);
afterAll(() => platform?.close(), limitMs);

async function withService(made: Sandbox) {
  const own = await platform.client.sandboxes.connect(made.sandboxId);
  await startService(own, goodService(port));
  return made;
}

const byHost = (sandbox: Sandbox, at = port) => `http://${at}-${sandbox.sandboxId}.localhost/hello?x=1`;
const byHeaders = (sandbox: Sandbox, at = port) => ({
  'E2b-Sandbox-Id': sandbox.sandboxId,
  'E2b-Sandbox-Port': String(at),
});

test('ports are open to whoever knows the name, by host name and by headers', { timeout: limitMs }, async () => {
  const sandbox = await withService(await Sandbox.create('base', options));
  const { url } = platform.server;
  const hosted = await visit(url, byHost(sandbox));
  expect([hosted.status, JSON.parse(hosted.text)]).toMatchObject([200, { url: '/hello?x=1' }]);
  const headed = await visit(url, `${url}/hello?x=1`, { headers: byHeaders(sandbox), method: 'POST', body: 'abc' });
  expect([headed.status, JSON.parse(headed.text)]).toMatchObject([200, { url: '/hello?x=1' }]);

  // Bytes of another protocol go through too.
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  const headers = [
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  ];
  socket.write(
    [`GET /socket HTTP/1.1`, `Host: ${port}-${sandbox.sandboxId}.localhost`, ...headers, '', ''].join('\r\n'),
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  expect(head.toString('latin1')).toMatch(/^HTTP\/1\.1 101 /);
  socket.destroy();

  const closed = await visit(url, byHost(sandbox, 9));
  expect([closed.status, JSON.parse(closed.text)]).toEqual([
    502,
    expect.objectContaining({
      code: 502,
      sandboxId: sandbox.sandboxId,
      port: 9,
      message: expect.stringMatching(/not open/),
    }),
  ]);
  await sandbox.kill();
  const closedForEver = await visit(url, byHost(sandbox));
  expect([closedForEver.status, JSON.parse(closedForEver.text)]).toMatchObject([502, { code: 502 }]);
  const gone = await visit(url, byHost(sandbox, 49_983), { headers: byHeaders(sandbox) });
  expect([gone.status, JSON.parse(gone.text)]).toMatchObject([502, { code: 502, sandboxId: sandbox.sandboxId }]);
});

test('without public traffic a port needs the token', { timeout: limitMs }, async () => {
  const sandbox = await withService(
    await Sandbox.create('base', {
      ...options,
      network: { allowPublicTraffic: false, maskRequestHost: 'masked:${PORT}' },
    }),
  );
  const { url } = platform.server;
  const token = sandbox.trafficAccessToken!;
  expect((await visit(url, byHost(sandbox))).status).toBe(403);
  const wrong = await visit(url, byHost(sandbox), { headers: { 'e2b-traffic-access-token': `${token}0` } });
  expect([wrong.status, JSON.parse(wrong.text)]).toMatchObject([403, { code: 403 }]);
  const right = await visit(url, byHost(sandbox), { headers: { 'e2b-traffic-access-token': token } });
  expect(right.status).toBe(200);
  expect(JSON.parse(right.text).headers).toContainEqual(['host', `masked:${port}`]);
  // What lets a visitor in is not told to the service.
  expect(right.text).not.toContain(token);
  expect((await visit(url, `${url}/hello`, { headers: byHeaders(sandbox) })).status).toBe(403);
  expect(await sandbox.isRunning()).toBe(true);
  await sandbox.kill();
});

test('a sandbox that was not made through E2B shows what it exposes, and nothing else', {
  timeout: limitMs,
}, async () => {
  await using own = await platform.client.sandboxes.create();
  await startService(own, goodService(port));
  const { url } = platform.server;
  const address = `http://${port}-${own.id}.localhost/`;
  expect((await visit(url, address)).status).toBe(404);
  expect(
    (await visit(url, `${url}/`, { headers: { 'E2b-Sandbox-Id': own.id, 'E2b-Sandbox-Port': String(port) } })).status,
  ).toBe(403);
  const exposed = await own.ports.expose(port, { public: true });
  expect((await visit(url, exposed.url)).status).toBe(200);
  expect((await visit(url, `${url}/`, { headers: { 'E2b-Sandbox-Id': own.id } })).status).toBe(400);
  const internal = { headers: { 'E2b-Sandbox-Id': own.id, 'E2b-Sandbox-Port': '49983' } };
  expect((await visit(url, `${url}/init`, { ...internal, method: 'POST' })).status).toBe(404);
  expect((await visit(url, `${url}/health`, internal)).status).toBe(204);
});
