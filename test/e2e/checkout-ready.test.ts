/** How a caller waits for the sandbox of its checkout: to be ready, and to have stopped. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { metadataKeys, newClientState } from '../../src/checkout/client-state.ts';
import { ensureReady, runCycle, stopSandbox } from '../../src/checkout/index.ts';
import type { ClientClock } from '../../src/sdk/index.ts';
import { type CallerOptions, CheckoutCaller } from '../support/checkout-caller.ts';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { steppedClock } from '../support/stepped-clock.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const manyCalls = { timeout: 120_000 };
const setup = { 'atoll.yml': 'setup: [sleep 1]\n' };

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

/** Time that does not pass: a wait ends by its signal only. */
const stillClock: ClientClock = {
  nowMs: () => 0,
  wait: (_, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) resolve();
      signal?.addEventListener('abort', () => resolve(), { once: true });
    }),
};

const lend = (sandboxId: string) =>
  platform.client.leases.acquire({ resources: [sandboxId], holder: 'ana', reason: 'npm test', ttlMs: 60_000 });

/** The caller on a sandbox whose set-up somebody else is at, as far as its record tells. */
async function beingSetUp(name: string, options: CallerOptions) {
  const caller = await callerAt(await rig.repository(name, setup), options);
  const metadata = newClientState(caller.found.identity, { machineId: 'm', definition: 'd' });
  const made = await platform.client.sandboxes.create({ metadata });
  const lease = await lend(made.id);
  const holder = made.withLeaseToken(lease.grants[0]!.token);
  const sandbox = await caller.client.sandboxes.connect(made.id);
  caller.requests.length = 0;
  const told: string[] = [];
  const waits = Promise.withResolvers<void>();
  const ready = (timeoutMs = 60_000) =>
    ensureReady(caller.client, sandbox, {
      timeoutMs,
      setupHash: caller.definition.setupHash,
      onStart: () => told.push('started'),
      onWait: (what) => {
        told.push(what);
        waits.resolve();
      },
    });
  const patch = (key: 'setup' | 'failure', value: string) => holder.patchMetadata({ [metadataKeys[key]]: value });
  return { caller, sandbox, told, waits: waits.promise, ready, patch, lease };
}

test(
  'P53: what is ready is not waited for and not even asked',
  async () => {
    const { clock, waits } = steppedClock();
    const caller = await callerAt(await rig.repository('ready', setup), { clock });
    const made = await platform.client.sandboxes.create();
    const sandbox = await caller.client.sandboxes.connect(made.id);
    caller.requests.length = 0;
    const told: string[] = [];
    const options = { timeoutMs: 0, onStart: () => told.push('started'), onWait: (what: string) => told.push(what) };
    expect(await ensureReady(caller.client, sandbox, { ...options, setupHash: 'x' })).toBe(sandbox);
    expect([caller.whats(), waits, told]).toEqual([[], [], []]);
    // The same steps meet a sandbox that is not ready: it is asked.
    await made.stop();
    await sandbox.refresh();
    const woken = await ensureReady(caller.client, sandbox, { ...options, timeoutMs: 60_000 });
    expect([woken.state, told]).toEqual(['running', ['started']]);
    await woken.pause();
    expect((await ensureReady(caller.client, woken, { ...options, timeoutMs: 60_000 })).state).toBe('running');
  },
  manyCalls,
);

test(
  'P54: who waits is woken by what happens and by nothing else; where that is not told, pauses grow up to the limit',
  async () => {
    const listening = await beingSetUp('listening', { clock: stillClock });
    const waiting = listening.ready();
    await listening.waits;
    await listening.patch('setup', listening.caller.definition.setupHash);
    expect((await waiting).state).toBe('running');
    expect(listening.told).toEqual(['it is being set up by ana: npm test']);
    // One look for what happened before it listened, and one for each thing that happened.
    const looks = listening.caller.whats().filter((what) => what === `GET /v1/sandboxes/${listening.sandbox.id}`);
    expect(looks.length).toBeLessThanOrEqual(3);

    const { clock, waits } = steppedClock();
    const body = { error: { code: 'forbidden', message: 'no', details: {}, requestId: 'req' } };
    const deaf = await beingSetUp('deaf', {
      clock,
      between: async (request, send) =>
        request.what === 'GET /v1/events' ? new Response(JSON.stringify(body), { status: 403 }) : await send(),
    });
    await expect(deaf.ready(5_000)).rejects.toMatchObject({
      code: 'wait_timeout',
      message: expect.stringContaining('being set up by ana'),
    });
    expect(waits.slice(0, 6)).toEqual([50, 100, 200, 400, 800, 1_000]);
    expect(waits.reduce((sum, ms) => sum + ms)).toBe(5_000);
    await platform.client.leases.release(deaf.lease.id);
    expect((await deaf.ready()).state).toBe('running');
  },
  manyCalls,
);

