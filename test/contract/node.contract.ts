/** What every NodeApi keeps, called directly or over HTTP: lives, versions, leases, expiry, restarts. */
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type NodeApi,
  type NodeEvent,
  type NodeSandbox,
  newId,
  type SandboxSettings,
} from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, execOrder, lifeOf, plainSettings, run } from '../support/node-orders.ts';

export function nodeContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  const node = (): NodeApi => harness.node;

  beforeAll(async () => {
    harness = await open();
  });
  afterAll(() => harness?.close());

  const create = (overrides: Parameters<typeof createOrder>[0] = {}): Promise<NodeSandbox> =>
    node().createSandbox(createOrder(overrides));
  const stop = (sandbox: NodeSandbox) => node().stopSandbox({ ...lifeOf(sandbox), graceMs: 100 });
  const settle = (sandbox: NodeSandbox, version: number, settings: Partial<SandboxSettings>) =>
    node().applySettings({ ...lifeOf(sandbox), version, settings: { ...plainSettings, ...settings } });

  /** The end of this sandbox's life, watched from before `cause` runs. */
  async function endOf(sandbox: NodeSandbox, cause: () => Promise<unknown>): Promise<NodeEvent> {
    const stopWatching = new AbortController();
    const events = node().watch(stopWatching.signal)[Symbol.asyncIterator]();
    try {
      expect(await events.next()).toMatchObject({ value: { kind: 'watching' } });
      await cause();
      for (;;) {
        const { value, done } = await events.next();
        if (done) throw new Error('The watch ended.');
        if (value.kind === 'ended' && value.sandboxId === sandbox.mark.sandboxId) return value;
      }
    } finally {
      stopWatching.abort();
      await events.return?.();
    }
  }

  test('describe names the node, and stays the same', async () => {
    const description = await node().describe();
    expect(description.nodeId).toMatch(/^nod[a-z0-9]{20}$/);
    expect(description.templates).toEqual(['host']);
    expect(await node().describe()).toEqual(description);
  });

  test('a created sandbox is a machine of its own: names, processes, users and files', async () => {
    const sandbox = await create();
    const { sandboxId } = sandbox.mark;
    expect(sandbox).toMatchObject({ generation: 1, version: 1, life: { kind: 'running' } });
    expect(await node().findSandbox(sandboxId)).toEqual(sandbox);
    const outcome = await run(
      node(),
      sandbox,
      'id -u; hostname; cat /proc/1/comm; ls -A /home /root; cut -d: -f2 /etc/shadow | sort -u',
    );
    expect(outcome).toMatchObject({ exitCode: 0, stderr: '' });
    expect(outcome.stdout).toContain(`0\n${sandboxId}\n`);
    expect(outcome.stdout.trim().endsWith('*')).toBe(true);
    expect((await run(node(), sandbox, 'touch /usr/bin/new /etc/new && getent hosts "$(hostname)"')).exitCode).toBe(0);
  });

  test('repeating a create returns the same sandbox, also at the same time', async () => {
    const order = createOrder();
    const [a, b] = await Promise.all([node().createSandbox(order), node().createSandbox(order)]);
    expect(a).toEqual(b);
    expect(await node().createSandbox(order)).toEqual(a);
    const other = { ...order, spec: { ...order.spec, env: { OTHER: '1' } } };
    await expect(node().createSandbox(other)).rejects.toMatchObject({ code: 'version_mismatch' });
  });

  test('a create that fails leaves nothing behind', async () => {
    const limits = { memoryBytes: 1, cpuMillis: 1_000, processes: 10 ** 12, diskBytes: null };
    const order = createOrder({ spec: { limits } });
    await expect(node().createSandbox(order)).rejects.toMatchObject({ code: 'isolation_failed' });
    expect(await node().findSandbox(order.sandboxId)).toBeUndefined();
    expect(await readdir(join(harness.dataDirectory, 'making'))).toEqual([]);
    // The same id can be made afterwards.
    const { spec } = createOrder();
    expect((await node().createSandbox({ ...order, spec })).life.kind).toBe('running');
  });

  test('an unknown template and an unknown sandbox are refused by name', async () => {
    await expect(create({ spec: { template: 'nope' } })).rejects.toMatchObject({ code: 'template_not_found' });
    const nobody = { sandboxId: newId('sandbox'), generation: 1 };
    expect(await node().findSandbox(nobody.sandboxId)).toBeUndefined();
    await expect(node().stopSandbox({ ...nobody, graceMs: 0 })).rejects.toMatchObject({ code: 'sandbox_not_found' });
    await expect(node().deleteSandbox(nobody)).resolves.toBeUndefined();
  });

  test('stop ends every process and keeps the files; start goes on with them in a new life', async () => {
    const first = await create();
    await run(node(), first, 'echo kept > /workspace/file; setsid sleep 1000 & true');
    const ended = await stop(first);
    expect(ended.life).toMatchObject({ kind: 'ended', reason: 'requested' });
    expect(await stop(first)).toEqual(ended);
    await expect(run(node(), first, 'true')).rejects.toMatchObject({ code: 'sandbox_wrong_state' });

    const order = { ...lifeOf(first), generation: 2, version: 2, settings: plainSettings };
    const second = await node().startSandbox(order);
    expect(second).toMatchObject({ generation: 2, version: 2, life: { kind: 'running' } });
    expect(await node().startSandbox(order)).toEqual(second);
    expect((await run(node(), second, ['cat', '/workspace/file'])).stdout).toBe('kept\n');
  });

  test('an order for an earlier life is refused and does nothing', async () => {
    const first = await create();
    await stop(first);
    const second = await node().startSandbox({ ...lifeOf(first), generation: 2, version: 2, settings: plainSettings });
    const stale = { code: 'stale_generation' };
    await expect(run(node(), first, 'true')).rejects.toMatchObject(stale);
    await expect(stop(first)).rejects.toMatchObject(stale);
    await expect(node().deleteSandbox(lifeOf(first))).rejects.toMatchObject(stale);
    await expect(settle(first, 3, {})).rejects.toMatchObject(stale);
    await expect(node().findRun({ ...lifeOf(first), runId: 'x' })).rejects.toMatchObject(stale);
    expect((await run(node(), second, ['echo', 'here'])).stdout).toBe('here\n');
  });

  test('a life is begun once: starting an ended generation again, or a running sandbox, is refused', async () => {
    const first = await create();
    const next = { ...lifeOf(first), generation: 2, version: 2, settings: plainSettings };
    await expect(node().startSandbox(next)).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    await stop(first);
    const again = { ...next, generation: 1 };
    await expect(node().startSandbox(again)).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    // A stop of a life that has not begun keeps it from beginning.
    await node().stopSandbox({ ...lifeOf(first), generation: 2, graceMs: 0 });
    await expect(node().startSandbox(next)).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    expect((await node().startSandbox({ ...next, generation: 3 })).generation).toBe(3);
  });

  test('delete removes it with its files, running or not, and may be repeated', async () => {
    const sandbox = await create();
    await run(node(), sandbox, 'mkdir -p /workspace/a/b/c; touch /workspace/a/b/c/d; sleep 1000 & true');
    await node().deleteSandbox(lifeOf(sandbox));
    expect(await node().findSandbox(sandbox.mark.sandboxId)).toBeUndefined();
    expect(await readdir(join(harness.dataDirectory, 'sandboxes'))).not.toContain(sandbox.mark.sandboxId);
    expect(await readdir(join(harness.dataDirectory, 'trash'))).toEqual([]);
    await node().deleteSandbox(lifeOf(sandbox));
  });

  test('settings are seen inside before the answer, and only newer ones are taken', async () => {
    const sandbox = await create({ settings: { metadata: { a: '1' }, metadataVersion: 1 } });
    const read = async () => JSON.parse((await run(node(), sandbox, ['cat', '/run/atoll/metadata.json'])).stdout);
    expect(await read()).toEqual({ version: 1, metadata: { a: '1' } });
    const applied = await settle(sandbox, 5, { metadata: { a: '2', b: '3' }, metadataVersion: 2 });
    expect(applied.version).toBe(5);
    expect(await read()).toEqual({ version: 2, metadata: { a: '2', b: '3' } });
    expect(await settle(sandbox, 5, { metadata: { a: '2', b: '3' }, metadataVersion: 2 })).toEqual(applied);
    const refusal = { code: 'version_mismatch', details: { generation: 1, version: 5 } };
    await expect(settle(sandbox, 5, { metadata: {} })).rejects.toMatchObject(refusal);
    await expect(settle(sandbox, 4, {})).rejects.toMatchObject(refusal);
    expect((await run(node(), sandbox, 'echo x > /run/atoll/metadata.json')).exitCode).not.toBe(0);
    await stop(sandbox);
    const late = settle(sandbox, 6, { metadata: { c: '4' } });
    await expect(late).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  });

  test('orders for one sandbox run one at a time, in the order they came', async () => {
    const sandbox = await create();
    const versions = Array.from({ length: 20 }, (_, index) => index + 2);
    const answers = await Promise.allSettled(
      versions.map((version) => settle(sandbox, version, { metadata: { n: `${version}` } })),
    );
    const last = (await node().findSandbox(sandbox.mark.sandboxId))!;
    // Over HTTP they may arrive in another order; whoever came too late was told so, and the newest stands.
    expect(last).toMatchObject({ version: 21, settings: { metadata: { n: '21' } } });
    for (const answer of answers) {
      if (answer.status === 'rejected') expect(answer.reason).toMatchObject({ code: 'version_mismatch' });
    }
  });

  test('while a lease is held, only its token may act', async () => {
    const sandbox = await create();
    await settle(sandbox, 2, { leaseToken: 7, leaseHeld: true });
    const held = { code: 'lease_held' };
    const lost = { code: 'lease_lost' };
    await expect(run(node(), sandbox, 'true')).rejects.toMatchObject(held);
    await expect(run(node(), sandbox, 'true', { leaseToken: 6 })).rejects.toMatchObject(lost);
    expect((await run(node(), sandbox, 'true', { leaseToken: 7 })).exitCode).toBe(0);
    await settle(sandbox, 3, { leaseToken: 8, leaseHeld: true });
    await expect(run(node(), sandbox, 'true', { leaseToken: 7 })).rejects.toMatchObject(lost);
    await settle(sandbox, 4, { leaseToken: 8, leaseHeld: false });
    expect((await run(node(), sandbox, 'true')).exitCode).toBe(0);
    await expect(settle(sandbox, 5, { leaseToken: 7 })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test('a sandbox ends by itself at its expiry, and a later expiry moves it', async () => {
    const sandbox = await create({ settings: { expiresAtMs: Date.now() + 600_000 } });
    const end = await endOf(sandbox, () => settle(sandbox, 2, { expiresAtMs: Date.now() + 200 }));
    expect(end).toMatchObject({ kind: 'ended', generation: 1, reason: 'expired' });
    const found = await node().findSandbox(sandbox.mark.sandboxId);
    expect(found?.life).toMatchObject({ kind: 'ended', reason: 'expired' });

    const extended = await create({ settings: { expiresAtMs: Date.now() + 60_000 } });
    await settle(extended, 2, { expiresAtMs: null });
    expect((await node().findSandbox(extended.mark.sandboxId))?.life.kind).toBe('running');
  });

  test('every end is an event: of a stop and of a delete', async () => {
    const a = await create();
    expect(await endOf(a, () => stop(a))).toMatchObject({ reason: 'requested', generation: 1 });
    const b = await create();
    expect(await endOf(b, () => node().deleteSandbox(lifeOf(b)))).toMatchObject({ reason: 'requested' });
  });

  test('a command that runs when its sandbox is stopped has an end or an unknown one, and is never left waiting', async () => {
    const sandbox = await create();
    const running = run(node(), sandbox, 'touch /tmp/begun; sleep 1000').then(
      (outcome) => outcome.killed,
      (error: { code: string }) => error.code,
    );
    await run(node(), sandbox, 'until test -e /tmp/begun; do sleep 0.02; done');
    await stop(sandbox);
    expect([true, 'outcome_unknown']).toContain(await running);
  });

  test('sandboxes and their processes outlive the node, and are found again', async () => {
    const alive = await create({ settings: { leaseToken: 3, leaseHeld: true, expiresAtMs: Date.now() + 600_000 } });
    const stopped = await create();
    const expired = await create({ settings: { expiresAtMs: Date.now() + 600_000 } });
    await stop(stopped);
    const withLease = { leaseToken: 3 };
    await run(node(), alive, 'setsid sleep 4321 > /dev/null 2>&1 & echo $! > /tmp/pid', withLease);
    const before = (await node().findSandbox(alive.mark.sandboxId))!;
    await settle(expired, 2, { expiresAtMs: Date.now() + 1 });

    await harness.restart();

    expect(await node().findSandbox(alive.mark.sandboxId)).toEqual(before);
    const outcome = await run(node(), alive, 'cat /proc/$(cat /tmp/pid)/comm', withLease);
    expect(outcome.stdout).toBe('sleep\n');
    await expect(run(node(), alive, 'true')).rejects.toMatchObject({ code: 'lease_held' });
    expect((await node().findSandbox(stopped.mark.sandboxId))?.life).toMatchObject({ reason: 'requested' });
    const again = await node().startSandbox({ ...lifeOf(stopped), generation: 2, version: 2, settings: plainSettings });
    expect((await run(node(), again, 'true')).exitCode).toBe(0);
    const find = async () => (await node().findSandbox(expired.mark.sandboxId))?.life;
    await expect.poll(find, { timeout: 30_000 }).toMatchObject({ kind: 'ended', reason: 'expired' });
  });

  test('a directory without a readable record is listed and never touched', async () => {
    const directory = join(harness.dataDirectory, 'sandboxes', newId('sandbox'));
    await harness.restart(async () => {
      await mkdir(directory);
      await writeFile(join(directory, 'record.json'), '{"format":1');
    });
    const { quarantined } = await node().inventory();
    expect(quarantined).toEqual([{ directory, why: expect.any(String) }]);
    expect(await readdir(directory)).toEqual(['record.json']);
  });

  test('what was half-made or half-deleted is gone after a restart', async () => {
    const sandboxId = newId('sandbox');
    await harness.restart(async () => {
      await mkdir(join(harness.dataDirectory, 'making', sandboxId, 'upper'), { recursive: true });
      await mkdir(join(harness.dataDirectory, 'trash', `${sandboxId}-1`, 'upper'), { recursive: true });
    });
    const left = async () => [
      ...(await readdir(join(harness.dataDirectory, 'making'))),
      ...(await readdir(join(harness.dataDirectory, 'trash'))),
    ];
    await expect.poll(left, { timeout: 30_000 }).toEqual([]);
  });

  test('a run goes on when the node is restarted, and its end is known afterwards', async () => {
    const sandbox = await create();
    const command = 'touch /tmp/begun; until test -e /tmp/go; do sleep 0.02; done; exit 11';
    const order = execOrder(sandbox, { command });
    const first = node()
      .exec(order)
      .catch((error: { code: string }) => error.code);
    await run(node(), sandbox, 'until test -e /tmp/begun; do sleep 0.02; done');
    await harness.restart();
    const query = { ...lifeOf(sandbox), runId: order.runId };
    expect(await node().findRun(query)).toMatchObject({ kind: 'running' });
    await run(node(), sandbox, 'touch /tmp/go');
    await expect
      .poll(() => node().findRun(query), { timeout: 30_000 })
      .toMatchObject({ kind: 'ended', exitCode: 11, killed: false });
    // The caller's connection ended with the process; a direct caller is still there and gets its outcome.
    expect(['outcome_unknown', expect.objectContaining({ exitCode: 11 })]).toContainEqual(await first);
  });
}
