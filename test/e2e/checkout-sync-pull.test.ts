/** Pull: what happened in the sandbox comes back, merged and whole, or not at all. */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { appendFileSync, existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { status, undo } from '../../src/checkout/sync/index.ts';
import { CheckoutRig } from '../support/checkout-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.close());

const lines = (change: Readonly<Record<number, string>> = {}) =>
  Array.from({ length: 20 }, (_, i) => change[i] ?? `line ${i}`)
    .join('\n')
    .concat('\n');

test('P118, P119, P121, P122, P129: what changed since the baseline is merged with what was edited meanwhile, and stays', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ shared: lines(), mine: 'mine\n', theirs: 'theirs\n' });
  const first = await rig.commit('first');
  await rig.write({ untouched: 'untracked\n' });
  await rig.push();
  const failing = await rig.sandbox.exec(
    `sed -i 's/^line 2$/inside/' shared; echo made > made; echo more >> theirs; echo noise >&2; exit 3`,
    { cwd: '/workspace' },
  );
  expect(failing.exitCode).toBe(3);
  await rig.write({ shared: lines({ 17: 'outside' }), mine: 'edited here\n' });
  const before = await rig.localState();
  const pulled = await rig.pull();
  expect(pulled).toMatchObject({ applied: true, conflicts: [], commits: [], branchMoved: false });
  expect([...pulled.paths].sort()).toEqual(['made', 'shared', 'theirs']);
  expect(await rig.localState()).toEqual(before);
  expect(await rig.read('shared')).toBe(lines({ 2: 'inside', 17: 'outside' }));
  expect(await rig.read('mine')).toBe('edited here\n');
  await rig.push();
  expect(await rig.inside('cat shared mine made')).toBe(`${lines({ 2: 'inside', 17: 'outside' })}edited here\nmade`);
  expect(await rig.pull()).toMatchObject({ applied: false });
  await rig.git('stash', '-q');
  await rig.git('checkout', '-q', '-b', 'other', first);
  await rig.push();
  expect(await rig.pull()).toMatchObject({ applied: false });
  expect(await rig.read('made')).toBe('made\n');
});

test('P124, P125, P128: on conflict the working tree is unchanged, the result is on a ref and in a folder, and settles', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'one\n', b: 'b\n' });
  await rig.commit('first');
  await rig.push();
  await rig.inside('echo inside > a; echo changed > b; echo new > c');
  await rig.write({ a: 'outside\n' });
  const before = [await rig.git('status', '--porcelain'), await rig.read('a'), await rig.read('b')];
  const pulled = await rig.pull();
  expect(pulled).toMatchObject({ applied: false, conflicts: [{ path: 'a', reason: 'both_changed' }] });
  expect([await rig.git('status', '--porcelain'), await rig.read('a'), await rig.read('b')]).toEqual(before);
  expect(existsSync(join(rig.root, 'c'))).toBe(false);
  expect(await rig.git('show', `${pulled.ref}:a`)).toBe('inside');
  expect(await readFile(join(pulled.folder!, 'merged/a'), 'utf8')).toContain('<<<<<<<');
  expect(await readFile(join(pulled.folder!, 'sandbox/c'), 'utf8')).toBe('new\n');
  expect(await readFile(join(pulled.folder!, 'README.txt'), 'utf8')).toContain('git restore --source=');
  expect((await rig.push({ dryRun: true })).warnings.join()).toContain(pulled.folder);
  await rig.git('restore', `--source=${pulled.ref}`, '--', 'a', 'b', 'c');
  const pushed = await rig.push();
  expect(pushed).toMatchObject({ pulledFirst: null, warnings: [] });
  expect(existsSync(pulled.folder!)).toBe(false);
  expect(await rig.git('for-each-ref', 'refs/atoll/conflicts')).toBe('');
  // A file that lies here without being synced is not overwritten either.
  await writeFile(join(rig.root, '.git/info/exclude'), 'private\n');
  await rig.open();
  await rig.write({ private: 'mine' });
  await rig.inside('echo theirs > private');
  const second = await rig.pull();
  expect(second).toMatchObject({ applied: false, conflicts: [{ path: 'private', reason: 'exists_here' }] });
  expect(await rig.read('private')).toBe('mine');
});

