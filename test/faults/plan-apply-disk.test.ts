/** Disks that are full, read-only or mounted in the middle of a target: found before anything is changed, or gone on with afterwards. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ApplyRig, runGit, stateOf, treeOf } from '../support/apply-rig.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root);
/** Unmounted before the rig's folder is removed. */
function mountAt(path: string, ...words: readonly string[]): Disposable {
  mkdirSync(path, { recursive: true });
  execFileSync('mount', [...words, path]);
  return { [Symbol.dispose]: () => execFileSync('umount', ['-l', path]) };
}

test('C26: a disk without room, or that cannot be written, is found while preparing; the other targets are as they were', async () => {
  using rig = new ApplyRig();
  const small = join(rig.directory, 'small');
  using _mount = mountAt(small, '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs');
  const one = rig.repository('one', { a: '1\n' });
  const full = rig.repository('small/repo', { a: '1\n' });
  const plain = rig.folder('small/plain', { a: '1\n' });
  const before = () => [stateOf(one), stateOf(full), treeOf(plain)];
  const was = before();
  const big = randomBytes(700_000).toString('hex');
  const other = rig.result(one, { a: '2\n' });
  for (const target of [
    rig.result(full, { big }),
    rig.foreignResult({ a: '1\n' }, { big }, { path: plain }, 'plain'),
  ]) {
    const result = await rig.apply([other, target]);
    expect(result).toMatchObject({ state: 'aborted', targets: [{ state: 'notApplied' }, { state: 'notApplied' }] });
    expect(JSON.stringify(result.targets)).toMatch(/no space|ENOSPC|insufficient_storage/i);
    expect(before()).toEqual(was);
    expect([full, plain, one].flatMap((root) => rig.leftovers(root))).toEqual([]);
  }
  execFileSync('mount', ['-o', 'remount,ro', small]);
  for (const target of [
    rig.result(full, { a: '2\n' }),
    rig.foreignResult({ a: '1\n' }, { a: '2\n' }, { path: plain }, 'plain'),
  ]) {
    const result = await rig.apply([other, target]);
    expect(result.state, JSON.stringify(result.targets)).toMatch(/refused|aborted/);
    expect(before()).toEqual(was);
  }
  execFileSync('mount', ['-o', 'remount,rw', small]);
  expect(await rig.apply([other, rig.result(full, { a: '2\n' })])).toMatchObject({ state: 'applied' });
});

test('C35: a disk that fills after the decision leaves it in doubt; when there is room the next command goes on', async () => {
  using rig = new ApplyRig();
  const small = join(rig.directory, 'small');
  using _mount = mountAt(small, '-t', 'tmpfs', '-o', 'nr_inodes=200', 'tmpfs');
  const one = rig.repository('one', { a: '1\n' });
  const full = rig.repository('small/repo', { a: '1\n' });
  const fillers = join(small, 'fillers');
  mkdirSync(fillers);
  const fill = () => {
    for (let count = 0; count < 1_000; count++) {
      try {
        writeFileSync(join(fillers, String(count)), '');
      } catch {
        return;
      }
    }
  };
  const targets = [rig.result(one, { a: '2\n' }), rig.result(full, { a: '2\n', 'new/folder/file': '2\n' })];
  const result = await rig.apply(targets, {
    faults: { hit: async (name) => void (name === 'plan-decided' && fill()) },
  });
  expect(result.state, JSON.stringify(result.targets)).toBe('inDoubt');
  expect(Object.fromEntries(result.targets.map(({ workspace, state }) => [workspace, state]))).toEqual({
    one: 'applied',
    repo: 'inDoubt',
  });
  expect(result.targets.find(({ workspace }) => workspace === 'repo')?.error?.code).toBe('insufficient_storage');
  for (const name of readdirSync(fillers)) rmSync(join(fillers, name));
  expect(await rig.apply(targets)).toMatchObject({ state: 'nothing' });
  expect(treeOf(full)).toMatchObject({ a: '644 2\n', 'new/folder/file': '644 2\n' });
  expect(runGit(full, 'status', '--porcelain')).toBe('');
});

test('C39: a change below a mount inside of a target is refused by name; a mount that it does not touch is no matter', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', 'd/b': '1\n' });
  const result = rig.result(one, { a: '2\n', 'd/b': '2\n' });
  const elsewhere = rig.folder('elsewhere', { b: '1\n' });
  using _mount = mountAt(join(one, 'd'), '--bind', elsewhere);
  const before = treeOf(one);
  const refused = await rig.apply([result]);
  expect(refused).toMatchObject({
    state: 'refused',
    targets: [{ error: { message: expect.stringMatching(/^d in .* is a mount/) } }],
  });
  expect(treeOf(one)).toEqual(before);
  expect(await rig.apply([rig.result(one, { a: '2\n' })])).toMatchObject({ state: 'applied' });
});

test('C26: a file that is immutable is found before the decision, and no target is changed', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', 'd/b': '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const plain = rig.folder('plain', { a: '1\n' });
  const targets = [
    rig.result(one, { a: '2\n', 'd/b': null }),
    rig.result(two, { a: '2\n' }),
    rig.foreignResult({ a: '1\n' }, { a: '2\n' }, { path: plain }, 'plain'),
  ];
  const was = [stateOf(one), stateOf(two), treeOf(plain)];
  for (const path of [join(one, 'a'), join(one, 'd/b'), join(one, 'd'), join(plain, 'a')]) {
    execFileSync('chattr', ['+i', path]);
    try {
      const refused = await rig.apply(targets);
      expect(refused.state, `${path}: ${JSON.stringify(refused.targets)}`).toBe('refused');
      expect([stateOf(one), stateOf(two), treeOf(plain)]).toEqual(was);
    } finally {
      execFileSync('chattr', ['-i', path]);
    }
  }
  // One that nobody may write is replaced: the folder decides.
  chmodSync(join(one, 'a'), 0o444);
  expect(await rig.apply(targets)).toMatchObject({ state: 'applied' });
});

test('C47: a file that cannot be removed makes an undo incomplete, with nothing laid over it; it can be asked again', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const was = [stateOf(one), stateOf(two)];
  expect(await rig.apply([rig.result(one, { a: '2\n', b: '2\n' }), rig.result(two, { a: '2\n' })])).toMatchObject({
    state: 'applied',
  });
  execFileSync('chattr', ['+i', join(one, 'a')]);
  try {
    const undone = await rig.undo();
    expect(undone?.state, JSON.stringify(undone)).toBe('undoIncomplete');
    expect(Object.fromEntries(undone!.targets.map(({ workspace, state }) => [workspace, state]))).toEqual({
      one: 'undoPending',
      two: 'undone',
    });
    expect(treeOf(one)['a']).toBe('644 2\n');
    expect(stateOf(two)).toEqual(was[1]);
  } finally {
    execFileSync('chattr', ['-i', join(one, 'a')]);
  }
  await rig.undo();
  expect([stateOf(one), stateOf(two)]).toEqual(was);
  expect(rig.leftovers(one)).toEqual([]);
});
