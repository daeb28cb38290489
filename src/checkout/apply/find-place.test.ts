/** What a target may be: refused or taken before anything is prepared, and as it was afterwards. */
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, runGit, stateOf, treeOf, writeFiles } from '../../../test/support/apply-rig.ts';

function tryGit(root: string, ...words: readonly string[]): void {
  expect(() => runGit(root, ...words)).toThrow();
}

test('C15: nested targets, and one target under two names, are refused by name', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const inner = rig.repository('one/inner', { b: '1\n' });
  const plain = rig.folder('plain', { p: '1\n' });
  const below = rig.folder('plain/below', {});
  symlinkSync(one, join(rig.directory, 'alias'));
  runGit(one, 'worktree', 'add', '-q', '-b', 'side', join(rig.directory, 'side'));
  const result = rig.result(one, { a: '2\n' });
  const before = [stateOf(one), treeOf(plain)];
  const alias = { ...result, workspace: 'alias', place: { path: join(rig.directory, 'alias') } };
  const bySide = { ...result, workspace: 'side', place: { path: join(rig.directory, 'side'), branch: 'main' } };
  const inOne = rig.result(inner, { b: '2\n' });
  const folders = rig.foreignResult({ p: '1\n' }, { p: '2\n' }, { path: plain }, 'plain');
  const deeper = rig.foreignResult({}, { q: '2\n' }, { path: below }, 'below');
  for (const [pair, why] of [
    [[result, alias], 'same target'],
    [[result, bySide], 'same target'],
    [[result, inOne], 'inside of'],
    [[folders, deeper], 'inside of'],
  ] as const) {
    const refused = await rig.apply(pair);
    expect(refused).toMatchObject({ state: 'refused', targets: [{ state: 'refused' }, { state: 'refused' }] });
    expect(refused.targets.map(({ error }) => error?.message).join()).toContain(why);
  }
  expect([stateOf(one), treeOf(plain)]).toEqual(before);
  // Alone, each of them is taken; another branch of the same repository is another target.
  const side = rig.result(one, { s: '2\n' }, { path: one, branch: 'side' }, 'side');
  expect(await rig.apply([result, side])).toMatchObject({ state: 'applied' });
  expect(treeOf(join(rig.directory, 'side'))).toMatchObject({ s: '644 2\n' });
});

test('C24: a target that is gone, moved, detached or without its branch is refused; unborn, bare and not checked out are taken', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  runGit(one, 'branch', 'side');
  const result = rig.result(one, { a: '2\n' });
  const refusal = async (place: { path: string; branch?: string }) => {
    const answer = await rig.apply([{ ...result, place }]);
    expect(answer.state).toBe('refused');
    return answer.targets[0]?.error?.message;
  };
  expect(await refusal({ path: join(rig.directory, 'nowhere') })).toContain('is not there');
  expect(await refusal({ path: one, branch: 'deleted' })).toContain('no branch deleted');
  expect(await refusal({ path: one, branch: '../x' })).toContain('cannot be the name');
  expect(await refusal({ path: join(one, '.git') })).toMatch(/inside/);
  runGit(one, 'symbolic-ref', 'refs/heads/alias', 'refs/heads/side');
  expect(await refusal({ path: one, branch: 'alias' })).toContain('another name');
  runGit(one, 'checkout', '-q', '--detach');
  expect(await refusal({ path: one })).toContain('no branch checked out');
  mkdirSync(join(one, 'sub'));
  expect(await refusal({ path: join(one, 'sub') })).toContain('inside of the repository');
  // Not checked out: only the branch moves.
  const files = treeOf(one);
  expect(await rig.apply([{ ...result, place: { path: one, branch: 'side' } }])).toMatchObject({ state: 'applied' });
  expect(runGit(one, 'rev-parse', 'side')).toBe(result.commit);
  expect(treeOf(one)).toEqual(files);
  // Checked out in a working tree that is gone.
  runGit(one, 'worktree', 'add', '-q', '-b', 'away', join(rig.directory, 'away'), result.base);
  renameSync(join(rig.directory, 'away'), join(rig.directory, 'elsewhere'));
  expect(await refusal({ path: one, branch: 'away' })).toContain('git worktree prune');
  // Unborn, and back to unborn.
  const unborn = join(rig.directory, 'unborn');
  mkdirSync(unborn);
  runGit(unborn, 'init', '-q', '-b', 'main');
  expect(await rig.apply([{ ...result, workspace: 'unborn', place: { path: unborn } }])).toMatchObject({
    state: 'applied',
  });
  expect(runGit(unborn, 'rev-parse', 'HEAD')).toBe(result.commit);
  expect(runGit(unborn, 'status', '--porcelain')).toBe('');
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  tryGit(unborn, 'rev-parse', '--verify', '-q', 'HEAD');
  expect(treeOf(unborn)).toEqual({});
});