test('P131: commits made inside come back as commits, repeatable, and move the branch only forward', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', b: 'b\n' });
  const first = await rig.commit('first');
  await rig.write({ b: 'dirty\n' });
  await rig.push();
  const commit = (name: string, file: string) =>
    `echo ${name} > ${file} && git add ${file} && git -c user.name=${name} -c user.email=${name}@x commit -qm "by ${name}" && `;
  await rig.inside(`${commit('Bo', 'c')}${commit('Cy', 'a')}git rev-parse HEAD`);
  const pulled = await rig.pull();
  expect(pulled.commits.map(({ author, subject }) => [author, subject])).toEqual([
    ['Bo <Bo@x>', 'by Bo'],
    ['Cy <Cy@x>', 'by Cy'],
  ]);
  expect(pulled.branchMoved).toBe(true);
  expect(await rig.git('log', '--reverse', '--format=%an %s')).toBe('Ann first\nBo by Bo\nCy by Cy');
  expect(await rig.git('symbolic-ref', 'HEAD')).toBe('refs/heads/main');
  expect(await rig.git('status', '--porcelain')).toBe(' M b');
  await rig.git('fsck', '--strict');
  expect(await rig.pull()).toMatchObject({ applied: false, commits: [] });
  expect(await rig.push()).toMatchObject({ pulledFirst: null });
  await rig.inside(`${commit('Di', 'd')}true`);
  expect(await rig.pull()).toMatchObject({ branchMoved: true, commits: [{ subject: 'by Di' }] });
  // Here and there at once: no branch moves, the commits lie on a ref.
  await rig.push();
  await rig.inside(`${commit('Ed', 'e')}true`);
  const here = await rig.commit('meanwhile');
  const apart = await rig.pull();
  expect(apart).toMatchObject({ branchMoved: false, conflicts: [], commits: [{ subject: 'by Ed' }] });
  expect(await rig.git('rev-parse', 'HEAD')).toBe(here);
  expect(await rig.git('log', '-1', '--format=%an', apart.ref!)).toBe('Ed');
  expect(await rig.read('e')).toBe('Ed\n');
  expect(first).not.toBe(here);
});

test('P133: dry run, path filters, and status tell and change nothing else', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ 'x/a': '1\n', 'y/b': '1\n' });
  await rig.commit('first');
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({ state: 'never' });
  expect(await rig.push({ dryRun: true })).toMatchObject({ applied: false, files: 2 });
  expect(await rig.inside('ls -A')).toBe('');
  await rig.push();
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({ state: 'same' });
  await rig.inside('echo 2 > x/a; echo 2 > y/b');
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({
    state: 'changed',
    local: [],
    sandbox: ['x/a', 'y/b'],
  });
  expect(await rig.pull({ dryRun: true })).toMatchObject({ applied: false, paths: ['x/a', 'y/b'] });
  expect(await rig.read('x/a')).toBe('1\n');
  expect(await rig.pull({ paths: ['x'] })).toMatchObject({ applied: true, paths: ['x/a'] });
  expect([await rig.read('x/a'), await rig.read('y/b')]).toEqual(['2\n', '1\n']);
  expect(await rig.pull()).toMatchObject({ applied: true, paths: ['y/b'] });
  await rig.write({ 'x/a': '3\n', 'y/b': '3\n' });
  await rig.push({ paths: ['y'] });
  expect(await rig.inside('cat x/a y/b')).toBe('2\n3');
});

test(
  'P100, P126: SIGKILL at any step of an apply leaves all or nothing; the next sync finishes it',
  async () => {
    await using rig = await CheckoutRig.make(platform);
    const names = Array.from({ length: 6 }, (_, i) => `f${i}`);
    await rig.write({ ...Object.fromEntries(names.map((name) => [name, 'old\n'])), 'dir/x': 'x\n', gone: 'g\n' });
    await rig.commit('first');
    await rig.push();
    const change = (round: number) =>
      `for f in ${names.join(' ')}; do echo ${round} > $f; done; echo ${round} > n${round}; rm -rf dir gone; mkdir gone; echo d > gone/file; git add -A; git -c user.name=k -c user.email=k@k commit -qm round${round}`;
    for (const [round, at] of [0, 1, 4, 7, 99].entries()) {
      await rig.inside(change(round));
      const code = await killedPull(rig, at);
      expect(code, 'the positive control: a step that does not come kills nobody').toBe(at === 99 ? 0 : 'SIGKILL');
      const pushed = await rig.push();
      expect(pushed.warnings.join() === '' && pushed.pulledFirst === null).toBe(at === 99);
      for (const name of [...names, `n${round}`]) expect(await rig.read(name)).toBe(`${round}\n`);
      expect(await rig.read('gone/file')).toBe('d\n');
      expect(await rig.git('log', '-1', '--format=%s')).toBe(`round${round}`);
      expect(await rig.git('status', '--porcelain')).toBe('');
      expect((await readdir(join(rig.root, '.git'))).filter((name) => name.startsWith('.atoll'))).toEqual([]);
    }
  },
  { timeout: 180_000 },
);

