/** A create that a crash cuts off, at every durable step of server and node, and its repeat under the same key. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import {
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

const serverPoints = [
  'after-journal-operation',
  'after-store-creating',
  'after-create-on-node',
  'after-create-on-node>store-before-commit',
  'after-create-on-node>store-after-commit',
  'before-store-answer',
  'after-store-answer',
];
for (const point of serverPoints) {
  test(`K21: a server killed at "${point}" of create: a repeat gives the one sandbox there is`, async () => {
    await platform.restartServer(`${point}=crash`);
    const request = { idempotencyKey: randomUUID(), name: `made-${randomUUID()}`, metadata: { at: 'first' } };
    await interrupted(platform.server, impatient(platform).sandboxes.create(request));
    await platform.startServer();

    const sandbox = await untilAnswered(() => platform.client.sandboxes.create(request));
    const again = await platform.client.sandboxes.create(request);

    expect(again.id).toBe(sandbox.id);
    expect(sandbox.view).toMatchObject({ state: 'running', metadata: { at: 'first' }, metadataVersion: 1 });
    expect((await sandbox.exec(['echo', 'usable'])).stdout).toBe('usable\n');
    await expectOnly(platform, [sandbox.id]);
    const other = platform.client.sandboxes.create({ ...request, metadata: { at: 'second' } });
    await expect(other).rejects.toMatchObject({ code: 'idempotency_key_reused' });
    await sandbox.delete();
  });
}

const nodePoints = [
  'node-before-spawn',
  'node-after-spawn',
  'node-create-before-commit',
  'node-create-before-answer',
] as const;
for (const point of nodePoints) {
  test(`K21: a node killed at "${point}" of create: a repeat gives the one sandbox there is`, async () => {
    await platform.killNode();
    await platform.startNode(`${point}=crash`);
    const request = { idempotencyKey: randomUUID(), name: `made-${randomUUID()}` };
    await untilAnswered(() => impatient(platform).sandboxes.list());
    const cutOff = await interrupted(platform.node!, impatient(platform).sandboxes.create(request));
    expect(cutOff.code).toBe('outcome_unknown');
    await platform.startNode();

    const sandbox = await untilAnswered(() => platform.client.sandboxes.create(request));

    expect((await sandbox.exec(['echo', 'usable'])).stdout).toBe('usable\n');
    await expectOnly(platform, [sandbox.id]);
    await sandbox.delete();
  });
}

test('K17: K21: both killed in the middle of a create: what is half-made can be deleted, and its name is free', async () => {
  await platform.killServer();
  await platform.killNode();
  await platform.startNode('node-after-spawn=crash');
  await platform.startServer();
  await interrupted(platform.node!, impatient(platform).sandboxes.create({ name: 'wanted' }));
  await platform.restartServer();
  const [found] = (await platform.client.sandboxes.list()).items;
  expect(found).toMatchObject({ name: 'wanted', state: 'creating' });
  await platform.startNode();

  const half = await platform.client.sandboxes.connect(found!.id);
  await half.delete();

  await expectOnly(platform, []);
  const sandbox = await untilAnswered(() => platform.client.sandboxes.create({ name: 'wanted' }));
  await sandbox.delete();
});
