/** The journal and its lock: what they refuse, and what they leave. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyRig, bundleOf, planTarget, runGit, stateOf, treeOf } from '../../../test/support/apply-rig.ts';
import { ScriptedFaults } from '../../base/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import { applyPlan } from './apply-plan.ts';
import { openJournals } from './journal.ts';
import { withRunnerLock } from './runner-lock.ts';

const failing = (name: string) => ({
  hit: async (at: string) => {
    if (at === name) throw new Error('as a crash would');
  },
});

function journalOf(rig: ApplyRig): string {
  const folder = join(rig.state, 'plan-apply');
  const id = readdirSync(folder).find((name) => /^\d{15}-/.test(name))!;
  return join(folder, id, 'journal');
}

test('C31: the decision is on disk, for its owner alone, before the first visible change', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const before = stateOf(one);
  const faults = new ScriptedFaults();
  const gate = faults.hold('plan-decided');
  const applying = rig.apply([rig.result(one, { a: '2\n' })], { faults });
  await gate.reached;
  const path = journalOf(rig);
  const [head, body] = readFileSync(path, 'utf8').split('\n') as [string, string];
  expect(head).toMatch(/^atoll-plan-apply 1 [0-9a-f]{64}$/);
  expect(JSON.parse(body)).toMatchObject({
    phase: 'decided',
    fence: 1,
    owner: { pid: process.pid, bootId: expect.stringMatching(/-/), startTime: expect.stringMatching(/^\d+$/) },
    targets: [{ state: { kind: 'pending' }, steps: [{ name: 'a', from: { mode: '100644' }, to: { mode: '100644' } }] }],
  });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(join(rig.state, 'plan-apply')).mode & 0o777).toBe(0o700);
  expect(stateOf(one)).toEqual(before);
  gate.open();
  expect(await applying).toMatchObject({ state: 'applied' });
});

test('C42: targets are changed in one recorded order, whatever order they are named in', async () => {
  using rig = new ApplyRig();
  const roots = ['c', 'a', 'b'].map((name) => rig.repository(name, { x: '1\n' }));
  const targets = roots.map((root) => rig.result(root, { x: '2\n' }));
  const result = await rig.apply(targets);
  expect(result.targets.map(({ workspace }) => workspace)).toEqual(['a', 'b', 'c']);
  expect(readFileSync(journalOf(rig), 'utf8').match(/"workspace":"\w+"/g)).toEqual([
    '"workspace":"a"',
    '"workspace":"b"',
    '"workspace":"c"',
  ]);
});

test('C53: a journal that is cut off, altered or moved is not believed: nothing is changed, and the words tell what to do', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n', b: '2\n' });
  await expect(rig.apply([target], { faults: failing('plan-step') })).resolves.toMatchObject({ state: 'inDoubt' });
  const path = journalOf(rig);
  const text = readFileSync(path, 'utf8');
  const before = treeOf(one);
  for (const broken of [
    '',
    text.slice(0, 200),
    text.slice(0, -1),
    text.replace('"decided"', '"finished"'),
    text.replace('"a"', '"b"'),
  ]) {
    writeFileSync(path, broken);
    const refused = await rig.undo().catch((error: unknown) => error);
    expect(isPlatformError(refused, 'plan_journal_unusable')).toBe(true);
    expect((refused as Error).message).toMatch(/Nothing was changed\..*move .* away/s);
    await expect(rig.apply([target])).rejects.toThrow('journal');
    expect(treeOf(one)).toEqual(before);
    expect(readFileSync(path, 'utf8')).toBe(broken);
  }
  writeFileSync(path, text);
  expect(await rig.apply([target])).toMatchObject({ state: 'nothing' });
  expect(treeOf(one)).toEqual({ a: '644 2\n', b: '644 2\n' });
});

test('C54: a journal of a newer version is refused, and stays', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  await rig.apply([target]);
  const newer = readFileSync(journalOf(rig), 'utf8').replace('atoll-plan-apply 1 ', 'atoll-plan-apply 2 ');
  writeFileSync(journalOf(rig), newer);
  await expect(rig.undo()).rejects.toThrow('newer atoll');
  expect(readFileSync(journalOf(rig), 'utf8')).toBe(newer);
  expect(treeOf(one)).toEqual({ a: '644 2\n' });
});

test('C35, C33: what fails after the decision is in doubt, and whoever comes next goes on, as often as it takes', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', b: '1\n' });
  const two = rig.repository('two', { a: '1\n' });
  const targets = [rig.result(one, { a: '2\n', b: '2\n' }), rig.result(two, { a: '2\n' })];
  for (const point of ['plan-files-done', 'plan-branch-moved', 'plan-index-moved']) {
    const result = await rig.apply(targets, { faults: failing(point) });
    expect(result).toMatchObject(
      point === 'plan-files-done' ? { state: 'inDoubt', targets: [{ state: 'inDoubt', error: {} }, {}] } : {},
    );
  }
  expect(await rig.apply(targets)).toMatchObject({ state: 'nothing' });
  for (const root of [one, two]) {
    expect(runGit(root, 'status', '--porcelain')).toBe('');
    expect(rig.leftovers(root)).toEqual([]);
    expect(readFileSync(join(root, '.git/logs/refs/heads/main'), 'utf8').match(/atoll plan/g)).toHaveLength(1);
  }
  expect(await rig.undo()).toMatchObject({ state: 'undone' });
});

test('C51: who was overtaken is refused at its next step, and changes nothing any more', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n', b: '1\n' });
  const target = rig.result(one, { a: '2\n', b: '2\n' });
  const faults = new ScriptedFaults();
  const gate = faults.hold('plan-files-done');
  const overtaken = rig.apply([target], { faults }).catch((error: unknown) => error);
  await gate.reached;
  // Only by removing the lock's file can another get in.
  rmSync(join(rig.state, 'plan-apply/lock.db'));
  const other = rig.undo({ faults: failing('plan-recover') }).catch((error: unknown) => error);
  expect(String(await other)).toContain('as a crash would');
  gate.open();
  expect(isPlatformError(await overtaken, 'plan_apply_superseded')).toBe(true);
  expect(runGit(one, 'rev-parse', 'HEAD')).toBe(target.base);
  expect(await rig.apply([target])).toMatchObject({ state: 'nothing' });
  expect(runGit(one, 'rev-parse', 'HEAD')).toBe(target.commit);
});

test('C82, C81: taking the lock twice in one process waits and is refused in the end; whatever throws, it is free again', async () => {
  using rig = new ApplyRig();
  const journals = await openJournals(rig.state);
  const options = { nowMs: () => rig.tick(), command: 'first' };
  const order: string[] = [];
  const inner = withRunnerLock(journals, options, async () => {
    const again = withRunnerLock(journals, { ...options, waitMs: 50 }, async () => order.push('never'));
    await expect(again).rejects.toThrow(`held by process ${process.pid} (first)`);
    order.push('first');
    throw new Error('thrown inside');
  });
  await expect(inner).rejects.toThrow('thrown inside');
  const both = ['a', 'b'].map((name) =>
    withRunnerLock(journals, { ...options, waitMs: 10_000 }, async ({ fence }) => {
      order.push(`${name} in`);
      await new Promise((resolve) => setImmediate(resolve));
      order.push(`${name} out`);
      return fence;
    }),
  );
  expect((await Promise.all(both)).sort()).toEqual([2, 3]);
  expect(order[0]).toBe('first');
  expect(order.slice(1).map((text) => text.split(' ')[1])).toEqual(['in', 'out', 'in', 'out']);
});

test('C69, C74: records and refs are kept, and when they expire only our own are removed', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  await rig.apply([target]);
  runGit(one, 'update-ref', 'refs/atoll/apply/somebody', 'HEAD');
  mkdirSync(join(rig.state, 'plan-apply/a folder of somebody'));
  expect(runGit(one, 'for-each-ref', '--format=%(refname:lstrip=-1)', 'refs/atoll').split('\n').sort()).toEqual([
    'after',
    'before',
    'somebody',
  ]);
  const days = (count: number) => ({ nowMs: () => rig.tick() + count * 24 * 3600 * 1000 });
  expect(await rig.apply([target], days(13))).toMatchObject({ state: 'nothing' });
  expect(runGit(one, 'for-each-ref', 'refs/atoll').split('\n')).toHaveLength(3);
  expect(await rig.undo(days(15))).toBeUndefined();
  expect(runGit(one, 'for-each-ref', '--format=%(refname:lstrip=-1)', 'refs/atoll')).toBe('somebody');
  expect(existsSync(join(rig.state, 'plan-apply/a folder of somebody'))).toBe(true);
  expect(treeOf(one)).toEqual({ a: '644 2\n' });
});

test('C29: what was prepared survives a gc of the repository that it goes to', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  rig.commit(one, { mine: '1\n' });
  const target = rig.result(one, { a: '2\n' });
  rig.commit(one, { mine: '2\n' });
  const faults = {
    hit: async (name: string) => {
      if (name === 'plan-lock') runGit(one, 'gc', '-q', '--prune=now');
      if (name === 'plan-decided') runGit(one, 'prune', '--expire=now');
    },
  };
  expect(await rig.apply([target], { faults })).toMatchObject({ state: 'applied' });
  expect(runGit(one, 'fsck', '--no-dangling')).toBe('');
  runGit(one, 'reset', '-q', '--hard', 'HEAD~1');
  runGit(one, 'reflog', 'expire', '--expire=now', '--all');
  runGit(one, 'gc', '-q', '--prune=now');
  expect(runGit(one, 'cat-file', '-t', target.commit)).toBe('commit');
});

test('what a workspace sends is taken as hostile: no bundle, a broken one, a needy one, names that lead out', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const before = stateOf(one);
  const target = rig.result(one, { a: '2\n' });
  const chunks: Uint8Array[] = [];
  for await (const chunk of bundleOf(target.source, target.commit, [])) chunks.push(chunk);
  const good = Buffer.concat(chunks);
  const damaged = Buffer.from(good);
  damaged[damaged.length - 30]! ^= 255;
  const apply = (bytes: Buffer, more: object = {}) => {
    const openBundle = async function* () {
      yield bytes;
    };
    const named = { target: { ...planTarget(target), openBundle, ...more }, place: target.place };
    return applyPlan({ planId: 'p', planName: 'p', commitId: 'c', targets: [named] }, rig.options);
  };
  for (const bytes of [
    Buffer.from('no bundle'),
    Buffer.from('# v2 git bundle\n\nno pack'),
    good.subarray(0, good.length - 40),
    damaged,
    Buffer.from(good.toString('latin1').replace('# v2 git bundle\n', '# v3 git bundle\n@filter=blob:none\n'), 'latin1'),
  ]) {
    expect(await apply(bytes)).toMatchObject({ state: 'refused', targets: [{ error: { code: 'sync_unsafe' } }] });
  }
  expect(await apply(good, { commit: 'HEAD' })).toMatchObject({ state: 'refused' });
  expect(await apply(good, { commit: 'a'.repeat(40) })).toMatchObject({ state: 'refused' });
  // A tree that leads into git's own folder; git alone would pack it.
  const blob = runGit(target.source, 'rev-parse', 'HEAD:a');
  const make = (lines: string) =>
    execFileSync('git', ['mktree', '--missing'], { cwd: target.source, input: lines, encoding: 'utf8' }).trim();
  const inner = make(`100644 blob ${blob}\thooks\n`);
  const tree = make(`040000 tree ${inner}\t.git\n`);
  const evil = runGit(target.source, 'commit-tree', '-p', target.base, '-m', 'evil', tree);
  expect(await rig.apply([{ ...target, commit: evil }])).toMatchObject({
    state: 'refused',
    targets: [{ error: { code: 'sync_unsafe' } }],
  });
  expect(stateOf(one)).toEqual(before);
  expect(rig.leftovers(one)).toEqual([]);
  expect(await apply(good)).toMatchObject({ state: 'applied' });
});