/** A pull in a process of its own, which kills itself when the given step of the apply begins. */
function killedPull(rig: CheckoutRig, at: number): Promise<string | number> {
  const script = `
    import { openCheckout, pull } from '${join(import.meta.dirname, '../../src/checkout/sync/index.ts')}';
    import { Sandbox } from '${join(import.meta.dirname, '../../src/sdk/index.ts')}';
    const checkout = await openCheckout(${JSON.stringify(rig.root)}, { env: process.env, stateDirectory: ${JSON.stringify(join(rig.top, 'state'))} });
    const sandbox = await Sandbox.connect('${rig.sandbox.id}', { url: '${platform.server.url}', apiKey: '${platform.key}' });
    let steps = 0;
    await pull(checkout, sandbox, { onProgress: ({ phase }) => { if (phase === 'apply' && steps++ === ${at}) process.kill(process.pid, 'SIGKILL'); } });
  `;
  const env = { ...process.env, HOME: rig.top, GIT_CONFIG_GLOBAL: '/dev/null' };
  return new Promise((resolve) => {
    execFile(process.execPath, ['--input-type=module', '-e', script], { env }, (error, _, said) =>
      resolve(error === null ? 0 : (error.signal ?? said)),
    );
  });
}

test('an edit that comes while a pull is applied takes the whole pull back', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', b: 'b\n', c: 'c\n', d: 'd\n' });
  await rig.commit('first');
  await rig.push();
  await rig.inside('rm a; for f in b c d e; do echo inside > $f; done');
  let steps = 0;
  const pulled = await rig.pull({
    onProgress: ({ phase }) => {
      if (phase === 'apply' && steps++ === 3) appendFileSync(join(rig.root, 'd'), 'typed\n');
    },
  });
  expect(pulled).toMatchObject({ applied: false, conflicts: [{ path: 'd', reason: 'changed_meanwhile' }] });
  expect(await rig.git('status', '--porcelain')).toBe(' M d');
  expect(await rig.read('d')).toBe('d\ntyped\n');
  expect(await rig.git('show', `${pulled.ref}:d`)).toBe('inside');
});

test('undo takes back what a pull brought, its commits too, and the next push makes the sandbox equal again', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', b: 'b\n' });
  const first = await rig.commit('first');
  await rig.write({ b: 'mine\n' });
  await rig.push();
  await rig.inside('echo inside > a; echo new > c; git add -A; git -c user.name=x -c user.email=y commit -qm inside');
  const before = [...(await rig.localState()), await rig.git('status', '--porcelain')];
  // Another git works here just now: the files are there, and the branch follows with the next sync.
  const lock = join(rig.root, '.git/index.lock');
  const lockAtEnd = ({ phase, files }: { phase: string; files: number }) => {
    if (phase === 'apply' && files === 2) appendFileSync(lock, '');
  };
  await expect(rig.pull({ onProgress: lockAtEnd })).rejects.toMatchObject({ code: 'sync_failed' });
  expect([await rig.read('a'), await rig.git('rev-parse', 'HEAD')]).toEqual(['inside\n', first]);
  await rm(lock);
  expect((await rig.pull()).warnings).toEqual(['What was interrupted here was finished.']);
  expect(await rig.git('log', '-1', '--format=%s')).toBe('inside');
  expect(await rig.git('status', '--porcelain')).toBe('');
  const undone = await undo(rig.checkout);
  expect(undone).toMatchObject({ undone: true, kind: 'pull', sandboxId: rig.sandbox.id, paths: ['a', 'c'] });
  expect([await rig.git('rev-parse', 'HEAD'), await rig.git('status', '--porcelain')]).toEqual([first, before.at(-1)]);
  expect([await rig.read('a'), await rig.read('b'), existsSync(join(rig.root, 'c'))]).toEqual(['a\n', 'mine\n', false]);
  expect(await rig.git('log', '-1', '--format=%s', undone.commitsRef!)).toBe('inside');
  await expect(undo(rig.checkout)).rejects.toMatchObject({ code: 'undo_nothing' });
  await rig.push();
  expect(await rig.inside('git rev-parse HEAD; cat a b; ls')).toBe(`${first}\na\nmine\na\nb`);
});

