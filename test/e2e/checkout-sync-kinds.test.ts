/** Checkouts that are not plain clones, and what must not be sent: each is synced, or refused with what to do. */
import { createHash } from 'node:crypto';
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.close());

test('P101: a shallow clone works; a partial one is refused with both remedies', async () => {
  await using rig = await CheckoutRig.make(platform);
  for (const name of ['a', 'b', 'c']) {
    await rig.write({ [name]: name });
    await rig.commit(name);
  }
  await rig.git('clone', '-q', '--depth', '2', `file://${rig.root}`, join(rig.top, 'shallow'));
  await rig.open(join(rig.top, 'shallow'));
  await rig.push();
  expect(await rig.inside('git log --format=%s; git status --porcelain; cat a')).toBe('c\nb\na');
  await rig.inside('echo x > x');
  expect(await rig.pull()).toMatchObject({ applied: true, paths: ['x'] });
  await rig.git('-C', join(rig.top, 'shallow'), 'config', 'extensions.partialclone', 'origin');
  const refusal = { code: 'sync_not_possible', message: expect.stringMatching(/--refetch.*--filter/s) };
  await expect(rig.open(join(rig.top, 'shallow'))).rejects.toMatchObject(refusal);
});

test('P102: a changed LFS file is named and stops the push before anything happens; a clean one arrives as its pointer', async () => {
  await using rig = await CheckoutRig.make(platform);
  const content = 'the real content\n'.repeat(50);
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${createHash('sha256').update(content).digest('hex')}\nsize ${content.length}\n`;
  await rig.write({ '.gitattributes': '*.big filter=lfs\n', 'x.big': pointer });
  await rig.commit('pointer');
  await rig.write({ 'x.big': content });
  await rig.push();
  expect(await rig.inside('cat x.big')).toBe(pointer.trimEnd());
  await rig.write({ 'x.big': `${content}changed`, other: 'not sent\n' });
  await expect(rig.push()).rejects.toMatchObject({ code: 'sync_not_possible', details: { paths: ['x.big'] } });
  expect(await rig.inside('ls')).toBe('x.big');
});

test('P100, P106: no git inside is refused, a lost .git is healed with its files, an incomplete pack is an error', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n' });
  const head = await rig.commit('first');
  const hide = `#!/bin/sh\ncase " $* " in *" index-pack "*|*" unpack-objects "*) head -c 50 >/dev/null; exit 128;; esac\nexec /usr/bin/git "$@"\n`;
  await rig.sandbox.files.write('/usr/local/bin/git', hide, { mode: 0o755 });
  await expect(rig.push()).rejects.toMatchObject({ code: 'sync_failed' });
  expect(await rig.inside('ls')).toBe('');
  await rig.sandbox.exec('rm /usr/local/bin/git');
  await rig.push();
  await rig.inside('rm -rf .git; echo work > unsaved');
  const pushed = await rig.push();
  expect(pushed.healed).toBe(true);
  expect(await rig.inside('git rev-parse HEAD')).toBe(head);
  const kept = await rig.inside(
    'for r in $(GIT_DIR=$(ls -d /var/lib/atoll-sync/*/sync.git) git for-each-ref --format="%(refname)" refs/atoll/kept); do GIT_DIR=$(ls -d /var/lib/atoll-sync/*/sync.git) git show $r:unsaved; done',
  );
  expect(kept).toBe('work');
  await rig.sandbox.exec('mv /usr/bin/git /usr/bin/git-hidden');
  await expect(rig.push()).rejects.toMatchObject({
    code: 'sync_not_possible',
    message: expect.stringContaining('no git'),
  });
});

