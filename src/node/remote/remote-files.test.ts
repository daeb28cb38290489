/** Files of a node in another process. */
import { afterEach, expect, test } from 'vitest';
import { fakeFileEntry } from '../../../test/support/fake-files.ts';
import { type NodeApi, newId, PlatformError } from '../../protocol/index.ts';
import { NodeClient } from './node-client.ts';
import { NodeServer } from './node-server.ts';

const life = { sandboxId: newId('sandbox'), generation: 1, user: null, leaseToken: null };
const writing = {
  ...life,
  path: '/f',
  how: 'replace',
  mode: null,
  owner: null,
  parents: true,
  expected: { kind: 'any' },
} as const;
const releases: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const release of releases.splice(0).reverse()) await release();
});

async function serve(node: Partial<NodeApi>): Promise<NodeClient> {
  const server = await NodeServer.listen({ node: node as NodeApi, token: 't', host: '127.0.0.1', port: 0 });
  const client = new NodeClient({ url: server.url, token: 't' });
  releases.push(
    () => server.close(),
    () => client.close(),
  );
  return client;
}

async function* chunksOf(count: number, size = 64 * 1024): AsyncGenerator<Uint8Array, void> {
  for (let at = 0; at < count; at++) yield Buffer.alloc(size, at % 251);
}

async function sizeOf(bytes: AsyncIterable<Uint8Array>): Promise<number> {
  let size = 0;
  for await (const chunk of bytes) size += chunk.byteLength;
  return size;
}

test('bytes go both ways whole, beside what is known of them', async () => {
  const client = await serve({
    writeFile: async (order, bytes) => fakeFileEntry(order.path, await sizeOf(bytes)),
    readFile: async (order) => ({
      entry: fakeFileEntry(order.path, 9),
      offset: order.offset,
      length: null,
      bytes: chunksOf(1_000),
    }),
  });
  expect(await client.writeFile(writing, chunksOf(1_000))).toMatchObject({ path: '/f', sizeBytes: 65_536_000 });
  const content = await client.readFile({ ...life, path: '/ü\n', offset: 3, length: null });
  expect(content).toMatchObject({ offset: 3, length: null, entry: { path: '/ü\n' } });
  expect(await sizeOf(content.bytes)).toBe(65_536_000);
});

test('a refusal before the bytes are sent ends the call with it', async () => {
  const client = await serve({
    writeFile: async () => {
      throw new PlatformError('file_exists', 'There is one.', { details: { path: '/f' } });
    },
    readFile: async () => {
      throw new PlatformError('file_not_found', 'None.');
    },
  });
  const refused = { code: 'file_exists', details: { path: '/f' } };
  await expect(client.writeFile(writing, chunksOf(500))).rejects.toMatchObject(refused);
  const missing = client.readFile({ ...life, path: '/f', offset: 0, length: null });
  await expect(missing).rejects.toMatchObject({ code: 'file_not_found' });
});

test("the caller's failing bytes take the write back on the node", async () => {
  const begun = Promise.withResolvers<void>();
  const undone = Promise.withResolvers<void>();
  const client = await serve({
    writeFile: async (order, bytes) => {
      begun.resolve();
      try {
        return fakeFileEntry(order.path, await sizeOf(bytes));
      } catch (error) {
        undone.resolve();
        throw error;
      }
    },
  });
  async function* failing(): AsyncGenerator<Uint8Array, void> {
    yield Buffer.from('a');
    await begun.promise;
    throw new Error('gone');
  }
  await expect(client.writeFile(writing, failing())).rejects.toThrow('gone');
  await undone.promise;
});

test('a reader that stops, also before the first byte, lets the node stop', async () => {
  const stopped = Promise.withResolvers<void>();
  const client = await serve({
    readFile: async (order) => ({
      entry: fakeFileEntry(order.path, 1),
      offset: 0,
      length: null,
      bytes: (async function* () {
        try {
          for (;;) yield Buffer.alloc(65_536);
        } finally {
          stopped.resolve();
        }
      })(),
    }),
  });
  const { bytes } = await client.readFile({ ...life, path: '/f', offset: 0, length: null });
  await bytes[Symbol.asyncIterator]().return?.();
  await stopped.promise;
});

test('a content that fails on the node fails here, and never looks complete', async () => {
  const client = await serve({
    readFile: async (order) => ({
      entry: fakeFileEntry(order.path, 10),
      offset: 0,
      length: 10,
      bytes: (async function* () {
        yield Buffer.alloc(5);
        throw new PlatformError('sandbox_unavailable', 'lost');
      })(),
    }),
  });
  const { bytes } = await client.readFile({ ...life, path: '/f', offset: 0, length: null });
  await expect(sizeOf(bytes)).rejects.toMatchObject({ code: 'node_unavailable' });
});

test('a watch tells a refusal in place of its first event, and ends with its signal', async () => {
  const client = await serve({
    async *watchFiles(order, signal) {
      if (order.path === '/none') throw new PlatformError('file_not_found', 'None.');
      yield { kind: 'armed' };
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    },
  });
  const stop = new AbortController();
  const watch = (path: string) =>
    client.watchFiles({ ...life, path, recursive: false }, stop.signal)[Symbol.asyncIterator]();
  await expect(watch('/none').next()).rejects.toMatchObject({ code: 'file_not_found' });
  const events = watch('/w');
  expect((await events.next()).value).toEqual({ kind: 'armed' });
  const last = events.next();
  stop.abort();
  expect((await last).done).toBe(true);
});
