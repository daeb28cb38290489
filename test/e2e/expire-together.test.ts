/** Many deadlines at one moment: more than are ended at a time, and every end is recorded and told, each once. */
import { afterAll, beforeAll, expect } from 'vitest';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const count = 40;
const patienceMs = 60_000;

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.close());

test('K19: sandboxes that expire at one moment all end as expired, and each end is told once', async () => {
  const { client } = platform;
  const sandboxes = [];
  for (let index = 0; index < count; index++) sandboxes.push(await client.sandboxes.create());
  const kept = await client.sandboxes.create();
  const dueAtMs = Date.now() + 3_000;
  await Promise.all(sandboxes.map((sandbox) => sandbox.extend(Math.max(1, dueAtMs - Date.now()))));

  const stateOf = async () => {
    const { items } = await client.sandboxes.list({ limit: 100 });
    return items.filter(({ id }) => id !== kept.id).map(({ state, reason }) => `${state}: ${reason}`);
  };
  await expect.poll(stateOf, { timeout: patienceMs }).toEqual(Array.from({ length: count }, () => 'stopped: expired'));
  expect((await kept.exec(['true'])).exitCode).toBe(0);
  const { items } = await client.events.list({ limit: 1_000 });
  const told = items.filter(({ kind }) => kind === 'sandbox.stopped').map(({ sandboxId }) => sandboxId);
  expect(told.sort()).toEqual(sandboxes.map(({ id }) => id).sort());
});
