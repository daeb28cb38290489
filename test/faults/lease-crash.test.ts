/** Leases while server or node dies: one holder at a time, the same one with the same token afterwards. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { agreed, briskSettings, impatient, interrupted, patience, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const hourMs = 3600 * 1000;

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create()).id;
});
afterAll(() => platform.close());

const sandboxNow = () => platform.client.sandboxes.connect(id);
const asked = (holder: string) => ({ resources: [id], holder, ttlMs: hourMs });

/** The holders of the sandbox as each side names them, once they agree. */
async function heldBy() {
  const leases = await platform.client.leases.list({ resource: id });
  const { view, node } = await agreed(platform, id);
  expect(node.settings.leaseHeld).toBe(view.lease !== null);
  if (view.lease !== null) expect(node.settings.leaseToken).toBe(view.lease.token);
  expect(leases.map(({ holder }) => holder)).toEqual(view.lease === null ? [] : [view.lease.holder]);
  return { holder: view.lease?.holder ?? null, token: node.settings.leaseToken };
}

test('K33: a server killed while a lease is held: the same holder goes on with the same token, and nobody else', async () => {
  const lease = await platform.client.leases.acquire(asked('keeper'));
  const { token } = lease.grants[0]!;
  await platform.restartServer();

  expect(await heldBy()).toEqual({ holder: 'keeper', token });
  const second = platform.client.leases.acquire({ ...asked('thief'), waitMs: 0 });
  await expect(second).rejects.toMatchObject({ code: 'lease_held', details: { holder: 'keeper' } });
  await expect((await sandboxNow()).exec(['true'])).rejects.toMatchObject({ code: 'lease_held' });
  const held = (await sandboxNow()).withLeaseToken(token);
  expect((await held.exec(['echo', 'mine'])).stdout).toBe('mine\n');
  expect((await platform.client.leases.renew(lease.id)).grants).toEqual(lease.grants);

  await Promise.all([platform.killServer(), platform.killNode()]);
  await platform.startNode();
  await platform.startServer();
  expect(await heldBy()).toEqual({ holder: 'keeper', token });
  await platform.client.leases.release(lease.id);
  const next = await platform.client.leases.acquire(asked('next'));
  expect(next.grants[0]!.token).toBe(token + 1);
  await platform.client.leases.release(next.id);
});

test('K27: a term that ended while no server ran is over when one runs again', async () => {
  const lease = await platform.client.leases.acquire({ ...asked('short'), ttlMs: 300 });
  await platform.restartServer();
  const next = await platform.client.leases.acquire({ ...asked('waiter'), waitMs: 30_000 });
  expect(next.grants[0]!.token).toBe(lease.grants[0]!.token + 1);
  await platform.client.leases.release(next.id);
});

for (const point of [
  'after-journal-operation',
  'before-apply-settings',
  'after-apply-settings',
  'after-apply-settings>store-before-commit',
  'after-apply-settings>store-after-commit',
  'before-store-answer',
  'after-store-answer',
]) {
  test(`K22: a server killed at "${point}" of acquire: the repeat has the one lease there is`, async () => {
    await platform.restartServer(`${point}=crash`);
    const request = { ...asked('again'), idempotencyKey: randomUUID() };
    await interrupted(platform.server, impatient(platform).leases.acquire(request));
    await platform.startServer();

    const lease = await untilAnswered(() => platform.client.leases.acquire(request));
    const { token } = lease.grants[0]!;
    expect(await heldBy()).toEqual({ holder: 'again', token });
    expect((await platform.client.leases.acquire(request)).id).toBe(lease.id);
    const held = (await sandboxNow()).withLeaseToken(token);
    expect((await held.exec(['echo', 'mine'])).stdout).toBe('mine\n');
    await platform.client.leases.release(lease.id);
    expect(await heldBy()).toEqual({ holder: null, token });
  });
}

test('K33: a server killed over a release: it is released when that is said again, and does not come back', async () => {
  for (const point of ['before-apply-settings', 'after-apply-settings', 'after-apply-settings>store-after-commit']) {
    const lease = await platform.client.leases.acquire(asked('leaving'));
    await platform.restartServer(`${point}=crash`);
    await interrupted(platform.server, impatient(platform).leases.release(lease.id));
    await platform.startServer();
    await untilAnswered(() => platform.client.leases.release(lease.id));
    const { token } = lease.grants[0]!;
    await vi.waitFor(async () => expect(await heldBy()).toEqual({ holder: null, token }), patience);
    await platform.restartServer();
    expect(await heldBy()).toEqual({ holder: null, token });
    expect((await (await sandboxNow()).exec(['echo', 'free'])).stdout).toBe('free\n');
  }
});

for (const point of ['node-settings-before-commit', 'node-settings-before-answer']) {
  test(`K25: K29: a node killed at "${point}" of acquire: nobody holds it, or the one who asks again`, async () => {
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    await untilAnswered(async () => (await sandboxNow()).exec(['true']));
    // The one whose outcome nobody knows may have to be taken back first.
    const request = { ...asked('again'), waitMs: patience.timeout, idempotencyKey: randomUUID() };
    await interrupted(platform.node!, impatient(platform).leases.acquire(request));
    await platform.startNode();
    const lease = await untilAnswered(() => platform.client.leases.acquire(request));
    const { token } = lease.grants[0]!;
    expect(await heldBy()).toEqual({ holder: 'again', token });
    const held = (await sandboxNow()).withLeaseToken(token);
    expect((await untilAnswered(() => held.exec(['echo', 'mine']))).stdout).toBe('mine\n');
    await platform.client.leases.release(lease.id);
    await vi.waitFor(async () => expect((await heldBy()).holder).toBeNull(), patience);
  });
}
