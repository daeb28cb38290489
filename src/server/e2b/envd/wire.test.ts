import type { IncomingMessage } from 'node:http';
import { PassThrough } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { EnvdTokens } from '../envd-tokens.ts';
import { codingOf, decoded } from './content-coding.ts';
import { permissionsOf } from './entries.ts';
import { EnvdError } from './envd-error.ts';
import { endFlag, envelope, readEnvelopes } from './envelopes.ts';
import { labelsIn } from './labels.ts';
import { decodeMessage, encodeMessage } from './messages.ts';
import { boundaryOf, partsOf } from './multipart.ts';
import { checkFileAccess, sandboxOfSignature, signatureOf } from './signatures.ts';

async function* inPieces(bytes: Uint8Array, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  for (let at = 0, turn = 0; at < bytes.byteLength; turn++) {
    const size = Math.max(1, sizes[turn % sizes.length] ?? bytes.byteLength);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

async function all<Value>(values: AsyncIterable<Value>): Promise<Value[]> {
  const found: Value[] = [];
  for await (const value of values) found.push(value);
  return found;
}

const pieces = fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 5 });

describe('envelopes', () => {
  test('whatever the pieces they come in, the messages are what was sent', async () => {
    const payloads = fc.array(fc.uint8Array({ maxLength: 100 }), { maxLength: 10 });
    await fc.assert(
      fc.asyncProperty(payloads, pieces, async (sent, sizes) => {
        const bytes = Buffer.concat(sent.map((payload) => envelope(0, payload)));
        const got = await all(readEnvelopes(inPieces(bytes, sizes), 1_000));
        expect(got.map((payload) => [...payload])).toEqual(sent.map((payload) => [...payload]));
      }),
    );
  });

  test('a message in pieces of one byte costs what it has, and is not copied with each of them', async () => {
    const size = 4 * 1024 * 1024;
    const sent = envelope(0, Buffer.alloc(size, 'x'));
    const copied = vi.spyOn(Uint8Array.prototype, 'set');
    try {
      let pieces = 0;
      const single = async function* () {
        // The head, then many small ones, then the rest: what is held when they come is large.
        yield sent.subarray(0, size / 2);
        for (; pieces < 1_000; pieces++) yield sent.subarray(size / 2 + pieces, size / 2 + pieces + 1);
        yield sent.subarray(size / 2 + pieces);
      };
      const [got] = await all(readEnvelopes(single(), size));
      expect(got?.byteLength).toBe(size);
      const bytes = copied.mock.calls.reduce((sum, [source]) => sum + (source as Uint8Array).byteLength, 0);
      expect(bytes).toBeLessThan(4 * size);
    } finally {
      copied.mockRestore();
    }
  });

  const bad: readonly [string, Uint8Array, string][] = [
    ['one that is cut off', envelope(0, Buffer.from('abc')).subarray(0, 7), 'invalid_argument'],
    ['a head that is cut off', Buffer.from([0, 0]), 'invalid_argument'],
    ['a compressed one', envelope(1, Buffer.from('abc')), 'unimplemented'],
    ['an end from a client', envelope(endFlag, Buffer.from('{}')), 'invalid_argument'],
    ['one that says it is too large', Buffer.from([0, 0xff, 0xff, 0xff, 0xff]), 'resource_exhausted'],
  ];
  test.each(bad)('%s is refused', async (_what, bytes, code) => {
    await expect(all(readEnvelopes(inPieces(bytes, [3]), 1_000))).rejects.toMatchObject({ code });
  });
});

describe('messages', () => {
  test('both forms tell the same, with defaults filled in and unknown fields left out', () => {
    const event = {
      event: { end: { exitCode: -1, exited: false, status: 'signal: killed', error: 'signal: killed' } },
    };
    const binary = encodeMessage('process.EventResponse', event, 'proto');
    // Zigzag: -1 is 1.
    expect([...binary.subarray(0, 6)]).toEqual([10, binary.length - 2, 26, binary.length - 4, 8, 1]);
    expect(decodeMessage('process.EventResponse', binary, 'proto')).toEqual(event);
    const json = Buffer.from('{"process":{"cmd":"a","later":1},"stdin":false}');
    expect(decodeMessage('process.StartRequest', json, 'json')).toEqual({
      process: { cmd: 'a', args: [], envs: {} },
      stdin: false,
    });
    const entry = {
      name: 'f',
      type: 'FILE_TYPE_FILE',
      size: '9007199254740993',
      modifiedTime: '2026-01-01T00:00:00.001Z',
    };
    const bytes = encodeMessage('filesystem.EntryResponse', { entry: { ...entry, metadata: { a: 'b' } } }, 'proto');
    expect(decodeMessage('filesystem.EntryResponse', bytes, 'proto')).toMatchObject({
      entry: { ...entry, modifiedTime: '2026-01-01T00:00:00.001Z', metadata: { a: 'b' } },
    });
    expect(decodeMessage('process.Empty', new Uint8Array(), 'json')).toEqual({});
  });

  test.each([
    ['json', Buffer.from('{"process":')],
    ['json', Buffer.from([0xff, 0xfe])],
    ['json', Buffer.from('{"process":{"pid":-1}}')],
    ['proto', Buffer.from([10, 200])],
  ] as const)('what is no message is refused (%s)', (encoding, bytes) => {
    const decode = () => decodeMessage('process.ConnectRequest', bytes, encoding);
    expect(decode).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
  });
});

