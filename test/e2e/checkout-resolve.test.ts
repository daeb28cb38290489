/** Which sandbox a checkout finds, adopts or makes: concurrent callers, other machines, lost caches, servers that are away. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { Cache } from '../../src/checkout/index.ts';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const manyCommands = { timeout: 240_000 };

let platform: Platform;
let rig: CheckoutRig;

beforeAll(async () => {
  platform = await Platform.start();
  rig = await CheckoutRig.open(platform);
});
afterAll(async () => {
  await rig.close();
  await platform.close();
});

const start = async (cwd: string, env: Record<string, string> = {}) =>
  await rig.json<{ id: string; how: string }>(cwd, ['start'], { env });
const otherMachine = (name: string) => ({ ATOLL_MACHINE_ID: name, ATOLL_STATE: join(rig.directory, `state-${name}`) });
const count = async () => (await platform.client.sandboxes.list({ limit: 1_000 })).items.length;

test(
  'P35: however many ask at once, on two machines, one sandbox is made and all use it',
  async () => {
    const root = await rig.repository('crowd');
    const before = await count();
    const here = Array.from({ length: 3 }, () => start(root));
    const there = Array.from({ length: 3 }, () => start(root, otherMachine('far')));
    const all = await Promise.all([...here, ...there]);
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(await count()).toBe(before + 1);
    expect(await platform.client.leases.list()).toEqual([]);
  },
  manyCommands,
);

test(
  'P0a, P41: another branch, another worktree and another repository of the same shape have sandboxes of their own',
  async () => {
    const root = await rig.repository('shape');
    const main = await start(root);
    rig.git(root, 'worktree', 'add', '-q', '--force', join(rig.directory, 'shape-tree'), 'main');
    const worktree = await start(join(rig.directory, 'shape-tree'));
    rig.git(root, 'checkout', '-q', '-b', 'topic');
    const topic = await start(root);
    const twin = await start(await rig.repository('twin'));
    expect(new Set([main, worktree, topic, twin].map(({ id }) => id)).size).toBe(4);
    rig.git(root, 'checkout', '-q', 'main', '--ignore-other-worktrees');
    expect(await start(root)).toMatchObject({ id: main.id, how: 'known' });
  },
  manyCommands,
);

test(
  'P30, P42, P43, P16, P61: a lost or broken cache and another machine find it again, and say so; P152: another person does not',
  async () => {
    const root = await rig.repository('lost');
    const { id } = await start(root);
    const cache = join(rig.state, 'checkouts', 'cache.db');
    writeFileSync(cache, readFileSync(cache).fill(0xff, 100));
    for (const suffix of ['-wal', '-shm']) rmSync(cache + suffix, { force: true });
    const again = await rig.run(root, ['--json', 'start']);
    expect(JSON.parse(again.stdout)).toMatchObject({ id, how: 'adopted' });
    expect(again.stderr).toContain('was broken');
    expect(again.stderr).toContain('Found the sandbox of this checkout again');
    const clone = join(rig.directory, 'clone-of-lost');
    rig.git(rig.directory, 'clone', '-q', root, clone);
    rig.git(clone, 'remote', 'remove', 'origin');
    const far = await rig.run(clone, ['--json', 'start'], { env: otherMachine('second') });
    expect(JSON.parse(far.stdout)).toMatchObject({ id, how: 'adopted' });
    expect(far.stderr).toContain('from another machine');
    const { id: userId } = await platform.client.users.create({ name: 'colleague' });
    const { key } = await platform.client.keys.create({
      name: 'theirs',
      userId,
      scopes: (await platform.client.whoAmI()).scopes,
    });
    const env = { ...otherMachine('third'), ATOLL_API_KEY: key, ATOLL_URL: platform.server.url };
    const theirs = await start(clone, env);
    expect(theirs).toMatchObject({ how: 'created' });
    expect(theirs.id).not.toBe(id);
    const shared = await rig.run(clone, ['--json', 'start', '--use', id], { env });
    expect(JSON.parse(shared.stdout)).toMatchObject({ id, how: 'adopted' });
    expect(shared.stderr).toContain('whoever else uses it');
    expect(`${again.stdout}${far.stdout}${shared.stdout}${shared.stderr}`).not.toContain(key);
  },
  manyCommands,
);

test(
  'P43: a client that is killed before it has heard of the sandbox it made leaves one that the next finds',
  async () => {
    const root = await rig.repository('crash');
    const before = await count();
    const made = Promise.withResolvers<{ id: string }>();
    /** Passes everything on, and keeps the answer of the creation for itself. */
    const proxy = createServer(async (request, response) => {
      const { method = 'GET', url = '/', headers } = request;
      const { host: _, connection: __, ...passed } = headers as Record<string, string>;
      const content = Buffer.concat(await request.toArray());
      const body = content.byteLength === 0 ? {} : { body: content };
      const answer = await fetch(`${platform.server.url}${url}`, { method, headers: passed, ...body });
      const text = await answer.text();
      if (method === 'POST' && url === '/v1/sandboxes') return made.resolve(JSON.parse(text));
      response.writeHead(answer.status, { 'Content-Type': 'application/json' }).end(answer.status === 204 ? '' : text);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const doomed = rig.spawn(root, ['start'], { env: { ATOLL_URL: url, ATOLL_API_KEY: platform.key } });
    const { id } = await made.promise;
    doomed.child.kill('SIGKILL');
    await doomed.ended;
    proxy.closeAllConnections();
    proxy.close();
    expect(await start(root)).toMatchObject({ id, how: 'adopted' });
    expect(await count()).toBe(before + 1);
  },
  manyCommands,
);

