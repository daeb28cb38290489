/** What a process that died after the decision left, and what its user did in the meantime: whoever comes next goes on, or leaves the target to its owner. */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, type RigTarget, runGit, stateOf, treeOf, writeFiles } from '../../../test/support/apply-rig.ts';
import { PlatformError } from '../../protocol/index.ts';
import { applyStatus } from './status.ts';

/** It goes no further from there, and tidies nothing, as a process that was killed. */
const dyingAt = (name: string) => ({
  hit: async (at: string) => {
    if (at === name) throw new PlatformError('plan_apply_superseded', 'as a crash would');
  },
});

/** Somebody looks after a crash, finds a lock without a process, and removes it as git advises. */
function removeLocks(root: string): void {
  for (const lock of ['index.lock', 'refs/heads/main.lock']) rmSync(join(root, '.git', lock), { force: true });
}

async function cutOff(rig: ApplyRig, point: string): Promise<{ root: string; target: RigTarget }> {
  const root = rig.repository('one', { a: '1\n', b: '1\n' });
  const target = rig.result(root, { a: '2\n', c: '2\n' });
  await expect(rig.apply([target], { faults: dyingAt(point) })).rejects.toThrow('as a crash would');
  expect(existsSync(join(root, '.git/index.lock')), 'its locks are left').toBe(true);
  return { root, target };
}

test('C36, C37: locks that were removed after a crash are taken again, and the apply goes on', async () => {
  using rig = new ApplyRig();
  const { root, target } = await cutOff(rig, 'plan-decided');
  removeLocks(root);
  expect(await applyStatus(rig.options)).toMatchObject([{ state: 'applied' }]);
  expect(runGit(root, 'rev-parse', 'HEAD')).toBe(target.commit);
  expect(runGit(root, 'status', '--porcelain')).toBe('');
  expect(rig.leftovers(root)).toEqual([]);
});

test('C36: what was staged, committed or checked out after a crash stays, and the target is named as pending', async () => {
  const stage = (root: string) => {
    writeFiles(root, { a: 'staged\n' });
    runGit(root, 'add', 'a');
    writeFiles(root, { a: '1\n' });
  };
  const commit = (root: string) => {
    writeFiles(root, { mine: '1\n' });
    runGit(root, 'add', 'mine');
    runGit(root, 'commit', '-q', '-m', 'mine');
  };
  for (const [what, change, conflicts] of [
    ['Files were staged meanwhile', stage, ['a']],
    ['main was moved meanwhile', commit, []],
    ['main was checked out elsewhere meanwhile', (root: string) => runGit(root, 'checkout', '-q', '-b', 'other'), []],
  ] as const) {
    using rig = new ApplyRig();
    const { root } = await cutOff(rig, 'plan-decided');
    removeLocks(root);
    change(root);
    const before = stateOf(root);
    const [told] = await applyStatus(rig.options);
    expect(told).toMatchObject({ state: 'conflictPending', targets: [{ state: 'conflictPending', undoable: false }] });
    expect(told!.targets[0]!.error!.message).toContain(what);
    expect(told!.targets[0]!.conflicts.map(({ path }) => path)).toEqual(conflicts);
    expect(stateOf(root), what).toEqual(before);
    expect(rig.leftovers(root)).toEqual([]);
  }
});

test('C34: once the branch has moved only the index is left, and what somebody staged over it stays', async () => {
  for (const isStaged of [false, true]) {
    using rig = new ApplyRig();
    const { root, target } = await cutOff(rig, 'plan-branch-moved');
    removeLocks(root);
    if (isStaged) {
      writeFiles(root, { a: 'mine\n' });
      runGit(root, 'add', 'a');
    }
    const staged = runGit(root, 'ls-files', '-s', 'a');
    expect(await applyStatus(rig.options)).toMatchObject([{ state: 'applied' }]);
    expect(runGit(root, 'rev-parse', 'HEAD')).toBe(target.commit);
    if (isStaged) expect(runGit(root, 'ls-files', '-s', 'a')).toBe(staged);
    else expect(runGit(root, 'status', '--porcelain')).toBe('');
    expect(treeOf(root)).toMatchObject({ a: isStaged ? '644 mine\n' : '644 2\n', c: '644 2\n' });
    expect(rig.leftovers(root)).toEqual([]);
  }
});

test('what was prepared and is gone after a crash is told, and the target is left', async () => {
  using rig = new ApplyRig();
  const { root } = await cutOff(rig, 'plan-decided');
  const before = treeOf(root);
  for (const name of readdirSync(join(root, '.git'))) {
    if (name.startsWith('.atoll-')) rmSync(join(root, '.git', name), { recursive: true });
  }
  const [told] = await applyStatus(rig.options);
  expect(told).toMatchObject({ state: 'conflictPending' });
  expect(told!.targets[0]!.error!.message).toContain('is gone');
  expect(treeOf(root)).toEqual(before);
  expect(existsSync(join(root, '.git/index.lock')), 'whose it is cannot be proved any more').toBe(true);
});
