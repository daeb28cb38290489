import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { testId } from '../../../test/support/fake-control.ts';
import { errorOf, type HttpRig, openHttpRig } from '../../../test/support/http-rig.ts';
import type { ByteConnection } from '../../protocol/index.ts';

let rig: HttpRig | undefined;
let service: Server | undefined;
afterEach(async () => {
  await rig?.[Symbol.asyncDispose]();
  service?.close();
});

const sandboxId = testId('sandbox', 'a');

/** A service that answers every connection with this, and keeps it open. */
async function openRig(answer: string): Promise<{ peers: Socket[]; left: () => number }> {
  const peers: Socket[] = [];
  service = createServer((peer) => {
    peers.push(peer.on('error', () => {}));
    peer.once('data', () => peer.write(answer));
  });
  await once(service.listen(0, '127.0.0.1'), 'listening');
  const { port } = service.address() as { port: number };
  let left = 0;
  rig = await openHttpRig();
  rig.control.ports.admit = async () => ({
    life: { sandboxId, generation: 1 },
    revoked: new AbortController().signal,
    open: async () => connect({ port, host: '127.0.0.1' }) as unknown as ByteConnection,
    leave: () => void left++,
  });
  return { peers, left: () => left };
}

test.each(['000', '099'])('an answer with the status %s is refused, and its connection inside ends', async (status) => {
  const { peers, left } = await openRig(`HTTP/1.1 ${status} Odd\r\nContent-Length: 100\r\n\r\nbegun`);
  const response = await rig!.request(`/preview/${sandboxId}/80/`);
  expect(await errorOf(response)).toMatchObject({ status: 502, code: 'preview_failed' });
  expect(peers).toHaveLength(1);
  await expect.poll(() => peers[0]!.closed, { timeout: 10_000 }).toBe(true);
  expect(left()).toBe(1);
});