test(
  'P56: a failure that is recorded ends the wait at once, with the reason and the end of what the step said',
  async () => {
    const { ready, waits, patch } = await beingSetUp('failing', { clock: stillClock });
    const waiting = ready();
    await waits;
    const failure = { reason: 'failed', step: 'npm ci', exitCode: 7, tail: 'no such package\n' };
    await Promise.all([
      patch('failure', JSON.stringify(failure)),
      expect(waiting).rejects.toMatchObject({
        code: 'setup_failed',
        message: 'The sandbox cannot be used: its set-up step "npm ci" ended with 7.\nno such package',
        details: failure,
      }),
    ]);
  },
  manyCalls,
);

test(
  'P55: a step that fails, one that takes too long and one that is cancelled are told apart, to whoever comes later too',
  async () => {
    const told: string[] = [];
    const root = await rig.repository('reasons');
    const define = (text: string) => writeFileSync(join(root, 'atoll.yml'), text);
    const attempt = async (text: string) => {
      define(text);
      const caller = await callerAt(root);
      const givenUp = new AbortController();
      const cycle = await caller.cycle({
        signal: givenUp.signal,
        onSetUpOutput: (bytes) => {
          if (Buffer.from(bytes).toString().includes('begun')) givenUp.abort();
        },
      });
      await runCycle(cycle, { run: async () => {}, mayPull: () => false }).catch(() => {});
      const next = await callerAt(root);
      await next.resolver.find();
      told.push(...next.said.map((text) => text.replace(/sbx\w+/, 'ID')));
    };
    await attempt('setup: [exit 3]\n');
    await attempt('setup: [sleep 600]\nsetupTimeout: 300ms\n');
    await attempt('setup: ["echo begun; sleep 600"]\n');
    expect(told).toEqual([
      'The sandbox ID is not used again: its set-up step "exit 3" ended with 3.',
      'The sandbox ID is not used again: its set-up took too long at "sleep 600".',
      'The sandbox ID is not used again: its set-up was cancelled at "echo begun; sleep 600".',
    ]);
  },
  manyCalls,
);

test(
  'P146: stop goes on until it is confirmed: past lost answers with growing pauses, not when it has stopped, not past a refusal or the limit',
  async () => {
    const { clock, waits } = steppedClock();
    let lost = 0;
    const caller = await callerAt(await rig.repository('stops'), {
      clock,
      retries: 0,
      between: async (request, send) => {
        if (lost === 0 || request.what.startsWith('GET /v1/events')) return await send();
        lost--;
        throw new TypeError('fetch failed');
      },
    });
    const made = await platform.client.sandboxes.create();
    const connect = () => caller.client.sandboxes.connect(made.id);
    let sandbox = await connect();
    caller.requests.length = 0;
    // Two stops and two looks do not get through.
    lost = 4;
    expect((await stopSandbox(caller.client, sandbox, { timeoutMs: 60_000 })).state).toBe('stopped');
    expect(waits).toEqual([50, 100, 200, 400]);
    expect((await made.refresh()).state).toBe('stopped');
    waits.length = 0;
    caller.requests.length = 0;
    await stopSandbox(caller.client, sandbox, { timeoutMs: 60_000 });
    expect([caller.whats(), waits]).toEqual([[`POST /v1/sandboxes/${made.id}/stop`], []]);

    await (await platform.client.sandboxes.connect(made.id)).start();
    sandbox = await connect();
    lost = 1_000;
    await expect(stopSandbox(caller.client, sandbox, { timeoutMs: 2_000 })).rejects.toMatchObject({
      code: 'server_unreachable',
    });
    expect(waits.reduce((sum, ms) => sum + ms)).toBe(2_000);
    lost = 0;
    waits.length = 0;
    const lease = await lend(made.id);
    await expect(stopSandbox(caller.client, sandbox, { timeoutMs: 60_000 })).rejects.toMatchObject({
      code: 'lease_held',
    });
    expect(waits).toEqual([]);
    await platform.client.leases.release(lease.id);
  },
  manyCalls,
);
