/** Push: a checkout arrives in the sandbox as it is. Real repositories, a real platform. */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const hashOf = (data: string | Uint8Array) => createHash('sha256').update(data).digest('hex');

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.close());

test('P88, P89, P90, P97, P99: staged, unstaged, untracked and commits arrive as what they are; a second push sends nothing', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'one\n', b: 'one\n', 'dir/c': 'one\n' });
  await rig.commit('first');
  await rig.write({ a: 'two\n' });
  const head = await rig.commit('never pushed anywhere');
  await rig.write({ b: 'staged\n' });
  await rig.git('add', 'b');
  await rig.write({ b: 'staged\nand more\n', 'dir/c': 'unstaged\n', new: 'untracked\n' });
  const before = await rig.localState();
  const first = await rig.push();
  expect(first).toMatchObject({ applied: true, head, files: 4 });
  expect(await rig.localState()).toEqual(before);
  expect(await rig.inside('git rev-parse HEAD; git symbolic-ref HEAD')).toBe(`${head}\nrefs/heads/main`);
  expect(await rig.inside('git status --porcelain')).toBe(await rig.git('status', '--porcelain'));
  expect(await rig.inside('git diff --cached')).toBe(await rig.git('diff', '--cached'));
  for (const name of ['b', 'new', 'dir/c']) {
    expect((await rig.inside(`sha256sum ${name}`)).slice(0, 64)).toBe(hashOf(await rig.read(name)));
  }
  const second = await rig.push();
  expect(second).toMatchObject({ applied: false, bytes: 0, baseline: first.baseline });
  await rig.write({ new: 'changed\n' });
  const third = await rig.push();
  expect(third).toMatchObject({ applied: true, paths: ['new'] });
  expect(third.bytes).toBeLessThan(2_000);
  expect(third.baseline).not.toBe(first.baseline);
});

test('P91, P92, P93, P98: deletions, renames, rebases and moved branches are followed, and nothing old comes back', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', b: 'b\n', 'old/name': 'moved\n', gone: 'x\n' });
  const first = await rig.commit('first');
  await rig.git('rm', '-q', '--cached', 'a');
  await rig.write({ b: 'edited\n' });
  await rig.push();
  expect(await rig.inside('git status --porcelain')).toBe(await rig.git('status', '--porcelain'));
  await rm(join(rig.root, 'gone'));
  await mkdir(join(rig.root, 'new'));
  await rename(join(rig.root, 'old/name'), join(rig.root, 'new/name'));
  await rig.push();
  await rig.pull();
  expect(await rig.inside('ls -d gone old new/name 2>/dev/null || true')).toBe('new/name');
  await rig.commit('second');
  await rig.git('checkout', '-q', '-b', 'side', first);
  await rig.write({ side: 's\n' });
  await rig.commit('side');
  await rig.git('checkout', '-q', 'main');
  await rig.git('merge', '-q', '-m', 'merged', 'side');
  await rig.push();
  expect(await rig.inside('git rev-parse HEAD; git status --porcelain')).toBe(await rig.git('rev-parse', 'HEAD'));
  await rig.git('reset', '-q', '--hard', first);
  await rig.push();
  expect(await rig.inside('git rev-parse HEAD; ls')).toBe(`${first}\na\nb\ngone\nold`);
});

test(
  'P94, P95: odd names, binary content, modes and symlinks, 50,000 untracked files',
  async () => {
    await using rig = await CheckoutRig.make(platform);
    const odd = [
      'späce in ñame',
      'quote"\'`$',
      'new\nline',
      '-dash',
      'tab\t',
      'dir/\nfoo',
      ' lead',
      '*star?',
      ':(glob)x',
      'b\\s',
    ];
    const binary = randomBytes(300_000);
    await rig.write({ ...Object.fromEntries(odd.map((name) => [name, `content of ${name}`])), binary });
    await writeFile(Buffer.concat([Buffer.from(`${rig.root}/latin-`), Buffer.of(0xe9)]), 'not utf-8');
    await rig.write({ script: '#!/bin/sh\n' });
    await chmod(join(rig.root, 'script'), 0o755);
    await symlink('/nowhere', join(rig.root, 'link'));
    await rig.commit('odd');
    await mkdir(join(rig.root, 'many'));
    for (let at = 0; at < 50_000; at += 1_000) {
      await Promise.all(
        Array.from({ length: 1_000 }, (_, i) => writeFile(join(rig.root, 'many', `f${at + i}`), `${at + i}`)),
      );
    }
    const pushed = await rig.push();
    expect(pushed.files).toBe(50_000 + odd.length + 4);
    expect(await rig.inside('ls many | wc -l; cat many/f49999; stat -c %a script; readlink link')).toBe(
      '50000\n49999755\n/nowhere',
    );
    const tree = await rig.git('rev-parse', 'HEAD^{tree}');
    expect(await rig.inside('git rev-parse HEAD^{tree}; git status --porcelain')).toBe(`${tree}\n?? many/`);
    expect((await rig.inside('sha256sum binary')).slice(0, 64)).toBe(hashOf(binary));
    // And back: every kind of them, changed inside.
    await rig.inside(`printf x >> 'späce in ñame'; printf y > 'made
inside'; head -c 200000 /dev/urandom > binary; chmod -x script; ln -sfn other link; rm -- -dash; mv binary binary2`);
    const pulled = await rig.pull();
    expect(pulled).toMatchObject({ applied: true, conflicts: [] });
    expect([...pulled.paths].sort()).toEqual(
      ['-dash', 'binary', 'binary2', 'link', 'made\ninside', 'script', 'späce in ñame'].sort(),
    );
    expect(await rig.read('made\ninside')).toBe('y');
    expect(hashOf(await readFile(join(rig.root, 'binary2')))).toBe(
      (await rig.inside('sha256sum binary2')).slice(0, 64),
    );
    expect(await rig.push()).toMatchObject({ applied: false });
  },
  { timeout: 170_000 },
);

