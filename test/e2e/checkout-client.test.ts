/** What a caller on a checkout asks of the server, and when: resolution, the lock of the cache, the lease around a cycle. */
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { listCheckouts, runCycle } from '../../src/checkout/index.ts';
import { conditionHeaders } from '../../src/protocol/index.ts';
import { type CallerOptions, CheckoutCaller } from '../support/checkout-caller.ts';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { findProgram, requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const manyCalls = { timeout: 120_000 };

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

const callerAt = (root: string, options: CallerOptions = {}) => CheckoutCaller.at(root, { rig, platform }, options);
const count = async () => (await platform.client.sandboxes.list({ limit: 1_000 })).items.length;
const nothing = { mayPull: () => false, isPushed: false, isSetUp: false } as const;

/** A git that notes what it is asked, before it answers. */
function notingGit(name: string) {
  const folder = join(rig.directory, name);
  const log = join(folder, 'asked');
  mkdirSync(folder);
  writeFileSync(log, '');
  writeFileSync(join(folder, 'git'), `#!/bin/sh\necho "$*" >> ${log}\nexec ${findProgram('git')} "$@"\n`);
  chmodSync(join(folder, 'git'), 0o755);
  return {
    env: { PATH: `${folder}:${process.env['PATH']}` },
    lookups: () => readFileSync(log, 'utf8').split('merge-base').length - 1,
  };
}

test(
  'P18: where HEAD is not detached, or there is no commit, nothing is asked about ancestry; detached, it is',
  async () => {
    const root = await rig.repository('ancestry');
    const git = notingGit('noting');
    const ask = async () => {
      const before = git.lookups();
      await (await callerAt(root, { env: git.env })).resolver.find();
      return git.lookups() - before;
    };
    rig.git(root, 'checkout', '-q', '--detach');
    await (await callerAt(root)).resolver.ensure();
    rig.git(root, 'commit', '-q', '--allow-empty', '-m', 'next');
    rig.git(root, 'checkout', '-q', '-b', 'named');
    expect(await ask()).toBe(0);
    rig.git(root, 'checkout', '-q', '--orphan', 'empty');
    expect(await ask()).toBe(0);
    rig.git(root, 'checkout', '-q', '--detach', 'named');
    expect(await ask()).toBe(1);
  },
  manyCalls,
);

test(
  'P21: the sandboxes of several definitions of a detached HEAD move on together',
  async () => {
    const root = await rig.repository('configs', { 'atoll.yml': '', 'other.yml': '' });
    rig.git(root, 'checkout', '-q', '--detach');
    const first = await (await callerAt(root)).resolver.ensure();
    const other = await (await callerAt(root, { config: 'other.yml' })).resolver.ensure();
    expect(other.sandbox.id).not.toBe(first.sandbox.id);
    rig.git(root, 'commit', '-q', '--allow-empty', '-m', 'next');
    const moved = await callerAt(root);
    expect(await moved.resolver.find()).toMatchObject({ how: 'known', session: { sandboxId: first.sandbox.id } });
    const later = await callerAt(root, { config: 'other.yml' });
    // Moved by the other one already: its own resolver has nothing to move.
    expect(later.cache.find(later.resolver.key)?.sandboxId).toBe(other.sandbox.id);
    const refs = moved.cache.sessions().filter(({ root: of }) => of === moved.found.root);
    expect(refs.map(({ identity }) => identity.ref)).toEqual(Array(2).fill(`commit:${moved.found.commit}`));
  },
  manyCalls,
);

test(
  'P26, P31: with a definition that is named nothing matches, so one is made; a ready one is used again',
  async () => {
    const root = await rig.repository('named-config', { 'atoll.yml': '', 'ci/atoll.yml': '' });
    const usual = await (await callerAt(root)).resolver.ensure();
    const before = await count();
    const config = { config: 'ci/atoll.yml' };
    expect(await (await callerAt(root, config)).resolver.find()).toBeUndefined();
    const made = await (await callerAt(root, config)).resolver.ensure();
    expect(made.how).toBe('created');
    expect(made.sandbox.id).not.toBe(usual.sandbox.id);
    const again = await (await callerAt(root, config)).resolver.ensure();
    expect([again.how, again.sandbox.id]).toEqual(['known', made.sandbox.id]);
    expect(await count()).toBe(before + 1);
  },
  manyCalls,
);

test(
  'P32: a match of the list that is gone when it is looked at is skipped, for another that matches, or for a new one',
  async () => {
    const root = await rig.repository('vanishing');
    const { sandbox } = await (await callerAt(root)).resolver.ensure();
    const twin = await platform.client.sandboxes.create({ metadata: sandbox.metadata });
    let doomed: string | undefined = sandbox.id;
    const between: CallerOptions['between'] = async (request, send) => {
      const answer = await send();
      if (request.what !== 'GET /v1/sandboxes' || doomed === undefined) return answer;
      await (await platform.client.sandboxes.connect(doomed)).delete();
      doomed = undefined;
      return answer;
    };
    const survivor = await (await callerAt(root, { between, machine: 'fresh-1' })).resolver.ensure();
    expect([survivor.how, survivor.sandbox.id]).toEqual(['adopted', twin.id]);
    doomed = twin.id;
    const last = await (await callerAt(root, { between, machine: 'fresh-2' })).resolver.ensure();
    expect(last.how).toBe('created');
    expect([sandbox.id, twin.id]).not.toContain(last.sandbox.id);
  },
  manyCalls,
);

for (const what of [401, 403, 500, 'timeout'] as const) {
  test(
    `P38: a look at the sandbox that ends with ${what} says nothing about it: it is remembered, and none is made`,
    async () => {
      const root = await rig.repository(`unknown-${what}`);
      const { sandbox } = await (await callerAt(root)).resolver.ensure();
      const before = await count();
      const codes = { 401: 'unauthenticated', 403: 'forbidden', 500: 'internal' } as const;
      const between: CallerOptions['between'] = async (request, send) => {
        if (request.what !== `GET /v1/sandboxes/${sandbox.id}`) return await send();
        if (what === 'timeout') throw new DOMException('late', 'TimeoutError');
        const error = { code: codes[what], message: 'no', details: {}, requestId: 'req' };
        return new Response(JSON.stringify({ error }), { status: what });
      };
      const caller = await callerAt(root, { between, retries: 1 });
      for (const work of ['find', 'ensure'] as const) {
        const code = what === 'timeout' ? 'server_unreachable' : codes[what];
        await expect(caller.resolver[work]()).rejects.toMatchObject({ code });
      }
      expect(caller.whats().filter((asked) => !asked.startsWith('GET'))).toEqual([]);
      expect(caller.cache.find(caller.resolver.key)?.sandboxId).toBe(sandbox.id);
      expect((await (await callerAt(root)).resolver.ensure()).how).toBe('known');
      expect(await count()).toBe(before);
    },
    manyCalls,
  );
}

test(
  'P40: a creation whose answer is lost is repeated under the same key, and one sandbox is made',
  async () => {
    const root = await rig.repository('lost-answer');
    const before = await count();
    const keys: (string | null)[] = [];
    const made: string[] = [];
    const between: CallerOptions['between'] = async (request, send) => {
      const answer = await send();
      if (request.what !== 'POST /v1/sandboxes') return answer;
      keys.push(request.headers.get(conditionHeaders.idempotencyKey));
      made.push(((await answer.clone().json()) as { id: string }).id);
      if (keys.length === 1) throw new TypeError('fetch failed');
      return answer;
    };
    const { sandbox } = await (await callerAt(root, { between })).resolver.ensure();
    expect(keys).toEqual([expect.stringMatching(/./), keys[0]]);
    expect(made).toEqual([sandbox.id, sandbox.id]);
    expect(await count()).toBe(before + 1);
  },
  manyCalls,
);

test(
  'P49: the address of the server is used, kept and told as it was given, with port and path',
  async () => {
    const root = await rig.repository('address');
    const url = 'https://Atoll.Example:8443/behind/a%20proxy';
    const caller = await callerAt(root, { url });
    const { session } = await caller.resolver.ensure();
    expect(session.serverUrl).toBe(url);
    expect(caller.requests.filter((request) => !request.url.startsWith(`${url}/v1/`))).toEqual([]);
    const { repository } = caller.found.identity;
    const [listed] = await listCheckouts({ client: caller.client, cache: caller.cache, repository });
    expect(listed).toMatchObject({ id: session.sandboxId, serverUrl: url, execCount: 0 });
    // Under another address it is another server, of which nothing is remembered.
    expect((await (await callerAt(root)).resolver.ensure()).how).toBe('adopted');
  },
  manyCalls,
);

test(
  'P74, P151: whatever writes the cache waits for its lock and takes it once; only a creation is sent while it is held',
  async () => {
    const root = await rig.repository('locks');
    rig.git(root, 'checkout', '-q', '--detach');
    const caller = await callerAt(root);
    const { resolver, cache } = caller;
    const rows = () => JSON.stringify(cache.sessions());
    /** With the lock in other hands first: what is written is not there until they let go. */
    const sentLocked = async (work: () => Promise<unknown>) => {
      const other = await callerAt(root);
      const waits = Promise.withResolvers<void>();
      caller.onLockWait = () => waits.resolve();
      const before = rows();
      const seen = caller.requests.length;
      let working: Promise<unknown> = Promise.resolve();
      await other.cache.withLock({}, async () => {
        working = work();
        await Promise.race([waits.promise, working]);
        expect(rows()).toBe(before);
      });
      await working;
      expect(rows()).not.toBe(before);
      return caller.requests.slice(seen).filter(({ isLocked }) => isLocked);
    };
    const whats = async (work: () => Promise<unknown>) => (await sentLocked(work)).map(({ what }) => what);
    expect(await whats(() => resolver.ensure())).toEqual(['POST /v1/sandboxes']);
    expect(await whats(() => resolver.countExec())).toEqual([]);
    expect(await whats(() => resolver.reset())).toEqual(['POST /v1/sandboxes']);
    const { sandboxId } = cache.find(resolver.key)!;
    expect(await whats(() => resolver.forget(sandboxId!))).toEqual([]);
    expect(await whats(() => resolver.ensure())).toEqual([]);
    const named = await platform.client.sandboxes.create();
    expect(await whats(() => resolver.use(named.id))).toEqual([]);
    const cycle = await caller.cycle();
    expect(await whats(() => runCycle(cycle, { ...nothing, run: async () => {} }))).toEqual([]);
    rig.git(root, 'commit', '-q', '--allow-empty', '-m', 'next');
    const moved = await callerAt(root);
    moved.onLockWait = () => caller.onLockWait();
    expect(await whats(() => moved.resolver.find())).toEqual([]);
    expect(moved.requests.filter(({ isLocked }) => isLocked)).toEqual([]);
    // A list drops what is gone when it gets the lock, and does not wait for it.
    await named.delete();
    const list = () => listCheckouts({ client: caller.client, cache, repository: caller.found.identity.repository });
    const before = rows();
    await cache.withLock({}, async () => {
      const elsewhere = await callerAt(root);
      const { repository } = elsewhere.found.identity;
      await listCheckouts({ client: elsewhere.client, cache: elsewhere.cache, repository });
      expect(rows()).toBe(before);
    });
    await list();
    expect(rows()).not.toBe(before);
    expect(caller.requests.filter(({ what, isLocked }) => isLocked && what !== 'POST /v1/sandboxes')).toEqual([]);
  },
  manyCalls,
);

test(
  'P80: a lease that was not granted is not released: whoever holds it keeps it',
  async () => {
    const root = await rig.repository('refused-lease');
    const caller = await callerAt(root);
    const { sandbox } = await caller.resolver.ensure();
    const held = await platform.client.leases.acquire({ resources: [sandbox.id], holder: 'other', ttlMs: 60_000 });
    const released = () => caller.whats().filter((what) => what === `DELETE /v1/leases/${held.id}`);
    const before = caller.requests.length;
    const run = async (waitMs: number) =>
      await runCycle(await caller.cycle({ waitMs }), { ...nothing, run: async () => 'ran' });
    await expect(run(0)).rejects.toMatchObject({ code: 'lease_held', details: { holder: 'other' } });
    await expect(run(300)).rejects.toMatchObject({ code: 'lease_wait_timeout' });
    expect(caller.steps).toEqual(['requested', 'requested']);
    expect(caller.whats().filter((what, index) => index >= before && what.startsWith('DELETE'))).toEqual([]);
    expect((await platform.client.leases.list({ resource: sandbox.id })).map(({ id }) => id)).toEqual([held.id]);
    await platform.client.leases.release(held.id);
    await expect(run(0)).resolves.toMatchObject({ result: 'ran' });
    expect(caller.whats().filter((what) => what.startsWith('DELETE /v1/leases/')).length).toBeGreaterThan(0);
    expect(released()).toEqual([]);
  },
  manyCalls,
);

test(
  'P81: what is cleaned up before a command is cleaned up under the lease, and so is every other change',
  async () => {
    const root = await rig.repository('cleanup', { 'a.txt': 'a', 'old.txt': 'old' });
    const caller = await callerAt(root);
    const look = async () => {
      const { result } = await runCycle(await caller.cycle(), {
        mayPull: () => true,
        run: async ({ sandbox }) => (await sandbox.exec('ls /workspace')).stdout,
      });
      return result;
    };
    expect(await look()).toBe('a.txt\nold.txt\n');
    rmSync(join(root, 'old.txt'));
    const { sandbox } = (await caller.resolver.find())!;
    const held = await platform.client.leases.acquire({ resources: [sandbox.id], holder: 'other', ttlMs: 60_000 });
    const waits = Promise.withResolvers<void>();
    const cleaning = runCycle(await caller.cycle({ onWait: () => waits.resolve() }), {
      mayPull: () => true,
      run: async ({ sandbox: leased }) => (await leased.exec('ls /workspace')).stdout,
    });
    await waits.promise;
    expect((await sandbox.files.list('/workspace')).map(({ path }) => path)).toContain('/workspace/old.txt');
    await platform.client.leases.release(held.id);
    expect((await cleaning).result).toBe('a.txt\n');
    const changes = caller.requests.filter(
      ({ what }) => !what.startsWith('GET') && what.includes(`/v1/sandboxes/${sandbox.id}`),
    );
    expect(changes.length).toBeGreaterThan(4);
    expect(changes.filter(({ headers }) => !headers.has(conditionHeaders.leaseToken))).toEqual([]);
  },
  manyCalls,
);

test(
  'a sandbox that goes back to a checkpoint gets the files of the checkout again, which are not touched',
  async () => {
    const root = await rig.repository('goes-back', { 'a.txt': 'one\n', 'b.txt': 'b\n' });
    const caller = await callerAt(root);
    const exec = async (command: string) =>
      await runCycle(await caller.cycle(), {
        mayPull: () => true,
        run: async ({ sandbox }) => (await sandbox.exec(command, { cwd: '/workspace' })).stdout,
      });
    await exec('echo made > made.txt');
    const { sandbox } = (await caller.resolver.find())!;
    const { id } = await sandbox.checkpoints.create();
    writeFileSync(join(root, 'a.txt'), 'two\n');
    rmSync(join(root, 'b.txt'));
    await exec('echo later > later.txt');
    await (await platform.client.sandboxes.connect(sandbox.id)).restore(id);
    const { result, pull } = await exec('cat a.txt; ls');
    expect(result).toBe('two\na.txt\nlater.txt\nmade.txt\n');
    expect(pull).toMatchObject({ conflicts: [], files: 0 });
    expect(['a.txt', 'later.txt', 'made.txt'].map((name) => readFileSync(join(root, name), 'utf8'))).toEqual([
      'two\n',
      'later\n',
      'made\n',
    ]);
    expect(existsSync(join(root, 'b.txt'))).toBe(false);
  },
  manyCalls,
);
