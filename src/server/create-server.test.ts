import { get, request as httpRequest } from 'node:http';
import { describe, expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { goodKey, testCaller, testExecResult, testId } from '../../test/support/fake-control.ts';
import { errorOf, openHttpRig } from '../../test/support/http-rig.ts';
import { PlatformError } from '../protocol/index.ts';

const sandboxId = testId('sandbox', 'a');
const json = { 'content-type': 'application/json' };
const headers = { authorization: `Bearer ${goodKey}` };

test('what a route declares reaches control as it declares it', async () => {
  await using rig = await openHttpRig();
  const response = await rig.request(`/v1/sandboxes/${sandboxId}/stop`, {
    method: 'POST',
    headers: {
      ...json,
      'Idempotency-Key': 'k 1',
      'Atoll-Lease-Token': '4',
      'Atoll-Generation': '2',
      'If-Match': '"7"',
    },
  });

  expect(response.status).toBe(200);
  expect(response.headers.get('etag')).toBe('"9"');
  expect(rig.control.last('stop').args.slice(1)).toEqual([
    sandboxId,
    { idempotencyKey: 'k 1', leaseToken: 4, generation: 2, expectedVersion: 7 },
    { graceMs: 2_000 },
  ]);
});

test('If-Match is taken without quotes too, and a query field may be given several times', async () => {
  await using rig = await openHttpRig();
  await rig.request(`/v1/sandboxes/${sandboxId}/metadata`, {
    method: 'PATCH',
    body: '{"a":"b"}',
    headers: { 'If-Match': '3' },
  });
  expect(rig.control.last('patch').args[2]).toEqual({ expectedVersion: 3 });

  await rig.request('/v1/sandboxes?state=running&state=stopped&metadata=a%3Db&limit=5');
  expect(rig.control.last('list').args[1]).toEqual({ state: ['running', 'stopped'], metadata: ['a=b'], limit: 5 });
});

test('create answers 201, and 200 for one that was there; delete answers 204 with nothing', async () => {
  await using rig = await openHttpRig();
  const create = () =>
    rig.request('/v1/sandboxes', { method: 'POST', body: JSON.stringify({ name: 'one', ifExists: 'get' }) });

  expect((await create()).status).toBe(201);
  const again = await create();
  expect(again.status).toBe(200);
  const { id } = (await again.json()) as { id: string };
  const deleted = await rig.request(`/v1/sandboxes/${id}?force=true`, { method: 'DELETE' });
  expect([deleted.status, await deleted.text()]).toEqual([204, '']);
  expect(rig.control.last('delete').args[3]).toEqual({ force: true });
});

test('a version is the ETag of a sandbox, and of its metadata its own', async () => {
  await using rig = await openHttpRig();
  expect((await rig.request(`/v1/sandboxes/${sandboxId}`)).headers.get('etag')).toBe('"7"');
  expect((await rig.request(`/v1/sandboxes/${sandboxId}/metadata`)).headers.get('etag')).toBe('"3"');
});

describe('errors', () => {
  test('a refusal of control is answered with its code, message and details, under the request id', async () => {
    await using rig = await openHttpRig();
    rig.control.onExec = async () => {
      throw new PlatformError('lease_held', 'Ann holds it.', { details: { holder: 'Ann' } });
    };
    const error = await errorOf(
      await rig.request(`/v1/sandboxes/${sandboxId}/exec`, { method: 'POST', body: '{"command":["a"]}' }),
    );
    expect(error).toMatchObject({
      status: 423,
      code: 'lease_held',
      message: 'Ann holds it.',
      details: { holder: 'Ann' },
      requestId: expect.stringMatching(/^req[a-z0-9]{20}$/),
    });
    expect(error.requestIdHeader).toBe(error.requestId);
  });

  test('a bug is internal: its cause is in the log under the request id, and nothing of it in the answer', async () => {
    await using rig = await openHttpRig();
    rig.control.onGet = async () => {
      throw new TypeError('the secret plan of line 7');
    };
    const response = await rig.request(`/v1/sandboxes/${sandboxId}`);
    const text = await response.text();

    expect(response.status).toBe(500);
    expect(text).toContain('"internal"');
    expect(text).not.toContain('secret plan');
    const line = rig.log.find((entry) => entry.includes('the secret plan'));
    expect(line).toContain(response.headers.get('request-id'));
  });
});

test('the access log has a line per request with status, time and key id, and never a key or a body', async () => {
  const rig = await openHttpRig();
  await rig.request(`/v1/sandboxes/${sandboxId}/exec?a=secretquery`, {
    method: 'POST',
    body: '{"command":"secret body"}',
  });
  const good = await rig.request(`/v1/sandboxes/${sandboxId}`);
  await good.text();
  await rig.server.close();

  const lines = rig.log
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter((l) => l['msg'] === 'request');
  expect(lines).toMatchObject([
    { method: 'POST', path: `/v1/sandboxes/${sandboxId}/exec`, status: 400, code: 'invalid_request' },
    {
      method: 'GET',
      status: 200,
      ms: expect.any(Number),
      keyId: testId('key', 'a'),
      requestId: good.headers.get('request-id'),
    },
  ]);
  expect(rig.log.join('')).not.toMatch(/atoll_a|secret/);
});

describe('a caller that goes away', () => {
  const body = (stopOnDisconnect: boolean) => JSON.stringify({ command: ['sleep'], stopOnDisconnect });

  test('stops the command only when it said so', async () => {
    await using rig = await openHttpRig();
    const started = Promise.withResolvers<AbortSignal | undefined>();
    const finished = Promise.withResolvers<void>();
    rig.control.onExec = async ({ signal }) => {
      started.resolve(signal);
      await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()));
      finished.resolve();
      return testExecResult({ killed: true });
    };
    const leaving = new AbortController();
    const answer = rig.request(`/v1/sandboxes/${sandboxId}/exec`, {
      method: 'POST',
      body: body(true),
      signal: leaving.signal,
    });
    expect(await started.promise).toBeInstanceOf(AbortSignal);
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await finished.promise;
  });

  test('leaves it running otherwise: control is given no signal', async () => {
    await using rig = await openHttpRig();
    let given: AbortSignal | undefined | 'none' = 'none';
    rig.control.onExec = async ({ signal }) => {
      given = signal;
      return testExecResult();
    };
    await rig.request(`/v1/sandboxes/${sandboxId}/exec`, { method: 'POST', body: body(false) });
    expect(given).toBeUndefined();
  });

  test('gives up its place in the queue for a lease', async () => {
    await using rig = await openHttpRig();
    const waiting = Promise.withResolvers<AbortSignal>();
    rig.control.onAcquire = async (signal) => {
      waiting.resolve(signal!);
      await new Promise((_, reject) => signal!.addEventListener('abort', () => reject(signal!.reason)));
    };
    const leaving = new AbortController();
    const answer = rig.request('/v1/leases', {
      method: 'POST',
      body: JSON.stringify({ resources: ['name:a'], holder: 'me', waitMs: 1_000 }),
      signal: leaving.signal,
    });
    const signal = await waiting.promise;
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await aborted;
    expect(rig.log.join('')).not.toContain('a bug');
  });
});

