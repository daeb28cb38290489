import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MessageReader } from './message-reader.ts';

const readAheadBytes = 64 * 1024;
const server = createServer();
let message: IncomingMessage;
let response: ServerResponse;
let reader: MessageReader;

beforeEach(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const asked = once(server, 'request');
  const request = get(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { agent: false });
  [, response] = (await asked) as [IncomingMessage, ServerResponse];
  response.flushHeaders();
  [message] = (await once(request, 'response')) as [IncomingMessage];
  reader = new MessageReader(message as never, { readAheadBytes });
});
afterEach(async () => {
  message.destroy();
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

async function readAll(): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done || value === undefined) return Buffer.concat(pieces);
    pieces.push(value);
  }
}

test('pieces come in order, those that wait and those that are waited for, and the end stays the end', async () => {
  const first = reader.read();
  response.write('a');
  expect(Buffer.from((await first).value!).toString()).toBe('a');
  response.write('b');
  response.end('c');
  await vi.waitFor(() => expect(message.complete).toBe(true));
  expect((await readAll()).toString()).toBe('bc');
  expect(await reader.read()).toEqual({ done: true });
});

test('whoever reads nothing holds the sender back, and gets everything when it reads', async () => {
  const sent = Buffer.alloc(32 * 1024 * 1024, 'x');
  response.end(sent);
  await vi.waitFor(() => expect(message.isPaused()).toBe(true));
  expect(response.writableFinished).toBe(false);
  expect((await readAll()).equals(sent)).toBe(true);
});

test('a connection that breaks fails the reading behind what came, and every one after that', async () => {
  response.write('a');
  expect((await reader.read()).done).toBe(false);
  const waiting = reader.read();
  response.destroy();
  await expect(waiting).rejects.toThrow();
  await expect(reader.read()).rejects.toThrow();
});

test('cancelling ends the connection, and whoever waits hears so', async () => {
  const left = once(response, 'close');
  const waiting = reader.read();
  await reader.cancel();
  await expect(waiting).rejects.toThrow();
  await left;
});
