/** Every way a request can be wrong: each gets its own clear error, and nothing reaches control. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { goodKey, testCaller, testId } from '../../test/support/fake-control.ts';
import { errorOf, type HttpRig, openHttpRig } from '../../test/support/http-rig.ts';

let rig: HttpRig;
beforeAll(async () => {
  rig = await openHttpRig();
});
afterAll(() => rig[Symbol.asyncDispose]());

const sandboxId = testId('sandbox', 'a');
const exec = `/v1/sandboxes/${sandboxId}/exec`;

function post(path: string, body: unknown, headers: Record<string, string> = {}) {
  const text = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
  return rig.request(path, { method: 'POST', body: text as BodyInit, headers });
}

describe('a body that does not match is invalid_request and names the field', () => {
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
  const cases: readonly [what: string, path: string, body: unknown, issuePath: string, message: RegExp][] = [
    ['an unknown field', '/v1/sandboxes', { nam: 'a' }, 'nam', /no such field/],
    ['an unknown field inside', '/v1/sandboxes', { limits: { memory: 1 } }, 'limits.memory', /no such field/],
    ['two unknown fields', '/v1/sandboxes', { a: 1, b: 2 }, 'a', /no such field/],
    ['a wrong type', '/v1/sandboxes', { metadata: { a: 1 } }, 'metadata.a', /expected string/],
    ['a list for an object', '/v1/sandboxes', [], '', /expected object/],
    ['null for an object', '/v1/sandboxes', 'null', '', /expected object/],
    ['a number that is too large', '/v1/sandboxes', { expiresInMs: 1e300 }, 'expiresInMs', /Too big|expected int/],
    ['a missing field', exec, {}, 'command', /expected/],
    ['a wrong choice', exec, { command: ['a'], encoding: 'latin1' }, 'encoding', /utf8/],
    ['neither of two shapes', exec, { command: 7 }, 'command', /array.* Or: .*string/],
    ['base64 that is none', exec, { command: ['a'], stdin: { base64: '*' } }, 'stdin.base64', /base64/],
    ['a NUL byte in a name', '/v1/sandboxes', { name: 'a\0' }, 'name', /NUL/],
    ['a NUL byte in a command', exec, { command: ['echo', 'a\0b'] }, 'command.1', /NUL/],
    ['a NUL byte in a command text', exec, { command: 'a\0b' }, 'command', /NUL/],
    ['a NUL byte in the environment', exec, { command: ['a'], env: { A: '\0' } }, 'env.A', /NUL/],
    ['a NUL byte in the name of a variable', exec, { command: ['a'], env: { 'A\0': 'b' } }, 'env.A\\0', /name/],
    [
      'a metadata key that is too long',
      '/v1/sandboxes',
      { metadata: { ['k'.repeat(129)]: 'a' } },
      `metadata.${'k'.repeat(129)}`,
      /128/,
    ],
    [
      'a metadata value that is too long',
      '/v1/sandboxes',
      { metadata: { a: 'v'.repeat(2_049) } },
      'metadata.a',
      /2048/,
    ],
    ['__proto__, which would vanish', '/v1/sandboxes', '{"metadata":{"__proto__":"a"}}', 'metadata.__proto__', /name/],
    ['no JSON', '/v1/sandboxes', '{"a":', '', /not JSON/],
    ['text that is not UTF-8', '/v1/sandboxes', new Uint8Array([0x22, 0xff, 0x22]), '', /not UTF-8/],
    ['very deep nesting', '/v1/sandboxes', `{"metadata":${deep}}`, 'metadata', /expected/],
    ['very deep nesting with a NUL', '/v1/sandboxes', `{"name":"\\u0000","metadata":${deep}}`, 'name', /NUL/],
  ];

  test.each(cases)('%s', async (_what, path, body, issuePath, message) => {
    rig.control.asked.length = 0;
    const error = await errorOf(await post(path, body));

    expect(error).toMatchObject({ status: 400, code: 'invalid_request' });
    expect(error.details.issues?.[0]).toMatchObject({ in: 'body', path: issuePath });
    expect(error.details.issues?.[0]?.message).toMatch(message);
    expect(error.requestId).toBe(error.requestIdHeader);
    expect(rig.control.asked).toEqual([]);
  });
});

test('a form instead of JSON is told what this API takes', async () => {
  const error = await errorOf(
    await post('/v1/sandboxes', 'name=a', { 'content-type': 'application/x-www-form-urlencoded' }),
  );
  expect(error.message).toContain('This API takes JSON');
});

test('a compressed body is refused by name', async () => {
  const error = await errorOf(await post('/v1/sandboxes', '{}', { 'content-encoding': 'gzip' }));
  expect(error).toMatchObject({ code: 'invalid_request', message: expect.stringContaining('gzip') });
});

test('an oversized body is payload_too_large with the limit, declared or not, and the connection goes on', async () => {
  const body = JSON.stringify({ name: 'a'.repeat(1024 * 1024) });
  const declared = await errorOf(await post('/v1/sandboxes', body));
  const chunked = await errorOf(
    await rig.request('/v1/sandboxes', {
      method: 'POST',
      body: new Blob([body]).stream(),
      duplex: 'half',
    } as RequestInit),
  );

  for (const error of [declared, chunked]) {
    expect(error).toMatchObject({ status: 413, code: 'payload_too_large', details: { limitBytes: 1024 * 1024 } });
  }
  expect((await rig.request('/v1/me')).status).toBe(200);
});

test('standard input may hold NUL bytes', async () => {
  expect((await post(exec, { command: ['cat'], stdin: 'a\0b' })).status).toBe(200);
});

describe('a query, path or header that does not match names its place', () => {
  const cases: readonly [what: string, path: string, headers: Record<string, string>, place: string, field: string][] =
    [
      ['an unknown query field', '/v1/sandboxes?stat=running', {}, 'query', 'stat'],
      ['a wrong choice in the query', '/v1/sandboxes?state=walking', {}, 'query', 'state.0'],
      ['a limit that is no number', '/v1/sandboxes?limit=ten', {}, 'query', 'limit'],
      ['a limit that is too large', '/v1/sandboxes?limit=1001', {}, 'query', 'limit'],
      ['a field given twice', '/v1/sandboxes?limit=1&limit=2', {}, 'query', 'limit'],
      ['a NUL byte in the query', '/v1/sandboxes?namePrefix=%00', {}, 'query', 'namePrefix'],
      ['a query where there is none', '/v1/me?a=1', {}, 'query', 'a'],
      ['__proto__ in the query', '/v1/sandboxes?__proto__=1', {}, 'query', '__proto__'],
      ['an id of another kind', `/v1/sandboxes/${testId('key', 'a')}`, {}, 'path', 'sandboxId'],
      ['an id that is none', '/v1/sandboxes/..%2f', {}, 'path', 'sandboxId'],
      ['a path that does not decode', '/v1/sandboxes/%ff', {}, 'path', 'sandboxId'],
      ['a NUL byte in the path', '/v1/operations/%00', {}, 'path', 'operation'],
      [
        'an event id that is none',
        '/v1/events',
        { accept: 'text/event-stream', 'last-event-id': 'x' },
        'header',
        'Last-Event-ID',
      ],
    ];

  test.each(cases)('%s', async (_what, path, headers, place, field) => {
    const error = await errorOf(await rig.request(path, { headers }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request' });
    expect(error.details.issues?.[0]).toMatchObject({ in: place, path: field });
  });

  const conditions: readonly [header: string, value: string][] = [
    ['Idempotency-Key', 'x'.repeat(256)],
    ['Idempotency-Key', ''],
    ['Idempotency-Key', 'schlüssel'],
    ['Atoll-Lease-Token', 'one'],
    ['Atoll-Lease-Token', '-1'],
    ['Atoll-Generation', '1.5'],
    ['Atoll-Generation', '99999999999999999'],
    ['If-Match', '*'],
    ['If-Match', 'W/"7"'],
  ];

  test.each(conditions)('the header %s: %s', async (header, value) => {
    const error = await errorOf(await post(exec, { command: ['a'] }, { [header]: value }));
    expect(error.details.issues).toMatchObject([{ in: 'header', path: header }]);
  });
});

test('an unknown id is sandbox_not_found', async () => {
  const error = await errorOf(await rig.request(`/v1/sandboxes/${testId('sandbox', 'zzz')}`));
  expect(error).toMatchObject({ status: 404, code: 'sandbox_not_found' });
});

describe('who asks', () => {
  test.each([
    ['no key', {}, /There is no key/],
    ['a wrong key', { authorization: 'Bearer atoll_wrong' }, /no such key/],
    ['another scheme', { authorization: 'Basic YTpi' }, /not "Bearer KEY"/],
    ['an empty key', { authorization: 'Bearer ' }, /not "Bearer KEY"/],
  ])('%s is unauthenticated', async (_what, headers, message) => {
    const response = await fetch(`${rig.url}/v1/me`, { headers: headers as Record<string, string> });
    expect(response.headers.get('www-authenticate')).toBe('Bearer');
    const error = await errorOf(response);
    expect(error).toMatchObject({ status: 401, code: 'unauthenticated' });
    expect(error.message).toMatch(message);
  });

  test('the key is asked for before the body is looked at', async () => {
    const response = await fetch(`${rig.url}/v1/sandboxes`, { method: 'POST', body: '{' });
    expect(response.status).toBe(401);
  });

  test('X-API-Key is as good as a bearer', async () => {
    expect((await fetch(`${rig.url}/v1/me`, { headers: { 'x-api-key': goodKey } })).status).toBe(200);
  });

  test('a key without the scope is forbidden and told which it needs; admin may do everything', async () => {
    rig.control.callers.set('reader', testCaller({ scopes: ['sandboxes:read'] }));
    const as = { authorization: 'Bearer reader' };

    expect((await rig.request(`/v1/sandboxes/${sandboxId}`, { headers: as })).status).toBe(200);
    const error = await errorOf(await post(exec, { command: ['a'] }, as));
    expect(error).toMatchObject({ status: 403, code: 'forbidden', details: { needed: 'sandboxes:exec' } });
    expect((await post(exec, { command: ['a'] })).status).toBe(200);
  });

  test('a token of one sandbox reaches it and nothing else', async () => {
    rig.control.callers.set('token', testCaller({ scopes: ['sandboxes:read', 'sandboxes:exec'], sandboxId }));
    const headers = { authorization: 'Bearer token' };

    expect((await rig.request(`/v1/sandboxes/${sandboxId}`, { headers })).status).toBe(200);
    expect((await rig.request('/v1/me', { headers })).status).toBe(200);
    for (const path of [`/v1/sandboxes/${testId('sandbox', 'b')}`, '/v1/sandboxes', '/v1/events']) {
      expect(await errorOf(await rig.request(path, { headers }))).toMatchObject({ status: 403, code: 'forbidden' });
    }
  });
});

describe('paths and methods', () => {
  test('an unknown path says what is near it', async () => {
    const error = await errorOf(await rig.request('/v1/sandboxs'));
    expect(error).toMatchObject({ status: 404, code: 'route_not_found' });
    expect(error.details['nearby']).toContain('GET /v1/sandboxes');
  });

  test('another method is told which are possible', async () => {
    const response = await rig.request('/v1/sandboxes', { method: 'PUT' });
    expect(response.headers.get('allow')).toBe('POST, GET, HEAD, OPTIONS');
    expect(await errorOf(response)).toMatchObject({ status: 405, code: 'method_not_allowed' });
  });

  test('OPTIONS tells them too; HEAD is GET without the body', async () => {
    const options = await rig.request('/v1/sandboxes', { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow')]).toEqual([204, 'POST, GET, HEAD, OPTIONS']);
    const head = await rig.request(`/v1/sandboxes/${sandboxId}`, { method: 'HEAD' });
    expect([head.status, head.headers.get('etag'), await head.text()]).toEqual([200, '"7"', '']);
    expect(Number(head.headers.get('content-length'))).toBeGreaterThan(100);
  });
});

test('what is not HTTP is answered with an error of ours, and the server goes on', async () => {
  const answer = await sendRaw('NONSENSE\r\n\r\n');
  expect(answer).toMatch(/^HTTP\/1.1 400 .*invalid_request/s);
  const tooLong = await sendRaw(`GET / HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`);
  expect(tooLong).toMatch(/^HTTP\/1.1 413 .*payload_too_large/s);
  expect((await rig.request('/v1/me')).status).toBe(200);
});

function sendRaw(text: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect(Number(new URL(rig.url).port), '127.0.0.1', () => socket.write(text));
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk.toString();
  });
  socket.on('close', () => resolve(answer));
  socket.on('error', reject);
  return promise;
}
