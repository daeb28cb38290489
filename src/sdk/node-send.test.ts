import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { openPlainServer } from '../../test/support/plain-server.ts';
import { isNeverSent } from './never-sent.ts';
import { findNodeSend } from './node-send.ts';
import type { Send } from './send.ts';

const send = findNodeSend()!;

async function collect(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

const get = (url: string, signal?: AbortSignal) =>
  send(url, { method: 'GET', headers: {}, ...(signal !== undefined && { signal }) });

test('an exchange has method, headers, body, status and content, and its connection serves the next one', async () => {
  await using server = await openPlainServer(async (request, response) => {
    const body = (await collect(request)).toString();
    const { authorization, 'content-length': length } = request.headers;
    if (request.method === 'DELETE') response.writeHead(204).end();
    else response.writeHead(418, { 'X-One': 'two' }).end(JSON.stringify({ body, authorization, length }));
  });
  const answer = await send(server.url, { method: 'PUT', headers: { Authorization: 'me' }, body: '{"ä":1}' });
  expect([answer.ok, answer.status, answer.headers.get('x-one'), answer.headers.get('x-two')]).toEqual([
    false,
    418,
    'two',
    null,
  ]);
  expect(await answer.json()).toEqual({ body: '{"ä":1}', authorization: 'me', length: '8' });
  // Of a 204 nobody reads anything; its connection must still be free for the next request.
  expect((await send(server.url, { method: 'DELETE', headers: {} })).status).toBe(204);
  expect((await send(server.url, { method: 'PUT', headers: {} })).status).toBe(418);
  expect(server.sockets.length).toBe(1);
});

test('bytes, blobs and streams arrive whole in both directions, also large ones', async () => {
  const data = randomBytes(3_000_000);
  await using server = await openPlainServer(async (request, response) => {
    const body = await collect(request);
    response.writeHead(200, { 'X-Length': request.headers['content-length'] ?? 'none' }).end(body);
  });
  const pieces = [data.subarray(0, 5), data.subarray(5, 2_000_000), data.subarray(2_000_000)];
  const stream = () =>
    new ReadableStream<Uint8Array>({
      pull(controller) {
        const piece = pieces.shift();
        if (piece === undefined) controller.close();
        else controller.enqueue(piece);
      },
    });
  const bodies = [
    [new Uint8Array(data), '3000000'],
    [new Blob([data]), '3000000'],
    [stream(), 'none'],
  ] as const;
  for (const [body, length] of bodies) {
    const answer = await send(server.url, { method: 'PUT', headers: {}, body });
    expect(answer.headers.get('x-length')).toBe(length);
    expect(digest(await answer.arrayBuffer())).toBe(digest(data));
  }
  const read = createHash('sha256');
  const { body } = await send(server.url, { method: 'PUT', headers: {}, body: new Uint8Array(data) });
  for await (const chunk of body!) read.update(chunk);
  expect(read.digest('hex')).toBe(digest(data));
});

const digest = (bytes: ArrayBuffer | Uint8Array) => createHash('sha256').update(new Uint8Array(bytes)).digest('hex');

test('a large answer whose length was told is whole, or broke off', async () => {
  const data = randomBytes(3_000_000);
  await using server = await openPlainServer(async (request, response) => {
    response.writeHead(200, { 'Content-Length': String(data.byteLength) });
    if (request.url === '/whole') response.end(data);
    else response.write(data.subarray(0, 1_000_000), () => response.destroy());
  });
  expect(Buffer.from(await (await get(`${server.url}whole`)).arrayBuffer()).equals(data)).toBe(true);
  await expect((await get(`${server.url}part`)).arrayBuffer()).rejects.toThrow();
});

test('a stream that fails breaks the request off, and one whose request is over is cancelled', async () => {
  let seen: ServerResponse | undefined;
  await using server = await openPlainServer((request, response) => {
    seen = response;
    request.on('error', () => {});
    request.resume();
  });
  const failing = new ReadableStream<Uint8Array>({
    async pull(controller) {
      controller.error(new Error('the disk is gone'));
    },
  });
  await expect(send(server.url, { method: 'PUT', headers: {}, body: failing })).rejects.toThrow('the disk is gone');

  const cancelled = Promise.withResolvers<void>();
  const endless = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new Uint8Array(64 * 1024)),
    cancel: () => cancelled.resolve(),
  });
  const stop = new AbortController();
  const sent = send(server.url, { method: 'PUT', headers: {}, body: endless, signal: stop.signal });
  await expect.poll(() => seen !== undefined).toBe(true);
  stop.abort(new Error('enough'));
  await expect(sent).rejects.toThrow('enough');
  await cancelled.promise;
});

