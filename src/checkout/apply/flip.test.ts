import { mkdirSync, readlinkSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, type RigTarget, treeOf } from '../../../test/support/apply-rig.ts';
import { ScriptedFaults } from '../../base/index.ts';

function site(rig: ApplyRig): { live: string; first: string; target: RigTarget } {
  const first = rig.folder('site.1', { index: '1\n', 'deep/page': '1\n', gone: 'x\n' });
  mkdirSync(join(first, 'empty'));
  const live = join(rig.directory, 'live');
  symlinkSync('site.1', live);
  const files = { index: '1\n', 'deep/page': '1\n', gone: 'x\n' };
  const target = rig.foreignResult(files, { index: '2\n', 'deep/new': '2\n', gone: null }, { path: live }, 'site');
  return { live, first, target };
}

test('C41: with flip, whoever follows the symlink sees the directory before or after, and nothing between', async () => {
  using rig = new ApplyRig();
  const { live, first, target } = site(rig);
  const before = treeOf(first);
  const after = {
    index: '644 2\n',
    deep: '755 directory',
    'deep/page': '644 1\n',
    'deep/new': '644 2\n',
    empty: '755 directory',
  };
  const seen: unknown[] = [];
  // At every point that the apply passes, what a reader sees is one of the two.
  const faults = { hit: async () => void seen.push(treeOf(realpathSync(live))) };
  expect(await rig.apply([target], { flip: true, faults })).toMatchObject({
    state: 'applied',
    targets: [{ files: 3 }],
  });
  expect(seen.length).toBeGreaterThan(5);
  for (const each of seen) expect([before, after]).toContainEqual(each);
  expect(treeOf(realpathSync(live))).toEqual(after);
  expect(treeOf(first)).toEqual(before);
  expect(await rig.apply([rig.next(target, { index: '3\n' })], { flip: true })).toMatchObject({ state: 'applied' });
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(treeOf(realpathSync(live))).toEqual(after);
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
  expect(readlinkSync(live)).toBe('site.1');
  expect(treeOf(realpathSync(live))).toEqual(before);
  // Without it the files change one after another: the same look finds a mixture.
  const mixed: unknown[] = [];
  const plainly = { ...target, place: { path: first } };
  await rig.apply([plainly], { faults: { hit: async () => void mixed.push(treeOf(first)) } });
  expect(
    mixed.some((each) => ![JSON.stringify(before), JSON.stringify(treeOf(first))].includes(JSON.stringify(each))),
  ).toBe(true);
});

test('C41: a directory is not flipped; an edit meanwhile, or since, is not lost', async () => {
  using rig = new ApplyRig();
  const { live, first, target } = site(rig);
  const direct = await rig.apply([{ ...target, place: { path: first } }], { flip: true });
  expect(direct).toMatchObject({
    state: 'refused',
    targets: [{ error: { message: expect.stringContaining('ln -s') } }],
  });
  const faults = new ScriptedFaults();
  const gate = faults.hold('plan-decided');
  const applying = rig.apply([target], { flip: true, faults });
  await gate.reached;
  writeFileSync(join(live, 'index'), 'edited\n');
  gate.open();
  expect(await applying).toMatchObject({ state: 'conflictPending' });
  expect(treeOf(realpathSync(live))).toMatchObject({ index: '644 edited\n' });
  writeFileSync(join(live, 'index'), '1\n');
  expect(await rig.apply([target], { flip: true })).toMatchObject({ state: 'applied' });
  writeFileSync(join(live, 'index'), 'edited since\n');
  expect(await rig.undo()).toMatchObject({ state: 'undoIncomplete' });
  expect(treeOf(realpathSync(live))).toMatchObject({ index: '644 edited since\n' });
});
