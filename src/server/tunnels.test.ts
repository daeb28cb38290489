import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { goodKey, testCaller, testId } from '../../test/support/fake-control.ts';
import { type HttpRig, openHttpRig } from '../../test/support/http-rig.ts';
import type { ByteConnection } from '../protocol/index.ts';

let rig: HttpRig | undefined;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await rig?.[Symbol.asyncDispose]();
});

const otherKey = `atoll_${'b'.repeat(40)}`;

/** Gives back what it is sent. */
class Echo extends Duplex {
  override _read(): void {}
  override _write(bytes: Buffer, _encoding: string, done: () => void): void {
    this.push(bytes);
    done();
  }
}

async function openRig(): Promise<Echo[]> {
  const inside: Echo[] = [];
  rig = await openHttpRig({ heartbeatMs: 1_500 });
  rig.control.callers.set(otherKey, testCaller());
  rig.control.ports.open = async () => {
    inside.push(new Echo());
    return inside.at(-1) as unknown as ByteConnection;
  };
  return inside;
}

/** A connection that has asked for a tunnel, never ends by itself, and has heard the head of the answer. */
async function dial(key: string): Promise<{ socket: Socket; head: string; outcome: Promise<unknown> }> {
  const { hostname, port } = new URL(rig!.url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  sockets.push(socket);
  const outcome = new Promise((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code));
    socket.once('end', () => resolve('ended'));
  });
  const path = `/v1/sandboxes/${testId('sandbox', 'a')}/ports/80/connect`;
  socket.write(`GET ${path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${key}\r\n`);
  socket.write('Connection: Upgrade\r\nUpgrade: atoll-tcp\r\n\r\n');
  const [head] = (await once(socket, 'data')) as [Buffer];
  return { socket, head: String(head), outcome };
}

test('a tunnel whose key is no longer good is cut on both sides; one with a good key stays', async () => {
  const inside = await openRig();
  const revoked = await dial(otherKey);
  const good = await dial(goodKey);
  expect([revoked.head, good.head]).toEqual([expect.stringMatching(/ 101 /), expect.stringMatching(/ 101 /)]);
  rig!.control.callers.delete(otherKey);
  expect(await revoked.outcome).toBe('ECONNRESET');
  expect(inside.map(({ destroyed }) => destroyed)).toEqual([true, false]);
  good.socket.write('still there');
  expect(String((await once(good.socket, 'data'))[0])).toBe('still there');
}, 20_000);

test('whoever is refused a tunnel and never ends is cut', async () => {
  await openRig();
  const { socket, head, outcome } = await dial(`atoll_${'c'.repeat(40)}`);
  expect(head).toMatch(/^HTTP\/1\.1 401 /);
  expect(await outcome).toBe('ended');
  // Whoever writes to a connection that is gone hears of it.
  const isCut = () => {
    if (socket.writable) socket.write('more');
    return socket.destroyed;
  };
  await expect.poll(isCut, { timeout: 15_000, interval: 100 }).toBe(true);
}, 20_000);