test(
  'P63: a sandbox that was deleted is forgotten and another is made; a stopped one is started again',
  async () => {
    const root = await rig.repository('ends');
    const first = await start(root);
    expect((await rig.run(root, ['stop'])).stdout).toContain('stopped');
    const woken = await rig.run(root, ['exec', '--no-sync', '--', 'echo', 'up']);
    expect(woken).toMatchObject({ code: 0, stdout: 'up\n', stderr: expect.stringContaining('which was stopped') });
    await rig.run(root, ['rm', first.id]);
    expect(await rig.json(root, ['ls', '--here'])).toEqual({ items: [] });
    const second = await start(root);
    expect(second).toMatchObject({ how: 'created' });
    expect(second.id).not.toBe(first.id);
  },
  manyCommands,
);

test(
  'P0b, P147: reset and --reset end the old one, also while it is used, and many at once leave one',
  async () => {
    const root = await rig.repository('resets');
    const first = await start(root);
    const busy = rig.spawn(root, ['exec', '--no-sync', '--', 'sh', '-c', 'echo ready; sleep 600']);
    await expect.poll(() => busy.stdout, { timeout: 60_000 }).toContain('ready');
    const [reset] = await Promise.all([
      rig.json<{ id: string }>(root, ['reset']),
      rig.run(root, ['exec', '--no-sync', '--wait', '5m', '--', 'true']),
    ]);
    expect(reset.id).not.toBe(first.id);
    expect(await busy.ended).not.toBe(0);
    const ran = await rig.json<{ sandboxId: string }>(root, ['exec', '--no-sync', '--reset', '--', 'true']);
    expect(ran.sandboxId).not.toBe(reset.id);
    const { items } = await rig.json<{ items: { id: string }[] }>(root, ['ls', '--here']);
    expect(items.map(({ id }) => id)).toEqual([ran.sandboxId]);
  },
  manyCommands,
);

test(
  'P19, P20: a detached HEAD that moves on keeps its sandbox; one that goes elsewhere does not',
  async () => {
    const root = await rig.repository('detached');
    const commit = (name: string) => {
      writeFileSync(join(root, name), name);
      rig.git(root, 'add', '-A');
      rig.git(root, 'commit', '-q', '-m', name);
    };
    rig.git(root, 'checkout', '-q', '--detach');
    const first = await start(root);
    commit('next');
    expect(await start(root)).toMatchObject({ id: first.id, how: 'known' });
    rig.git(root, 'checkout', '-q', '--detach', 'HEAD~1');
    commit('aside');
    const aside = await start(root);
    expect(aside.id).not.toBe(first.id);
    rig.git(root, 'checkout', '-q', 'main');
    expect((await start(root)).id).not.toBe(aside.id);
  },
  manyCommands,
);

