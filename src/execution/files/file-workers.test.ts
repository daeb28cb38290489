import type { Socket } from 'node:net';
import { constants } from 'node:os';
import fc from 'fast-check';
import { afterEach, expect, test } from 'vitest';
import { type FakeAnswer, type FakeInit, fakeFrames, listenAsInit } from '../../../test/support/fake-init.ts';
import { requestTypes, workerFrames } from '../../../test/support/fake-worker.ts';
import { encodeFrame, type Frame, u32 } from '../../base/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import { InitClient } from '../init-client.ts';
import { fileAction } from './actions.ts';
import type { FileContext } from './call.ts';
import { readFile, writeFile } from './transfers.ts';
import { joinMoves, watchFiles } from './watch.ts';
import type { ChangeKind } from './wire.ts';

let init: FakeInit | undefined;
let client: InitClient | undefined;

afterEach(async () => {
  await client?.close();
  await init?.close();
  client = init = undefined;
});

type Worker = (call: { request: number; frame: Frame; socket: Socket; connection: number }) => void;

/** A sandbox whose file workers say what the test tells them to. */
async function withWorker(answer: Worker, refuse?: Buffer): Promise<FileContext> {
  const numbers = new Map<Socket, number>();
  const fake: FakeAnswer = ({ kind, frame, socket }) => {
    if (kind !== 4) return;
    if (frame.type === requestTypes.worker) {
      numbers.set(socket, numbers.size + 1);
      socket.write(refuse ?? workerFrames.ok());
      return;
    }
    answer({ request: frame.body.readUInt32LE(0), frame, socket, connection: numbers.get(socket) ?? 0 });
  };
  init = await listenAsInit(fake);
  client = await InitClient.connect({ directory: init.directory, generation: 1 });
  return { workers: client.files, user: null, token: 0 };
}

const statOf = (context: FileContext, path = '/a') => fileAction(context, { kind: 'stat', path, followLinks: true });
const removeOf = (context: FileContext) => fileAction(context, { kind: 'remove', path: '/a', recursive: false });
const writeOf = (context: FileContext, bytes: AsyncIterable<Uint8Array>, how: 'replace' | 'append' = 'replace') =>
  writeFile(context, { path: '/a', how, mode: null, owner: null, parents: false, expected: { kind: 'any' } }, bytes);

async function* chunksOf(...chunks: readonly string[]): AsyncGenerator<Uint8Array, void> {
  for (const chunk of chunks) yield Buffer.from(chunk);
}

async function textOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bytes) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

test('requests one after another share a worker; none is made for each', async () => {
  const seen = new Set<number>();
  const context = await withWorker(({ request, socket, connection }) => {
    seen.add(connection);
    socket.write(workerFrames.stat(request, { size: 5 }));
  });
  for (let at = 0; at < 20; at++)
    expect(await statOf(context)).toMatchObject({ sizeBytes: 5, mode: 0o644, type: 'file' });
  expect(seen.size).toBe(1);
});

test('a hundred at once share a few workers, and each gets its own answer', async () => {
  const context = await withWorker(({ request, frame, socket }) => {
    socket.write(workerFrames.stat(request, { size: Number(frame.body.subarray(6).toString('utf8')) }));
  });
  const entries = await Promise.all(Array.from({ length: 100 }, (_, at) => statOf(context, `/${at}`)));
  expect(entries.map(({ sizeBytes }) => sizeBytes)).toEqual(Array.from({ length: 100 }, (_, at) => at));
  expect(context.workers.size).toBeLessThanOrEqual(8);
});

test('a worker that is given back twice is not taken from whoever has it next', async () => {
  const context = await withWorker(() => {});
  const want = { user: null, token: 0, isChange: false, isTransfer: false };
  const first = await context.workers.acquire(want);
  first.release({ isUsable: true });
  const second = await context.workers.acquire(want);
  expect(second.worker).toBe(first.worker);
  first.release();
  expect(second.worker.isOver).toBe(false);
  second.release();
  expect(second.worker.isOver).toBe(true);
});

test('slow transfers leave room for a look', async () => {
  const context = await withWorker(({ request, frame, socket }) => {
    if (frame.type === requestTypes.stat) socket.write(workerFrames.stat(request));
    else socket.write(Buffer.concat([workerFrames.stat(request, { size: 10 }), workerFrames.data(request, 'half!')]));
  });
  const reads = await Promise.all(
    Array.from({ length: 6 }, () => readFile(context, { path: '/a', offset: 0, length: null })),
  );
  const waiting = readFile(context, { path: '/a', offset: 0, length: null });
  expect(await statOf(context)).toMatchObject({ type: 'file' });
  await reads[0]!.bytes[Symbol.asyncIterator]().return?.();
  expect((await waiting).length).toBe(10);
});

