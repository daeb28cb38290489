import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type Server } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../base/index.ts';
import { Asker } from './asker.ts';
import { Resolver } from './resolver.ts';

/** Answers a question with its own bytes and a mark behind them, over UDP and TCP. */
interface Upstream {
  readonly port: number;
  readonly numbers: number[];
}

/** A question that ends with it gets no answer. */
const unanswered = 9;

let upstream: Upstream;
let resolver: Resolver;
let port: number;
const open: (Socket | Server)[] = [];

beforeEach(async () => {
  upstream = await startUpstream();
  resolver = new Resolver({ servers: [`127.0.0.1:${upstream.port}`], log: silentLogger });
  port = await resolver.listen('127.0.0.1');
});
afterEach(async () => {
  await resolver.close();
  for (const one of open.splice(0)) one.close();
});

async function startUpstream(): Promise<Upstream> {
  const numbers: number[] = [];
  const server = createServer((stream) => {
    stream.on('data', (bytes: Buffer) => stream.write(Buffer.concat([bytes, Buffer.from('!')])));
    stream.on('error', () => {});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port: chosen } = server.address() as { port: number };
  const socket = createSocket('udp4');
  socket.on('message', (question, from) => {
    numbers.push(question.readUInt16BE(0));
    if (question.at(-1) === unanswered) return;
    socket.send(Buffer.concat([question, Buffer.from('!')]), from.port, from.address);
  });
  socket.bind(chosen, '127.0.0.1');
  await once(socket, 'listening');
  open.push(server, socket);
  return { port: chosen, numbers };
}

function question(number: number): Buffer {
  const bytes = Buffer.alloc(20, 7);
  bytes.writeUInt16BE(number, 0);
  return bytes;
}

async function client(): Promise<Socket> {
  const socket = createSocket('udp4');
  socket.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  open.push(socket);
  return socket;
}

test('a question gets its answer under its own number, and goes out under another', async () => {
  resolver.admit('127.0.0.1');
  const socket = await client();
  for (const number of [1, 2, 3, 4]) {
    socket.send(question(number));
    const [answer] = (await once(socket, 'message')) as [Buffer];
    expect(answer).toEqual(Buffer.concat([question(number), Buffer.from('!')]));
  }
  expect(upstream.numbers).not.toEqual([1, 2, 3, 4]);
});

test('a server that there is no way to is passed over, and the next one is asked', async () => {
  // A link-local address without a scope: the kernel refuses to connect to it.
  const other = new Resolver({ servers: ['fe80::1', `127.0.0.1:${upstream.port}`], log: silentLogger });
  const socket = createSocket('udp4');
  open.push(socket);
  socket.connect(await other.listen('127.0.0.1'), '127.0.0.1');
  await once(socket, 'connect');
  other.admit('127.0.0.1');
  socket.send(question(1));
  const [answer] = (await once(socket, 'message')) as [Buffer];
  expect(answer.readUInt16BE(0)).toBe(1);
  await other.close();
});

test('over TCP the bytes go both ways', async () => {
  resolver.admit('127.0.0.1');
  const stream = connect({ host: '127.0.0.1', port });
  stream.write('ask');
  const [answer] = (await once(stream, 'data')) as [Buffer];
  expect(answer.toString()).toBe('ask!');
  stream.destroy();
});

test('nobody is answered who was not admitted', async () => {
  const stranger = connect({ host: '127.0.0.1', port });
  await once(stranger, 'close');
  resolver.admit('127.0.0.2');
  (await client()).send(question(1));
  // What one socket receives is looked at in order: when this is answered, the other was passed over.
  const known = createSocket('udp4').bind(0, '127.0.0.2');
  await once(known, 'listening');
  open.push(known);
  known.send(question(2), port, '127.0.0.1');
  const [answer] = (await once(known, 'message')) as [Buffer];
  expect(answer.readUInt16BE(0)).toBe(2);
  expect(upstream.numbers).toHaveLength(1);
});

test('who waits for many answers leaves room for a question of another', async () => {
  const full = new Resolver({ servers: [`127.0.0.1:${upstream.port}`], log: silentLogger, pendingMax: 2 });
  const fullPort = await full.listen('127.0.0.1');
  const askers = ['127.0.0.2', '127.0.0.3'].map((address) => {
    full.admit(address);
    const socket = createSocket('udp4').bind(0, address);
    open.push(socket);
    return socket;
  });
  await Promise.all(askers.map((socket) => once(socket, 'listening')));
  const [greedy, other] = askers as [Socket, Socket];
  const silent = question(1);
  silent[silent.length - 1] = unanswered;
  for (const count of [1, 2]) {
    greedy.send(silent, fullPort, '127.0.0.1');
    await expect.poll(() => upstream.numbers.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(count);
  }
  other.send(question(2), fullPort, '127.0.0.1');
  const [answer] = (await once(other, 'message')) as [Buffer];
  expect(answer.readUInt16BE(0)).toBe(2);
  await full.close();
});

test('who is forgotten loses its open connections', async () => {
  resolver.admit('127.0.0.1');
  const stream = connect({ host: '127.0.0.1', port });
  stream.on('error', () => {});
  stream.write('ask');
  await once(stream, 'data');
  const closed = once(stream, 'close');
  resolver.forget('127.0.0.1');
  await closed;
});

test('an asker has its rate, its burst and its share of what waits', () => {
  let nowMs = 0;
  const asker = new Asker(() => nowMs);
  const ask = (count: number) => Array.from({ length: count }, () => asker.beginQuestion()).filter(Boolean).length;
  expect(ask(1_000)).toBe(256);
  for (let index = 0; index < 256; index++) asker.endQuestion();
  expect(ask(1_000)).toBe(144);
  nowMs = 100;
  expect(ask(1_000)).toBe(20);
  nowMs = 1_000_000;
  for (let index = 0; index < 164; index++) asker.endQuestion();
  expect([...Array(9)].map(() => asker.beginStream())).toEqual([...Array(8).fill(true), false]);
});
