/** The SDK against the real HTTP server, with a control that writes down what it is asked. */
import { createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import { type ClientClock, isPlatformError, PlatformError, Sandbox } from '../src/sdk/index.ts';
import { goodKey, testExecResult, testId, testSandboxView } from './support/fake-control.ts';
import { openHttpRig } from './support/http-rig.ts';
import { steppedClock } from './support/stepped-clock.ts';

const sandboxId = testId('sandbox', 'a');

describe('a sandbox', () => {
  test('is made with a client or with an address, carries what was said, and is deleted by await using', async () => {
    await using rig = await openHttpRig();
    let id: string;
    {
      await using sandbox = await Sandbox.create({ url: rig.url, apiKey: goodKey, name: 'one', metadata: { a: 'b' } });
      id = sandbox.id;
      expect([sandbox.name, sandbox.state, sandbox.generation, sandbox.metadata]).toEqual([
        'one',
        'running',
        1,
        { a: 'b' },
      ]);
      expect(rig.control.last('create').args[2]).toMatchObject({ name: 'one', ifExists: 'refuse' });
    }
    expect(rig.control.views.has(id)).toBe(false);
  });

  test('that somebody else made is not deleted by await using', async () => {
    await using rig = await openHttpRig();
    const client = rig.client();
    {
      await using connected = await Sandbox.connect(sandboxId, { client });
      await using shared = await Sandbox.getOrCreate({ client, name: 'shared' });
      expect([connected.id, shared.name]).toEqual([sandboxId, 'shared']);
    }
    expect(rig.control.views.size).toBe(2);
  });

  test('already gone at the end of its block is no error', async () => {
    await using rig = await openHttpRig();
    await using sandbox = await Sandbox.create({ client: rig.client() });
    await sandbox.kill();
  });

  test('is listed page by page, or one after another', async () => {
    await using rig = await openHttpRig();
    const client = rig.client();
    for (const name of ['x1', 'x2', 'x3']) await client.sandboxes.create({ name });

    const first = await Sandbox.list({ client, namePrefix: 'x', limit: 2, state: ['running'], metadata: { a: 'b=c' } });
    expect(first.items.map((sandbox) => sandbox.name)).toEqual(['x1', 'x2']);
    expect(rig.control.last('list').args[1]).toMatchObject({ state: ['running'], metadata: ['a=b=c'] });
    const names = [];
    for await (const view of client.sandboxes.iterate({ namePrefix: 'x', limit: 2 })) names.push(view.name);
    expect(names).toEqual(['x1', 'x2', 'x3']);
  });
});

describe('a handle is bound to one life', () => {
  test('every change names its generation; its own start moves it on', async () => {
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    await sandbox.stop();
    await sandbox.start();
    await sandbox.exec(['true']);

    expect(rig.control.last('stop').args[2]).toEqual({ generation: 1 });
    expect(rig.control.last('start').args[2]).toEqual({ generation: 1 });
    expect(rig.control.last('exec').args[2]).toEqual({ generation: 2 });
  });

  test('K24: a handle from an earlier life is refused, and refresh does not bind it to the later one', async () => {
    await using rig = await openHttpRig();
    const client = rig.client();
    const old = await Sandbox.connect(sandboxId, { client });
    rig.control.views.set(sandboxId, testSandboxView({ generation: 2 }));

    await expect(old.exec(['true'])).rejects.toMatchObject({ code: 'stale_generation' });
    await expect(old.refresh()).rejects.toMatchObject({ code: 'stale_generation' });
    expect(old.generation).toBe(1);
    expect((await Sandbox.connect(sandboxId, { client })).generation).toBe(2);
  });
});

describe('exec', () => {
  test('gives text and the exact bytes', async () => {
    await using rig = await openHttpRig();
    const bytes = Uint8Array.from([0xef, 0xbb, 0xbf, 0x00, 0xff, 0x61]);
    rig.control.onExec = async () =>
      testExecResult({ exitCode: 3, stdout: Buffer.from(bytes).toString('base64'), stderr: btoa('oops') });
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    const result = await sandbox.exec(['a']);

    expect(result).toMatchObject({ exitCode: 3, stderr: 'oops', stdout: '\u{feff}\0\u{fffd}a' });
    expect([...result.stdoutBytes]).toEqual([...bytes]);
    expect(result).not.toHaveProperty('encoding');
  });

  test('takes bytes as standard input, and leaves out what is null or undefined in the environment', async () => {
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    const stdin = Uint8Array.from([0, 255]);
    await sandbox.exec('cat', { stdin, env: { A: '1', B: null, C: undefined }, timeoutMs: 5, cwd: '/tmp' });

    expect(rig.control.last('exec').args[3]).toMatchObject({
      command: 'cat',
      stdin: { base64: 'AP8=' },
      env: { A: '1' },
      timeoutMs: 5,
      cwd: '/tmp',
      stopOnDisconnect: false,
    });
  });

  test('E19: an abort stops the command and rejects with the reason of the signal', async () => {
    await using rig = await openHttpRig();
    const started = Promise.withResolvers<void>();
    const stopped = Promise.withResolvers<void>();
    rig.control.onExec = async ({ signal }) => {
      started.resolve();
      await new Promise((resolve) => signal?.addEventListener('abort', resolve));
      stopped.resolve();
      return testExecResult({ killed: true });
    };
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    const abort = new AbortController();
    const call = sandbox.exec(['sleep', '60'], { signal: abort.signal });
    await started.promise;
    abort.abort();

    await expect(call).rejects.toMatchObject({ name: 'AbortError' });
    await stopped.promise;
    rig.control.onExec = async () => testExecResult();
    await expect(sandbox.exec(['true'])).resolves.toMatchObject({ exitCode: 0 });
  });
});

describe('what goes wrong is one class of error', () => {
  test('a refusal has its code, details and request id', async () => {
    await using rig = await openHttpRig();
    const error = await rig
      .client()
      .sandboxes.get(testId('sandbox', 'zzz'))
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(PlatformError);
    expect(error).toMatchObject({
      code: 'sandbox_not_found',
      status: 404,
      requestId: expect.stringMatching(/^req/),
    });
  });

  test('nobody there: server_unreachable, also for a change, because nothing was sent', async () => {
    const rig = await openHttpRig();
    await rig.server.close();
    const { clock, waits } = steppedClock();
    const client = rig.client({ clock });
    await expect(client.whoAmI()).rejects.toMatchObject({ code: 'server_unreachable' });
    expect(waits).toHaveLength(3);
    await expect(client.users.create({ name: 'a' })).rejects.toMatchObject({ code: 'server_unreachable' });
  });

  test('an answer that is lost: outcome_unknown for a change, server_unreachable for a look', async () => {
    await using dead = await openDeadServer();
    const { clock } = steppedClock();
    const options = { url: dead.url, apiKey: 'k', clock };
    const lost = await Sandbox.create({ ...options, idempotencyKey: 'k' }).catch((error: unknown) => error);
    expect(isPlatformError(lost, 'outcome_unknown')).toBe(true);
    // With an idempotency key a repeat is harmless, so it was repeated.
    expect(dead.connections).toBe(4);
    await expect(Sandbox.connect(sandboxId, options)).rejects.toMatchObject({ code: 'server_unreachable' });
  });

  test('a change without an idempotency key whose answer is lost is not repeated', async () => {
    await using dead = await openDeadServer();
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, {
      client: rig.client({ fetch: (input, init) => fetch(moved(String(input), init?.method, dead.url), init) }),
    });
    await expect(sandbox.exec(['rm'])).rejects.toMatchObject({ code: 'outcome_unknown' });
    expect(dead.connections).toBe(1);
  });

  test('once an answer was lost, a repeat that is refused does not make it "nothing changed"', async () => {
    const rig = await openHttpRig();
    const { clock } = steppedClock();
    let calls = 0;
    const flaky: typeof fetch = async () => {
      if (calls++ === 0) throw new TypeError('fetch failed');
      throw new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) });
    };
    const client = rig.client({ fetch: flaky, clock, retries: 1 });
    await expect(client.sandboxes.create()).rejects.toMatchObject({ code: 'outcome_unknown' });
    await rig.server.close();
  });

  test('an answer that is not of an Atoll server says so', async () => {
    await using rig = await openHttpRig();
    const fake: typeof fetch = async () => new Response('<h1>Bad gateway</h1>', { status: 502 });
    const client = rig.client({ fetch: fake, clock: steppedClock().clock });
    await expect(client.whoAmI()).rejects.toMatchObject({
      code: 'server_unreachable',
      message: expect.stringContaining('status 502'),
    });
    await expect(client.users.create({ name: 'a' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  });

  test('an answer that takes too long is given up', async () => {
    await using rig = await openHttpRig();
    rig.control.onGet = () => new Promise(() => {});
    const client = rig.client({ timeoutMs: 20, retries: 0 });
    await expect(client.sandboxes.get(sandboxId)).rejects.toMatchObject({ code: 'server_unreachable' });
  });

  test('an address that is none is refused at once', async () => {
    await expect(Sandbox.connect(sandboxId, { url: 'nowhere', apiKey: 'k' })).rejects.toMatchObject({
      code: 'invalid_request',
    });
  });
});

describe('repeats', () => {
  test('create makes an idempotency key of its own and repeats with the same one when nothing was changed', async () => {
    await using rig = await openHttpRig();
    const { clock, waits } = steppedClock();
    const keys: (string | null)[] = [];
    let failures = 2;
    const client = rig.client({
      clock,
      fetch: (input, init) => {
        keys.push(new Headers(init?.headers).get('Idempotency-Key'));
        if (failures-- > 0) {
          const error = { code: 'node_unavailable', message: 'Away.', details: {}, requestId: 'reqx' };
          return Promise.resolve(Response.json({ error }, { status: 503 }));
        }
        return fetch(input, init);
      },
    });
    await client.sandboxes.create();

    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).toMatch(/^sdk-[0-9a-f-]{36}$/);
    expect(waits).toHaveLength(2);
  });

  test('a lease that is held is the caller to decide about: not repeated', async () => {
    await using rig = await openHttpRig();
    let calls = 0;
    rig.control.onExec = async () => {
      calls++;
      throw new PlatformError('lease_held', 'Held.');
    };
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    await expect(sandbox.exec(['a'])).rejects.toMatchObject({ code: 'lease_held' });
    expect(calls).toBe(1);
  });

  test('every change takes an idempotency key', async () => {
    await using rig = await openHttpRig();
    const client = rig.client();
    const idempotencyKey = 'k';
    const sandbox = await client.sandboxes.create({ idempotencyKey });
    await sandbox.exec('a', { idempotencyKey });
    await sandbox.stop({ idempotencyKey });
    await sandbox.start({ idempotencyKey });
    await sandbox.extend(1_000, { idempotencyKey });
    await sandbox.patchMetadata({ a: 'b' }, { idempotencyKey });
    await client.leases.acquire({ resources: ['name:a'], idempotencyKey });
    await client.keys.create({ name: 'a', scopes: ['admin'] }, { idempotencyKey });
    await client.keys.revoke(testId('key', 'b'), { idempotencyKey });
    await client.users.create({ name: 'a' }, { idempotencyKey });
    await client.teams.create({ name: 'a' }, { idempotencyKey });
    await client.webhooks.create({ url: 'https://example.test' }, { idempotencyKey });
    await client.sandboxes.createToken(sandbox.id, {}, { idempotencyKey });
    await sandbox.delete({ idempotencyKey });

    const keys = rig.control.asked.map(({ args }) =>
      args.some((arg) => (arg as { idempotencyKey?: string })?.idempotencyKey === idempotencyKey),
    );
    expect(keys).toEqual(keys.map(() => true));
    expect(keys).toHaveLength(14);
  });
});