test(
  'P39: a server that cannot be asked what there is is no reason to create',
  async () => {
    const root = await rig.repository('away');
    let status = 500;
    let creations = 0;
    const server = createServer((request, response) => {
      if (request.method === 'POST' && request.url === '/v1/sandboxes') creations++;
      const code = status === 401 ? 'unauthenticated' : 'internal';
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify({ error: { code, message: 'no', details: {}, requestId: 'req' } }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const env = { ATOLL_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, ATOLL_API_KEY: 'k' };
    try {
      for (status of [500, 401]) {
        expect((await rig.run(root, ['exec', '--no-sync', '--', 'true'], { env })).code).toBe(status === 500 ? 70 : 77);
      }
    } finally {
      server.closeAllConnections();
      server.close();
    }
    expect((await rig.run(root, ['exec', '--no-sync', '--', 'true'], { env })).code).toBe(69);
    expect(creations).toBe(0);
    expect((await rig.run(root, ['exec', '--no-sync', '--', 'true'])).code).toBe(0);
  },
  manyCommands,
);

test(
  'P33, P36, P59: several that match are named and none is chosen; what the definition says reaches the sandbox',
  async () => {
    const root = await rig.repository('several', { 'atoll.yml': 'limits: { memory: 300m }\nexpires: 3h\n' });
    const { id } = await start(root);
    const { view } = await platform.client.sandboxes.connect(id);
    expect(view.limits.memoryBytes).toBe(300 * 1024 ** 2);
    expect(view.expiresAt).not.toBeNull();
    const twin = await platform.client.sandboxes.create({ metadata: view.metadata });
    rmSync(join(rig.state, 'checkouts'), { recursive: true });
    const refused = await rig.run(root, ['--json', 'exec', '--no-sync', '--', 'true']);
    expect(refused.code).toBe(73);
    const { error } = JSON.parse(refused.stdout) as { error: { code: string; details: { sandboxIds: string[] } } };
    expect(error.code).toBe('checkout_ambiguous');
    expect(error.details.sandboxIds.toSorted()).toEqual([id, twin.id].toSorted());
    expect((await rig.run(root, ['start', '--use', id])).code).toBe(0);
    writeFileSync(join(root, 'atoll.yml'), 'limits: { memory: 400m }\nexpires: 3h\n');
    const drifted = await rig.run(root, ['exec', '--no-sync', '--', 'true']);
    expect(drifted).toMatchObject({ code: 0, stderr: expect.stringContaining('definition has changed') });
  },
  manyCommands,
);

test(
  'P51: a sandbox that is there is used without a question, whatever reads the output; several are an error with a code, and a flag decides',
  async () => {
    const root = await rig.repository('no-question');
    const { id } = await start(root);
    // Its input stays open and empty: a question would wait for ever.
    for (const words of [['start'], ['--json', 'start']]) {
      const asked = rig.spawn(root, words);
      expect(await asked.ended).toBe(0);
      expect(asked.stdout).toContain(id);
      expect(asked.stderr).toBe('');
    }
    const { view } = await platform.client.sandboxes.connect(id);
    const twin = await platform.client.sandboxes.create({ metadata: view.metadata });
    const env = { ATOLL_STATE: join(rig.directory, 'state-no-question') };
    const undecided = rig.spawn(root, ['--json', 'start'], { env });
    expect(await undecided.ended).toBe(73);
    expect(JSON.parse(undecided.stdout)).toMatchObject({ error: { code: 'checkout_ambiguous' } });
    const decided = rig.spawn(root, ['--json', 'start', '--use', twin.id], { env });
    expect(await decided.ended).toBe(0);
    expect(JSON.parse(decided.stdout)).toMatchObject({ id: twin.id, how: 'adopted' });
  },
  manyCommands,
);

test(
  'P52: start waits for an existing sandbox that somebody sets up, not with --no-wait, and no longer than --timeout',
  async () => {
    const root = await rig.repository('waits', {
      'atoll.yml': 'setup: ["until test -e /tmp/go; do sleep 0.1; done"]\n',
    });
    const setter = rig.spawn(root, ['exec', '-v', '--', 'echo', 'set up']);
    await expect.poll(() => setter.stderr, { timeout: 60_000 }).toContain('Set-up:');
    expect((await rig.run(root, ['start', '--no-wait'])).code).toBe(0);
    const late = await rig.run(root, ['--json', 'start', '--wait', '--timeout', '1500ms']);
    expect([late.code, JSON.parse(late.stdout).error.code]).toEqual([75, 'wait_timeout']);
    const waiting = rig.spawn(root, ['start', '--wait', '--timeout', '5m']);
    await expect
      .poll(() => waiting.stderr, { timeout: 60_000 })
      .toMatch(/it is being set up by tester .*: echo set up/);
    const { id } = await rig.json<{ id: string }>(root, ['info']);
    // Nothing but the node's own worker writes while the lease is held.
    const [lease] = await platform.client.leases.list({ resource: id });
    const sandbox = (await platform.client.sandboxes.connect(id)).withLeaseToken(lease!.grants[0]!.token);
    await sandbox.files.write('/tmp/go', '');
    expect([await waiting.ended, await setter.ended]).toEqual([0, 0]);
    expect(setter.stdout).toBe('set up\n');
    expect(waiting.stdout).toContain('(known)');
  },
  manyCommands,
);

test(
  'P69: a list tells age, last command, holder, expiry and repository, here or of all repositories',
  async () => {
    const root = await rig.repository('listed', { 'atoll.yml': 'expires: 3h\n' });
    const other = await rig.repository('listed-other');
    rig.git(other, 'remote', 'add', 'origin', 'git@example.org:team/listed.git');
    const far = await start(other);
    const busy = rig.spawn(root, ['exec', '--no-sync', '-i', '--', 'sh', '-c', 'echo ready; read line']);
    await expect.poll(() => busy.stdout, { timeout: 60_000 }).toContain('ready');
    type Listed = { items: Record<string, string | number | null>[] };
    const here = await rig.json<Listed>(root, ['ls', '--here']);
    const instant = expect.stringMatching(/^20\d\d-/);
    expect(here.items).toEqual([
      expect.objectContaining({
        ...{ status: 'running', ref: 'branch:main', configPath: 'atoll.yml', root, execCount: 1 },
        ...{ createdAt: instant, lastExecAt: instant, expiresAt: instant },
        holder: expect.stringMatching(/^tester \(pid \d+\): sh -c echo ready; read line$/),
        repository: `${rig.git(root, 'rev-parse', 'HEAD')}:`,
      }),
    ]);
    const table = (await rig.run(root, ['ls', '--here'])).stdout;
    expect(table).toMatch(/^ID +STATE +REPO +BRANCH +AGE +LAST EXEC +EXPIRES +USED BY +CHECKOUT\n/);
    expect(table).toMatch(
      / running +listed +main +\d+s +(\d+s ago|now) +in 2h 59m +tester \(pid \d+\): sh -c .*\/listed\n$/,
    );
    const all = await rig.json<Listed>(rig.directory, ['ls', '--all-repos']);
    const ids = all.items.map(({ id }) => id);
    expect(ids).toContain(far.id);
    expect(ids).toContain(here.items[0]!['id']);
    expect((await rig.run(rig.directory, ['ls', '--all-repos'])).stdout).toContain('example.org/team/listed');
    busy.child.stdin?.end('\n');
    expect(await busy.ended).toBe(0);
  },
  manyCommands,
);

test(
  'P72: who waits for the lock of the cache is told on stderr who has it, and with --json is not; P75: who is told to wait no longer fails',
  async () => {
    const owner = { pid: 4_711, command: 'atoll exec' };
    const path = join(rig.state, 'checkouts', 'cache.db');
    const holder = Cache.open({ path, nowMs: () => Date.now(), owner, warn: () => {} });
    const roots = [await rig.repository('contended'), await rig.repository('contended-json')] as const;
    const release = Promise.withResolvers<void>();
    const held = holder.withLock({}, () => release.promise);
    const told = rig.spawn(roots[0], ['start']);
    await expect.poll(() => told.stderr, { timeout: 60_000 }).toContain('Waiting for atoll exec (pid 4711)');
    const quiet = await rig.run(roots[1], ['--json', 'start', '--timeout', '3s']);
    expect([quiet.code, JSON.parse(quiet.stdout).error.code]).toEqual([75, 'wait_timeout']);
    expect(quiet.stderr).not.toContain('Waiting');
    release.resolve();
    await held;
    expect(await told.ended).toBe(0);
    expect((await rig.run(roots[1], ['start'])).stderr).not.toContain('Waiting');
  },
  manyCommands,
);
