/** Taking an apply back. */
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, type Files, runGit, stateOf, treeOf, writeFiles } from '../../../test/support/apply-rig.ts';

const before: Files = {
  a: '1\n',
  run: '#!/bin/sh\n',
  link: '-> a',
  'd/only': '1\n',
  gone: 'x\n',
  'keep/k': '1\n',
  swap: 'file\n',
};
const change: Files = {
  a: '2\n',
  run: 'not executable any more\n',
  link: '-> elsewhere',
  'd/only': null,
  gone: null,
  swap: null,
  'swap/inside': 'folder now\n',
  'new/deep/file': '1\n',
  'empty/now-used': '1\n',
  script: '#!/bin/sh\n',
};

test('C46: undo removes what was added and restores what was deleted, with permissions, symlinks, and folders that git does not know', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', before);
  const plain = rig.folder('plain', before);
  const targets = [rig.result(one, change), rig.foreignResult(before, change, { path: plain }, 'plain')];
  for (const root of [one, plain]) {
    mkdirSync(join(root, 'empty'));
    chmodSync(join(root, 'empty'), 0o711);
    chmodSync(join(root, 'a'), 0o600);
    chmodSync(join(root, 'gone'), 0o640);
    chmodSync(join(root, 'd'), 0o750);
    writeFiles(root, { 'keep/untracked': 'mine\n' });
  }
  const was = [stateOf(one), treeOf(plain)];
  expect(await rig.apply(targets)).toMatchObject({ state: 'applied' });
  for (const root of [one, plain]) {
    expect(treeOf(root)).toMatchObject({
      a: '600 2\n',
      'swap/inside': '644 folder now\n',
      script: '755 #!/bin/sh\n',
      link: '-> elsewhere',
    });
    expect(treeOf(root)['run']).toBe('644 not executable any more\n');
    expect(Object.keys(treeOf(root))).not.toContain('d');
  }
  expect(await rig.undo()).toMatchObject({
    kind: 'undo',
    state: 'undone',
    targets: [{ state: 'undone' }, { state: 'undone' }],
  });
  expect([stateOf(one), treeOf(plain)]).toEqual(was);
  expect(runGit(one, 'status', '--porcelain')).toBe('?? keep/untracked');
  for (const root of [one, plain]) expect(rig.leftovers(root)).toEqual([]);
});

test('C45, C48, C49: a target that was edited since is left and named, the others are undone; a repeat goes on, and one more does nothing', async () => {
  using rig = new ApplyRig();
  const roots = ['one', 'two', 'three', 'four'].map((name) => rig.repository(name, { a: '1\n', b: '1\n' }));
  const [one, two, three, four] = roots as [string, string, string, string];
  const was = roots.map(stateOf);
  expect(await rig.apply(roots.map((root) => rig.result(root, { a: '2\n', b: '2\n', c: '2\n' })))).toMatchObject({
    state: 'applied',
  });
  writeFileSync(join(one, 'a'), 'edited since\n');
  rig.commit(two, { other: '1\n' });
  runGit(three, 'checkout', '-q', '-b', 'elsewhere');
  const first = await rig.undo();
  expect(first?.state).toBe('undoIncomplete');
  const told = Object.fromEntries(
    first!.targets.map(({ workspace, state, conflicts, error }) => [
      workspace,
      [state, conflicts.map(({ path }) => path), error?.message ?? ''],
    ]),
  );
  expect(told).toEqual({
    one: ['undoPending', ['a'], expect.stringContaining('edited since')],
    two: ['undoPending', [], expect.stringContaining('has moved since')],
    three: ['undoPending', [], expect.stringContaining('checked out elsewhere')],
    four: ['undone', [], ''],
  });
  expect(stateOf(four)).toEqual(was[3]);
  expect(treeOf(one)).toEqual({ a: '644 edited since\n', b: '644 2\n', c: '644 2\n' });
  for (const root of roots) expect(rig.leftovers(root)).toEqual([]);
  expect(await rig.undo()).toMatchObject({ state: 'undoIncomplete', targets: [{}, {}, {}] });
  writeFileSync(join(one, 'a'), '2\n');
  runGit(two, 'reset', '-q', '--hard', 'HEAD~1');
  runGit(three, 'checkout', '-q', 'main');
  runGit(three, 'branch', '-q', '-D', 'elsewhere');
  expect(await rig.undo()).toMatchObject({ state: 'undone', targets: [{}, {}, {}] });
  expect(roots.map(stateOf)).toEqual(was);
  expect(await rig.undo()).toBeUndefined();
});

test('C46: folders that were filled since stay, and applies are undone one after another, the last one first', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const first = rig.result(one, { 'new/file': '1\n' });
  const second = rig.next(first, { 'new/file': '2\n' });
  expect(await rig.apply([first])).toMatchObject({ state: 'applied' });
  expect(await rig.apply([second])).toMatchObject({ state: 'applied' });
  writeFiles(one, { 'new/mine': 'mine\n' });
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(treeOf(one)).toMatchObject({ 'new/file': '644 1\n' });
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(treeOf(one)).toEqual({ a: '644 1\n', new: '755 directory', 'new/mine': '644 mine\n' });
  rmSync(join(one, 'new'), { recursive: true });
  expect(await rig.apply([second])).toMatchObject({ state: 'applied' });
});
