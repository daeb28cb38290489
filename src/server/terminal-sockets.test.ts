import { EventEmitter, once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { goodKey, testCaller, testId } from '../../test/support/fake-control.ts';
import { type HttpRig, openHttpRig } from '../../test/support/http-rig.ts';
import { systemTimers, type Timers } from '../base/index.ts';
import type { Attachment } from '../control/index.ts';
import { PlatformError, terminalLimits } from '../protocol/index.ts';
import type { HttpServerOptions } from './create-server.ts';
import { TerminalSocket } from './terminal-socket.ts';

let rig: HttpRig | undefined;
const clients: WebSocket[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) client.terminate();
  await rig?.[Symbol.asyncDispose]();
});

const sandboxId = testId('sandbox', 'a');
const id = testId('terminal', 'a');
const view: Attachment['view'] = {
  ...{ id, sandboxId, generation: 1, name: null, pid: 7, command: null, cwd: '/', user: null, columns: 80, rows: 24 },
  ...{ running: true, startedAt: '2030-01-01T00:00:00.000Z', exit: null },
};

/** A terminal that says nothing until the client leaves. */
async function openRig(options: Partial<HttpServerOptions> = {}): Promise<{ written: string[]; signals: unknown[] }> {
  const seen = { written: [] as string[], signals: [] as unknown[] };
  rig = await openHttpRig(options);
  rig.control.terminals.attach = async (_caller, _address, _conditions, _query, signal) => ({
    view,
    cursor: `${id}.0.0`,
    items: { [Symbol.asyncIterator]: () => ({ next: () => untilAborted(signal) }) },
    write: async (bytes) => void seen.written.push(Buffer.from(bytes).toString()),
    resize: async (size) => void seen.written.push(`${size.columns}x${size.rows}`),
    signal: async (wanted) => void seen.signals.push(wanted),
  });
  return seen;
}

async function untilAborted(signal: AbortSignal): Promise<{ done: true; value: undefined }> {
  if (!signal.aborted) await once(signal, 'abort');
  return { done: true, value: undefined };
}

interface Client {
  readonly socket: WebSocket;
  readonly messages: { type: string; error?: { code: string } }[];
  readonly closed: Promise<number>;
  readonly attached: Promise<void>;
}

