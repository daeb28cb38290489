import { afterAll, beforeAll, expect } from 'vitest';
import { briskSettings, expectOnly, removeSandboxes, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
});
afterAll(() => platform.close());

const callers = Array.from({ length: 50 }, (_, index) => index);

test('K23: 50 callers of one name at once get one sandbox', async () => {
  const boxes = await Promise.all(callers.map(() => platform.client.sandboxes.getOrCreate({ name: 'shared' })));
  expect(new Set(boxes.map(({ id }) => id)).size).toBe(1);
  await expectOnly(platform, [boxes[0]!.id]);
  await removeSandboxes(platform);
});

test('K23: 50 callers of one name get one sandbox, though the server is killed over it and they ask again', async () => {
  await platform.restartServer('after-create-on-node=crash');
  const ask = () => platform.client.sandboxes.getOrCreate({ name: 'shared' });
  // Each reads `platform.client` anew: the next server has another address.
  const asking = callers.map(() => untilAnswered(ask));
  await platform.server.died;
  await platform.startServer();
  const boxes = await Promise.all(asking);
  expect(new Set(boxes.map(({ id }) => id)).size).toBe(1);
  await expectOnly(platform, [boxes[0]!.id]);
  expect((await boxes[0]!.exec(['echo', 'usable'])).stdout).toBe('usable\n');
});
