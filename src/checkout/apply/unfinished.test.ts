/** Between the decision and its end: what a power loss keeps, and what nobody begins beside it. */
import { readlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { ApplyRig, runGit, treeOf } from '../../../test/support/apply-rig.ts';

/** Fails so often at this point, as a disk that is full for a while would. */
function failingFor(times: number, name: string, after = 0) {
  let [passed, left] = [after, times];
  return {
    hit: async (at: string) => {
      if (at !== name || passed-- > 0) return;
      if (left-- > 0) throw new Error('as a full disk would');
    },
  };
}
/** How often a target is tried before it is left for the next one who comes. */
const tries = 3;

test('an apply that is not finished everywhere is not undone in part: it goes on first, then all of it goes back', async () => {
  using rig = new ApplyRig();
  const roots = [rig.repository('one', { a: '1\n' }), rig.repository('two', { a: '1\n' })] as const;
  const targets = roots.map((root) => rig.result(root, { a: '2\n' }));
  const contents = () => roots.map((root) => treeOf(root)['a']);
  const faults = failingFor(tries, 'plan-files-done', 1);
  expect(await rig.apply(targets, { faults })).toMatchObject({
    state: 'inDoubt',
    targets: [{ state: 'applied' }, { state: 'inDoubt' }],
  });
  // Still no room when the undo looks.
  const refused = await rig.undo({ faults: failingFor(tries, 'plan-files-done') });
  expect(refused).toMatchObject({ state: 'undoIncomplete', targets: [{ error: { code: 'plan_target_busy' } }, {}] });
  expect(contents()[0]).toBe('644 2\n');
  expect(await rig.undo()).toMatchObject({ state: 'undone', targets: [{ state: 'undone' }, { state: 'undone' }] });
  expect(contents()).toEqual(['644 1\n', '644 1\n']);
  expect(await rig.undo()).toBeUndefined();
  expect(contents()).toEqual(['644 1\n', '644 1\n']);
});

test('another plan does not begin where an earlier one is decided and not finished', async () => {
  using rig = new ApplyRig();
  const plain = rig.folder('plain', { a: '1\n', b: '1\n' });
  const repository = rig.repository('repository', { a: '1\n' });
  for (const [root, first] of [
    [plain, rig.foreignResult({ a: '1\n', b: '1\n' }, { a: '2\n', b: '2\n' }, { path: plain }, 'plain')],
    [repository, rig.result(repository, { a: '2\n' })],
  ] as const) {
    const second = rig.next(first, { a: '3\n' });
    expect(await rig.apply([first], { faults: failingFor(tries, 'plan-files-done') })).toMatchObject({
      state: 'inDoubt',
    });
    const between = treeOf(root);
    expect(await rig.apply([second], { faults: failingFor(tries, 'plan-files-done') }), root).toMatchObject({
      state: 'busy',
      targets: [{ state: 'busy', error: { message: expect.stringContaining('decided and not finished') } }],
    });
    expect(treeOf(root)).toEqual(between);
    expect(await rig.apply([second])).toMatchObject({ state: 'applied' });
    expect(treeOf(root)).toMatchObject({ a: '644 3\n' });
  }
});

test('C31: C35: a power loss keeps in order: the name of the journal, then the files, then the branch', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', 'old/b': '1\n' });
  const result = rig.result(one, { a: '2\n', 'new/deep/c': '2\n', 'old/b': null });
  const probe = await open(one, 'r');
  const synced: string[] = [];
  const spy = vi.spyOn(Object.getPrototypeOf(probe) as FileHandle, 'sync').mockImplementation(async function (
    this: FileHandle,
  ) {
    synced.push(readlinkSync(`/proc/self/fd/${this.fd}`));
  });
  const seen: Record<string, string[]> = {};
  const head = runGit(one, 'rev-parse', 'HEAD');
  const heads: string[] = [];
  try {
    const faults = {
      hit: async (name: string) => {
        if (name === 'plan-files-done') heads.push(runGit(one, 'rev-parse', 'main'));
        seen[name] ??= synced.splice(0);
      },
    };
    expect(await rig.apply([result], { faults })).toMatchObject({ state: 'applied' });
  } finally {
    spy.mockRestore();
    await probe.close();
  }
  expect(seen['plan-begun']).toContain(join(rig.state, 'plan-apply'));
  expect(heads, 'the branch has not moved yet').toEqual([head]);
  expect(seen['plan-files-done']).toEqual(expect.arrayContaining([one, join(one, 'new'), join(one, 'new/deep')]));
  expect(seen['plan-branch-moved']).toEqual([join(one, '.git/refs/heads')]);
});
