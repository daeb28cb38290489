/** The whole cycle with files: what is sent, what comes back, what is told when one of both fails. */
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const manyCommands = { timeout: 240_000 };
const within = { timeout: 60_000, interval: 50 };

let platform: Platform;
let rig: CheckoutRig;
let root: string;

beforeAll(async () => {
  platform = await Platform.start();
  rig = await CheckoutRig.open(platform);
  root = await rig.repository('cycle', { 'a.txt': 'one\n', 'b.txt': 'b\n' });
});
afterAll(async () => {
  await rig.close();
  await platform.close();
});

const exec = (...words: string[]) => rig.run(root, ['exec', ...words]);
const local = (path: string) => readFile(join(root, path), 'utf8');

test(
  'P118, P79, P141: changes go in and come back, also when the command fails or takes too long',
  async () => {
    await writeFile(join(root, 'new.txt'), 'untracked\n');
    const failed = await exec('-c', 'cat new.txt; echo two >> a.txt; exit 6');
    expect(failed).toMatchObject({ code: 6, stdout: 'untracked\n' });
    expect(await local('a.txt')).toBe('one\ntwo\n');
    expect((await exec('--timeout', '5s', '-c', 'echo three >> a.txt; sleep 600')).code).toBe(124);
    expect(await local('a.txt')).toBe('one\ntwo\nthree\n');
    const kept = await exec('--no-pull', '-c', 'echo kept > kept.txt');
    expect([kept.code, existsSync(join(root, 'kept.txt'))]).toEqual([0, false]);
    expect((await rig.run(root, ['sync', 'pull'])).code).toBe(0);
    expect(await local('kept.txt')).toBe('kept\n');
  },
  manyCommands,
);

test(
  'P127, P128, P82: a conflict leaves the file here as it is, is told beside the exit code, and frees the lease',
  async () => {
    const running = rig.spawn(root, [
      '--json',
      'exec',
      '-i',
      '-c',
      'echo ready >&2; echo theirs > b.txt; read line; exit 5',
    ]);
    const sandboxId = (await rig.json<{ id: string }>(root, ['info'])).id;
    const sandbox = await platform.client.sandboxes.connect(sandboxId);
    await expect.poll(async () => (await sandbox.files.readText('/workspace/b.txt')) === 'theirs\n', within).toBe(true);
    await writeFile(join(root, 'b.txt'), 'ours\n');
    running.child.stdin?.end('go\n');
    expect(await running.ended).toBe(5);
    expect(await local('b.txt')).toBe('ours\n');
    const told = JSON.parse(running.stdout) as { exitCode: number; pull: { conflicts: { path: string }[] } };
    expect(told.exitCode).toBe(5);
    expect(told.pull.conflicts.map(({ path }) => path)).toEqual(['b.txt']);
    expect(await platform.client.leases.list()).toEqual([]);
  },
  manyCommands,
);

test(
  'P133: exec tells only, brings back only, and keeps to paths; undo takes back the last pull',
  async () => {
    const other = await rig.repository('parts', { 'x/a': '1\n', 'y/b': '1\n' });
    const run = (...words: string[]) => rig.run(other, words);
    expect((await run('exec', '--dry-run')).code).toBe(66);
    await run('exec', '--', 'true');
    await writeFile(join(other, 'x/a'), '2\n');
    await writeFile(join(other, 'y/b'), '2\n');
    const told = await rig.json(other, ['exec', '--dry-run', '--', 'touch', '/tmp/ran']);
    expect(told).toMatchObject({ state: 'changed', local: ['x/a', 'y/b'], sandbox: [] });
    expect((await run('exec', '--dry-run', '--path', 'y')).stdout).toBe('A push would send:\n  y/b\n');
    expect(
      (await run('exec', '--pull-only', '-c', 'cat x/a; ls /tmp/ran; echo 3 > x/new; echo 3 > y/new')).stdout,
    ).toBe('1\n');
    expect(['x/new', 'y/new'].map((name) => existsSync(join(other, name)))).toEqual([true, true]);
    expect((await run('exec', '--path', 'x', '-c', 'cat x/a y/b; echo 4 > x/new; echo 4 > y/new')).stdout).toBe(
      '2\n1\n',
    );
    expect(await Promise.all(['x/new', 'y/new'].map((name) => readFile(join(other, name), 'utf8')))).toEqual([
      '4\n',
      '3\n',
    ]);
    for (const words of [
      ['--path', '../x'],
      ['--path', '/etc'],
      ['--pull-only', '--no-pull'],
    ]) {
      expect((await run('exec', ...words, '--', 'true')).code, words.join(' ')).toBe(64);
    }
    const undone = await rig.json(other, ['undo']);
    expect(undone).toMatchObject({ undone: true, kind: 'pull', files: 1, paths: ['x/new'] });
    expect(await readFile(join(other, 'x/new'), 'utf8')).toBe('3\n');
    expect(await rig.json(other, ['undo'])).toMatchObject({ error: { code: 'undo_nothing' } });
    expect((await run('undo')).code).toBe(66);
    await run('exec', '-c', 'echo 5 > x/new');
    await writeFile(join(other, 'x/new'), 'edited\n');
    const refused = await run('undo');
    expect([refused.code, refused.stderr]).toEqual([73, expect.stringContaining('edited since: x/new')]);
  },
  manyCommands,
);

test(
  'P78, P100: a push that is refused is told, the command does not run, and the lease is free',
  async () => {
    const other = await rig.repository('refused');
    const first = await rig.run(other, ['exec', '--', 'true']);
    expect(first.code).toBe(0);
    const id = (await rig.json<{ id: string }>(other, ['info'])).id;
    const sandbox = await platform.client.sandboxes.connect(id);
    // A file stands where the checkout was, so that nothing can be written there.
    await sandbox.exec(
      'rm -rf /workspace/* /workspace/.git && mount | grep -q " /workspace " || rm -rf /workspace && echo x > /workspace',
      { cwd: '/' },
    );
    const refused = await rig.run(other, ['exec', '-c', 'echo ran']);
    expect(refused.code).not.toBe(0);
    expect(refused.stdout).not.toContain('ran');
    expect(await platform.client.leases.list({ resource: id })).toEqual([]);
  },
  manyCommands,
);

test(
  'P139: what a command changed before it was interrupted comes back; when it is killed by a second signal nothing does',
  async () => {
    const script = (signals: string) =>
      `trap "echo heard" ${signals}; echo $0 > interrupted.txt; echo ready; while :; do sleep 0.1; done`;
    const gentle = rig.spawn(root, ['exec', '--', 'bash', '-c', `${script('TERM')}`, 'gentle']);
    await expect.poll(() => gentle.stdout, within).toContain('ready');
    gentle.child.kill('SIGINT');
    expect(await gentle.ended).toBe(130);
    expect(await local('interrupted.txt')).toBe('gentle\n');
    const stubborn = rig.spawn(root, ['exec', '--', 'bash', '-c', `${script('INT')}`, 'stubborn']);
    await expect.poll(() => stubborn.stdout, within).toContain('ready');
    stubborn.child.kill('SIGINT');
    await expect.poll(() => stubborn.stdout, within).toContain('heard');
    stubborn.child.kill('SIGINT');
    expect(await stubborn.ended).toBe(130);
    expect(await local('interrupted.txt')).toBe('gentle\n');
    expect(await platform.client.leases.list()).toEqual([]);
  },
  manyCommands,
);
