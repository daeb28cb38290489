import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { createOrder, execOrder } from '../../../test/support/node-orders.ts';
import {
  type ExecOutcome,
  type NodeApi,
  type NodeEvent,
  type NodeSandbox,
  newId,
  PlatformError,
} from '../../protocol/index.ts';
import { EventFeed } from '../event-feed.ts';
import { NodeClient } from './node-client.ts';
import { NodeServer } from './node-server.ts';

const order = createOrder();
const { mark, spec, generation, version, settings } = order;
const sandbox: NodeSandbox = { mark, spec, generation, version, settings, life: { kind: 'running' } };
const outcome: ExecOutcome = {
  exitCode: 0,
  signal: null,
  timedOut: false,
  killed: false,
  outOfMemory: false,
  stdout: Buffer.from([0, 255, 1]),
  stderr: Buffer.from('e'),
  stdoutTruncated: false,
  stderrTruncated: true,
  startedAtMs: 1,
  durationMs: 2,
};
const releases: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const release of releases.splice(0).reverse()) await release();
});

/** A node of which only what a test is about exists. */
async function serve(node: Partial<NodeApi>, token = 'secret'): Promise<NodeClient> {
  const server = await NodeServer.listen({ node: node as NodeApi, token: 'secret', host: '127.0.0.1', port: 0 });
  const client = new NodeClient({ url: server.url, token });
  releases.push(
    () => server.close(),
    () => client.close(),
  );
  return client;
}

test('a refusal comes back as the same refusal', async () => {
  const client = await serve({
    createSandbox: async () => {
      throw new PlatformError('version_mismatch', 'newer', { details: { generation: 1, version: 5 } });
    },
  });
  const refusal = { code: 'version_mismatch', message: 'newer', details: { generation: 1, version: 5 } };
  await expect(client.createSandbox(order)).rejects.toMatchObject(refusal);
});

test('a bug of the node is internal and tells nothing of itself', async () => {
  const client = await serve({
    describe: async () => {
      throw new TypeError('x is not a function');
    },
  });
  const error = await client.describe().catch((thrown: PlatformError) => thrown);
  expect(error).toMatchObject({ code: 'internal', message: expect.not.stringContaining('function') });
});

test('without the token nothing is done', async () => {
  let called = false;
  const client = await serve(
    {
      createSandbox: async () => {
        called = true;
        return sandbox;
      },
    },
    'wrong',
  );
  await expect(client.createSandbox(order)).rejects.toMatchObject({ code: 'unauthenticated' });
  expect(called).toBe(false);
});

test('an order that is not one is refused before the node sees it', async () => {
  const client = await serve({ createSandbox: async () => sandbox });
  const bad = { ...order, generation: -1, extra: true };
  await expect(client.createSandbox(bad)).rejects.toMatchObject({ code: 'invalid_request' });
});

test('absent results and bytes survive the wire', async () => {
  let seen: Uint8Array | null | undefined;
  const client = await serve({
    findSandbox: async () => undefined,
    deleteSandbox: async () => {},
    exec: async ({ stdin }) => {
      seen = stdin;
      return outcome;
    },
  });
  expect(await client.findSandbox(mark.sandboxId)).toBeUndefined();
  expect(await client.deleteSandbox({ sandboxId: mark.sandboxId, generation: 1 })).toBeUndefined();
  expect(await client.exec(execOrder(sandbox, { stdin: Buffer.from([0, 200]) }))).toEqual(outcome);
  expect(seen).toEqual(Buffer.from([0, 200]));
  await client.exec(execOrder(sandbox, { stdin: null }));
  expect(seen).toBeNull();
  await client.exec(execOrder(sandbox, { stdin: new Uint8Array() }));
  expect(seen).toEqual(Buffer.alloc(0));
});

test('nobody at the address means that nothing was changed', async () => {
  const client = new NodeClient({ url: 'http://127.0.0.1:1', token: 'secret' });
  releases.push(() => client.close());
  await expect(client.createSandbox(order)).rejects.toMatchObject({ code: 'node_unavailable' });
  await expect(client.exec(execOrder(sandbox, {}))).rejects.toMatchObject({ code: 'node_unavailable' });
});

test('a connection lost after the order went out is an unknown outcome; for a question nothing was changed', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new NodeClient({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: 't' });
  releases.push(
    () => new Promise<void>((resolve) => void server.close(() => resolve())),
    () => client.close(),
  );
  await expect(client.createSandbox(order)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(client.exec(execOrder(sandbox, {}))).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(client.inventory()).rejects.toMatchObject({ code: 'node_unavailable' });
});

test('an abort reaches the exec it is meant for, and the outcome still comes back', async () => {
  const client = await serve({
    exec: (_order, signal) =>
      new Promise((resolve) => signal?.addEventListener('abort', () => resolve({ ...outcome, killed: true }))),
  });
  const abort = new AbortController();
  const answer = client.exec(execOrder(sandbox, {}), abort.signal);
  abort.abort();
  expect(await answer).toMatchObject({ killed: true });
});

test('a caller that goes away detaches: the exec is not aborted', async () => {
  const begun = Promise.withResolvers<AbortSignal>();
  const client = await serve({
    exec: (_order, signal) => {
      begun.resolve(signal!);
      return new Promise(() => {});
    },
  });
  const answer = client.exec(execOrder(sandbox, {})).catch((error: PlatformError) => error.code);
  const signal = await begun.promise;
  client.close();
  expect(await answer).toBe('outcome_unknown');
  expect(signal.aborted).toBe(false);
});

test('200 calls at once do not wait for each other', async () => {
  const gate = Promise.withResolvers<void>();
  let waiting = 0;
  const client = await serve({
    exec: async () => {
      waiting++;
      if (waiting === 200) gate.resolve();
      await gate.promise;
      return outcome;
    },
  });
  const all = await Promise.all(Array.from({ length: 200 }, () => client.exec(execOrder(sandbox, {}))));
  expect(all).toHaveLength(200);
});

test('events arrive as they happen, and an abort ends the watch', async () => {
  const feed = new EventFeed();
  const client = await serve({ watch: (signal) => feed.watch(signal) });
  const stop = new AbortController();
  const events = client.watch(stop.signal)[Symbol.asyncIterator]();
  expect((await events.next()).value).toEqual({ kind: 'watching' });
  const ended: NodeEvent = { kind: 'ended', sandboxId: newId('sandbox'), generation: 1, reason: 'crashed', atMs: 5 };
  feed.publish(ended);
  expect((await events.next()).value).toEqual(ended);
  stop.abort();
  expect((await events.next()).done).toBe(true);
  await expect.poll(() => feed.watchers).toBe(0);
});

test('a watch of a node that closes ends; one of a node that fails or vanishes tells', async () => {
  const feed = new EventFeed();
  const client = await serve({ watch: (signal) => feed.watch(signal) });
  const events = client.watch(new AbortController().signal)[Symbol.asyncIterator]();
  await events.next();
  feed.close();
  expect((await events.next()).done).toBe(true);

  const failing = await serve({
    watch: async function* () {
      yield { kind: 'watching' } as const;
      throw new PlatformError('output_dropped', 'too slow');
    },
  });
  const broken = failing.watch(new AbortController().signal)[Symbol.asyncIterator]();
  await broken.next();
  await expect(broken.next()).rejects.toMatchObject({ code: 'output_dropped' });

  const nobody = new NodeClient({ url: 'http://127.0.0.1:1', token: 't' });
  const none = nobody.watch(new AbortController().signal)[Symbol.asyncIterator]();
  await expect(none.next()).rejects.toMatchObject({ code: 'node_unavailable' });
  nobody.close();
});