describe('metadata', () => {
  test('patch merges and the handle shows it; set makes it exactly this map, whoever else changes it', async () => {
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    expect(await sandbox.patchMetadata({ a: '1', b: '2' })).toEqual({ metadata: { a: '1', b: '2' }, version: 4 });
    expect(sandbox.metadata).toEqual({ a: '1', b: '2' });

    const patch = rig.control.metadata.patch;
    let isDisturbed = false;
    rig.control.metadata.patch = async (caller, id, conditions, body) => {
      // Somebody else is faster, once.
      if (!isDisturbed) {
        isDisturbed = true;
        await patch(caller, id, {}, { other: 'x' });
      }
      return await patch(caller, id, conditions, body);
    };
    await sandbox.setMetadata({ b: '3' });
    expect((await sandbox.getMetadata()).metadata).toEqual({ b: '3' });
    await expect(sandbox.patchMetadata({ c: '1' }, { expectedVersion: 1 })).rejects.toMatchObject({
      code: 'version_mismatch',
    });
  });
});

describe('a lease', () => {
  test('is held while the work runs, by a handle that carries its token, and released', async () => {
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    const result = await sandbox.lease({ holder: 'me', reason: 'tests', ttlMs: 30_000 }, async (held, { signal }) => {
      await held.exec(['true']);
      expect(signal.aborted).toBe(false);
      return 'done';
    });

    expect(result).toBe('done');
    expect(rig.control.last('acquire').args[2]).toMatchObject({ resources: [sandboxId], holder: 'me', ttlMs: 30_000 });
    expect(rig.control.last('exec').args[2]).toEqual({ generation: 1, leaseToken: 1 });
    expect(rig.control.asked.map(({ method }) => method)).toEqual(['acquire', 'exec', 'release']);
  });

  test('is released when the work fails, and the failure is passed on', async () => {
    await using rig = await openHttpRig();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client() });
    await expect(sandbox.lease({}, () => Promise.reject(new Error('mine')))).rejects.toThrow('mine');
    expect(rig.control.last('release').args[1]).toBe(testId('lease', 'a'));
  });

  test('is renewed at a third of its term', async () => {
    await using rig = await openHttpRig();
    const renewed = Promise.withResolvers<void>();
    const waits: number[] = [];
    const clock: ClientClock = {
      nowMs: () => 0,
      wait: (ms, signal) => {
        waits.push(ms);
        // The second wait lasts until the work is over.
        if (waits.length > 1) return new Promise((resolve) => signal?.addEventListener('abort', () => resolve()));
        return Promise.resolve();
      },
    };
    rig.control.onRenew = async () => renewed.resolve();
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client({ clock }) });
    await sandbox.lease({ ttlMs: 30_000 }, () => renewed.promise);
    expect(waits[0]).toBe(10_000);
  });

  test('that is lost aborts the signal of the work and rejects with lease_lost', async () => {
    await using rig = await openHttpRig();
    rig.control.onRenew = async () => {
      throw new PlatformError('lease_not_found', 'It has ended.');
    };
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client({ clock: steppedClock().clock }) });
    const call = sandbox.lease(
      { ttlMs: 3_000 },
      (_held, { signal }) => new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve())),
    );
    await expect(call).rejects.toMatchObject({ code: 'lease_lost' });
    expect(rig.control.asked.map(({ method }) => method)).not.toContain('release');
  });

  test('that cannot be renewed within its term is lost too', async () => {
    await using rig = await openHttpRig();
    const { clock, waits } = steppedClock();
    rig.control.onRenew = async () => {
      throw new PlatformError('node_unavailable', 'Away.');
    };
    const sandbox = await Sandbox.connect(sandboxId, { client: rig.client({ clock, retries: 0 }) });
    const call = sandbox.lease(
      { ttlMs: 3_000 },
      (_held, { signal }) => new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve())),
    );
    await expect(call).rejects.toMatchObject({ code: 'lease_lost' });
    expect(waits.reduce((sum, ms) => sum + ms, 0)).toBe(3_000);
  });
});

