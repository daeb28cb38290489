import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, runGit, stateOf, treeOf } from '../../../test/support/apply-rig.ts';

test('C31, C64: every target of every kind gets its changes, and the result tells them', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', 'd/b': '1\n', gone: 'x\n' });
  const bare = join(rig.directory, 'bare.git');
  runGit(rig.directory, 'clone', '-q', '--bare', one, bare);
  const plain = rig.folder('plain', { p: '1\n', other: 'mine\n' });
  const targets = [
    rig.result(one, { a: '2\n', 'n/e/w': '#!/bin/sh\n', gone: null, link: '-> a' }),
    rig.result(one, { a: '3\n' }, { path: bare, branch: 'main' }, 'bare'),
    rig.foreignResult({ p: '1\n' }, { p: '2\n', q: 'new\n' }, { path: plain }, 'plain'),
  ];
  const result = await rig.apply(targets);
  expect(result).toMatchObject({ state: 'applied', kind: 'apply', mode: 'atomic', dryRun: false, planId: 'pln1' });
  expect(
    result.targets.map(({ workspace, state, files, insertions, deletions, branch, undoable }) => ({
      workspace,
      state,
      files,
      insertions,
      deletions,
      branch,
      undoable,
    })),
  ).toEqual([
    { workspace: 'plain', state: 'applied', files: 2, insertions: 2, deletions: 1, branch: null, undoable: true },
    { workspace: 'bare', state: 'applied', files: 1, insertions: 1, deletions: 1, branch: 'main', undoable: true },
    { workspace: 'one', state: 'applied', files: 4, insertions: 3, deletions: 2, branch: 'main', undoable: true },
  ]);
  expect(runGit(one, 'rev-parse', 'HEAD')).toBe(targets[0]!.commit);
  expect(result.targets[2]).toMatchObject({ before: targets[0]!.base, after: targets[0]!.commit });
  expect(runGit(one, 'status', '--porcelain')).toBe('');
  expect(treeOf(one)).toEqual({
    a: '644 2\n',
    d: '755 directory',
    'd/b': '644 1\n',
    link: '-> a',
    n: '755 directory',
    'n/e': '755 directory',
    'n/e/w': '755 #!/bin/sh\n',
  });
  expect(runGit(bare, 'rev-parse', 'main')).toBe(targets[1]!.commit);
  expect(treeOf(plain)).toEqual({ p: '644 2\n', q: '644 new\n', other: '644 mine\n' });
  for (const root of [one, bare, plain]) expect(rig.leftovers(root)).toEqual([]);
  expect(readFileSync(join(one, '.git/logs/HEAD'), 'utf8')).toContain('atoll plan apply: a plan');
  expect(result.refs).toHaveLength(4);
});

test('C73: the same plan again is a no-op, and undo takes it back once', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const two = rig.folder('two', { a: '1\n' });
  const before = [stateOf(one), treeOf(two)];
  const targets = [rig.result(one, { a: '2\n' }), rig.foreignResult({ a: '1\n' }, { a: '2\n' }, { path: two }, 'two')];
  expect(await rig.apply(targets)).toMatchObject({ state: 'applied' });
  const after = [stateOf(one), treeOf(two)];
  expect(await rig.apply(targets)).toMatchObject({ state: 'nothing' });
  expect([stateOf(one), treeOf(two)]).toEqual(after);
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect([stateOf(one), treeOf(two)]).toEqual(before);
  expect(await rig.undo()).toBeUndefined();
});
