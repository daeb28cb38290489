import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { silentLogger, systemTimers } from '../../../base/index.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { EnvdError, SandboxGone } from './envd-error.ts';
import { envelope } from './envelopes.ts';
import type { Message } from './messages.ts';
import { answerCall, type Call, type Method } from './rpc.ts';

let server: Server | undefined;
let ending: AbortController;

afterEach(async () => {
  server?.closeAllConnections();
  server?.close();
  if (server?.listening === true) await once(server, 'close');
});

/** What `answerCall` throws is answered with 502, as routing would. */
async function serve(method: Method): Promise<string> {
  ending = new AbortController();
  const sandbox = { sandboxId: 'sbx', caller: {}, ending: ending.signal } as unknown as EnvdSandbox;
  server = createServer((request, response) => {
    const context = { request, response, sandbox, user: undefined, timers: systemTimers, logger: silentLogger };
    answerCall(method, context).catch(() => response.writeHead(502).end());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function stream(run: (call: Call, input: Message) => AsyncIterable<Message>): Method {
  const keepalive = { event: { keepalive: {} } };
  return { kind: 'server stream', input: 'process.ConnectRequest', output: 'process.EventResponse', keepalive, run };
}

function ask(url: string, payloads: readonly string[], headers: Record<string, string> = {}): Promise<Response> {
  const body = new Uint8Array(Buffer.concat(payloads.map((payload) => envelope(0, Buffer.from(payload)))));
  return fetch(url, { method: 'POST', body, headers: { 'Content-Type': 'application/connect+json', ...headers } });
}

async function messagesOf(response: Response): Promise<[flags: number, message: unknown][]> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const found: [number, unknown][] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    found.push([bytes[at]!, JSON.parse(bytes.subarray(at + 5, end).toString())]);
    at = end;
  }
  return found;
}

const started = { event: { start: { pid: 5 } } };

test('a stream is its messages and then its end', async () => {
  const url = await serve(
    stream(async function* (_call, input) {
      yield { event: { start: input['process'] } };
    }),
  );
  const answer = await ask(url, ['{"process":{"pid":5}}']);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/connect+json']);
  expect(await messagesOf(answer)).toEqual([
    [0, started],
    [2, {}],
  ]);
  const none = await messagesOf(await ask(url, []));
  expect(none).toEqual([[2, { error: { code: 'invalid_argument', message: expect.any(String) } }]]);
  const two = await messagesOf(await ask(url, ['{}', '{}']));
  expect(two).toEqual([[2, { error: { code: 'invalid_argument', message: expect.any(String) } }]]);
});

test('what fails midway is told in the end; a bug tells nothing of itself', async () => {
  const failures: unknown[] = [new EnvdError('not_found', 'gone'), new Error('secret')];
  const url = await serve(
    stream(async function* () {
      yield started;
      throw failures.shift();
    }),
  );
  expect((await messagesOf(await ask(url, ['{}']))).at(-1)).toEqual([
    2,
    { error: { code: 'not_found', message: 'gone' } },
  ]);
  const hidden = JSON.stringify(await messagesOf(await ask(url, ['{}'])));
  expect(hidden).toContain('"internal"');
  expect(hidden).not.toContain('secret');
});

test('a silent stream says that it lives, and ends when its time is over or the server stops', async () => {
  const signals: AbortSignal[] = [];
  const url = await serve(
    stream(async function* ({ signal }) {
      signals.push(signal);
      yield started;
      await new Promise<void>(() => {});
    }),
  );
  const headers = { 'Keepalive-Ping-Interval': '1', 'Connect-Timeout-Ms': '2500' };
  const got = await messagesOf(await ask(url, ['{}'], headers));
  expect(got).toContainEqual([0, { event: { keepalive: {} } }]);
  expect(got.at(-1)).toEqual([2, { error: { code: 'deadline_exceeded', message: expect.any(String) } }]);
  expect(signals[0]!.aborted).toBe(true);

  const open = await ask(url, ['{}']);
  ending.abort();
  const last = (await messagesOf(open)).at(-1);
  expect(last).toEqual([2, { error: { code: 'unavailable', message: expect.any(String) } }]);
});

test('a caller that leaves aborts the reading', async () => {
  const left = Promise.withResolvers<void>();
  const url = await serve(
    stream(async function* ({ signal }) {
      signal.addEventListener('abort', () => left.resolve());
      yield started;
      await new Promise<void>(() => {});
    }),
  );
  const answer = await ask(url, ['{}']);
  await answer.body!.cancel();
  await left.promise;
});

test('a sandbox that goes breaks the stream; one that is gone has no stream', async () => {
  const isLate = [true, false];
  const seen = Promise.withResolvers<void>();
  const url = await serve(
    stream(async function* () {
      if (isLate.shift() === true) {
        yield started;
        await seen.promise;
      }
      throw new SandboxGone('gone');
    }),
  );
  const broken = await ask(url, ['{}']);
  expect(broken.status).toBe(200);
  seen.resolve();
  await expect(broken.arrayBuffer()).rejects.toThrow();
  expect((await ask(url, ['{}'])).status).toBe(502);
});

test('one call takes many messages and answers once', async () => {
  const url = await serve({
    kind: 'client stream',
    input: 'process.ConnectRequest',
    output: 'process.ListResponse',
    run: async (_call, inputs) => {
      const pids: unknown[] = [];
      for await (const input of inputs) pids.push(input['process']);
      return { processes: pids };
    },
  });
  const answer = await ask(url, ['{"process":{"pid":1}}', '{"process":{"pid":2}}']);
  expect(await messagesOf(answer)).toEqual([
    [0, { processes: [{ pid: 1 }, { pid: 2 }] }],
    [2, {}],
  ]);
  const compressed = await ask(url, ['{}'], { 'Connect-Content-Encoding': 'gzip' });
  expect((await messagesOf(compressed)).at(-1)).toMatchObject([2, { error: { code: 'unimplemented' } }]);
});
