import { mkdtempSync, rmSync } from 'node:fs';
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