test('P110, P111: from a subdirectory it is the same checkout; hooks, filters, signing and prompts take no part', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ 'sub/dir/a': 'a\r\n', '.gitattributes': '* filter=evil text eol=lf\n' });
  const ran = join(rig.top, 'ran');
  await rig.git('config', 'commit.gpgsign', 'true');
  await rig.git('config', 'gpg.program', '/bin/false');
  await rig.commit('first');
  await rig.git('config', 'filter.evil.clean', `touch ${ran}; cat`);
  await rig.git('config', 'filter.evil.smudge', `touch ${ran}; cat`);
  await rig.git('config', 'core.fsmonitor', `touch ${ran}`);
  for (const hook of ['post-checkout', 'pre-commit', 'reference-transaction', 'post-index-change']) {
    await writeFile(join(rig.root, '.git/hooks', hook), `#!/bin/sh\ntouch ${ran}\n`);
    await chmod(join(rig.root, '.git/hooks', hook), 0o755);
  }
  const below = await rig.open(join(rig.root, 'sub/dir'));
  expect(below.root).toBe(rig.root);
  await rm(ran, { force: true });
  await rig.push();
  expect(await rig.inside('od -c sub/dir/a | head -1 | tr -d " "')).toBe('0000000a\\r\\n');
  await rig.inside(
    'set -e; mkdir -p .git/hooks; printf "#!/bin/sh\\ntouch /tmp/ran\\n" > .git/hooks/post-checkout; chmod +x .git/hooks/*; printf "b\\r\\n" > sub/dir/a; git -c user.name=x -c user.email=y commit -qam inside',
  );
  expect(await rig.pull()).toMatchObject({ branchMoved: true });
  expect(await rig.read('sub/dir/a')).toBe('b\r\n');
  await rig.write({ 'sub/dir/b': 'more' });
  await rig.push();
  expect(await rig.sandbox.files.exists('/tmp/ran')).toBe(false);
  await expect(rm(ran)).rejects.toMatchObject({ code: 'ENOENT' });
  // The positive control: git as a person runs it does run them, on both sides.
  for (const words of [
    ['-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null', 'add', '-A'],
    ['-c', 'core.fsmonitor=false', 'update-ref', 'refs/heads/control', 'HEAD'],
    ['-c', 'core.hooksPath=/dev/null', 'status'],
  ]) {
    await rig.git(...words).catch(() => '');
    await rm(ran);
  }
  await rig.inside('git checkout -q -b control');
  expect(await rig.sandbox.files.exists('/tmp/ran')).toBe(true);
});

test('P114, P115: limits name the biggest paths, secrets and nested repositories stay here, an emptied checkout stops', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', big: 'x'.repeat(50_000), '.env': 'KEY=1\n', '.env.example': 'KEY=\n' });
  await expect(rig.push({ limits: { totalBytes: 10_000 } })).rejects.toMatchObject({
    code: 'sync_limit_exceeded',
    details: { biggest: [{ path: 'big', bytes: 50_000 }, {}, {}] },
  });
  await expect(rig.push({ secretsPolicy: 'refuse' })).rejects.toMatchObject({
    code: 'sync_not_possible',
    details: { paths: ['.env'] },
  });
  await mkdir(join(rig.root, 'nested'));
  await rig.git('init', '-q', 'nested');
  await rig.write({ 'nested/file': 'x' });
  const pushed = await rig.push();
  expect(pushed.warnings.join('\n')).toMatch(/nested\/.*\n.*\.env looks like a secret/);
  expect(await rig.inside('ls -A')).toBe('.env.example\n.git\na\nbig');
  await rig.push({ secretsPolicy: 'send' });
  expect(await rig.inside('cat .env')).toBe('KEY=1');
  await rig.push();
  expect(await rig.sandbox.files.exists('/workspace/.env')).toBe(false);
  for (const name of ['a', 'big', '.env', '.env.example', 'nested'])
    await rm(join(rig.root, name), { recursive: true });
  await expect(rig.push()).rejects.toMatchObject({
    code: 'sync_not_possible',
    message: expect.stringContaining('suddenly empty'),
  });
  expect(await rig.push({ allowEmpty: true })).toMatchObject({ applied: true });
});

test('P116: a linked worktree, a sparse checkout and assume-unchanged files', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ 'in/a': 'a\n', 'out/b': 'b\n', flagged: 'f\n' });
  await rig.commit('first');
  const tree = join(rig.top, 'tree');
  await rig.git('worktree', 'add', '-q', '-b', 'side', tree);
  await rig.git('-C', tree, 'sparse-checkout', 'set', 'in');
  await rig.git('-C', tree, 'update-index', '--assume-unchanged', 'flagged');
  await writeFile(join(tree, 'flagged'), 'really\n');
  const checkout = await rig.open(tree);
  expect(checkout.root).toBe(tree);
  await rig.push();
  expect(await rig.inside('git symbolic-ref HEAD; cat in/a out/b flagged')).toBe('refs/heads/side\na\nb\nreally');
  await rig.inside('echo 2 > in/a');
  expect(await rig.pull()).toMatchObject({ applied: true, paths: ['in/a'] });
  expect(await rig.git('-C', tree, 'status', '--porcelain')).toBe(' M in/a');
});