test('C25: a repository in the middle of something, or with a lock of somebody else, is busy and stays as it is', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', z: '1\n' });
  const base = runGit(one, 'rev-parse', 'HEAD');
  runGit(one, 'checkout', '-q', '-b', 'other');
  rig.commit(one, { a: 'other\n' });
  runGit(one, 'checkout', '-q', 'main');
  rig.commit(one, { a: 'main\n' });
  const result = rig.result(one, { z: '2\n' });
  const begin: readonly (readonly [string, () => void, () => void])[] = [
    ['a merge', () => tryGit(one, 'merge', 'other'), () => runGit(one, 'merge', '--abort')],
    ['a cherry-pick', () => tryGit(one, 'cherry-pick', 'other'), () => runGit(one, 'cherry-pick', '--abort')],
    [
      'a revert',
      () => tryGit(one, 'revert', '--no-edit', base),
      () => rmSync(join(one, '.git/REVERT_HEAD'), { force: true }),
    ],
    ['rebase', () => tryGit(one, 'rebase', 'other'), () => runGit(one, 'rebase', '--abort')],
    ['a bisect', () => runGit(one, 'bisect', 'start'), () => runGit(one, 'bisect', 'reset')],
    ['index.lock', () => writeFileSync(join(one, '.git/index.lock'), ''), () => rmSync(join(one, '.git/index.lock'))],
    [
      'main.lock',
      () => writeFileSync(join(one, '.git/refs/heads/main.lock'), ''),
      () => rmSync(join(one, '.git/refs/heads/main.lock')),
    ],
  ];
  for (const [what, start, end] of begin) {
    start();
    if (what === 'a revert' && !existsSync(join(one, '.git/REVERT_HEAD')))
      writeFileSync(join(one, '.git/REVERT_HEAD'), `${base}\n`);
    const files = treeOf(one);
    const answer = await rig.apply([{ ...result, place: { path: one, branch: 'main' } }]);
    expect(answer, what).toMatchObject({ state: 'busy', targets: [{ state: 'busy' }] });
    expect(answer.targets[0]?.error?.message).toContain(what);
    expect(treeOf(one)).toEqual(files);
    end();
    runGit(one, 'reset', '-q', '--hard');
  }
  expect(await rig.apply([result])).toMatchObject({ state: 'applied' });
});