test('P87, P22: a repository without a commit, a plain directory and a detached HEAD work; a bare repository says why not', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n' });
  await rig.git('add', 'a');
  await rig.write({ b: 'b\n' });
  await rig.push();
  expect(await rig.inside('git status --porcelain')).toBe('A  a\n?? b');
  await rig.inside('echo inside > c');
  expect(await rig.pull()).toMatchObject({ applied: true, paths: ['c'] });
  const head = await rig.commit('first');
  await rig.git('checkout', '-q', '--detach');
  await rig.push();
  expect(await rig.inside('git symbolic-ref -q HEAD || git rev-parse HEAD')).toBe(head);

  await using plain = await CheckoutRig.make(platform, { kind: 'plain' });
  await plain.write({ 'x/y': 'plain\n', '.gitignore': 'skipped\n', skipped: 'no' });
  await plain.push();
  expect(await plain.inside('ls -A; cat x/y')).toBe('.gitignore\nx\nplain');
  await plain.inside('echo more >> x/y; echo z > z');
  expect(await plain.pull()).toMatchObject({ applied: true, files: 2 });
  expect(await plain.read('x/y')).toBe('plain\nmore\n');

  await rig.git('init', '-q', '--bare', join(rig.top, 'bare.git'));
  await expect(rig.open(join(rig.top, 'bare.git'))).rejects.toMatchObject({ code: 'sync_not_possible' });
});

test('P107, P108, P109: what set-up made stays, ignored folders stay on both sides, leftovers are cleaned', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ '.gitignore': 'node_modules\n*.log\n', a: 'a\n' });
  await rig.commit('first');
  await rig.inside(
    'mkdir -p node_modules; echo dep > node_modules/dep; echo made > by-setup; echo old > new-file; echo old > x.log',
  );
  await rig.write({ 'new-file': 'mine\n', 'node_modules/local': 'stays here' });
  await rig.push();
  expect(await rig.inside('cat node_modules/dep by-setup new-file; ls node_modules')).toBe('dep\nmade\nmine\ndep');
  expect(await rig.pull()).toMatchObject({ applied: false, paths: [] });
  await rig.inside('echo left > leftover');
  await rig.write({ a: 'changed\n' });
  await rig.git('add', '-f', '.');
  await rig.write({ 'x.log': 'tracked although ignored\n' });
  await rig.git('add', '-f', 'x.log');
  await rig.git('rm', '-q', '-r', '--cached', 'node_modules');
  await rig.push({ unpulled: 'discard' });
  expect(await rig.inside('cat by-setup node_modules/dep a x.log; ls leftover 2>&1 | grep -c "No such"')).toBe(
    'made\ndep\nchanged\ntracked although ignored\n1',
  );
  await rig.inside('echo again > leftover');
  const pushed = await rig.push();
  expect(pushed.pulledFirst).toMatchObject({ applied: true, paths: ['leftover'] });
  expect(await rig.read('leftover')).toBe('again\n');
});

test('P100: a git that was killed in the sandbox leaves locks, and the next sync goes on', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'one\n' });
  await rig.commit('first');
  await rig.push();
  // Each is a git that holds its locks and is killed; the lock of the branch is of somebody else as long as no move was begun.
  const killGit = (variables: string, locked: string, refs: readonly string[]) =>
    rig.inside(`
D=$(ls -d /var/lib/atoll-sync/*); ${variables}; F=$(mktemp -u); mkfifo "$F"; ID=$(git rev-parse -q --verify HEAD || git rev-parse refs/atoll/pushed)
git update-ref --stdin < "$F" > /dev/null & P=$!
exec 9> "$F"; rm "$F"
{ echo start; for R in ${refs.join(' ')}; do echo "update $R $ID"; done; echo prepare; } >&9
until [ -e "${locked}" ]; do sleep 0.01; done
kill -9 $P; wait $P 2>/dev/null; [ -e "${locked}" ]`);
  const own = 'export GIT_DIR=$D/sync.git';
  await killGit(own, '$GIT_DIR/refs/atoll/base.lock', ['refs/atoll/pushed', 'refs/atoll/base']);
  await killGit('export GIT_DIR=.git', '.git/refs/atoll/pushed.lock', ['refs/atoll/pushed']);
  await rig.inside(': > $(ls -d /var/lib/atoll-sync/*)/pack-of-somebody');
  await rig.write({ a: 'two\n' });
  expect(await rig.push()).toMatchObject({ applied: true, paths: ['a'] });
  expect(await rig.inside('cat a; ls /var/lib/atoll-sync/*/pack-* 2>/dev/null || echo none')).toBe('two\nnone');
  await killGit(own, '$GIT_DIR/refs/atoll/snapshot.lock', ['refs/atoll/snapshot']);
  await rig.inside('echo three > a');
  await rig.pull();
  expect(await rig.read('a')).toBe('three\n');

  const branch = (await rig.git('symbolic-ref', 'HEAD')).trim();
  const head = await rig.commit('second');
  await killGit('export GIT_DIR=.git', `.git/${branch}.lock`, [branch]);
  await expect(rig.push()).rejects.toMatchObject({ code: 'sync_failed' });
  await expect(rig.push(), "nobody else's lock is removed").rejects.toMatchObject({ code: 'sync_failed' });
  await rig.inside(`echo ${branch} > $(ls -d /var/lib/atoll-sync/*)/moving`);
  await rig.push();
  expect(await rig.inside('git rev-parse HEAD')).toBe(head);
});