test('a look whose worker is killed is made again; a change is not, and nobody knows', async () => {
  let asked = 0;
  const context = await withWorker(({ request, socket }) => {
    asked++;
    if (asked <= 2) socket.destroy();
    else socket.write(workerFrames.stat(request));
  });
  await expect(removeOf(context)).rejects.toMatchObject({ code: 'outcome_unknown' });
  expect(await statOf(context)).toMatchObject({ path: '/a' });
  expect(asked).toBe(3);
});

test('a worker that dies before a replacing write was sent whole has changed nothing', async () => {
  const context = await withWorker(({ frame, socket }) => {
    if (frame.type === requestTypes.data) socket.destroy();
  });
  const gate = Promise.withResolvers<void>();
  async function* slow(): AsyncGenerator<Uint8Array, void> {
    yield Buffer.from('a');
    await expect.poll(() => context.workers.size).toBe(0);
    gate.resolve();
    yield Buffer.from('b');
  }
  await expect(writeOf(context, slow())).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await gate.promise;
});

test('a write is sent whole and answered with the new file; a fault midway ends it', async () => {
  const seen: string[] = [];
  const context = await withWorker(({ request, frame, socket }) => {
    if (frame.type === requestTypes.data) {
      const text = frame.body.subarray(4).toString('utf8');
      seen.push(text);
      if (text === 'full') socket.write(workerFrames.fault(request, constants.errno.ENOSPC));
    }
    if (frame.type === requestTypes.done && !seen.includes('full'))
      socket.write(workerFrames.stat(request, { size: 2 }));
  });
  expect(await writeOf(context, chunksOf('a', 'b'))).toMatchObject({ sizeBytes: 2 });
  expect(seen).toEqual(['a', 'b']);
  await expect(writeOf(context, chunksOf('full'))).rejects.toMatchObject({ code: 'file_storage_full' });
});

test('bytes that fail take the write back: the worker is told, and serves on', async () => {
  const seen: number[] = [];
  const context = await withWorker(({ request, frame, socket }) => {
    seen.push(frame.type);
    if (frame.type === requestTypes.cancel) socket.write(workerFrames.fault(request, constants.errno.ECANCELED));
    if (frame.type === requestTypes.stat) socket.write(workerFrames.stat(request));
  });
  async function* failing(): AsyncGenerator<Uint8Array, void> {
    yield Buffer.from('a');
    throw new Error('The caller is gone.');
  }
  await expect(writeOf(context, failing())).rejects.toThrow('The caller is gone.');
  expect(seen).toEqual([requestTypes.write, requestTypes.data, requestTypes.cancel]);
  await statOf(context);
  expect(context.workers.size).toBe(1);
});

test('a range is announced before it is read; a file that grew is cut, one that shrank fails', async () => {
  let sent = 'hello';
  const context = await withWorker(({ request, frame, socket }) => {
    expect(frame.type).toBe(requestTypes.read);
    socket.write(
      Buffer.concat([
        workerFrames.stat(request, { size: 5 }),
        workerFrames.data(request, sent),
        workerFrames.done(request),
      ]),
    );
  });
  const read = async () => textOf((await readFile(context, { path: '/a', offset: 0, length: null })).bytes);
  expect(await read()).toBe('hello');
  sent = 'hello and more';
  expect(await read()).toBe('hello');
  sent = 'hel';
  await expect(read()).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await expect(readFile(context, { path: '/a', offset: 5, length: null })).rejects.toMatchObject({
    code: 'range_not_satisfiable',
    details: { sizeBytes: 5 },
  });
});

test('a file that claims no size is read to its end', async () => {
  const context = await withWorker(({ request, socket }) => {
    const frames = [workerFrames.stat(request), workerFrames.data(request, 'proc'), workerFrames.done(request)];
    socket.write(Buffer.concat(frames));
  });
  const content = await readFile(context, { path: '/proc/x', offset: 0, length: null });
  expect(content.length).toBeNull();
  expect(await textOf(content.bytes)).toBe('proc');
});

test('a list is paged by the bytes of the last name', async () => {
  const context = await withWorker(({ request, frame, socket }) => {
    expect(frame.body.readUInt32LE(8)).toBe(3);
    const names = [Buffer.from('a'), Buffer.from([0xff, 0x2f, 0x62]), Buffer.from('c')];
    const entries = names.map((name) => workerFrames.entry(request, name, { type: 2 }));
    socket.write(Buffer.concat([...entries, workerFrames.done(request)]));
  });
  const list = await fileAction(context, { kind: 'list', path: '/d', depth: 1, limit: 2, after: null });
  expect(list.entries.map(({ path }) => path)).toEqual(['/d/a', '/d/\u{fffd}/b']);
  expect(list.entries[1]?.pathBase64).toBe(Buffer.from([0x2f, 0x64, 0x2f, 0xff, 0x2f, 0x62]).toString('base64'));
  expect(list.next).toBe(Buffer.from([0xff, 0x2f, 0x62]).toString('base64'));
});