function connect(options: { readonly key?: string; readonly autoPong?: boolean } = {}): Client {
  const { key = goodKey, ...rest } = options;
  const url = `${rig!.url.replace('http', 'ws')}/v1/sandboxes/${sandboxId}/terminals/${id}/attach`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${key}` }, ...rest });
  clients.push(socket);
  socket.on('error', () => {}); // Followed by a close.
  const messages: Client['messages'] = [];
  const attached = Promise.withResolvers<void>();
  socket.on('message', (data) => {
    messages.push(JSON.parse(String(data)) as Client['messages'][number]);
    attached.resolve();
  });
  const closed = new Promise<number>((resolve) => socket.on('close', resolve));
  return { socket, messages, closed, attached: attached.promise };
}

test('what is sent before it is attached arrives in order; an interrupt is not behind what is typed', async () => {
  const seen = await openRig();
  const client = connect();
  await once(client.socket, 'open');
  client.socket.send(Buffer.from('a'));
  client.socket.send(JSON.stringify({ type: 'resize', columns: 9, rows: 8 }));
  client.socket.send(Buffer.from('b'));
  await client.attached;
  client.socket.send(JSON.stringify({ type: 'interrupt' }));
  await expect.poll(() => seen.signals, { timeout: 10_000 }).toEqual([{ signal: 'INT', target: 'foreground' }]);
  await expect.poll(() => seen.written, { timeout: 10_000 }).toEqual(['a', '9x8', 'b']);
});

test('a server that closes closes its clients with 1001, and takes no more', async () => {
  await openRig();
  const client = connect();
  await client.attached;
  const closing = rig!.server.close();
  expect(await client.closed).toBe(1001);
  await closing;
  expect(await connect().closed).toBe(1006);
});

test('a client that shows nothing of itself is closed; one that answers stays', async () => {
  await openRig({ heartbeatMs: 1_500 });
  const silent = connect({ autoPong: false });
  const lively = connect();
  await Promise.all([silent.attached, lively.attached]);
  expect(await silent.closed).toBe(1006);
  expect(lively.socket.readyState).toBe(WebSocket.OPEN);
});

test('a key that is no longer good ends the connection with 1008', async () => {
  await openRig({ heartbeatMs: 1_500 });
  const otherKey = `atoll_${'b'.repeat(40)}`;
  rig!.control.callers.set(otherKey, testCaller());
  const client = connect({ key: otherKey });
  const control = connect();
  await Promise.all([client.attached, control.attached]);
  rig!.control.callers.delete(otherKey);
  expect(await client.closed).toBe(1008);
  expect(client.messages.at(-1)).toMatchObject({ type: 'error', error: { code: 'unauthenticated' } });
  expect(control.socket.readyState).toBe(WebSocket.OPEN);
});

test('a key without the scope, and one of another sandbox, get no connection', async () => {
  await openRig();
  const keys = [`atoll_${'c'.repeat(40)}`, `atoll_${'d'.repeat(40)}`];
  rig!.control.callers.set(keys[0]!, testCaller({ scopes: ['sandboxes:read'] }));
  rig!.control.callers.set(keys[1]!, testCaller({ sandboxId: testId('sandbox', 'b') }));
  for (const key of keys) {
    const client = connect({ key });
    const [, response] = (await once(client.socket, 'unexpected-response')) as [unknown, { statusCode: number }];
    expect(response.statusCode).toBe(403);
  }
});

test('a terminal has a bounded number of clients; one that leaves makes room', async () => {
  await openRig();
  const all = Array.from({ length: terminalLimits.clients }, () => connect());
  await Promise.all(all.map((client) => client.attached));
  const more = connect();
  expect(await more.closed).toBe(1013);
  expect(more.messages).toMatchObject([{ type: 'error', error: { code: 'limit_exceeded' } }]);
  all[0]!.socket.close();
  await all[0]!.closed;
  await expect
    .poll(
      async () => {
        const next = connect();
        await next.attached;
        return next.messages[0]?.type;
      },
      { timeout: 10_000 },
    )
    .toBe('attached');
});

test('signals go one at a time, in order, and a bounded number waits', async () => {
  const seen = await openRig();
  const gate = Promise.withResolvers<void>();
  const { attach } = rig!.control.terminals;
  rig!.control.terminals.attach = async (...of) => ({
    ...(await attach(...of)),
    signal: async (wanted) => {
      seen.signals.push(wanted);
      await gate.promise;
    },
  });
  const client = connect();
  await client.attached;
  client.socket.send(JSON.stringify({ type: 'interrupt' }));
  for (let i = 0; i < 100; i++) client.socket.send(JSON.stringify({ type: 'signal', signal: 'TERM', target: 'tree' }));
  client.socket.send(JSON.stringify({ type: 'ping' }));
  await expect.poll(() => client.messages.at(-1)?.type, { timeout: 10_000 }).toBe('pong');
  expect(seen.signals).toHaveLength(1);
  const refused = client.messages.filter(({ error }) => error?.code === 'limit_exceeded').length;
  expect(refused).toBeGreaterThan(50);
  gate.resolve();
  await expect.poll(() => seen.signals.length, { timeout: 10_000 }).toBe(101 - refused);
  expect(seen.signals[0]).toEqual({ signal: 'INT', target: 'foreground' });
});

/** A client that reads nothing until it is told to. */
class UnreadSocket extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  isPaused = false;
  readonly sent: string[] = [];
  readonly typed: string[] = [];
  readonly #onRead: (() => void)[] = [];
  send(text: string): void {
    this.sent.push(text);
    this.bufferedAmount += text.length;
  }
  ping(_data: unknown, _mask: boolean, onRead: () => void): void {
    this.#onRead.push(onRead);
  }
  pause(): void {
    this.isPaused = true;
  }
  resume(): void {
    this.isPaused = false;
  }
  close(): void {
    this.readyState = 2;
  }
  terminate(): void {
    this.readyState = 3;
    this.emit('close');
  }
  read(): void {
    this.bufferedAmount = 0;
    for (const onRead of this.#onRead.splice(0)) onRead();
  }
}

function serveUnread(after: Timers['after'] = () => () => {}): UnreadSocket {
  const socket = new UnreadSocket();
  new TerminalSocket(socket as unknown as WebSocket, {
    attach: async () => ({
      view,
      cursor: null,
      items: { [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) },
      write: async (bytes) => void socket.typed.push(Buffer.from(bytes).toString()),
      resize: async () => {},
      signal: async () => {},
    }),
    stillMay: () => Promise.reject(new PlatformError('unauthenticated', 'The key is revoked.')),
    mayJoin: () => true,
    asRefusal: (error) => error as PlatformError,
    timers: { ...systemTimers, after },
    heartbeatMs: 10_000,
  });
  return socket;
}

test.each([
  ['asks', '{"type":"ping"}'],
  ['says what is wrong', 'x'],
])('a client that %s and reads no answer is not heard until it has read them', (_what, text) => {
  const socket = serveUnread();
  for (let i = 0; i < 1_000_000 && !socket.isPaused; i++) socket.emit('message', Buffer.from(text), false);
  expect(socket.isPaused).toBe(true);
  expect(socket.bufferedAmount).toBeLessThan(2 * 1024 * 1024);
  socket.read();
  expect(socket.isPaused).toBe(false);
});

test('pings of the protocol hold back whoever does not read what answers them', () => {
  const socket = serveUnread();
  socket.emit('ping');
  expect(socket.isPaused).toBe(false);
  socket.bufferedAmount = 16 * 1024 * 1024;
  socket.emit('ping');
  expect(socket.isPaused).toBe(true);
});

test('what a client says after it was closed does not count', async () => {
  const socket = serveUnread();
  socket.emit('message', Buffer.from('before'), true);
  await expect.poll(() => socket.typed, { timeout: 10_000 }).toEqual(['before']);
  socket.close();
  socket.emit('message', Buffer.from('after'), true);
  await new Promise(setImmediate);
  expect(socket.typed).toEqual(['before']);
});

test('a client that is refused at a heartbeat and does not answer the close is cut', async () => {
  const due: { ms: number; run: () => unknown }[] = [];
  const socket = serveUnread((ms, run) => {
    due.push({ ms, run });
    return () => {};
  });
  due.shift()!.run();
  await expect.poll(() => socket.readyState, { timeout: 10_000 }).toBe(2);
  const cut = due.find(({ ms }) => ms < 10_000)!;
  cut.run();
  expect(socket.readyState).toBe(3);
});

test('a client that reads late has an answer to everything it asked', async () => {
  await openRig();
  const client = connect();
  await client.attached;
  client.socket.pause();
  const count = 60_000;
  for (let i = 0; i < count; i++) client.socket.send('x'.repeat(100));
  await expect.poll(() => client.socket.bufferedAmount, { timeout: 10_000 }).toBeLessThan(count * 100);
  client.socket.resume();
  await expect.poll(() => client.messages.length, { timeout: 30_000 }).toBe(count + 1);
}, 60_000);
