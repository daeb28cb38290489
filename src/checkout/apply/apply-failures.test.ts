/** Applies and undos that fail before the decision: nothing is changed, nothing is left, and asking again succeeds. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, runGit, stateOf, treeOf } from '../../../test/support/apply-rig.ts';
import { ScriptedFaults } from '../../base/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import { applyStatus } from './status.ts';

const doing = (name: string, act: () => unknown) => ({
  hit: async (at: string) => {
    if (at === name) await act();
  },
});
const throwing = (name: string, error: Error) =>
  doing(name, () => {
    throw error;
  });
const diskFull = () =>
  Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', errno: -28, syscall: 'write' });

const journalsOf = (rig: ApplyRig) =>
  readdirSync(join(rig.state, 'plan-apply')).filter((name) => /^\d{15}-/.test(name));

test('C26: a disk that is full before the decision aborts, and a bug is thrown; both leave nothing', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  const before = stateOf(one);
  expect(await rig.apply([target], { faults: throwing('plan-stage', diskFull()) })).toMatchObject({
    state: 'aborted',
    targets: [{ state: 'notApplied', error: { code: 'insufficient_storage' } }],
  });
  await expect(rig.apply([target], { faults: throwing('plan-stage', new Error('a bug')) })).rejects.toThrow('a bug');
  expect(stateOf(one)).toEqual(before);
  expect(rig.leftovers(one)).toEqual([]);
  expect(journalsOf(rig)).toEqual([]);
  expect(await rig.apply([target])).toMatchObject({ state: 'applied' });
});

test('C51: who was overtaken before the decision decides nothing, and leaves what it prepared to the other', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  const before = stateOf(one);
  const faults = new ScriptedFaults();
  const gate = faults.hold('plan-before-decision');
  const overtaken = rig.apply([target], { faults }).catch((error: unknown) => error);
  await gate.reached;
  // Only by removing the lock's file can another get in.
  rmSync(join(rig.state, 'plan-apply/lock.db'));
  await expect(rig.undo({ faults: throwing('plan-recover', new Error('as a crash would')) })).rejects.toThrow('crash');
  gate.open();
  expect(isPlatformError(await overtaken, 'plan_apply_superseded')).toBe(true);
  expect(stateOf(one)).toEqual(before);
  expect(await rig.undo(), 'whoever comes next takes back what was not decided').toBeUndefined();
  expect(rig.leftovers(one)).toEqual([]);
});

test('C25, C37: a lock that somebody takes at the last moment makes the target busy, and stays', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  const lock = join(one, '.git/index.lock');
  const faults = doing('plan-lock', () => writeFileSync(lock, 'of somebody'));
  expect(await rig.apply([target], { faults })).toMatchObject({ state: 'busy', targets: [{ state: 'busy' }] });
  expect(rig.leftovers(one)).toEqual(['index.lock']);
  rmSync(lock);
  expect(await rig.apply([target])).toMatchObject({ state: 'applied' });
});

test('C45: an undo that fails before its decision changes nothing; one that is overtaken by a change names the target', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const targets = [rig.result(one, { a: '2\n' }), rig.result(two, { a: '2\n' })];
  expect(await rig.apply(targets)).toMatchObject({ state: 'applied' });
  const after = [stateOf(one), stateOf(two)];
  const bug = throwing('plan-undo-before-decision', new Error('a bug'));
  await expect(rig.undo({ faults: bug })).rejects.toThrow('a bug');
  expect([stateOf(one), stateOf(two)]).toEqual(after);
  let isMoved = false;
  const moving = doing('plan-undo-lock', () => {
    if (isMoved) return;
    isMoved = true;
    rig.commit(two, { mine: '1\n' });
  });
  const moved = await rig.undo({ faults: moving });
  expect(moved).toMatchObject({ state: 'undoIncomplete' });
  const told = Object.fromEntries(
    moved!.targets.map(({ workspace, state, error }) => [workspace, [state, error?.message]]),
  );
  expect(told).toEqual({
    one: ['undone', undefined],
    two: ['undoPending', expect.stringContaining('changed while it was looked at')],
  });
  rmSync(two, { recursive: true });
  const gone = await rig.undo();
  expect(gone).toMatchObject({ state: 'undoIncomplete', targets: [{ workspace: 'two', state: 'undoPending' }] });
  expect(treeOf(one)).toEqual({ a: '644 1\n' });
  for (const root of [one]) expect(rig.leftovers(root)).toEqual([]);
});

test('C49: what was taken back is told as undone, and content that is there already is nothing to do', async () => {
  using rig = new ApplyRig();
  const plain = rig.folder('plain', { p: '2\n' });
  const target = rig.foreignResult({ p: '1\n' }, { p: '2\n' }, { path: plain }, 'plain');
  expect(await rig.apply([target])).toMatchObject({ state: 'nothing', targets: [{ state: 'unchanged' }] });
  expect(await applyStatus(rig.options)).toEqual([]);
  const next = rig.next(target, { q: '1\n' });
  expect(await rig.apply([next])).toMatchObject({ state: 'applied' });
  await rig.undo();
  expect(await applyStatus(rig.options)).toMatchObject([{ state: 'undone', targets: [{ state: 'undone' }] }]);
});

test('C26: a result that is larger than the limit is refused before anything of it is written', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const before = stateOf(one);
  const refused = await rig.apply([rig.result(one, { a: '2\n' })], { limits: { totalBytes: 20 } });
  expect(refused).toMatchObject({ state: 'refused', targets: [{ error: { code: 'sync_limit_exceeded' } }] });
  expect(stateOf(one)).toEqual(before);
});

test('C15, C24: a sparse checkout, a repository in the way, one that git does not open, and a branch of no repository are refused by name', async () => {
  using rig = new ApplyRig();
  const why = async (target: Parameters<ApplyRig['apply']>[0][0], more = {}) => {
    const refused = await rig.apply([target], more);
    expect(refused.state).toBe('refused');
    return refused.targets[0]!.error!.message;
  };
  const sparse = rig.repository('sparse', { 'in/a': '1\n', 'out/b': '1\n' });
  const outside = rig.result(sparse, { 'out/b': '2\n' });
  runGit(sparse, 'sparse-checkout', 'set', 'in');
  expect(await why(outside)).toContain('sparse checkout without out/b');
  const outer = rig.repository('outer', { a: '1\n' });
  const intoSub = rig.result(outer, { 'sub/x': '2\n' });
  rig.repository('outer/sub', { y: '1\n' });
  expect(await why(intoSub)).toContain('sub in');
  expect(treeOf(join(outer, 'sub'))).toEqual({ y: '644 1\n' });
  const broken = rig.folder('broken', { p: '1\n' });
  mkdirSync(join(broken, '.git'));
  const toBroken = rig.foreignResult({ p: '1\n' }, { p: '2\n' }, { path: broken }, 'broken');
  expect(await why(toBroken)).toContain('git does not open the repository');
  const plain = rig.folder('plain', { p: '1\n' });
  expect(await why({ ...toBroken, place: { path: plain, branch: 'main' } })).toContain('has no branch main');
  symlinkSync('plain', join(rig.directory, 'first'));
  symlinkSync('first', join(rig.directory, 'second'));
  const through = { ...toBroken, place: { path: join(rig.directory, 'second') } };
  expect(await why(through, { flip: true })).toContain('further symlinks');
  expect(treeOf(plain)).toEqual({ p: '644 1\n' });
});

test('C41, C74: of directories that were exchanged those of ours go when their records expire, but for the one in use', async () => {
  using rig = new ApplyRig();
  rig.folder('site.1', { index: '1\n' });
  const live = join(rig.directory, 'live');
  symlinkSync('site.1', live);
  const first = rig.foreignResult({ index: '1\n' }, { index: '2\n' }, { path: live }, 'site');
  const copies = () => readdirSync(rig.directory).filter((name) => name.startsWith('.atoll-'));
  expect(await rig.apply([first], { flip: true, dryRun: true })).toMatchObject({ state: 'applied', dryRun: true });
  expect([copies(), readlinkSync(live)], 'a trial leaves nothing').toEqual([[], 'site.1']);
  expect(await rig.apply([first], { flip: true })).toMatchObject({ state: 'applied' });
  expect(await rig.apply([rig.next(first, { index: '3\n' })], { flip: true })).toMatchObject({ state: 'applied' });
  expect(copies()).toHaveLength(2);
  const later = { nowMs: () => rig.tick() + 15 * 24 * 3600 * 1000 };
  expect(await rig.undo(later)).toBeUndefined();
  expect(copies()).toEqual([readlinkSync(live)]);
  expect(treeOf(realpathSync(live))).toEqual({ index: '644 3\n' });
  expect(existsSync(join(rig.directory, 'site.1')), 'what somebody else made stays').toBe(true);
});

test('C53: a journal that cannot be read, or a number of the runner that is none, stops everything', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  expect(await rig.apply([rig.result(one, { a: '2\n' })])).toMatchObject({ state: 'applied' });
  const folder = join(rig.state, 'plan-apply');
  const fence = join(folder, 'fence');
  writeFileSync(fence, 'many\n');
  await expect(rig.undo()).rejects.toMatchObject({ code: 'plan_journal_unusable' });
  rmSync(fence);
  mkdirSync(fence);
  await expect(rig.undo()).rejects.toThrow('EISDIR');
  rmSync(fence, { recursive: true });
  const journal = join(folder, journalsOf(rig)[0]!, 'journal');
  rmSync(journal);
  mkdirSync(journal);
  await expect(rig.undo()).rejects.toMatchObject({ code: 'plan_journal_unusable' });
  expect(treeOf(one)).toEqual({ a: '644 2\n' });
});
