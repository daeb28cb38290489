import { randomBytes } from 'node:crypto';
import http from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { expect, test } from 'vitest';
import { openPlainServer } from '../../test/support/plain-server.ts';
import { findNodeSend } from './node-send.ts';
import type { Send } from './send.ts';

async function take(send: Send, url: string, signal?: AbortSignal): Promise<Buffer> {
  const answer = await send(url, {
    method: 'GET',
    headers: {},
    isTakenWhole: true,
    ...(signal !== undefined && { signal }),
  });
  return Buffer.from(await answer.arrayBuffer());
}

const large = randomBytes(3_000_001);

test('large answers land whole, one after another on one connection, and stay as they are', async () => {
  const contents = [large, randomBytes(200_000), Buffer.from('small'), randomBytes(5_000_000)];
  let next = 0;
  await using server = await openPlainServer((_, response) => {
    const content = contents[next++]!;
    response.writeHead(200, { 'Content-Length': content.byteLength });
    response.end(content);
  });
  const send = findNodeSend()!;
  const taken: Buffer[] = [];
  for (const _ of contents) taken.push(await take(send, server.url));
  // Compared at the end: a later answer would have overwritten an earlier one by now.
  expect(taken.map((bytes, at) => bytes.equals(contents[at]!))).toEqual([true, true, true, true]);
  expect(server.sockets.length).toBe(1);
});

test('an answer lands however its bytes come, without a length too', async () => {
  await using server = await openPlainServer(async (request, response) => {
    if (request.url === '/sized') response.setHeader('Content-Length', large.byteLength);
    // The head alone first, then pieces of all sizes, each in a turn of its own.
    response.flushHeaders();
    for (let at = 0, size = 1; at < large.byteLength; at += size, size = (size * 3) % 200_000) {
      await new Promise((resolve) => response.write(large.subarray(at, at + size), resolve));
    }
    response.end();
  });
  const send = findNodeSend()!;
  for (const path of ['sized', 'chunked']) {
    expect((await take(send, `${server.url}${path}`)).equals(large), path).toBe(true);
  }
});

test('an answer of which somebody else took its time lands in order', async () => {
  await using server = await openPlainServer((_, response) => {
    response.writeHead(200, { 'Content-Length': large.byteLength }).end(large);
  });
  const answer = await findNodeSend()!(server.url, { method: 'GET', headers: {}, isTakenWhole: true });
  // Until it is asked for, what comes is held: it is not in its place, and what follows must not be either.
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(Buffer.from(await answer.arrayBuffer()).equals(large)).toBe(true);
});

test('an answer that breaks off or is aborted is an error, never less than all', async () => {
  const leaving = new AbortController();
  await using server = await openPlainServer((request, response) => {
    response.writeHead(200, { 'Content-Length': large.byteLength });
    response.write(large.subarray(0, 1_000_000), () => {
      if (request.url === '/aborted') leaving.abort(new Error('enough'));
      else response.destroy();
    });
  });
  const send = findNodeSend()!;
  await expect(take(send, `${server.url}broken`)).rejects.toThrow();
  await expect(take(send, `${server.url}aborted`, leaving.signal)).rejects.toThrow('enough');
});

test('bytes beyond an answer do not get into what was taken', async () => {
  const size = 200_000;
  const talker = createTcpServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      socket.write(Buffer.concat([Buffer.alloc(size, 1), Buffer.alloc(100_000, 2)]));
    });
  });
  await new Promise<void>((resolve) => talker.listen(0, '127.0.0.1', resolve));
  const taken = await take(findNodeSend()!, `http://127.0.0.1:${(talker.address() as AddressInfo).port}/`);
  expect(taken.equals(Buffer.alloc(size, 1))).toBe(true);
  await new Promise((resolve) => talker.close(resolve));
});

test("where the user has an agent in the place of Node's, it is used", async () => {
  await using server = await openPlainServer((_, response) => {
    response.writeHead(200, { 'Content-Length': large.byteLength }).end(large);
  });
  const before = http.globalAgent;
  let used = 0;
  class OwnAgent extends http.Agent {
    override createConnection(...call: Parameters<http.Agent['createConnection']>) {
      used++;
      return super.createConnection(...call);
    }
  }
  const own = new OwnAgent();
  http.globalAgent = own;
  try {
    expect((await take(findNodeSend()!, server.url)).equals(large)).toBe(true);
    expect(used).toBe(1);
  } finally {
    http.globalAgent = before;
    own.destroy();
  }
});
