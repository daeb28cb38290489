/** `atoll exec` in a checkout, without files being synced: resolution, lease, process, signals, output. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
/** Every command line is a process of its own, which takes seconds on a busy machine. */
const manyCommands = { timeout: 180_000 };
const within = { timeout: 30_000, interval: 50 };

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

const sandboxes = async (metadata?: Record<string, string>) =>
  (await platform.client.sandboxes.list(metadata ? { metadata } : {})).items;
const exec = (...words: string[]) => ['exec', '--no-sync', ...words];

test(
  'P0a, P26, P27, P31, P134, P135: one sandbox for all directories of a checkout, arguments and exit code as they are',
  async () => {
    const root = await rig.repository('one', { 'a.txt': 'a', 'deep/b.txt': 'b' });
    const first = await rig.run(root, exec('--', 'printf', '%s|', 'two words', '$HOME', "it's", ''));
    expect(first).toMatchObject({ code: 0, stdout: "two words|$HOME|it's||" });
    const deeper = await rig.run(join(root, 'deep'), exec('-c', 'exit 7'));
    expect(deeper.code).toBe(7);
    const made = (await sandboxes()).filter(({ name }) => name?.startsWith('checkout-'));
    expect(made).toHaveLength(1);
    const info = await rig.json<{ id: string }>(root, ['info']);
    expect(info.id).toBe(made[0]!.id);
  },
  manyCommands,
);