const { errno } = constants;
test.each([
  [errno.ENOENT, 12, 'file_not_found'],
  [errno.EEXIST, 12, 'file_exists'],
  [errno.ENOTDIR, 12, 'not_a_directory'],
  [errno.EISDIR, 12, 'is_a_directory'],
  [errno.ENOTEMPTY, 12, 'directory_not_empty'],
  [errno.EACCES, 12, 'permission_denied'],
  [errno.EROFS, 12, 'permission_denied'],
  [errno.ENOSPC, 12, 'file_storage_full'],
  [errno.ELOOP, 12, 'file_not_usable'],
  [errno.ENXIO, 13, 'file_not_usable'],
  [0, 14, 'file_changed'],
  [9_999, 12, 'file_not_usable'],
])('the fault %i with code %i is %s, and the worker serves on', async (number, code, expected) => {
  let asked = 0;
  const context = await withWorker(({ request, socket }) => {
    socket.write(asked++ === 0 ? workerFrames.fault(request, number, code) : workerFrames.stat(request));
  });
  await expect(statOf(context)).rejects.toMatchObject({ code: expected, details: { path: '/a' } });
  expect(await statOf(context)).toMatchObject({ path: '/a' });
});

test.each([
  [9, 'user_not_usable'],
  [7, 'stale_generation'],
  [11, 'limit_exceeded'],
  [5, 'lease_lost'],
  [12, 'sandbox_unavailable'],
])("init's refusal %i of a worker is %s", async (code, expected) => {
  const context = await withWorker(() => {}, fakeFrames.refused(code));
  await expect(statOf(context)).rejects.toMatchObject({ code: expected });
});

test('whatever bytes a worker sends, a call ends with an answer or a refusal, and the next worker serves', async () => {
  let said: Uint8Array = new Uint8Array();
  const context = await withWorker(({ request, socket }) => {
    if (said.byteLength === 0) socket.write(workerFrames.stat(request));
    else socket.end(said);
  });
  const frame = fc
    .record({
      type: fc.integer({ min: 70, max: 90 }),
      request: fc.integer({ min: 0, max: 60 }),
      body: fc.uint8Array({ maxLength: 80 }),
    })
    .map(({ type, request, body }) => encodeFrame(type, u32(request), body));
  const bytes = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 200 }),
    fc.array(frame, { minLength: 1, maxLength: 6 }).map((all) => Buffer.concat(all)),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (hostile) => {
      said = hostile;
      const settled = await statOf(context).then(
        (entry) => typeof entry.path === 'string',
        (error: unknown) => isPlatformError(error),
      );
      const removed = await removeOf(context).then(
        () => true,
        (error: unknown) => isPlatformError(error),
      );
      said = new Uint8Array();
      await statOf(context);
      return settled && removed;
    }),
    { numRuns: 150 },
  );
});

test('a watch is there when the worker says that it is armed, and ends with its signal', async () => {
  const armed = Promise.withResolvers<() => void>();
  const context = await withWorker(({ request, socket }) => {
    armed.resolve(() => {
      socket.write(Buffer.concat([workerFrames.done(request), workerFrames.change(request, 1, 'new')]));
    });
  });
  const stop = new AbortController();
  const events = watchFiles(context, { path: '/w', recursive: true }, stop.signal);
  const first = events.next();
  let isArmed = false;
  void first.then(() => (isArmed = true));
  const arm = await armed.promise;
  for (let at = 0; at < 20; at++) await new Promise(setImmediate);
  expect(isArmed).toBe(false);
  arm();
  expect((await first).value).toEqual({ kind: 'armed' });
  expect((await events.next()).value).toEqual({ kind: 'created', path: 'new' });
  const last = events.next();
  stop.abort();
  expect((await last).done).toBe(true);
});

test('the halves of a move become one event, and a half alone what it means', async () => {
  const change = (what: ChangeKind, path: string, cookie = 0) => ({ what, path, cookie });
  async function* changes() {
    yield change('moved from', 'a', 1);
    yield change('moved to', 'b', 1);
    yield change('moved from', 'gone', 2);
    yield change('modified', 'c');
    yield change('moved to', 'came', 3);
    yield change('overflow', '');
    yield change('moved from', 'last', 4);
  }
  const events: unknown[] = [];
  for await (const event of joinMoves(changes())) events.push(event);
  expect(events).toEqual([
    { kind: 'moved', path: 'b', from: 'a' },
    { kind: 'deleted', path: 'gone' },
    { kind: 'modified', path: 'c' },
    { kind: 'created', path: 'came' },
    { kind: 'overflow' },
    { kind: 'deleted', path: 'last' },
  ]);
});
