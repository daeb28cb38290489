import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Spawner } from './spawner.ts';

let directory: string;
let spawner: Spawner | undefined;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-spawner-'));
});
afterEach(async () => {
  await spawner?.close();
  await rm(directory, { recursive: true });
});

/** A spawner that answers hello, and then runs `onRequest` with (type, request, rest, send) for every frame. */
async function fake(onRequest: string, options: { hello?: string } = {}): Promise<Spawner> {
  const program = join(directory, 'spawner.mjs');
  const text = `#!${process.execPath}
import { Socket } from 'node:net';
import { appendFileSync } from 'node:fs';
appendFileSync(${JSON.stringify(join(directory, 'starts'))}, '.');
const socket = new Socket({ fd: 3 });
const send = (type, ...parts) => {
  const body = Buffer.concat(parts);
  const head = Buffer.alloc(5);
  head.writeUInt32LE(body.length + 1);
  head[4] = type;
  socket.write(Buffer.concat([head, body]));
};
const u32 = (n) => { const b = Buffer.alloc(4); b.writeUInt32LE(n); return b; };
let held = Buffer.alloc(0);
socket.on('end', () => process.exit(0));
socket.on('data', (chunk) => {
  held = Buffer.concat([held, chunk]);
  while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
    const end = 4 + held.readUInt32LE(0);
    const type = held[4];
    const body = held.subarray(5, end);
    held = held.subarray(end);
    if (type === 1) { ${options.hello ?? 'send(2, Buffer.of(1, 0));'} continue; }
    const request = body.readUInt32LE(0);
    const rest = body.subarray(4).toString();
    ${onRequest}
  }
});
`;
  await writeFile(program, text);
  await chmod(program, 0o755);
  spawner = new Spawner({ program });
  return spawner;
}

test('answers find their requests in any order', async () => {
  const on = await fake(`
    globalThis.all ??= []; all.push(request);
    if (all.length === 2) for (const one of all.reverse()) send(14, u32(one));
  `);
  await Promise.all([on.remove('/a'), on.remove('/b')]);
});

test('a failure tells the step and the reason', async () => {
  const on = await fake(`send(12, u32(request), u32(2), Buffer.of(5, 0), Buffer.from('mount' + 'no layer'));`);
  await expect(on.remove('/a')).rejects.toMatchObject({
    code: 'isolation_failed',
    details: { step: 'mount', errno: 2 },
    message: expect.stringContaining('mount: no layer, ENOENT'),
  });
});

test('a spawner that dies refuses what was in flight, and the next request starts another', async () => {
  const on = await fake(`if (rest === '/die') process.exit(7); else send(14, u32(request));`);
  await expect(on.remove('/die')).rejects.toMatchObject({ code: 'node_unavailable' });
  await on.remove('/a');
  await Promise.allSettled([on.remove('/die'), on.remove('/die')]);
  await on.remove('/b');
});

for (const [title, answer] of [
  ['an answer nobody asked for', 'send(14, u32(99));'],
  ['an unknown frame', 'send(200, u32(request));'],
  ['a frame without end', 'socket.write(Buffer.alloc(8, 0xff));'],
  ['a frame cut short', 'send(14, Buffer.of(1));'],
] as const) {
  test(`${title} ends the spawner, not the node`, async () => {
    const on = await fake(answer);
    await expect(on.remove('/a')).rejects.toMatchObject({ code: 'node_unavailable' });
  });
}

test('a program of another version, or none at all, is told at once', async () => {
  const other = await fake('', { hello: 'send(2, Buffer.of(9, 0));' });
  await expect(other.ready()).rejects.toThrow('version 9');
  const none = new Spawner({ program: join(directory, 'missing') });
  await expect(none.ready()).rejects.toMatchObject({
    code: 'node_unavailable',
    message: expect.stringContaining('ENOENT'),
  });
  await none.close();
});

test('after close nothing is started', async () => {
  const on = await fake(`send(14, u32(request));`);
  await on.ready();
  await on.close();
  await expect(on.remove('/a')).rejects.toMatchObject({ code: 'shutting_down' });
});
