/**
 * The servers of one namespace of a TestWorld, on all of its addresses. With the argument `dns` also a resolver that knows one name, has
 * a long answer for `long.test` and none for the rest.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { world } from './test-world.ts';

const longTexts = 40;
const streamMs = 20;

const plain = (address = '') => address.replace(/^::ffff:/, '');

async function listen(port: number, serve: (socket: Socket) => void): Promise<void> {
  const server = createServer(serve).listen({ host: '::', port });
  await once(server, 'listening');
}

function quiet(socket: Socket): Socket {
  return socket.on('error', () => {});
}

function answer(question: Buffer, limitBytes: number): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let size = question[at] ?? 0; size > 0; size = question[at] ?? 0) {
    labels.push(question.toString('latin1', at + 1, at + 1 + size));
    at += size + 1;
  }
  const name = labels.join('.').toLowerCase();
  const type = question.readUInt16BE(at + 1);
  const asked = question.subarray(12, at + 5);
  const records = recordsOf(name, type);
  const body = Buffer.concat([asked, ...records]);
  const isTruncated = body.length + 12 > limitBytes;
  const known = name === world.name || name === 'long.test';
  const header = Buffer.alloc(12);
  header.writeUInt16BE(question.readUInt16BE(0), 0);
  header.writeUInt16BE(0x8180 | (isTruncated ? 0x200 : 0) | (known ? 0 : 3), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isTruncated ? 0 : records.length, 6);
  return Buffer.concat([header, isTruncated ? asked : body]);
}

function recordsOf(name: string, type: number): Buffer[] {
  if (name === 'long.test' && type === 1) {
    return Array.from({ length: longTexts }, (_, index) => record(1, Buffer.of(198, 51, 100, index + 1)));
  }
  if (name !== world.name) return [];
  if (type === 1) return [record(1, Buffer.from(world.web.split('.').map(Number)))];
  if (type === 28) return [record(28, Buffer.from('20010db8000200000000000000000007', 'hex'))];
  return [];
}

function record(type: number, data: Buffer): Buffer {
  const head = Buffer.from([0xc0, 0x0c, 0, type, 0, 1, 0, 0, 0, 60, 0, data.length]);
  return Buffer.concat([head, data]);
}

for (const port of [world.port, world.otherPort]) {
  await listen(port, (socket) => {
    quiet(socket).end(`from ${plain(socket.localAddress)} to ${plain(socket.remoteAddress)}\n`);
  });
}
await listen(world.streamPort, (socket) => {
  const timer = setInterval(() => socket.write('tick\n'), streamMs);
  quiet(socket).once('close', () => clearInterval(timer));
});
const echo = createSocket('udp6');
echo.on('message', (message, from) =>
  echo.send(Buffer.from(`${message} to ${plain(from.address)}`), from.port, from.address),
);
echo.bind(world.port, '::');
await once(echo, 'listening');
if (process.argv[2] === 'dns') {
  const socket = createSocket('udp4');
  socket.on('message', (question, from) => socket.send(answer(question, 512), from.port, from.address));
  socket.bind(53, world.resolver);
  await once(socket, 'listening');
  const server = createServer((stream) => {
    let held = Buffer.alloc(0);
    quiet(stream).on('data', (bytes: Buffer) => {
      held = Buffer.concat([held, bytes]);
      for (
        ;
        held.length >= 2 && held.length >= 2 + held.readUInt16BE(0);
        held = held.subarray(2 + held.readUInt16BE(0))
      ) {
        const full = answer(held.subarray(2, 2 + held.readUInt16BE(0)), 65_535);
        const length = Buffer.alloc(2);
        length.writeUInt16BE(full.length);
        stream.write(Buffer.concat([length, full]));
      }
    });
  }).listen({ host: world.resolver, port: 53 });
  await once(server, 'listening');
}
process.stdout.write('ready\n');