describe('closing', () => {
  test('refuses new requests with shutting_down, lets the running one finish, then nobody listens', async () => {
    const rig = await openHttpRig();
    const gate = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    rig.control.onGet = () => {
      started.resolve();
      return gate.promise;
    };
    const running = rig.request(`/v1/sandboxes/${sandboxId}`);
    await started.promise;
    const closing = rig.server.close({ graceMs: 60_000 });

    const refused = await rig.request('/v1/me');
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await errorOf(refused)).toMatchObject({ status: 503, code: 'shutting_down' });
    const readiness = await fetch(`${rig.url}/readyz`);
    expect([readiness.status, await readiness.json()]).toEqual([
      503,
      { ready: false, reasons: ['The server is stopping.'] },
    ]);
    gate.resolve();
    expect((await running).status).toBe(200);
    await closing;
    await expect(fetch(`${rig.url}/healthz`)).rejects.toThrow();
  });

  test('cuts off what is not finished when the grace is over, and does not take that for the wish to stop', async () => {
    const clock = new FakeClock();
    const rig = await openHttpRig({ timers: clock });
    const started = Promise.withResolvers<AbortSignal | undefined>();
    rig.control.onExec = ({ signal }) => {
      started.resolve(signal);
      return new Promise(() => {});
    };
    const running = rig.request(`/v1/sandboxes/${sandboxId}/exec`, {
      method: 'POST',
      body: '{"command":["a"],"stopOnDisconnect":true}',
    });
    running.catch(() => {});
    const signal = await started.promise;
    const closing = rig.server.close({ graceMs: 5_000 });
    clock.step(5_000);
    await closing;

    await expect(running).rejects.toThrow();
    expect(signal?.aborted).toBe(false);
  });

  test('ends waits with shutting_down, and a second close joins the first', async () => {
    const rig = await openHttpRig();
    const waiting = Promise.withResolvers<void>();
    rig.control.onAcquire = (signal) => {
      waiting.resolve();
      return new Promise((_, reject) => signal!.addEventListener('abort', () => reject(signal!.reason)));
    };
    const answer = rig.request('/v1/leases', {
      method: 'POST',
      body: JSON.stringify({ resources: ['name:a'], holder: 'me', waitMs: 1_000 }),
    });
    await waiting.promise;
    await Promise.all([rig.server.close(), rig.server.close()]);
    expect((await answer).status).toBe(503);
  });
});