test('the signal ends it with its reason: before it is sent, before the answer, and while that is read', async () => {
  const asked = Promise.withResolvers<ServerResponse>();
  await using server = await openPlainServer((request, response) => {
    if (request.url === '/begun') response.writeHead(200).write('a');
    else asked.resolve(response);
  });
  const enough = new Error('enough');
  await expect(get(server.url, AbortSignal.abort(enough))).rejects.toBe(enough);
  expect(server.sockets.length).toBe(0);

  const waiting = new AbortController();
  const unanswered = get(server.url, waiting.signal);
  const gone = once(await asked.promise, 'close');
  waiting.abort(enough);
  await expect(unanswered).rejects.toBe(enough);
  await gone;

  const reading = new AbortController();
  const reader = (await get(`${server.url}begun`, reading.signal)).body!.getReader();
  expect(new TextDecoder().decode((await reader.read()).value)).toBe('a');
  reading.abort(enough);
  await expect(reader.read()).rejects.toBe(enough);
});

test('what breaks off is an error and never an end; what never left is told apart', async () => {
  let url = '';
  {
    await using server = await openPlainServer((request, response) => {
      response.writeHead(200, { 'Content-Length': '10' }).write('half');
      if (request.url === '/cut') setImmediate(() => response.destroy());
    });
    url = server.url;
    await expect((await get(`${url}cut`)).arrayBuffer()).rejects.toThrow();
    await expect((await get(`${url}cut`)).json()).rejects.toThrow();
    const broken = async () => {
      for await (const _ of (await get(`${url}cut`)).body!);
    };
    await expect(broken()).rejects.toThrow();
  }
  const refused = await get(url).catch((error: unknown) => error);
  expect(isNeverSent(refused)).toBe(true);
});

test('a reader that takes its time holds the server back', async () => {
  const chunk = Buffer.alloc(64 * 1024);
  let written = 0;
  await using server = await openPlainServer(async (_request, response) => {
    response.on('error', () => {});
    while (!response.destroyed) {
      written += chunk.byteLength;
      if (!response.write(chunk)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
    }
  });
  const reader = (await get(server.url)).body!.getReader();
  await reader.read();
  // Until nothing more is taken, which is when the buffers of both sides and of the kernel are full.
  let before = -1;
  await expect
    .poll(
      () => {
        const isStill = written === before;
        before = written;
        return isStill;
      },
      { interval: 100, timeout: 20_000 },
    )
    .toBe(true);
  expect(written).toBeLessThan(64 * 1024 * 1024);
  await reader.cancel();
});

test('elsewhere than in Node there is none, and fetch is used', () => {
  const { getBuiltinModule } = process;
  expect(findNodeSend({})).toBeUndefined();
  expect(findNodeSend({ process: { release: { name: 'node' } } })).toBeUndefined();
  expect(findNodeSend({ process: { release: { name: 'node' }, getBuiltinModule }, Deno: {} })).toBeUndefined();
  expect(findNodeSend({ process: { release: { name: 'node' }, getBuiltinModule }, Bun: {} })).toBeUndefined();
  expect(findNodeSend({ process: { release: { name: 'node' }, getBuiltinModule } })).toSatisfy(
    (found: Send | undefined) => typeof found === 'function',
  );
});
