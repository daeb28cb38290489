/** What a target becomes that moved meanwhile, and what happens when that cannot be. */
import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, type RigTarget, runGit, stateOf, treeOf, writeFiles } from '../../../test/support/apply-rig.ts';
import { ScriptedFaults } from '../../base/index.ts';

const lines = (...changed: readonly (readonly [number, string])[]) => {
  const all = Array.from({ length: 12 }, (_, index) => `line ${index}`);
  for (const [at, text] of changed) all[at] = text;
  return `${all.join('\n')}\n`;
};

test('C20: a target that moved is merged where the changes do not overlap, with shared history, without, and without git', async () => {
  using rig = new ApplyRig();
  const base = { a: lines(), b: '1\n' };
  const shared = rig.repository('shared', base);
  const foreign = rig.repository('foreign', base);
  const plain = rig.folder('plain', base);
  const changes = { a: lines([1, 'plan']), fresh: '1\n' };
  const targets = [
    rig.result(shared, changes),
    rig.foreignResult(base, changes, { path: foreign }, 'foreign'),
    rig.foreignResult(base, changes, { path: plain }, 'plain'),
  ];
  for (const root of [shared, foreign]) rig.commit(root, { a: lines([10, 'user']), b: '2\n' });
  writeFiles(plain, { a: lines([10, 'user']), b: '2\n' });
  const heads = [shared, foreign].map((root) => runGit(root, 'rev-parse', 'HEAD'));
  const result = await rig.apply(targets);
  expect(result).toMatchObject({ state: 'applied' });
  for (const root of [shared, foreign, plain]) {
    expect(treeOf(root)).toMatchObject({
      a: `644 ${lines([1, 'plan'], [10, 'user'])}`,
      b: '644 2\n',
      fresh: '644 1\n',
    });
  }
  expect(runGit(shared, 'log', '-1', '--format=%P')).toBe(`${heads[0]} ${targets[0]!.commit}`);
  expect(runGit(foreign, 'log', '-1', '--format=%P %an %s')).toBe(`${heads[1]} Ada result for foreign`);
  expect(runGit(foreign, 'log', '-1', '--format=%(trailers:key=Atoll-Plan,valueonly)')).toBe('pln1');
  expect(runGit(foreign, 'status', '--porcelain')).toBe('');
  // The next plan of the same workspaces finds its base in what was applied.
  const next = targets.map((target) => rig.next(target, { fresh: '2\n' }));
  expect(await rig.apply(next)).toMatchObject({ state: 'applied' });
  for (const root of [shared, foreign, plain]) expect(treeOf(root)).toMatchObject({ fresh: '644 2\n', b: '644 2\n' });
});

test('C19: a conflict in one target releases all, every conflict of every target is told, and nothing has changed', async () => {
  using rig = new ApplyRig();
  const roots = ['one', 'two', 'three'].map((name) => rig.repository(name, { a: '1\n', b: '1\n' }));
  const plain = rig.folder('plain', { p: '1\n' });
  const targets: RigTarget[] = roots.map((root) => rig.result(root, { a: 'plan\n', b: 'plan\n' }));
  targets.push(rig.foreignResult({ p: '1\n' }, { p: 'plan\n' }, { path: plain }, 'plain'));
  rig.commit(roots[0]!, { a: 'user\n', b: 'user\n' });
  rig.commit(roots[1]!, { b: 'user\n' });
  writeFiles(plain, { p: 'user\n' });
  const before = [...roots.map(stateOf), treeOf(plain)];
  const result = await rig.apply(targets);
  expect(result.state).toBe('conflict');
  const told = Object.fromEntries(
    result.targets.map(({ workspace, state, conflicts }) => [workspace, [state, conflicts.map(({ path }) => path)]]),
  );
  expect(told).toEqual({
    one: ['conflict', ['a', 'b']],
    two: ['conflict', ['b']],
    three: ['notApplied', []],
    plain: ['conflict', ['p']],
  });
  expect([...roots.map(stateOf), treeOf(plain)]).toEqual(before);
  for (const root of [...roots, plain]) expect(rig.leftovers(root)).toEqual([]);
  for (const root of roots) expect(runGit(root, 'for-each-ref', 'refs/atoll')).toBe('');
});

