import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect, type Server } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { Upgrades } from './upgrades.ts';

const releases: (() => void)[] = [];
afterEach(() => {
  for (const release of releases.splice(0)) release();
});

/** A connection that has asked for an upgrade, and everything it hears. */
async function ask(upgrades: Upgrades, protocol: string, options: { readonly allowHalfOpen?: boolean } = {}) {
  const server = createServer({ shouldUpgradeCallback: Upgrades.isMeant }, (_request, response) =>
    response.end('plain'),
  );
  server.on('upgrade', (request, socket, head) => upgrades.take(request, socket, head));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', ...options });
  releases.push(() => {
    socket.destroy();
    upgrades.stop();
    upgrades.cut();
    server.close();
    server.closeAllConnections();
  });
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  socket.write(`GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`);
  return { server: server as Server, socket, heard: () => text };
}

test('the first handler that takes a request has it, and those behind it are not asked', async () => {
  const upgrades = new Upgrades();
  const asked: string[] = [];
  upgrades.add(() => asked.push('first') === 0);
  upgrades.add((_request, socket) => {
    asked.push('second');
    socket.end('taken');
    return true;
  });
  upgrades.add(() => asked.push('third') === 0);
  const { socket, heard } = await ask(upgrades, 'websocket');
  await once(socket, 'end');
  expect(heard()).toBe('taken');
  expect(asked).toEqual(['first', 'second']);
});

test('what nobody takes is refused with the shape of any error', async () => {
  const { socket, heard } = await ask(new Upgrades(), 'WebSocket');
  await once(socket, 'end');
  const [head, body] = heard().split('\r\n\r\n');
  expect(head).toMatch(/^HTTP\/1\.1 404 Not Found\r\n/);
  expect(JSON.parse(body!)).toMatchObject({ error: { code: 'route_not_found', requestId: expect.any(String) } });
});

test('an offer of a protocol that is none of ours is passed over', async () => {
  const { socket, heard } = await ask(new Upgrades(), 'h2c');
  await once(socket, 'data');
  expect(heard()).toMatch(/^HTTP\/1\.1 200 OK[\s\S]*plain/);
});

test('closing cuts what was taken, and takes no more', async () => {
  const upgrades = new Upgrades();
  const taken = Promise.withResolvers<IncomingMessage>();
  upgrades.add((request) => {
    taken.resolve(request);
    return true;
  });
  const { socket } = await ask(upgrades, 'atoll-tcp');
  await taken.promise;
  upgrades.stop();
  upgrades.cut();
  await once(socket, 'end');
  const late = await ask(upgrades, 'websocket');
  await once(late.socket, 'end');
  expect(late.heard()).toMatch(/^HTTP\/1\.1 503 [\s\S]*shutting_down/);
});

test.each(['running', 'stopping'])(
  'a peer that is refused by a %s server and never ends is cut',
  async (state) => {
    const upgrades = new Upgrades();
    if (state === 'stopping') upgrades.stop();
    const { server, socket, heard } = await ask(upgrades, 'websocket', { allowHalfOpen: true });
    await once(socket, 'end');
    expect(heard()).toMatch(/^HTTP/);
    await once(server.close(), 'close');
    expect(socket.writable).toBe(true);
  },
  20_000,
);

test('what is refused while the server stops is cut with everything else', async () => {
  const upgrades = new Upgrades();
  upgrades.stop();
  const { server, socket } = await ask(upgrades, 'websocket', { allowHalfOpen: true });
  let isCut = false;
  server.once('close', () => (isCut = true));
  await once(socket, 'end');
  server.close();
  expect(isCut).toBe(false);
  upgrades.cut();
  await expect.poll(() => isCut, { timeout: 10_000 }).toBe(true);
});
