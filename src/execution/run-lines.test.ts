import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { encodeFrame, u16, u64 } from '../base/index.ts';
import { RunLines } from './run-lines.ts';

let directory: string;
let server: Server;
let accepted: Socket[];
let lines: RunLines;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-lines-'));
  accepted = [];
  server = createServer((socket) => accepted.push(socket.on('error', () => {})));
  const path = join(directory, 'socket');
  await new Promise<void>((resolve) => server.listen(path, resolve));
  lines = new RunLines(() => createConnection(path));
});

afterEach(async () => {
  lines.close();
  for (const socket of accepted) socket.destroy();
  server.close();
  await rm(directory, { recursive: true });
});

async function openLine() {
  const line = lines.take();
  if (!line.isGreeted) await once(line.socket, 'connect');
  return line;
}

test('a connection that is given back serves the next run, and is told apart from a new one', async () => {
  const first = await openLine();
  expect(first.isGreeted).toBe(false);
  first.giveBack();
  const second = lines.take();
  expect(second).toMatchObject({ isGreeted: true, socket: first.socket });
  expect(lines.idle).toBe(0);
  second.socket.destroy();
});

test('whatever comes on an idle connection ends it', async () => {
  const line = await openLine();
  line.giveBack();
  await expect.poll(() => accepted.length).toBe(1);
  accepted[0]!.write('unasked');
  await expect.poll(() => lines.idle).toBe(0);
  expect(line.socket.destroyed).toBe(true);
});

test('an idle connection that init closes is forgotten', async () => {
  const line = await openLine();
  line.giveBack();
  await expect.poll(() => accepted.length).toBe(1);
  accepted[0]!.destroy();
  await expect.poll(() => lines.idle).toBe(0);
});

test('no more than a few stay idle, and none after the close', async () => {
  const open = await Promise.all(Array.from({ length: 40 }, openLine));
  for (const line of open) line.giveBack();
  expect(lines.idle).toBe(32);
  lines.close();
  await expect.poll(() => lines.idle).toBe(0);
  const late = await openLine();
  late.giveBack();
  expect(lines.idle).toBe(0);
  expect(late.socket.destroyed).toBe(true);
});

/** As init greets. */
const greeting = encodeFrame(2, u16(1), u64(7));

test('one is prepared for the next run when none is idle, and only one', async () => {
  lines.prepare();
  lines.prepare();
  await expect.poll(() => accepted.length).toBe(1);
  expect(lines.idle).toBe(0);
  await once(accepted[0]!, 'data');
  accepted[0]!.write(greeting);
  await expect.poll(() => lines.idle).toBe(1);
  lines.prepare();
  expect(lines.take().isGreeted).toBe(true);
  expect(accepted.length).toBe(1);
});

test('one that is greeted with anything else, or not any more, is not kept', async () => {
  lines.prepare();
  await expect.poll(() => accepted.length).toBe(1);
  accepted[0]!.write(encodeFrame(3, u16(1)));
  await once(accepted[0]!.resume(), 'close');
  expect(lines.idle).toBe(0);
  lines.prepare();
  await expect.poll(() => accepted.length).toBe(2);
  lines.close();
  await once(accepted[1]!.resume(), 'close');
  lines.prepare();
  expect(lines.idle).toBe(0);
});