test('a dry run tells what would be and leaves nothing', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const before = stateOf(one);
  const target = rig.result(one, { a: '2\n' });
  expect(await rig.apply([target], { dryRun: true })).toMatchObject({
    state: 'applied',
    dryRun: true,
    refs: [],
    targets: [{ state: 'wouldApply', files: 1, undoable: false }],
  });
  expect(stateOf(one)).toEqual(before);
  expect(runGit(one, 'for-each-ref', 'refs/atoll')).toBe('');
  expect(await rig.undo()).toBeUndefined();
});

test('C21: a target that moves after it was prepared is prepared again; one that always moves ends it, with nothing changed', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', b: '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const targets = [rig.result(one, { a: '2\n' }), rig.result(two, { a: '2\n' })];
  let moves = 0;
  const moving = (limit: number) => ({
    hit: async (name: string) => {
      if (name === 'plan-lock' && moves < limit) rig.commit(two, { b: `${moves++}\n` });
    },
  });
  expect(await rig.apply(targets, { faults: moving(100) })).toMatchObject({ state: 'aborted' });
  expect(treeOf(one)).toMatchObject({ a: '644 1\n' });
  moves = 0;
  expect(await rig.apply(targets, { faults: moving(1) })).toMatchObject({ state: 'applied' });
  expect(treeOf(two)).toEqual({ a: '644 2\n', b: '644 0\n' });
});

test('C36: an edit between the decision and its turn stays; that target is left as it was, the others are applied', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', b: '1\n', c: '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const plain = rig.folder('plain', { p: '1\n', q: '1\n' });
  const targets = [
    rig.result(one, { a: '2\n', b: '2\n', c: null, fresh: '2\n' }),
    rig.result(two, { a: '2\n' }),
    rig.foreignResult({ p: '1\n', q: '1\n' }, { p: '2\n', q: '2\n' }, { path: plain }, 'plain'),
  ];
  const head = runGit(one, 'rev-parse', 'HEAD');
  const faults = new ScriptedFaults();
  const gate = faults.hold('plan-decided');
  const applying = rig.apply(targets, { faults });
  await gate.reached;
  writeFileSync(join(one, 'b'), 'saved at the last moment\n');
  writeFileSync(join(plain, 'q'), 'and here\n');
  gate.open();
  const result = await applying;
  expect(result.state).toBe('conflictPending');
  expect(
    Object.fromEntries(result.targets.map(({ workspace, state, conflicts }) => [workspace, [state, conflicts]])),
  ).toEqual({
    one: ['conflictPending', [{ path: 'b', reason: 'changed_meanwhile' }]],
    two: ['applied', []],
    plain: ['conflictPending', [{ path: 'q', reason: 'changed_meanwhile' }]],
  });
  expect(treeOf(one)).toEqual({ a: '644 1\n', b: '644 saved at the last moment\n', c: '644 1\n' });
  expect(runGit(one, 'rev-parse', 'HEAD')).toBe(head);
  expect(runGit(one, 'status', '--porcelain')).toBe('M b');
  expect(treeOf(plain)).toEqual({ p: '644 1\n', q: '644 and here\n' });
  expect(treeOf(two)).toEqual({ a: '644 2\n' });
  for (const root of [one, two, plain]) expect(rig.leftovers(root)).toEqual([]);
  // Settled by its owner, the same plan goes on with what is left.
  runGit(one, 'checkout', '-q', 'b');
  writeFileSync(join(plain, 'q'), '1\n');
  expect(await rig.apply(targets)).toMatchObject({ state: 'applied' });
  expect(treeOf(one)).toEqual({ a: '644 2\n', b: '644 2\n', fresh: '644 2\n' });
  expect(treeOf(plain)).toEqual({ p: '644 2\n', q: '644 2\n' });
});

test('C36: a program that still writes to the file that was there loses nothing', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', z: '1\n' });
  const target = rig.result(one, { a: '2\n', z: '2\n' });
  const editor = openSync(join(one, 'a'), 'a');
  let steps = 0;
  const faults = {
    hit: async (name: string) => void (name === 'plan-step' && ++steps === 2 && writeSync(editor, 'typed\n')),
  };
  const result = await rig.apply([target], { faults });
  closeSync(editor);
  expect(result).toMatchObject({ state: 'conflictPending', targets: [{ conflicts: [{ path: 'a' }] }] });
  expect(treeOf(one)).toEqual({ a: '644 1\ntyped\n', z: '644 1\n' });
});
