import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Atoll } from '../sdk/index.ts';
import { Cache } from './cache.ts';
import { newClientState } from './client-state.ts';
import { listCheckouts } from './list.ts';

const url = 'http://server';
const identity = { repository: 'c:h/a', worktree: 'w1', ref: 'branch:main', configPath: '-' };
const metadata = newClientState(identity, { machineId: 'm', definition: 'd' });

let directory: string;
let cache: Cache;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-list-'));
  const owner = { pid: process.pid, command: 'test' };
  cache = Cache.open({ path: join(directory, 'cache.db'), nowMs: () => 1, owner, warn: () => {} });
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const remember = (key: string, sandboxId: string) =>
  cache.withLock({}, async (lock) =>
    lock.save({
      key,
      serverUrl: url,
      sandboxId,
      name: key,
      identity,
      root: `/${key}`,
      definition: null,
      execCount: 4,
      lastExecMs: 0,
      hintShown: false,
      createdMs: 1,
    }),
  );

const view = (id: string, more: object = {}) => ({
  id,
  state: 'running',
  lease: null,
  metadata,
  createdAt: 'c',
  expiresAt: null,
  ...more,
});

/** A server that lists these pages, and answers for single sandboxes with these statuses or views. */
function clientOf(pages: readonly object[][], single: Readonly<Record<string, number | object>>) {
  const asked: string[] = [];
  const answer = (status: number, body: object) => new Response(JSON.stringify(body), { status });
  const client = new Atoll({
    url,
    apiKey: 'k',
    retries: 0,
    fetch: async (input) => {
      const { pathname, searchParams } = new URL(String(input));
      asked.push(pathname);
      if (pathname === '/v1/sandboxes') {
        const index = Number(searchParams.get('cursor') ?? 0);
        const nextCursor = index + 1 < pages.length ? String(index + 1) : null;
        return answer(200, { items: pages[index], nextCursor });
      }
      const found = single[pathname.split('/').at(-1)!] ?? 404;
      if (typeof found === 'object') return answer(200, found);
      const code = found === 404 ? 'sandbox_not_found' : 'internal';
      return answer(found, { error: { code, message: 'no', details: {}, requestId: 'req' } });
    },
  });
  return { client, asked };
}

test('P60, P61: one call, page by page, decides about all; others and those without a record are left out', async () => {
  await remember('known', 'sbx1');
  const other = { ...metadata, 'atoll.checkout.worktrees': 'broken' };
  const { client, asked } = clientOf([[view('sbx1')], [view('sbx2'), view('sbx3', { metadata: other })]], {});
  const items = await listCheckouts({ client, cache, repository: identity.repository });
  expect(items.map(({ id, root, execCount }) => [id, root, execCount])).toEqual([
    ['sbx1', '/known', 4],
    ['sbx2', null, 0],
  ]);
  expect(asked).toEqual(['/v1/sandboxes', '/v1/sandboxes']);
});

test('P63, P64, P65, P67: what is gone is dropped; what is there, or cannot be asked, stays', async () => {
  for (const name of ['gone', 'making', 'there', 'silent', 'failed']) await remember(name, `sbx-${name}`);
  const { client } = clientOf([[]], {
    'sbx-making': view('sbx-making', { state: 'creating' }),
    'sbx-there': view('sbx-there'),
    'sbx-silent': 500,
    'sbx-failed': view('sbx-failed', { state: 'failed', reason: 'no' }),
  });
  const items = await listCheckouts({ client, cache });
  expect(items.map(({ id, status }) => [id, status]).toSorted()).toEqual([
    ['sbx-making', 'creating'],
    ['sbx-silent', 'unknown'],
    ['sbx-there', 'running'],
  ]);
  expect(
    cache
      .sessions()
      .map(({ key }) => key)
      .toSorted(),
  ).toEqual(['making', 'silent', 'there']);
});

/** What a listing does with a server that answers its calls in turn with these. */
async function listedBy(answers: readonly RequestListener[]) {
  const waits: number[] = [];
  let calls = 0;
  const server = createServer((request, response) => {
    const answer = answers[Math.min(calls++, answers.length - 1)]!;
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const clock = { nowMs: () => 0, wait: async (ms: number) => void waits.push(ms) };
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    const items = await listCheckouts({ client: new Atoll({ url: at, apiKey: 'k', clock, retries: 3 }), cache });
    return { ids: items.map(({ id }) => id), calls, waits, code: null };
  } catch (error) {
    return { ids: [], calls, waits, code: (error as { code?: string }).code };
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const page = (items: readonly object[], nextCursor: string | null): RequestListener => {
  const text = JSON.stringify({ items, nextCursor });
  return (_, response) => void response.writeHead(200, { 'Content-Length': text.length }).end(text);
};
const status = (code: number, headers: Record<string, string> = {}, text = 'no'): RequestListener => {
  return (_, response) => void response.writeHead(code, headers).end(text);
};
const refusal = (code: string) => JSON.stringify({ error: { code, message: 'no', details: {}, requestId: 'req' } });

test('P70: pages follow each other; 429 waits as long as it says, 5xx and a truncated page are asked again', async () => {
  const truncated: RequestListener = (_, response) => {
    response.writeHead(200, { 'Content-Length': '1000' }).write('{"items": [');
    setImmediate(() => response.destroy());
  };
  const answers = [
    status(429, { 'Retry-After': '7' }),
    page([view('sbx1')], 'next'),
    status(500, {}, refusal('internal')),
    status(502),
    truncated,
    page([view('sbx2')], null),
  ];
  const listed = await listedBy(answers);
  expect(listed).toMatchObject({ ids: ['sbx1', 'sbx2'], calls: 6, code: null });
  expect(listed.waits[0]).toBe(7_000);
  expect(listed.waits).toHaveLength(4);
});

test.each([
  ['403 of ours', status(403, {}, refusal('forbidden')), 'forbidden'],
  ['404 of something else', status(404), 'server_unreachable'],
  ['429 that does not say when', status(429, {}, refusal('limit_exceeded')), 'limit_exceeded'],
  ['429 for an hour', status(429, { 'Retry-After': '3600' }, refusal('limit_exceeded')), 'limit_exceeded'],
])('P70: %s is not asked again', async (_, answer, code) => {
  expect(await listedBy([answer])).toMatchObject({ calls: 1, waits: [], code });
});

test('P70: a server that goes on failing is asked a bounded number of times', async () => {
  expect(await listedBy([status(500, {}, refusal('internal'))])).toMatchObject({ calls: 4, code: 'internal' });
});