test('C22: paths that the plan touches and that are edited or staged are named; other dirt survives byte for byte', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', {
    a: '1\n',
    b: '1\n',
    c: '1\n',
    '.gitignore': 'ignored\n',
    keep: '1\n',
    other: '1\n',
  });
  const result = rig.result(one, { a: '2\n', b: null, c: null, 'c/d': 'folder now\n', fresh: '2\n' });
  const dirty = async (files: Record<string, string | null>, stage: readonly string[], expected: readonly string[]) => {
    writeFiles(one, files);
    for (const name of stage) runGit(one, 'add', '-f', name);
    const before = stateOf(one);
    const answer = await rig.apply([result]);
    expect(answer.state).toBe('conflict');
    expect(answer.targets[0]?.conflicts.map(({ path }) => path).sort()).toEqual(expected);
    expect(stateOf(one)).toEqual(before);
    runGit(one, 'reset', '-q', '--hard');
    runGit(one, 'clean', '-q', '-fdx');
  };
  await dirty({ a: 'mine\n' }, [], ['a']);
  await dirty({ a: 'mine\n' }, ['a'], ['a']);
  await dirty({ b: 'mine\n', fresh: 'untracked\n' }, [], ['b', 'fresh']);
  await dirty({ fresh: '2\n' }, [], ['fresh']);
  await dirty({ c: null }, [], ['c']);
  // Staged only: the working tree has the old content again.
  writeFiles(one, { a: 'staged\n' });
  runGit(one, 'add', 'a');
  await dirty({ a: '1\n' }, [], ['a']);
  writeFiles(one, { keep: 'staged\n', ignored: 'ignored\n', 'loose/file': 'untracked\n', 'empty/.x': null });
  runGit(one, 'add', 'keep');
  writeFiles(one, { keep: 'edited again\n', other: null });
  mkdirSync(join(one, 'empty'), { recursive: true });
  const dirt = ['keep', 'ignored', 'loose/file', 'empty'].map((name) => treeOf(one)[name]);
  const staged = runGit(one, 'ls-files', '-s', 'keep', 'other');
  expect(await rig.apply([result])).toMatchObject({ state: 'applied' });
  expect(['keep', 'ignored', 'loose/file', 'empty'].map((name) => treeOf(one)[name])).toEqual(dirt);
  expect(runGit(one, 'ls-files', '-s', 'keep', 'other')).toBe(staged);
  expect(runGit(one, 'status', '--porcelain')).toBe('MM keep\n D other\n?? loose/');
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(['keep', 'ignored', 'loose/file', 'empty'].map((name) => treeOf(one)[name])).toEqual(dirt);
  expect(runGit(one, 'status', '--porcelain')).toBe('MM keep\n D other\n?? loose/');
});

test('C38: hooks, signing, line endings, filters and attributes neither run nor change a byte', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', '.gitattributes': '*.big filter=lfs\n* text=auto\n' });
  const ran = join(rig.directory, 'ran');
  const program = join(rig.directory, 'program');
  writeFiles(rig.directory, { program: `#!/bin/sh\necho "$0 $*" >> ${ran}\ncat\n` });
  for (const hook of [
    'post-checkout',
    'post-merge',
    'reference-transaction',
    'post-index-change',
    'pre-commit',
    'update',
  ])
    writeFiles(one, { [`.git/hooks/${hook}`]: `#!/bin/sh\necho ${hook} >> ${ran}\nexit 1\n` });
  for (const [name, value] of [
    ['core.autocrlf', 'true'],
    ['commit.gpgSign', 'true'],
    ['gpg.program', program],
    ['filter.lfs.smudge', program],
    ['filter.lfs.clean', program],
    ['filter.lfs.process', program],
    ['filter.lfs.required', 'true'],
    ['core.fsmonitor', program],
  ] as const)
    runGit(one, 'config', name, value);
  const head = runGit(one, 'rev-parse', 'HEAD');
  const source = join(rig.directory, 'source');
  runGit(rig.directory, 'clone', '-q', one, source);
  writeFiles(source, { '.git/info/attributes': '* -text !filter\n' });
  const result = rig.next(
    { source, workspace: 'one', place: { path: one }, base: '', commit: head },
    { crlf: 'a\r\nb\r\n', lf: 'a\nb\n', 'x.big': 'version https://git-lfs.github.com/spec/v1\n', a: '2\r\n' },
  );
  expect(await rig.apply([result])).toMatchObject({ state: 'applied' });
  expect(treeOf(one)).toMatchObject({
    crlf: '644 a\r\nb\r\n',
    lf: '644 a\nb\n',
    'x.big': '644 version https://git-lfs.github.com/spec/v1\n',
    a: '644 2\r\n',
  });
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(treeOf(one)).toMatchObject({ a: '644 1\n' });
  expect(existsSync(ran)).toBe(false);
  // The same steps by git itself run them: the guards are what keeps them out.
  tryGit(one, 'merge', '-q', result.commit);
  expect(existsSync(ran)).toBe(true);
});

test('C24: a repository that keeps its refs otherwise than as files is refused by name, with a working tree too', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const result = rig.result(one, { a: '2\n' });
  runGit(one, 'config', 'extensions.refStorage', 'reftable');
  const before = treeOf(one);
  expect(await rig.apply([result])).toMatchObject({
    state: 'refused',
    targets: [{ error: { message: expect.stringContaining('extensions.refstorage') } }],
  });
  expect(treeOf(one)).toEqual(before);
});
