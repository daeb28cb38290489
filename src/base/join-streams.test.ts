import { once } from 'node:events';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { joinStreams } from './join-streams.ts';

const open: { destroy?(): void; close?(): void }[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.destroy ? one.destroy() : one.close?.();
});

/** Two ends of a real connection. */
async function pair(): Promise<[Socket, Socket]> {
  const server: Server = createServer({ allowHalfOpen: true });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const near = createConnection({ port: (server.address() as { port: number }).port, allowHalfOpen: true });
  const [[far]] = (await Promise.all([once(server, 'connection'), once(near, 'connect')])) as [[Socket], unknown];
  open.push(near, far, server);
  for (const socket of [near, far]) socket.on('error', () => {});
  return [near, far];
}

/** left ─ a ═joined═ b ─ right */
async function joined() {
  const [[left, a], [b, right]] = await Promise.all([pair(), pair()]);
  joinStreams(a, b);
  return { left, right };
}

/** To its end, which leaves the other direction open. */
async function textOf(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  await once(socket, 'end');
  return text;
}

test('bytes go both ways, and one side may end while the other goes on', async () => {
  const { left, right } = await joined();
  left.end('question');
  expect(await textOf(right)).toBe('question');
  right.end('answer');
  expect(await textOf(left)).toBe('answer');
});

test('a side that breaks cuts the other', async () => {
  const { left, right } = await joined();
  left.write('begun');
  await once(right, 'data');
  const broken = once(right, 'error');
  left.resetAndDestroy();
  expect(await broken).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('whichever side breaks, the other hears of it', async () => {
  const { left, right } = await joined();
  right.write('x');
  await once(left, 'data');
  const broken = once(left, 'error');
  right.resetAndDestroy();
  expect(await broken).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a side that was gone before cuts the other', async () => {
  const [[left, a], [b, right]] = await Promise.all([pair(), pair()]);
  a.destroy();
  const broken = once(right.resume(), 'error');
  joinStreams(a, b);
  expect(await broken).toMatchObject([{ code: 'ECONNRESET' }]);
  left.destroy();
});

test('a slow reader holds the writer back', async () => {
  const { left, right } = await joined();
  const chunk = Buffer.alloc(1024 * 1024);
  let sent = 0;
  while (sent < 256 && left.write(chunk)) sent++;
  for (; sent < 256 && left.writableLength < 8 * chunk.byteLength; sent++) left.write(chunk);
  expect(sent).toBeLessThan(256);
  left.end();
  let received = 0;
  for await (const bytes of right as AsyncIterable<Buffer>) received += bytes.byteLength;
  expect(received).toBe((sent + 1) * chunk.byteLength);
});
