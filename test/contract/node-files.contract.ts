/** What the files of every NodeApi do, called directly or over HTTP: the rules of protocol/node-files.ts. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type {
  FileAction,
  FileActionKind,
  FileActionOrder,
  FileEvent,
  FileList,
  FileOrder,
  NodeApi,
  NodeSandbox,
  WriteFileOrder,
} from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, lifeOf, plainSettings, run } from '../support/node-orders.ts';

const patience = { timeout: 30_000 };
const mebibyte = 1024 * 1024;

export function nodeFilesContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let sandbox: NodeSandbox;
  const node = (): NodeApi => harness.node;

  beforeAll(async () => {
    harness = await open();
    sandbox = await node().createSandbox(createOrder());
  });
  afterAll(() => harness?.close());

  const order = (more: Partial<FileOrder> = {}): FileOrder => ({
    ...{ ...lifeOf(sandbox), user: null, leaseToken: null },
    ...more,
  });
  const act = <Kind extends FileActionKind>(action: Extract<FileAction, { kind: Kind }>, more?: Partial<FileOrder>) =>
    node().fileAction({ ...order(more), action } as FileActionOrder<Kind>);
  const stat = (path: string, more?: Partial<FileOrder>) => act({ kind: 'stat', path, followLinks: true }, more);
  const list = (path: string, depth = 1) => act({ kind: 'list', path, depth, limit: 1_000, after: null });
  const write = (path: string, bytes: string | AsyncIterable<Uint8Array>, more: Partial<WriteFileOrder> = {}) => {
    const plain = { how: 'replace', mode: null, owner: null, parents: true, expected: { kind: 'any' } } as const;
    const content = typeof bytes === 'string' ? chunksOf(Buffer.from(bytes)) : bytes;
    return node().writeFile({ ...order(), path, ...plain, ...more }, content);
  };
  const read = async (path: string, range: { offset?: number; length?: number } = {}) => {
    const { offset = 0, length = null } = range;
    return await bytesOf((await node().readFile({ ...order(), path, offset, length })).bytes);
  };
  const text = async (path: string, range?: Parameters<typeof read>[1]) => (await read(path, range)).toString();
  const sh = async (command: string) => (await run(node(), sandbox, command)).stdout;

  test('labels are kept with a file, replaced by their prefix, and nothing but the name space of users is told', async () => {
    await write('/labels/file', 'x');
    expect(await act({ kind: 'labels', path: '/labels/file' })).toEqual({});
    const set = (prefix: string, labels: Record<string, string>) =>
      act({ kind: 'setLabels', path: '/labels/file', prefix, labels });
    await set('', { 'a.one': '1', 'a.two': 'zwei ä', 'b.one': '' });
    expect(await act({ kind: 'labels', path: '/labels/file' })).toEqual({
      'a.one': '1',
      'a.two': 'zwei ä',
      'b.one': '',
    });
    await set('a.', { 'a.two': '2' });
    expect(await act({ kind: 'labels', path: '/labels/file' })).toEqual({ 'a.two': '2', 'b.one': '' });
    const inside = "import os; print(sorted(os.listxattr('/labels/file')), os.getxattr('/labels/file', 'user.a.two'))";
    expect(await sh(`python3 -c "${inside}"`)).toBe("['user.a.two', 'user.b.one'] b'2'\n");
    // A file that takes its place is another one.
    await write('/labels/file', 'y');
    expect(await act({ kind: 'labels', path: '/labels/file' })).toEqual({});
    await expect(act({ kind: 'labels', path: '/labels/none' })).rejects.toMatchObject({ code: 'file_not_found' });
    const wrong = act({ kind: 'setLabels', path: '/labels/none', prefix: '', labels: { a: '1' } });
    await expect(wrong).rejects.toMatchObject({ code: 'file_not_found' });
  });

  test('pieces that are given back leave those that are not, and the content, as they are', async () => {
    const bytes = randomBytes(9 * mebibyte);
    await write('/f/pieces', chunksOf(bytes));
    const readers = Array.from({ length: 3 }, async () => {
      const content = await node().readFile({ ...order(), path: '/f/pieces', offset: 0, length: null });
      const held: { readonly piece: Uint8Array; readonly at: number }[] = [];
      let at = 0;
      for await (const piece of content.bytes) {
        held.push({ piece, at });
        at += piece.byteLength;
        // The pieces of some reads are still looked at when later ones come.
        if (held.length < 5) continue;
        const { piece: first, at: begin } = held.shift()!;
        expect(Buffer.compare(first, bytes.subarray(begin, begin + first.byteLength))).toBe(0);
        content.bytes.giveBack?.(first);
      }
      for (const { piece, at: begin } of held) {
        expect(Buffer.compare(piece, bytes.subarray(begin, begin + piece.byteLength))).toBe(0);
      }
      return at;
    });
    expect(await Promise.all(readers)).toEqual([bytes.length, bytes.length, bytes.length]);
  });

  test('a file that becomes shorter while it is read is no content, and the next read is served', async () => {
    await sh('mkdir -p /f && head -c 30000000 /dev/zero > /f/shorter');
    const { bytes } = await node().readFile({ ...order(), path: '/f/shorter', offset: 0, length: null });
    const pieces = bytes[Symbol.asyncIterator]();
    // Far more than is on its way between the worker and whoever takes one piece.
    expect((await pieces.next()).done).toBe(false);
    await sh('truncate -s 1000 /f/shorter');
    await expect(bytesOf({ [Symbol.asyncIterator]: () => pieces })).rejects.toMatchObject({
      code: expect.stringMatching(/^(sandbox|node)_unavailable$/),
    });
    expect((await read('/f/shorter')).byteLength).toBe(1_000);
  });

  test('bytes go in and come out as they are, in ranges too, and what is known of them goes with them', async () => {
    const bytes = randomBytes(3 * mebibyte + 1);
    const written = await write('/f/bytes', chunksOf(bytes));
    expect(written).toMatchObject({ path: '/f/bytes', type: 'file', sizeBytes: bytes.length, mode: 0o644, uid: 0 });
    expect(Buffer.compare(await read('/f/bytes'), bytes)).toBe(0);
    expect(await read('/f/bytes', { offset: 70_000, length: 9 })).toEqual(bytes.subarray(70_000, 70_009));
    const content = await node().readFile({ ...order(), path: '/f/bytes', offset: -5, length: null });
    expect(content).toMatchObject({ entry: { etag: written.etag }, offset: bytes.length - 5, length: 5 });
    expect(await bytesOf(content.bytes)).toEqual(bytes.subarray(-5));
    const behind = read('/f/bytes', { offset: bytes.length });
    await expect(behind).rejects.toMatchObject({ code: 'range_not_satisfiable', details: { sizeBytes: bytes.length } });
    expect(await text('/proc/self/comm')).toBe('atoll-files\n');
  });

  test('a write that fails or is given up leaves the old content; until it has ended well readers find that', async () => {
    await write('/f/kept', 'old');
    async function* failing(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(mebibyte);
      expect(await text('/f/kept')).toBe('old');
      throw new Error('no more');
    }
    await expect(write('/f/kept', failing())).rejects.toThrow();
    const giveUp = new AbortController();
    async function* endless(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(mebibyte);
      giveUp.abort(new Error('enough'));
      await Promise.withResolvers<never>().promise;
    }
    const plain = { path: '/f/kept', how: 'replace', mode: null, owner: null, parents: true } as const;
    const given = node().writeFile({ ...order(), ...plain, expected: { kind: 'any' } }, endless(), giveUp.signal);
    await expect(given).rejects.toThrow('enough');
    await expect.poll(() => sh('cat /f/kept; ls -A /f | grep -c atoll-'), patience).toBe('old0\n');
  });

  test('a replaced file keeps mode and owner, or gets those that were asked for; append adds', async () => {
    await write('/f/dressed', 'one', { mode: 0o4755, owner: { user: '1001', group: '1002' } });
    expect(await write('/f/dressed', 'two')).toMatchObject({ mode: 0o4755, uid: 1_001, gid: 1_002 });
    const owner = { user: 'user', group: null };
    expect(await write('/f/dressed', 'three', { owner })).toMatchObject({ uid: 1_000, gid: 1_002 });
    expect(await write('/f/dressed', ' four', { how: 'append' })).toMatchObject({ sizeBytes: 10, uid: 1_000 });
    expect(await text('/f/dressed')).toBe('three four');
    const nobody = write('/f/dressed', 'x', { owner: { user: 'nobody-here', group: null } });
    await expect(nobody).rejects.toMatchObject({ code: 'user_not_usable' });
  });

  test('what is expected of the file must hold', async () => {
    const { etag } = await write('/f/expected', 'one');
    const absent = write('/f/expected', 'two', { expected: { kind: 'absent' } });
    await expect(absent).rejects.toMatchObject({ code: 'file_exists' });
    await write('/f/expected', 'two', { expected: { kind: 'etag', etag } });
    for (const other of [etag, 'not-ours']) {
      const changed = write('/f/expected', 'three', { expected: { kind: 'etag', etag: other } });
      await expect(changed).rejects.toMatchObject({ code: 'file_changed' });
    }
    expect(await text('/f/expected')).toBe('two');
  });

  test('each action does what its name says', async () => {
    await act({ kind: 'makeDirectory', path: '/a/b', mode: 0o700, parents: true });
    await write('/a/b/one', '1');
    expect(await act({ kind: 'copy', from: '/a', to: '/c', recursive: true, replace: false })).toMatchObject({
      ...{ path: '/c', type: 'directory' },
    });
    await act({ kind: 'move', from: '/c/b/one', to: '/c/two', replace: false });
    await act({ kind: 'changeAttributes', path: '/c/two', mode: 0o600, owner: { user: '1001', group: '1002' } });
    expect(await stat('/c/two')).toMatchObject({ mode: 0o600, uid: 1_001, gid: 1_002, sizeBytes: 1 });
    await sh('ln -s two /c/link');
    expect(await act({ kind: 'stat', path: '/c/link', followLinks: false })).toMatchObject({
      ...{ type: 'symlink', linkTarget: 'two' },
    });
    expect((await list('/c', 2)).entries.map(({ path, type }) => `${type} ${path}`)).toEqual([
      ...['directory /c/b', 'symlink /c/link', 'file /c/two'],
    ]);
    expect(await act({ kind: 'remove', path: '/c', recursive: true })).toBeNull();
    await expect(stat('/c')).rejects.toMatchObject({ code: 'file_not_found' });
  });

  test('a list goes on behind its last entry, with names of any bytes', async () => {
    await sh('mkdir /l; cd /l; touch "$(printf \'a\\377\')" b "c d" "ü"; mkdir e; touch e/f');
    const seen: string[] = [];
    for (let after: string | null = null; ; ) {
      const page: FileList = await act({ kind: 'list', path: '/l', depth: 2, limit: 2, after });
      expect(page.entries.length).toBeLessThanOrEqual(2);
      seen.push(...page.entries.map(({ path, pathBase64 }) => pathBase64 ?? path));
      after = page.next;
      if (after === null) break;
    }
    const odd = Buffer.from('/l/a\xff', 'latin1').toString('base64');
    expect(seen).toEqual([odd, '/l/b', '/l/c d', '/l/e', '/l/e/f', '/l/ü']);
  });

  test('what cannot be done is refused by the name of its reason, with the path', async () => {
    await sh('mkdir -p /r/full; touch /r/full/f /r/file; chmod 700 /r/full; mkfifo /r/fifo; ln -s loop /r/loop');
    const refusals: [code: string, () => Promise<unknown>][] = [
      ['file_not_found', () => read('/r/nothing')],
      ['is_a_directory', () => read('/r/full')],
      ['not_a_directory', () => stat('/r/file/below')],
      ['directory_not_empty', () => act({ kind: 'remove', path: '/r/full', recursive: false })],
      ['file_exists', () => act({ kind: 'makeDirectory', path: '/r/file', mode: null, parents: false })],
      ['file_exists', () => act({ kind: 'move', from: '/r/file', to: '/r/full', replace: false })],
      ['file_not_usable', () => read('/r/fifo')],
      ['file_not_usable', () => stat('/r/loop')],
      ['permission_denied', () => stat('/r/full/f', { user: 'user' })],
      ['user_not_usable', () => stat('/r/file', { user: 'nobody-here' })],
      ['invalid_request', () => stat('/r/\0')],
      ['file_not_found', () => node().readTree({ ...order(), path: '/r/nothing' })],
    ];
    for (const [code, refused] of refusals) await expect(refused()).rejects.toMatchObject({ code });
  });

  test('a tree goes out as a tar stream and in again; one that is taken only in part holds nobody up', async () => {
    await sh('mkdir -p /t/deep; echo 1 > /t/deep/file; ln -s deep /t/link; head -c 3000000 /dev/zero > /t/large');
    const { bytes } = await node().readTree({ ...order(), path: '/t' });
    const tar = await bytesOf(bytes);
    expect(await node().writeTree({ ...order(), path: '/u/v' }, chunksOf(tar))).toEqual({ bytes: tar.length });
    expect(await sh('diff -r --no-dereference /t /u/v && echo same')).toBe('same\n');
    for (let count = 0; count < 20; count++) {
      const opened = await node().readFile({ ...order(), path: '/t/large', offset: 0, length: null });
      const iterator = opened.bytes[Symbol.asyncIterator]();
      if (count % 2 === 0) await iterator.next();
      await iterator.return?.();
    }
    expect((await stat('/t/large')).sizeBytes).toBe(3_000_000);
  });

  test('paths lead nowhere that a command could not go: a symlink to the machine finds the sandbox', async () => {
    await sh(`ln -s ${harness.dataDirectory} /outside; ln -s /proc/1/root /rooted`);
    await expect(list('/outside')).rejects.toMatchObject({ code: 'file_not_found' });
    await expect(read(`/rooted${harness.dataDirectory}/node.json`)).rejects.toMatchObject({
      code: expect.stringMatching(/^(file_not_found|permission_denied)$/),
    });
  });

  test('a watch begins with `armed` or a refusal in its place, tells what happens, and ends with its signal', async () => {
    const stop = new AbortController();
    const watch = (path: string) =>
      node()
        .watchFiles({ ...order(), path, recursive: true }, stop.signal)
        [Symbol.asyncIterator]();
    await expect(watch('/nothing').next()).rejects.toMatchObject({ code: 'file_not_found' });
    await sh('mkdir /w');
    const events = watch('/w');
    expect((await events.next()).value).toEqual({ kind: 'armed' });
    await sh('echo 1 > /w/a; mv /w/a /w/b; rm /w/b');
    const told: FileEvent[] = [];
    while (told.at(-1)?.kind !== 'deleted') told.push((await events.next()).value as FileEvent);
    expect(told[0]).toEqual({ kind: 'created', path: 'a' });
    expect(told).toContainEqual({ kind: 'moved', path: 'b', from: 'a' });
    expect(told.at(-1)).toEqual({ kind: 'deleted', path: 'b' });
    const coming = events.next();
    stop.abort();
    expect((await coming).done).toBe(true);
  });

  test('changes since a look are told by path; a cursor lives through a restart of the node', async () => {
    await sh('mkdir /d; echo 1 > /d/gone; echo 1 > /d/kept');
    const look = (since: string | null, limit = 100) => node().fileChanges({ ...order(), path: '/d', since, limit });
    const first = await look(null);
    expect(first).toMatchObject({ changes: [], hasMore: false });
    await harness.restart();
    await sh('rm /d/gone; echo 1 > /d/new');
    const { changes } = await look(first.cursor);
    expect(changes).toContainEqual({ kind: 'deleted', path: '/d/gone', pathBase64: null });
    expect(changes).toContainEqual({ kind: 'created', entry: await stat('/d/new') });
    expect(await look(first.cursor, 1)).toMatchObject({ hasMore: true, changes: [expect.anything()] });
    await expect(look('mrknever')).rejects.toMatchObject({ code: 'output_dropped' });
  });

  test('a worker that is killed inside is replaced: a look does not hear of it', async () => {
    await write('/f/looked', 'at');
    for (let round = 0; round < 5; round++) {
      await sh('pkill -KILL atoll-files');
      expect(await text('/f/looked')).toBe('at');
    }
  });

  test('while a lease is held, changes need its token and looks do not', async () => {
    const own = await node().createSandbox(createOrder());
    const mine = { ...lifeOf(own), user: null };
    await node().applySettings({
      ...{ ...lifeOf(own), version: 2 },
      settings: { ...plainSettings, leaseToken: 7, leaseHeld: true },
    });
    const changes = (leaseToken: number | null) => [
      () => write('/x/file', 'x', { ...mine, leaseToken }),
      () => act({ kind: 'makeDirectory', path: '/x/y', mode: null, parents: true }, { ...mine, leaseToken }),
      () => act({ kind: 'changeAttributes', path: '/x', mode: 0o700, owner: null }, { ...mine, leaseToken }),
      () => act({ kind: 'copy', from: '/x', to: '/y', recursive: true, replace: false }, { ...mine, leaseToken }),
      () => act({ kind: 'move', from: '/y', to: '/z', replace: false }, { ...mine, leaseToken }),
      () => act({ kind: 'remove', path: '/z', recursive: true }, { ...mine, leaseToken }),
      () => node().writeTree({ ...mine, leaseToken, path: '/x' }, chunksOf(Buffer.alloc(1_024))),
    ];
    for (const change of changes(null)) await expect(change()).rejects.toMatchObject({ code: 'lease_held' });
    for (const change of changes(6)) await expect(change()).rejects.toMatchObject({ code: 'lease_lost' });
    await expect(stat('/x', mine)).rejects.toMatchObject({ code: 'file_not_found' });
    for (const change of changes(7)) await change();
    expect(await stat('/x/file', mine)).toMatchObject({ sizeBytes: 1 });
    await node().deleteSandbox(lifeOf(own));
  });

  test('E129: a life that is over is refused to looks and changes alike; the files stay for the next', async () => {
    const own = await node().createSandbox(createOrder());
    const mine = { ...lifeOf(own), user: null, leaseToken: null };
    await write('/kept', 'through', mine);
    await node().stopSandbox({ ...lifeOf(own), graceMs: 0 });
    const both = [() => stat('/kept', mine), () => write('/kept', 'late', mine)];
    for (const call of both) await expect(call()).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    await node().startSandbox({ ...lifeOf(own), generation: 2, version: 2, settings: plainSettings });
    for (const call of both) await expect(call()).rejects.toMatchObject({ code: 'stale_generation' });
    expect(await stat('/kept', { ...mine, generation: 2 })).toMatchObject({ sizeBytes: 7 });
    await node().deleteSandbox({ ...lifeOf(own), generation: 2 });
  });
}

async function* chunksOf(bytes: Buffer): AsyncGenerator<Uint8Array, void> {
  for (let at = 0; at < bytes.length; at += 100_000) yield bytes.subarray(at, at + 100_000);
}

async function bytesOf(bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const chunk of bytes) all.push(chunk);
  return Buffer.concat(all);
}