test('P85: status looks without the lease, changes nothing there, and tells when somebody else has the sandbox', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', b: 'b\n' });
  await rig.commit('first');
  await rig.push();
  await rig.inside('echo inside > a; touch b; echo new > c');
  await rig.write({ b: 'here\n' });
  const inside = 'find /var/lib/atoll-sync -type f -exec sha256sum {} + | sort; ls /tmp';
  const before = await rig.inside(inside);
  const { state, local, sandbox } = await status(rig.checkout, rig.sandbox);
  expect({ state, local, sandbox }).toEqual({ state: 'changed', local: ['b'], sandbox: ['a', 'c'] });
  expect(await status(rig.checkout, rig.sandbox, { paths: ['c'] })).toMatchObject({ local: [], sandbox: ['c'] });
  expect(await rig.inside(inside)).toBe(before);
  await platform.client.leases.hold(
    { resources: [rig.sandbox.id], holder: 'another', reason: 'works', ttlMs: 60_000 },
    async () => {
      const held = await status(rig.checkout, rig.sandbox);
      expect(held).toMatchObject({ state: 'unknown', local: ['b'], sandbox: null });
      expect(held.sandboxUnknown).not.toBe(null);
      await expect(rig.pull(), 'the positive control: a pull does need it').rejects.toMatchObject({
        code: expect.stringMatching(/^lease_/),
      });
    },
  );
  // What a killed pull has left is told, and left to the next sync.
  expect(await killedPull(rig, 1)).toBe('SIGKILL');
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({ interrupted: true });
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({ interrupted: true });
  await rig.pull();
  expect(await status(rig.checkout, rig.sandbox)).toMatchObject({ interrupted: false, state: 'changed', local: ['b'] });
});

test('an edit of the same size in the same second is seen inside too; large packs come through a file, with progress', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'one\n', big: 'small\n' });
  await rig.commit('first');
  await rig.push();
  for (const word of ['two', 'six', 'ten']) {
    await rig.inside(`echo ${word} > a`);
    expect(await rig.pull()).toMatchObject({ applied: true, paths: ['a'] });
    expect(await rig.read('a')).toBe(`${word}\n`);
  }
  await rig.write({ a: 'now\n' });
  await rig.push();
  expect(await rig.inside('cat a; head -c 9000000 /dev/urandom > big')).toBe('now');
  const seen = new Map<string, number>();
  const onProgress = ({ phase, bytes }: { phase: string; bytes: number }) => void seen.set(phase, bytes);
  expect(await rig.pull({ onProgress })).toMatchObject({ applied: true, bytes: 9_000_000 });
  expect([...seen.keys()]).toEqual(['receive', 'apply', 'done']);
  expect(seen.get('receive')).toBeGreaterThan(9_000_000);
  expect(await rig.inside('sha256sum < big')).toBe(
    `${createHash('sha256')
      .update(await readFile(join(rig.root, 'big')))
      .digest('hex')}  -`,
  );
  await rig.write({ big: randomBytes(9_000_000) });
  seen.clear();
  await rig.push({ onProgress });
  expect([...seen.keys()]).toEqual(['snapshot', 'send', 'done']);
  expect(seen.get('send')).toBeGreaterThan(9_000_000);
});

const hostileTree = (entry: string) => `
set -e; D=$(ls -d /var/lib/atoll-sync/*); : > $D/indexed; export GIT_DIR=$D/sync.git
B=$(echo evil | git hash-object -w --stdin)
${entry}
`;