test('a caller that asks for it hears 102 while it waits; another one does not', async () => {
  const clock = new FakeClock();
  await using rig = await openHttpRig({ timers: clock, progressMs: 1_000 });
  const gate = Promise.withResolvers<void>();
  rig.control.onExec = async () => {
    await gate.promise;
    return testExecResult();
  };
  const path = `${rig.url}/v1/sandboxes/${sandboxId}/exec`;
  const heard = Promise.withResolvers<number>();
  const finished = Promise.withResolvers<number>();
  const asking = httpRequest(path, { method: 'POST', headers: { ...headers, prefer: 'processing' } });
  asking.on('information', ({ statusCode }) => heard.resolve(statusCode));
  asking.on('response', (response) => finished.resolve(response.resume().statusCode!));
  asking.end('{"command":["a"]}');
  await expect.poll(() => clock.pendingTimers).toBe(1);
  clock.step(1_000);

  expect(await heard.promise).toBe(102);
  gate.resolve();
  expect(await finished.promise).toBe(200);
  await rig.request(`/v1/sandboxes/${sandboxId}/exec`, { method: 'POST', body: '{"command":["a"]}' });
  expect(clock.pendingTimers).toBe(0);
});

describe('being watched', () => {
  test('healthz and readyz need no key', async () => {
    await using rig = await openHttpRig();
    expect(await (await fetch(`${rig.url}/healthz`)).json()).toEqual({ ok: true, version: '0.0.0-test' });
    expect((await fetch(`${rig.url}/readyz`)).status).toBe(200);
    rig.control.isReady = false;
    const response = await fetch(`${rig.url}/readyz`);
    expect([response.status, await response.json()]).toEqual([
      503,
      { ready: false, reasons: ['Records and nodes are being compared.'] },
    ]);
  });

  test('metrics are text for Prometheus, for admin keys only', async () => {
    await using rig = await openHttpRig();
    rig.control.callers.set('reader', testCaller({ scopes: ['sandboxes:read'] }));
    expect((await fetch(`${rig.url}/metrics`)).status).toBe(401);
    expect((await fetch(`${rig.url}/metrics`, { headers: { 'x-api-key': 'reader' } })).status).toBe(403);
    const response = await rig.request('/metrics');
    expect(response.headers.get('content-type')).toContain('text/plain; version=0.0.4');
    const text = await response.text();
    expect(text).toContain('# TYPE atoll_sandboxes gauge\natoll_sandboxes{state="a \\"quoted\\"\\nline"} 2\n');
    expect(text).toMatch(/atoll_http_requests_total\{route="\/metrics",status="403"\} 1\n/);
    expect(text).toContain('atoll_http_requests_running 1\n');
  });
});