describe('multipart', () => {
  const part = (disposition: string, body: string) =>
    `--b\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${body}\r\n`;
  const read = async (text: string, sizes: readonly number[]) => {
    const found: [string, string | undefined, string][] = [];
    for await (const { name, filename, bytes } of partsOf(inPieces(Buffer.from(text), sizes), 'b')) {
      found.push([name, filename, Buffer.concat(await all(bytes)).toString()]);
    }
    return found;
  };

  test('parts are found whatever the pieces, also with what looks like a boundary in them', async () => {
    const text = `${part('name="file"; filename="a/ä%22.txt"', 'one\r\n--a\r\n-')}${part('name="x"', '')}--b--\r\n`;
    await fc.assert(
      fc.asyncProperty(pieces, async (sizes) => {
        expect(await read(text, sizes)).toEqual([
          ['file', 'a/ä".txt', 'one\r\n--a\r\n-'],
          ['x', undefined, ''],
        ]);
      }),
    );
    expect(boundaryOf('multipart/form-data; boundary="b c"')).toBe('b c');
    expect(boundaryOf('multipart/form-data; boundary=b')).toBe('b');
  });

  test.each([
    ['cut off in a part', part('name="file"', 'abc').slice(0, -2)],
    ['without any boundary', 'abc'],
    ['with something behind a boundary', '--bx\r\n'],
    ['with headers that never end', `--b\r\n${'X: y\r\n'.repeat(5_000)}`],
  ])('one %s is refused', async (_what, text) => {
    await expect(read(text, [10])).rejects.toThrow(EnvdError);
    expect(() => boundaryOf('multipart/form-data')).toThrow(EnvdError);
  });
});

describe('signatures', () => {
  const signed = { path: 'hello.txt', operation: 'read', user: 'user', expiration: null } as const;

  test('they are what the SDK makes', () => {
    expect(signatureOf(signed, '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0')).toBe(
      'v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E',
    );
  });

  test('the token decides where there is one; a signature is looked at before its time', () => {
    const tokens = new EnvdTokens(Buffer.from('secret'));
    const sandboxId = 'sbx00000000000000000001' as Parameters<EnvdTokens['give']>[0];
    const token = tokens.give(sandboxId);
    const access = { sandboxId, tokens, nowMs: 1_000_000 };
    const query = (expiration: string, signature = signatureOf({ ...signed, expiration }, token)) =>
      new URLSearchParams({ path: 'hello.txt', username: 'user', signature, signature_expiration: expiration });
    const check = (given: URLSearchParams, header?: string) => () =>
      checkFileAccess({ method: 'GET', query: given, header }, access);
    expect(check(query('1001'))).not.toThrow();
    expect(check(query('1001'), token)).not.toThrow();
    expect(check(query('1001'), 'wrong')).toThrow('does not match');
    expect(check(query('999'))).toThrow('already expired');
    expect(check(query('999', 'v1_x'))).toThrow('invalid signature');
    expect(check(new URLSearchParams({ path: 'hello.txt' }))).toThrow('missing signature');
    expect(sandboxOfSignature({ method: 'GET', query: query('999') }, tokens)).toBe(sandboxId);
    expect(sandboxOfSignature({ method: 'POST', query: query('999') }, tokens)).toBeUndefined();
  });
});

test.each([
  [undefined, 'identity'],
  ['gzip, deflate', 'identity'],
  ['gzip', 'gzip'],
  ['*', 'identity'],
  ['identity;q=0, gzip', 'gzip'],
  ['identity;q=0, br', undefined],
  ['gzip;q=0', 'identity'],
] as const)('of what accepts %s the coding is %s', (header, coding) => {
  expect(codingOf(header)).toBe(coding);
});

test('metadata is printable and small', () => {
  expect(labelsIn({ 'x-metadata-a': '1', 'x-other': '2' })).toEqual({ a: '1' });
  expect(() => labelsIn({ 'x-metadata-a': 'ä' })).toThrow(EnvdError);
  expect(() => labelsIn({ 'x-metadata-': 'a' })).toThrow(EnvdError);
  expect(() => labelsIn({ 'x-metadata-a': 'x'.repeat(4_096) })).toThrow(EnvdError);
});

test('permissions are written with the letters of what it is', () => {
  expect(permissionsOf({ type: 'file', mode: '644' })).toBe('-rw-r--r--');
  expect(permissionsOf({ type: 'file', mode: '4755' })).toBe('urwxr-xr-x');
  expect(permissionsOf({ type: 'directory', mode: '1777' })).toBe('dtrwxrwxrwx');
  expect(permissionsOf({ type: 'symlink', mode: '777' })).toBe('Lrwxrwxrwx');
});

describe('bodies in gzip', () => {
  const bodyOf = (content: Uint8Array) => {
    const body = new PassThrough();
    body.end(content);
    return Object.assign(body, { headers: { 'content-encoding': 'gzip' } }) as unknown as IncomingMessage;
  };

  test('nothing is unpacked before somebody reads it, so what is refused unread fails nobody', () => {
    const body = bodyOf(Buffer.from('this is no gzip'));
    decoded(body);
    expect(body.readableFlowing).toBe(null);
    expect(body.listenerCount('data')).toBe(0);
  });

  test('whoever reads has the content, or hears that it is none', async () => {
    expect(Buffer.concat(await all(decoded(bodyOf(gzipSync('content'))))).toString()).toBe('content');
    await expect(all(decoded(bodyOf(Buffer.from('this is no gzip'))))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});