test('P132: paths that lead out of the checkout, into git or through symlinks are refused whole; a good one passes', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n' });
  await rig.commit('first');
  await rig.push();
  // The sandbox's git is replaced: it answers write-tree with a tree that git itself would not make.
  const forge = async (build: string) => {
    await rig.sandbox.files.write(
      '/usr/local/bin/git',
      `#!/bin/sh
case " $* " in *" write-tree "*) cat /forged; exit 0;; esac
exec /usr/bin/git "$@"
`,
      { mode: 0o755 },
    );
    const made = await rig.sandbox.exec(hostileTree(build));
    expect(made).toMatchObject({ exitCode: 0 });
  };
  const raw = (mode: string, name: string) =>
    `{ git cat-file tree HEAD^{tree} 2>/dev/null || true; printf '${mode} ${name}\\0'; echo $B | sed 's/../\\\\x&/g' | xargs -0 printf '%b' | head -c 20; } > /raw; git hash-object -w -t tree --literally /raw > /forged`;
  for (const [mode, name] of [
    ['100644', '..'],
    ['100644', '.git'],
    ['100644', '.GIT'],
    ['100644', 'git~1'],
    ['100644', '.g\\342\\200\\214it'],
    ['100644', 'x/../../y'],
    ['100644', '/abs'],
    ['100644', '.git\\\\config'],
    ['100644', '.git '],
  ] as const) {
    await forge(raw(mode, name));
    const outcome = await rig.pull({ allowEmpty: true }).catch((error: unknown) => error);
    expect(outcome, name).toMatchObject({ code: 'sync_unsafe' });
  }
  expect(await rig.git('status', '--porcelain')).toBe('');
  expect(existsSync(join(rig.top, 'y'))).toBe(false);
  await forge(raw('100644', 'good'));
  expect(await rig.pull({ allowEmpty: true })).toMatchObject({ paths: ['a', 'good'] });
  expect(await rig.read('good')).toBe('evil\n');
});

test('P132, P120: symlinked parents, sizes, counts, a sudden emptiness and a broken pack are refused, and nothing changes', async () => {
  await using rig = await CheckoutRig.make(platform);
  await rig.write({ a: 'a\n', '.gitignore': 'out\n' });
  await rig.commit('first');
  await mkdir(join(rig.top, 'outside'));
  await symlink(join(rig.top, 'outside'), join(rig.root, 'out'));
  await rig.push();
  await rig.inside('sed -i /out/d .gitignore; mkdir out; echo escaped > out/file');
  expect(await rig.pull()).toMatchObject({ applied: false, conflicts: [{ path: 'out/file', reason: 'exists_here' }] });
  expect(await readdir(join(rig.top, 'outside'))).toEqual([]);
  await rm(join(rig.root, 'out'));
  await rig.push();
  await rig.inside('head -c 3000000 /dev/zero > big; for i in 1 2 3 4 5; do echo $i > n$i; done');
  await expect(rig.pull({ limits: { fileBytes: 1_000_000 } })).rejects.toMatchObject({
    code: 'sync_limit_exceeded',
    message: expect.stringContaining('big (3000000 bytes)'),
  });
  const packs = () => readdir(join(rig.checkout.shadow, 'objects/pack'));
  const kept = await packs();
  await expect(rig.pull({ limits: { files: 3 } })).rejects.toMatchObject({ code: 'sync_limit_exceeded' });
  expect(await packs(), 'what is refused does not stay on this disk').toEqual(kept);
  expect(await rig.git('status', '--porcelain')).toBe('');
  expect(await rig.pull()).toMatchObject({ applied: true, files: 6 });
  await rig.push();
  await rig.inside('rm -rf -- a big n? .gitignore');
  await expect(rig.pull()).rejects.toMatchObject({
    code: 'sync_not_possible',
    message: expect.stringContaining('suddenly empty'),
  });
  expect(await rig.read('a')).toBe('a\n');
  await rig.inside('echo back > a');
  await rig.sandbox.files.write(
    '/usr/local/bin/git',
    `#!/bin/sh
case " $* " in *" pack-objects "*) echo PACKgarbage; echo noise >&2; exit 0;; esac
echo noise >&2
exec /usr/bin/git "$@"
`,
    { mode: 0o755 },
  );
  await expect(rig.pull()).rejects.toMatchObject({ code: 'sync_unsafe' });
  expect(await rig.read('a')).toBe('a\n');
  await rig.sandbox.exec('rm /usr/local/bin/git');
  expect(await rig.pull()).toMatchObject({ applied: true });
});