describe('a lease bound to a connection', () => {
  test('is held while the connection lives, and let go when it drops', async () => {
    await using rig = await openHttpRig();
    const leaving = new AbortController();
    const held = await fetch(`${rig.url}/v1/leases/${testId('lease', 'a')}/hold`, { headers, signal: leaving.signal });
    const reader = held.body!.pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader.read()).value).toContain('"holder":"held"');
    leaving.abort();
    await expect.poll(() => rig.control.asked.map(({ method }) => method)).toContain('let go');
  });

  test('that has ended is a status', async () => {
    await using rig = await openHttpRig();
    const response = await rig.request(`/v1/leases/${testId('lease', 'b')}/hold`);
    expect(response.status).toBe(404);
  });
});

describe('the stream of events', () => {
  test('replays after Last-Event-ID, then goes on live, each event with its sequence as id', async () => {
    await using rig = await openHttpRig();
    for (const kind of ['one', 'two', 'three']) rig.control.addEvent(kind);
    const stream = await openStream(rig.url, { 'last-event-id': '1' });

    expect(await stream.next()).toBe('id: 1');
    expect(await stream.next()).toMatch(/^id: 2\ndata: .*"kind":"two"/);
    expect(await stream.next()).toMatch(/^id: 3\n/);
    rig.control.addEvent('four');
    expect(await stream.next()).toMatch(/^id: 4\ndata: .*"kind":"four"/);
    stream.close();
  });

  test('without a place to begin it begins now, and says where that is', async () => {
    await using rig = await openHttpRig();
    rig.control.addEvent('past');
    const stream = await openStream(rig.url);
    expect(await stream.next()).toBe('id: 1');
    rig.control.addEvent('now');
    expect(await stream.next()).toMatch(/^id: 2\n/);
    stream.close();
  });

  test('what is no longer kept is a status, not a broken stream', async () => {
    await using rig = await openHttpRig();
    const response = await rig.request('/v1/events?after=0', { headers: { accept: 'text/event-stream' } });
    expect(await errorOf(response)).toMatchObject({ status: 410, code: 'output_dropped' });
  });

  test('a silent one carries a comment now and then; a server that stops ends it', async () => {
    const clock = new FakeClock();
    const rig = await openHttpRig({ timers: clock, heartbeatMs: 1_000 });
    const stream = await openStream(rig.url);
    expect(await stream.next()).toBe('id: 0');
    clock.step(1_000);
    expect(await stream.next()).toBe(': heartbeat');
    await rig.server.close();
    expect(await stream.next()).toBeUndefined();
    expect(clock.pendingTimers).toBe(0);
  });

  test('a reader that does not read is waited for', async () => {
    await using rig = await openHttpRig();
    let taken = 0;
    const padding = 'x'.repeat(64 * 1024);
    rig.control.events.follow = async function* (_caller, _from, signal) {
      while (!signal.aborted) {
        taken++;
        yield { sequence: taken, kind: padding, sandboxId: null, at: '', data: {} };
      }
    };
    const paused = Promise.withResolvers<void>();
    const asking = get(`${rig.url}/v1/events`, { headers: { ...headers, accept: 'text/event-stream' } }, (response) => {
      response.pause();
      paused.resolve();
    });
    await paused.promise;
    // It stops taking once the buffers between the two are full: the number no longer grows.
    await expect
      .poll(async () => {
        const before = taken;
        await new Promise((resolve) => setImmediate(resolve));
        return taken === before && taken > 1;
      })
      .toBe(true);
    expect(taken * padding.length).toBeLessThan(64 * 1024 * 1024);
    asking.destroy();
  });
});

async function openStream(url: string, more: Record<string, string> = {}) {
  const leaving = new AbortController();
  const response = await fetch(`${url}/v1/events`, {
    headers: { ...headers, accept: 'text/event-stream', ...more },
    signal: leaving.signal,
  });
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  return {
    close: () => leaving.abort(),
    async next(): Promise<string | undefined> {
      while (!rest.includes('\n\n')) {
        const { done, value } = await reader.read();
        if (done) return undefined;
        rest += value;
      }
      const at = rest.indexOf('\n\n');
      const block = rest.slice(0, at);
      rest = rest.slice(at + 2);
      return block;
    },
  };
}
