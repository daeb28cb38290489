/** stop, start and delete, cut off by a crash at every durable step of server and node, and their repeats under the same key. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import type { CallOptions } from '../../src/sdk/connection.ts';
import { Sandbox } from '../../src/sdk/index.ts';
import {
  agreed,
  briskSettings,
  expectOnly,
  impatient,
  interrupted,
  removeSandboxes,
  untilAnswered,
} from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

const changes = {
  stop: {
    points: ['after-journal-operation', 'after-store-stopping', 'after-stop-on-node', 'before-store-answer'],
    nodePoints: ['node-end-before-record', 'node-end-after-record'],
    change: (sandbox: Sandbox, options: CallOptions) => sandbox.stop({ graceMs: 0, ...options }),
    end: { state: 'stopped', reason: 'requested', generation: 1 },
  },
  start: {
    points: ['after-journal-operation', 'after-store-starting', 'after-start-on-node', 'before-store-answer'],
    nodePoints: ['node-before-spawn', 'node-after-spawn', 'node-start-before-answer'],
    change: (sandbox: Sandbox, options: CallOptions) => sandbox.start(options),
    end: { state: 'running', reason: null, generation: 2 },
  },
} as const;

/** A sandbox from which the change leads on, with a file that must survive it. */
async function prepare(kind: 'stop' | 'start'): Promise<string> {
  const sandbox = await platform.client.sandboxes.create({ metadata: { kept: 'yes' } });
  await sandbox.exec('echo kept > /root/file');
  if (kind === 'start') await sandbox.stop({ graceMs: 0 });
  return sandbox.id;
}

async function checkEnd(id: string, kind: 'stop' | 'start'): Promise<void> {
  const { view } = await agreed(platform, id);
  expect(view).toMatchObject({ ...changes[kind].end, metadata: { kept: 'yes' } });
  const sandbox = await platform.client.sandboxes.connect(id);
  if (kind === 'stop') await sandbox.start();
  expect((await sandbox.exec('cat /root/file')).stdout).toBe('kept\n');
  await sandbox.delete();
  await expectOnly(platform, []);
}

for (const kind of ['stop', 'start'] as const) {
  const { points, nodePoints, change } = changes[kind];
  for (const point of points) {
    test(`K22: a server killed at "${point}" of ${kind}: the repeat is answered as if it had been one`, async () => {
      const id = await prepare(kind);
      await platform.restartServer(`${point}=crash`);
      const key = randomUUID();
      const handle = await impatient(platform).sandboxes.connect(id);
      const { generation } = handle;
      await interrupted(platform.server, change(handle, { idempotencyKey: key }));
      await platform.startServer();

      const again = await platform.client.sandboxes.connect(id);
      const once = await untilAnswered(() => change(again, { idempotencyKey: key, generation }));
      expect(once.view).toMatchObject(changes[kind].end);
      const twice = await change(again, { idempotencyKey: key, generation });
      expect(twice.view.generation).toBe(once.view.generation);
      await checkEnd(id, kind);
    });
  }
  for (const point of nodePoints) {
    test(`K22: a node killed at "${point}" of ${kind}: the repeat is answered as if it had been one`, async () => {
      const id = await prepare(kind);
      await platform.killNode();
      await platform.startNode(`${point}=crash`);
      const key = randomUUID();
      const handle = await impatient(platform).sandboxes.connect(id);
      const { generation } = handle;
      expect(await interrupted(platform.node!, change(handle, { idempotencyKey: key }))).toEqual({
        code: 'outcome_unknown',
      });
      await platform.startNode();

      const again = await platform.client.sandboxes.connect(id);
      const once = await untilAnswered(() => change(again, { idempotencyKey: key, generation }));
      expect(once.view).toMatchObject(changes[kind].end);
      await checkEnd(id, kind);
    });
  }
}

for (const point of [
  'after-journal-operation',
  'after-store-deleting',
  'after-delete-on-node',
  'before-store-answer',
]) {
  test(`K22: a server killed at "${point}" of delete: the repeat succeeds, and nothing is left`, async () => {
    const { id } = await platform.client.sandboxes.create();
    await platform.restartServer(`${point}=crash`);
    const key = randomUUID();
    const handle = await impatient(platform).sandboxes.connect(id);
    await interrupted(platform.server, handle.delete({ idempotencyKey: key }));
    await platform.startServer();

    const again = new Sandbox(platform.client.connection, handle.view);
    await untilAnswered(() => again.delete({ idempotencyKey: key }));
    await again.delete({ idempotencyKey: key });
    await expectOnly(platform, []);
  });
}

for (const point of ['node-delete-before-trash', 'node-delete-after-trash']) {
  test(`K17: K22: a node killed at "${point}" of delete: it is deleted all the same, and nothing is left`, async () => {
    const sandbox = await platform.client.sandboxes.create();
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    await Promise.all([sandbox.delete({ idempotencyKey: randomUUID() }), platform.node!.died]);
    await platform.startNode();
    await expectOnly(platform, []);
  });
}
