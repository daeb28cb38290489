/** The whole way of a change: from a person's repositories into workspaces and sandboxes, committed as a plan, and back into those repositories. */
import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { removeSandboxes } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let rig: CheckoutRig;
beforeAll(async () => {
  platform = await Platform.start();
  rig = await CheckoutRig.open(platform);
});
afterEach(() => removeSandboxes(platform));
afterAll(async () => {
  await rig.close();
  await platform.close();
});

async function say(cwd: string, ...words: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await rig.run(cwd, words);
  expect([code, stderr], words.join(' ')).toEqual([0, '']);
  return stdout;
}

test('C22: C64: what two sandboxes changed is committed and comes back into the repositories it came from, all or nothing', async () => {
  const lines = Array.from({ length: 50 }, (_, line) => `${line}\n`).join('');
  const one = await rig.repository('one', { 'list.txt': lines, 'other.txt': 'x\n' });
  const two = await rig.repository('two');
  await say(one, 'workspace', 'create', 'ws-one', '.');
  await say(two, 'workspace', 'create', 'ws-two', '.');
  const box = (await say(one, 'create', '--workspace', 'ws-one', '--workspace', 'ws-two')).trim();
  const other = (await say(one, 'create', '--workspace', 'ws-one:/src')).trim();
  await say(
    one,
    'exec',
    box,
    '--',
    'sh',
    '-c',
    'cd /workspace && sed -i 1s/.*/FIRST/ ws-one/list.txt && echo new > ws-two/b.txt',
  );
  await say(one, 'exec', other, '--', 'sh', '-c', 'cd /src && sed -i 50s/.*/LAST/ list.txt && ln -s list.txt link');
  await say(one, 'plan', 'create', 'both', box, other);
  await say(one, 'plan', 'commit', 'both', '-m', 'Both parts');

  // Where they go is known from where they came from. An edit in the way holds everything back.
  const heads = () => [one, two].map((root) => rig.git(root, 'rev-parse', 'HEAD'));
  const before = heads();
  await appendFile(join(one, 'list.txt'), 'mine\n');
  await appendFile(join(two, 'a.txt'), 'mine\n');
  expect(await rig.run(one, ['plan', 'apply', 'both'])).toMatchObject({
    code: 2,
    stdout: expect.stringContaining('list.txt (edited)'),
  });
  expect(heads()).toEqual(before);
  expect(rig.git(two, 'status', '--short')).toBe('M a.txt');

  // One that is not in the way stays.
  rig.git(one, 'checkout', '-q', 'list.txt');
  await say(one, 'plan', 'apply', 'both');
  const text = await readFile(join(one, 'list.txt'), 'utf8');
  expect([text.startsWith('FIRST\n1\n'), text.endsWith('\n48\nLAST\n')]).toEqual([true, true]);
  expect(rig.git(one, 'status', '--short')).toBe('');
  expect(await readFile(join(two, 'b.txt'), 'utf8')).toBe('new\n');
  expect(rig.git(two, 'status', '--short')).toBe('M a.txt');
  expect([one, two].map((root) => rig.git(root, 'log', '-1', '--format=%s'))).toEqual(['Both parts', 'Both parts']);

  await say(one, 'plan', 'apply', 'both');
  await say(one, 'undo');
  expect(heads()).toEqual(before);
  expect(rig.git(one, 'status', '--short')).toBe('');
  expect(rig.git(two, 'status', '--short')).toBe('M a.txt');
  expect(await rig.run(one, ['undo'])).toMatchObject({ code: 66 });
});
