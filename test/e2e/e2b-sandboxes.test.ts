/** The official E2B SDK, unchanged, against a real platform by address (URL mode): making, finding, keeping and ending sandboxes. */
import { Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Platform } from '../support/platform.ts';

let platform: Platform;
let options: SandboxOpts;
const limitMs = 120_000;

beforeAll(async () => {
  platform = await Platform.start();
  options = {
    apiKey: platform.key.replace('atoll_', 'e2b_'),
    apiUrl: platform.server.url,
    sandboxUrl: platform.server.url,
  };
}, limitMs);
afterAll(() => platform?.close(), limitMs);

async function call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const answer = await fetch(platform.server.url + path, {
    method,
    headers: { 'X-API-Key': platform.key, 'Content-Type': 'application/json', ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: text === '' ? undefined : JSON.parse(text) };
}

test('a sandbox is made, looked at, found again, kept longer and killed', { timeout: limitMs }, async () => {
  const metadata = { 'a b': 'c&d', k: 'ä=1' };
  const sandbox = await Sandbox.create('base', { ...options, metadata, envs: { A: '1' }, timeoutMs: 60_000 });
  expect(sandbox.sandboxId).toMatch(/^[a-z0-9]+$/);
  expect(await sandbox.isRunning()).toBe(true);
  const info = await sandbox.getInfo();
  expect(info).toMatchObject({ sandboxId: sandbox.sandboxId, templateId: 'base', metadata, state: 'running' });
  expect(info.endAt.getTime() - info.startedAt.getTime()).toBeGreaterThan(50_000);

  // `connect` never shortens; `setTimeout` may.
  await Sandbox.connect(sandbox.sandboxId, { ...options, timeoutMs: 1_000 });
  expect((await sandbox.getInfo()).endAt).toEqual(info.endAt);
  await Sandbox.connect(sandbox.sandboxId, { ...options, timeoutMs: 600_000 });
  expect((await sandbox.getInfo()).endAt.getTime()).toBeGreaterThan(info.endAt.getTime());
  await sandbox.setTimeout(30_000);
  expect((await sandbox.getInfo()).endAt.getTime()).toBeLessThan(info.endAt.getTime());

  const own = await platform.client.sandboxes.connect(sandbox.sandboxId);
  expect(own.view).toMatchObject({ env: { A: '1' }, state: 'running' });

  expect(await sandbox.kill()).toBe(true);
  expect(await sandbox.kill()).toBe(false);
  expect(await sandbox.isRunning()).toBe(false);
  await expect(Sandbox.connect(sandbox.sandboxId, options)).rejects.toThrow(/not found/i);
  await expect(sandbox.getInfo()).rejects.toThrow(/not found/i);
});

test('lists are filtered, ordered and paged', { timeout: limitMs }, async () => {
  const made: Sandbox[] = [];
  for (const n of ['1', '2', '3']) {
    made.push(await Sandbox.create('base', { ...options, metadata: { run: 'a b&c', n } }));
  }
  const ids = made.map((sandbox) => sandbox.sandboxId);
  const list = async (order: 'asc' | 'desc', limit: number) => {
    const paginator = Sandbox.list({ ...options, query: { metadata: { run: 'a b&c' } }, limit, order } as never);
    const pages: string[][] = [];
    while (paginator.hasNext) pages.push((await paginator.nextItems()).map((item) => item.sandboxId));
    return pages;
  };
  expect(await list('desc', 2)).toEqual([[ids[2], ids[1]], [ids[0]]]);
  expect((await list('desc', 100)).flat()).toEqual([...ids].reverse());
  const one = Sandbox.list({ ...options, query: { metadata: { run: 'a b&c', n: '2' }, state: ['running'] } });
  expect((await one.nextItems()).map((item) => item.sandboxId)).toEqual([ids[1]]);

  const ascending = await call('GET', '/v2/sandboxes?metadata=run%3Da%252520b%252526c&order=asc&limit=1');
  expect(ascending.body.map((item: { sandboxID: string }) => item.sandboxID)).toEqual([ids[0]]);
  expect(ascending.headers.get('X-Total-Running')).toBe('3');
  const token = ascending.headers.get('X-Next-Token');
  expect((await call('GET', `/v2/sandboxes?order=desc&nextToken=${token}`)).status).toBe(400);
  const paused = await call('GET', '/v2/sandboxes?state=paused');
  expect(paused.body).toEqual([]);
  const known = await call('GET', '/sandboxes');
  expect(known.body.map((item: { sandboxID: string }) => item.sandboxID)).toEqual(expect.arrayContaining(ids));
  await Promise.all(made.map((sandbox) => sandbox.kill()));
});

test('a sandbox whose time is over is gone', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', { ...options, timeoutMs: 60_000 });
  expect((await call('POST', `/sandboxes/${sandbox.sandboxId}/timeout`, { timeout: 0 })).status).toBe(204);
  await expect.poll(() => sandbox.isRunning(), { timeout: 30_000 }).toBe(false);
  await expect(sandbox.getInfo()).rejects.toThrow(/not found/i);
  expect(await sandbox.kill()).toBe(false);
});

