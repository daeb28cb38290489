/** Watching files of a real sandbox. */
import { afterAll, beforeAll, expect } from 'vitest';
import type { FileChange, FileWatch, Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start({ node: 'process' });
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

/** Collects until an event satisfies `isLast`, which it must sooner or later. */
async function until(watch: FileWatch, isLast: (event: FileChange) => boolean): Promise<FileChange[]> {
  const seen: FileChange[] = [];
  for await (const event of watch) {
    seen.push(event);
    if (isLast(event)) return seen;
  }
  throw new Error(`The watch ended after ${JSON.stringify(seen)}`);
}

const isAbout = (path: string) => (event: FileChange) => 'path' in event && event.path === path;

test('E123: a watch answers when it is armed, so nothing after it is missed', async () => {
  await sandbox.exec('mkdir -p /tmp/w1');
  for (let round = 0; round < 20; round++) {
    const watch = await sandbox.files.watch('/tmp/w1');
    const path = `/tmp/w1/f${round}`;
    await sandbox.exec(['touch', path]);
    expect((await until(watch, isAbout(path)))[0]).toEqual({ kind: 'created', path });
  }
});

test('E123: created, modified, deleted and moved are told apart', async () => {
  await sandbox.exec('mkdir -p /tmp/w2 /tmp/elsewhere; echo a > /tmp/w2/there; echo b > /tmp/elsewhere/in');
  const watch = await sandbox.files.watch('/tmp/w2');
  await sandbox.exec(
    'cd /tmp/w2; echo more >> there; mv there renamed; rm renamed; mv /tmp/elsewhere/in in; mv in /tmp/elsewhere/out; mkdir end',
  );
  const events = await until(watch, isAbout('/tmp/w2/end'));
  const at = (event: FileChange) => JSON.stringify(event);
  const texts = events.map(at);
  expect(texts).toContain(at({ kind: 'modified', path: '/tmp/w2/there' }));
  expect(texts).toContain(at({ kind: 'moved', path: '/tmp/w2/renamed', from: '/tmp/w2/there' }));
  expect(texts).toContain(at({ kind: 'deleted', path: '/tmp/w2/renamed' }));
  expect(texts).toContain(at({ kind: 'created', path: '/tmp/w2/in' }));
  expect(texts).toContain(at({ kind: 'deleted', path: '/tmp/w2/in' }));
});

test('E123: a recursive watch sees directories that are made later', async () => {
  await sandbox.exec('mkdir -p /tmp/w3/a');
  const watch = await sandbox.files.watch('/tmp/w3', { recursive: true });
  await sandbox.exec('mkdir -p /tmp/w3/b/c');
  await until(watch, isAbout('/tmp/w3/b'));
  const again = await sandbox.files.watch('/tmp/w3', { recursive: true });
  await sandbox.exec('touch /tmp/w3/a/old /tmp/w3/b/c/new');
  const events = await until(again, isAbout('/tmp/w3/b/c/new'));
  expect(events).toContainEqual({ kind: 'created', path: '/tmp/w3/a/old' });
});

test('E123: include and exclude choose by glob', async () => {
  await sandbox.exec('mkdir -p /tmp/w4/src /tmp/w4/node_modules');
  const watch = await sandbox.files.watch('/tmp/w4', {
    recursive: true,
    include: ['*.ts', 'end'],
    exclude: ['node_modules'],
  });
  await sandbox.exec('cd /tmp/w4; touch node_modules/a.ts src/b.js src/c.ts end');
  const paths = (await until(watch, isAbout('/tmp/w4/end'))).flatMap((event) => ('path' in event ? [event.path] : []));
  expect(new Set(paths)).toEqual(new Set(['/tmp/w4/src/c.ts', '/tmp/w4/end']));
});

test(
  'E123: events that were lost are reported',
  async () => {
    await sandbox.exec('mkdir -p /tmp/w5');
    const watch = await sandbox.files.watch('/tmp/w5');
    // Nobody reads meanwhile: more than the kernel, the connections and everybody on the way hold.
    const program =
      "import os\nfor i in range(150000):\n  n = '/tmp/w5/%d-' % i + 'n' * 200\n  os.close(os.open(n, os.O_CREAT))\n  os.unlink(n)\nopen('/tmp/w5/end', 'w')";
    expect(await sandbox.exec(['python3', '-c', program])).toMatchObject({ exitCode: 0, stderr: '' });
    const events = await until(watch, (event) => event.kind === 'overflow' || isAbout('/tmp/w5/end')(event));
    expect(events.at(-1)).toEqual({ kind: 'overflow' });
  },
  { timeout: 300_000 },
);

test('E123: E133: a watch ends with its signal, and its worker with it', async () => {
  const own = await platform.client.sandboxes.create();
  // By the shell alone: a program more, started for the counting, may or may not be counted.
  const count = async () => Number((await own.exec('set -- /proc/[0-9]*; echo $#')).stdout);
  await own.exec('true');
  const before = await count();
  const stop = new AbortController();
  const watches = await Promise.all(Array.from({ length: 5 }, () => own.files.watch('/tmp', { signal: stop.signal })));
  expect(await count()).toBe(before + 5);
  const ended = watches.map(async (watch) => {
    for await (const _ of watch);
  });
  stop.abort();
  await Promise.all(ended);
  await expect.poll(count, { timeout: 20_000 }).toBe(before);
  await own.delete();
});

test('a watch of what is not there is refused, and one of a sandbox that stops ends with an error', async () => {
  await expect(sandbox.files.watch('/tmp/none')).rejects.toMatchObject({ code: 'file_not_found' });
  const own = await platform.client.sandboxes.create();
  const watch = await own.files.watch('/tmp');
  const read = until(watch, () => false);
  const lost = expect(read).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await own.stop();
  await lost;
  await own.delete();
});

test('files work over the wire to a node in another process', async () => {
  const bytes = Buffer.alloc(40 * 1024 * 1024, 'q');
  await sandbox.files.write('/tmp/far', bytes);
  expect((await sandbox.files.read('/tmp/far')).byteLength).toBe(bytes.byteLength);
  await expect(sandbox.files.read('/tmp/nowhere')).rejects.toMatchObject({ code: 'file_not_found' });
  await expect(sandbox.files.write('/tmp', bytes)).rejects.toMatchObject({ code: 'is_a_directory' });
});