describe('events', () => {
  test('are followed across a server that goes away, without gap or repeat', async () => {
    const first = await openHttpRig();
    const second = await openHttpRig();
    let url = first.url;
    const client = first.client({
      clock: steppedClock().clock,
      fetch: (input, init) => fetch(String(input).replace(first.url, url), init),
    });
    const abort = new AbortController();
    const seen = client.events.follow({ signal: abort.signal });
    const take = async () => (await seen.next()).value?.kind;

    const one = take();
    await expect.poll(() => first.control.asked.length).toBe(1);
    first.control.addEvent('one');
    expect(await one).toBe('one');
    for (const kind of ['one', 'two', 'three']) second.control.addEvent(kind);
    url = second.url;
    const two = take();
    await first.server.close();
    expect(await two).toBe('two');
    expect(await take()).toBe('three');
    const end = take();
    abort.abort();
    expect(await end).toBeUndefined();
    await second.server.close();
  });

  test('that are no longer kept end the stream with output_dropped', async () => {
    await using rig = await openHttpRig();
    const stream = rig.client().events.follow({ after: 0 });
    await expect(stream.next()).rejects.toMatchObject({ code: 'output_dropped' });
  });
});

test('the rest of the client reaches its routes', async () => {
  await using rig = await openHttpRig();
  const client = rig.client();
  expect((await client.whoAmI()).name).toBe('made');
  expect(await client.keys.list()).toHaveLength(1);
  expect(await client.users.list()).toEqual([]);
  expect(await client.teams.list()).toHaveLength(1);
  expect(await client.leases.list({ resource: 'name:a' })).toMatchObject([{ waiting: 2 }]);
  expect((await client.events.list()).items).toEqual([]);
  expect(await client.webhooks.list()).toHaveLength(1);
  await client.webhooks.delete(testId('webhook', 'a'));
  expect((await client.operation({ idempotencyKey: 'a b/c' })).state).toBe('finished');
  expect(rig.control.last('getOperation').args[1]).toBe('key:a b/c');
  await client.reconcile({ dryRun: true });
  expect(rig.control.last('reconcile').args[1]).toEqual({ dryRun: true });
  const sandbox = await client.sandboxes.connect(sandboxId);
  expect((await sandbox.metadataHistory({ limit: 5 })).kept).toBe(1_000);
});

/** Takes connections and requests, and cuts them without an answer. */
async function openDeadServer() {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on('error', () => {});
    socket.once('data', () => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  return {
    url: `http://127.0.0.1:${port}`,
    get connections() {
      return connections;
    },
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

function moved(url: string, method: string | undefined, to: string): string {
  return method === 'POST' ? `${to}${new URL(url).pathname}` : url;
}