test('metadata is merged, and its own marks are nobody else’s', { timeout: limitMs }, async () => {
  const sandbox = await Sandbox.create('base', { ...options, metadata: { keep: '1', drop: '2' } });
  const path = `/sandboxes/${sandbox.sandboxId}/metadata`;
  expect((await call('PATCH', path, { drop: null, more: '3' })).status).toBe(204);
  expect((await sandbox.getInfo()).metadata).toEqual({ keep: '1', more: '3' });
  expect((await call('PATCH', path, { 'atoll.e2b.settings': '{}' })).status).toBe(400);
  const key = { 'Idempotency-Key': 'the same again' };
  const first = await call('POST', '/v2/sandboxes', { templateID: 'base' }, key);
  const again = await call('POST', '/v2/sandboxes', { templateID: 'base' }, key);
  expect([first.status, again.body.sandboxID]).toEqual([201, first.body.sandboxID]);
  expect(again.body.envdAccessToken).toBe(first.body.envdAccessToken);
  await Promise.all([sandbox.kill(), Sandbox.kill(first.body.sandboxID, options)]);
});

test('what is refused is refused in the shape of E2B, and says what is missing', { timeout: limitMs }, async () => {
  await expect(Sandbox.create('base', { ...options, apiKey: `e2b_${'0'.repeat(40)}` })).rejects.toThrow(/Unauthorized/);
  await expect(Sandbox.create('nothing-of-this-name', options)).rejects.toThrow(
    /template 'nothing-of-this-name' not found/,
  );
  const missing: [string, string, unknown, number, RegExp][] = [
    ['POST', '/v2/sandboxes', { templateID: 'base', timeout: 0 }, 400, /greater than 0/],
    ['POST', '/v2/sandboxes', { templateID: 'base', unheard: 1 }, 400, /no such field/],
    ['POST', '/v2/sandboxes', { templateID: 'base', volumeMounts: [{ name: 'x', path: '/x' }] }, 501, /Volumes/],
    ['POST', '/v2/sandboxes', { templateID: 'base', iam: {} }, 501, /iam/],
    ['POST', '/v2/sandboxes', { templateID: 'base', network: { allowOut: ['example.com'] } }, 501, /example\.com/],
    ['POST', '/v2/sandboxes', { templateID: 'base', network: { rules: { 'a.b': [] } } }, 501, /domain/],
    ['GET', '/volumes', undefined, 501, /Volumes/],
    ['GET', '/secrets', undefined, 501, /Secrets/],
    ['POST', '/v3/templates', { name: 'x' }, 501, /templates/],
    ['GET', '/v2/nothing', undefined, 404, /not supported/],
    ['PUT', '/v2/sandboxes', {}, 405, /not supported/],
    ['GET', '/templates/aliases/nothing', undefined, 404, /not found/],
  ];
  for (const [method, path, body, status, message] of missing) {
    const answer = await call(method, path, body);
    expect([path, answer.status, answer.body]).toEqual([
      path,
      status,
      expect.objectContaining({ code: status, message: expect.stringMatching(message) }),
    ]);
  }
  expect((await call('GET', '/templates/aliases/base')).body).toMatchObject({ templateID: 'base' });
  expect((await fetch(`${platform.server.url}/health`)).status).toBe(204);
});
