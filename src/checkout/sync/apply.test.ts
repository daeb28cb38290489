/** An apply against everything that a person, an editor or a kill does at the same time. Real files and repositories, no sandbox. */
import { execFile, execFileSync } from 'node:child_process';
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { applyChanges, recoverApply } from './apply.ts';
import { type Checkout, openCheckout } from './checkout.ts';
import { takeSnapshot } from './local-snapshot.ts';
import { defaultSyncLimits } from './options.ts';
import { shadowLimits, tidyShadow } from './shadow-size.ts';
import { changesBetween, type TreeChange } from './trees.ts';
import { undo } from './undo.ts';

type Files = Readonly<Record<string, string>>;

let top: string;
let root: string;
let checkout: Checkout;

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'atoll-apply-'));
  root = join(top, 'work');
  await mkdir(root);
  git('init', '-q', '-b', 'main');
  checkout = await open();
});
afterEach(() => rm(top, { recursive: true, force: true }));

const open = () => openCheckout(root, { env: { ...process.env, HOME: top }, stateDirectory: join(top, 'state') });
const at = (name: string) => join(root, name);
const text = (name: string) => readFileSync(at(name), 'utf8');
const snapshot = () => takeSnapshot(checkout, { limits: defaultSyncLimits, secretsPolicy: 'skip' });

function git(...words: string[]): string {
  const who = ['-c', 'user.name=Ann', '-c', 'user.email=ann@example.com'];
  return execFileSync('git', [...who, ...words], { cwd: root, encoding: 'utf8' }).trim();
}

async function write(files: Files): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(at(name)), { recursive: true });
    await writeFile(at(name), content);
  }
}

/** What leads from one set of files to another; the first set is what lies there afterwards. */
async function changing(before: Files, after: Files): Promise<{ changes: TreeChange[]; before: string }> {
  await write(after);
  const then = await snapshot();
  for (const name of await readdir(root)) if (name !== '.git') await rm(at(name), { recursive: true });
  await write(before);
  const now = await snapshot();
  return { changes: await changesBetween(checkout, now.tree, then.tree), before: now.tree };
}

const nothingElse = { sync: null, branch: null, undo: null };
const four = { a: 'a\n', b: 'b\n', c: 'c\n', d: 'd\n' };
const fourInside = { a: 'A\n', b: 'B\n', c: 'C\n', d: 'D\n' };

/** Applies, and lets somebody act right before a step. */
async function applyWith(changes: readonly TreeChange[], step: number, act: () => void) {
  let isDone = false;
  return await applyChanges(checkout, changes, nothingElse, (files) => {
    if (files !== step || isDone) return;
    // The first call with 0 comes before the journal; the next ones before each step.
    if (step === 0 && !existsSync(join(checkout.directory, 'journal.json'))) return;
    isDone = true;
    act();
  });
}

const leftovers = async () => [
  ...(await readdir(at('.git'))).filter((name) => name.startsWith('.atoll')),
  ...(await readdir(checkout.directory)).filter((name) => name.startsWith('journal')),
];

test('an editor that saves by rename, appends, or holds the file open loses nothing, and the rest is as before', async () => {
  const saves: Readonly<Record<string, () => void>> = {
    rename: () => {
      writeFileSync(at('c.swp'), 'typed\n');
      renameSync(at('c.swp'), at('c'));
    },
    append: () => appendFileSync(at('c'), 'typed\n'),
    recreate: () => {
      rmSync(at('c'));
      writeFileSync(at('c'), 'typed\n');
    },
  };
  const { changes } = await changing(four, fourInside);
  for (const [how, save] of Object.entries(saves)) {
    await write(four);
    const applied = await applyWith(changes, 1, save);
    expect(applied.conflicts, how).toEqual([{ path: 'c', reason: 'changed_meanwhile' }]);
    expect([text('a'), text('b'), text('d')], how).toEqual(['a\n', 'b\n', 'd\n']);
    expect(text('c'), how).toContain('typed');
    expect(await leftovers()).toEqual([]);
  }
  // Somebody has it open, and writes after it was moved away.
  await write(four);
  const file = openSync(at('a'), 'a');
  const late = await applyWith(changes, 2, () => writeSync(file, 'typed late\n'));
  closeSync(file);
  expect(late.conflicts).toEqual([{ path: 'a', reason: 'changed_meanwhile' }]);
  expect([text('a'), text('b')]).toEqual(['a\ntyped late\n', 'b\n']);
  // The positive control: without an edit the same changes come.
  await write(four);
  expect((await applyChanges(checkout, changes, nothingElse)).conflicts).toEqual([]);
  expect(Object.keys(four).map(text)).toEqual(Object.values(fourInside));
});

test('an edit of the same size in the same instant as the look is found by its content', async () => {
  const { changes } = await changing(four, fourInside);
  await write(four);
  execFileSync('touch', ['-r', at('b'), join(top, 'time')]);
  const applied = await applyWith(changes, 1, () => {
    writeFileSync(at('b'), 'x\n');
    execFileSync('touch', ['-r', join(top, 'time'), at('b')]);
  });
  expect(applied.conflicts).toEqual([{ path: 'b', reason: 'changed_meanwhile' }]);
  expect(text('b')).toBe('x\n');
});

test('a file that was written already and is edited while the rest is taken back keeps the edit, and that is told', async () => {
  const { changes } = await changing(four, fourInside);
  const applied = await applyWith(changes, 2, () => {
    appendFileSync(at('a'), 'typed on the new one\n');
    appendFileSync(at('d'), 'typed\n');
  });
  expect(applied.conflicts).toEqual([{ path: 'd', reason: 'changed_meanwhile' }]);
  expect(applied.warnings).toEqual(['a was edited on the way and is left as it is.']);
  expect([text('a'), text('b'), text('c'), text('d')]).toEqual([
    'A\ntyped on the new one\n',
    'b\n',
    'c\n',
    'd\ntyped\n',
  ]);
});

test('P132: a folder that becomes a symlink after the look is not written through', async () => {
  mkdirSync(join(top, 'outside'));
  const { changes } = await changing({ 'dir/x': 'x\n', a: 'a\n' }, { 'dir/x': 'x\n', 'dir/new': 'n\n', a: 'A\n' });
  const swap = () => {
    renameSync(at('dir'), at('moved'));
    symlinkSync(join(top, 'outside'), at('dir'));
  };
  const applied = await applyWith(changes, 0, swap);
  expect(applied.conflicts).toEqual([{ path: 'dir/new', reason: 'exists_here' }]);
  expect(await readdir(join(top, 'outside'))).toEqual([]);
  expect(text('a')).toBe('a\n');
});

test('a file that appears in a folder which is to become a file, and a new name that is taken, take everything back', async () => {
  const { changes } = await changing({ 'dir/x': 'x\n', a: 'a\n' }, { a: 'A\n', new: 'n\n' });
  const replaced = [
    ...changes.filter(({ name }) => name !== 'new'),
    { ...changes.find(({ name }) => name === 'new')!, name: 'dir' },
  ];
  const applied = await applyWith(replaced, 1, () => {
    mkdirSync(at('dir'), { recursive: true });
    writeFileSync(at('dir/mine'), 'mine\n');
  });
  expect(applied.conflicts).toEqual([{ path: 'dir', reason: 'exists_here' }]);
  expect([text('dir/mine'), text('dir/x'), text('a')]).toEqual(['mine\n', 'x\n', 'a\n']);
  rmSync(at('dir/mine'));
  const taken = await applyWith(changes, 1, () => writeFileSync(at('new'), 'mine\n'));
  expect(taken.conflicts).toEqual([{ path: 'new', reason: 'exists_here' }]);
  expect([text('new'), text('dir/x'), text('a')]).toEqual(['mine\n', 'x\n', 'a\n']);
});

test('a file that is there already with the new content stays when the rest is taken back', async () => {
  const { changes } = await changing({ a: 'a\n' }, { a: 'A\n', same: 's\n' });
  writeFileSync(at('same'), 's\n');
  // `a` comes first, then `same`; an edit of what was moved away is found at the end.
  const file = openSync(at('a'), 'a');
  const applied = await applyWith(changes, 1, () => writeSync(file, 'typed\n'));
  closeSync(file);
  expect(applied.conflicts).toEqual([{ path: 'a', reason: 'changed_meanwhile' }]);
  expect([text('a'), text('same')]).toEqual(['a\ntyped\n', 's\n']);
});

test('who may read a file stays as it is, and a file of the user that looks like ours is not removed', async () => {
  await write({ '.atoll-sync-notes': 'mine\n' });
  const { changes } = await changing({ a: 'a\n', x: 'x\n' }, { a: 'A\n', x: 'X\n' });
  await write({ '.atoll-sync-notes': 'mine\n' });
  await chmod(at('a'), 0o640);
  await recoverApply(checkout);
  await applyChanges(checkout, changes, nothingElse);
  expect([text('a'), statSync(at('a')).mode & 0o777]).toEqual(['A\n', 0o640]);
  expect(text('.atoll-sync-notes')).toBe('mine\n');
});

test('SIGKILL at any step, forward and back, ends as all or nothing; torn content is written again', async () => {
  const { changes } = await changing({ ...four, gone: 'g\n' }, { ...fourInside, 'new/e': 'E\n' });
  const before = { ...four, gone: 'g\n' };
  for (const step of [0, 1, 3, 5]) {
    await rm(at('new'), { recursive: true, force: true });
    await write(before);
    expect(await inChild('apply', changes, step)).toBe('SIGKILL');
    if (step === 3) {
      // As after a crash of the machine: prepared, and empty.
      const staging = at(`.git/${(await readdir(at('.git'))).find((name) => name.startsWith('.atoll'))}`);
      writeFileSync(join(staging, '5'), '');
    }
    expect((await recoverApply(checkout))?.warnings).toEqual(['What was interrupted here was finished.']);
    expect([...Object.keys(fourInside), 'new/e'].map(text)).toEqual([...Object.values(fourInside), 'E\n']);
    expect([existsSync(at('gone')), await leftovers()]).toEqual([false, []]);
  }
  await rm(at('new'), { recursive: true, force: true });
  await write(before);
  expect(await inChild('apply', changes, 99), 'the positive control: nobody kills it').toBe(0);
});

test('after a kill an edit stays, and what should have been written is kept beside it', async () => {
  const { changes } = await changing(four, fourInside);
  expect(await inChild('apply', changes, 1)).toBe('SIGKILL');
  writeFileSync(at('c'), 'edited\n');
  const warnings = (await recoverApply(checkout))?.warnings ?? [];
  expect([text('a'), text('b'), text('c'), text('d')]).toEqual(['A\n', 'B\n', 'edited\n', 'D\n']);
  const rescued = /what should have been written is (.*)\.$/.exec(warnings[1] ?? '')?.[1];
  expect(await readFile(rescued!, 'utf8')).toBe('C\n');
});

test('undo gives back what was there, once; an edit since stops it by name, and SIGKILL on the way is finished', async () => {
  const { changes, before } = await changing({ ...four, gone: 'g\n' }, { ...fourInside, 'new/e': 'E\n' });
  const record = { version: 1, kind: 'pull', sandboxId: 'sbx', before, changes, branch: null } as const;
  const apply = () => applyChanges(checkout, changes, { sync: null, branch: null, undo: record });
  await expect(undo(checkout)).rejects.toMatchObject({ code: 'undo_nothing' });
  await apply();
  expect(await undo(checkout, { dryRun: true })).toMatchObject({ undone: false, files: 6, kind: 'pull' });
  writeFileSync(at('b'), 'edited\n');
  const refusal = {
    code: 'undo_refused',
    details: { paths: ['b'] },
    message: expect.stringContaining('edited since: b'),
  };
  await expect(undo(checkout)).rejects.toMatchObject(refusal);
  expect([text('a'), text('b'), existsSync(at('gone'))]).toEqual(['A\n', 'edited\n', false]);
  writeFileSync(at('b'), 'B\n');
  expect(await undo(checkout)).toMatchObject({ undone: true, files: 6, commitsRef: null });
  expect([...Object.keys(four), 'gone'].map(text)).toEqual([...Object.values(four), 'g\n']);
  expect(existsSync(at('new'))).toBe(false);
  await expect(undo(checkout)).rejects.toMatchObject({ code: 'undo_nothing' });
  for (const step of [0, 2, 5]) {
    await apply();
    expect(await inChild('undo', [], step)).toBe('SIGKILL');
    await expect(undo(checkout), 'the killed one is finished, and there is no second').rejects.toMatchObject({
      code: 'undo_nothing',
    });
    expect([...Object.keys(four), 'gone'].map(text)).toEqual([...Object.values(four), 'g\n']);
    expect(await leftovers()).toEqual([]);
  }
});

test('an edit of the same size in the same second is in the next snapshot, each time', async () => {
  await write({ a: 'one\n', b: 'b\n' });
  git('add', '-A');
  git('commit', '-q', '-m', 'first');
  const trees = new Set([(await snapshot()).tree]);
  for (const content of ['two\n', 'six\n', 'ten\n', 'one\n']) {
    writeFileSync(at('a'), content);
    trees.add((await snapshot()).tree);
  }
  expect(trees.size, 'four contents, of which the last is the first again').toBe(4);
});

test('files that were only touched count to no limit, and are looked at once', async () => {
  const files = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`f${i}`, `${i}\n`.repeat(100)]));
  await write(files);
  const first = await snapshot();
  execFileSync('touch', ['-d', '2001-01-01', ...Object.keys(files)], { cwd: root });
  const limits = { ...defaultSyncLimits, files: 3 };
  const tree = (await takeSnapshot(checkout, { limits, secretsPolicy: 'skip' })).tree;
  expect(tree).toBe(first.tree);
  const dirty = execFileSync('git', ['diff-files', '--name-only'], {
    cwd: root,
    env: { ...process.env, GIT_DIR: checkout.shadow, GIT_WORK_TREE: root },
  });
  expect(dirty.toString()).toBe('');
});

test('objects that git gc takes away from under the shadow are written anew', async () => {
  await write({ a: 'a\n', b: 'b\n' });
  git('add', '-A');
  git('commit', '-q', '-m', 'first');
  await write({ a: 'staged, then not\n' });
  git('add', 'a');
  await snapshot();
  git('reset', '-q');
  git('reflog', 'expire', '--expire=now', '--all');
  git('gc', '-q', '--prune=now');
  await write({ b: 'changed\n' });
  const { tree } = await snapshot();
  const env = { ...process.env, GIT_DIR: checkout.shadow };
  const content = execFileSync('git', ['cat-file', 'blob', `${tree}:a`], { env });
  expect(content.toString()).toBe('staged, then not\n');
});

test('a shadow that has grown is repacked, and keeps what undo and the next snapshot need', async () => {
  const { changes, before } = await changing(four, fourInside);
  const record = { version: 1, kind: 'pull', sandboxId: 'sbx', before, changes, branch: null } as const;
  await applyChanges(checkout, changes, { sync: null, branch: null, undo: record });
  for (let round = 0; round < 20; round++) {
    await write({ churn: `round ${round}\n` });
    await snapshot();
  }
  await rm(at('churn'));
  await snapshot();
  const objects = async () => (await readdir(join(checkout.shadow, 'objects'), { recursive: true })).length;
  const grown = await objects();
  expect(await tidyShadow(checkout), 'not before it is time').toBe(false);
  expect(await tidyShadow(checkout, { ...shadowLimits, looseObjects: -1 })).toBe(true);
  expect(await objects()).toBeLessThan(grown / 3);
  await write({ e: 'e\n' });
  await snapshot();
  await undo(checkout);
  expect(Object.keys(four).map(text)).toEqual(Object.values(four));
});

test('what a git that was killed has locked in the shadow is free for the next snapshot', async () => {
  await write({ a: 'a\n' });
  await snapshot();
  const tidy = () => tidyShadow(checkout, { ...shadowLimits, looseObjects: -1 });
  await tidy();
  const [root] = await readdir(join(checkout.shadow, 'refs/atoll/roots'));
  await writeFile(join(checkout.shadow, 'refs/atoll/roots', `${root}.lock`), '');
  await expect(tidy(), 'the positive control').rejects.toThrow();
  await writeFile(join(checkout.shadow, 'index.lock'), '');
  await write({ a: 'changed\n' });
  await snapshot();
  expect(await tidy()).toBe(true);
});

test('a repository that git refuses to read is not taken for a plain directory', async () => {
  await cp(at('.git/HEAD'), join(top, 'HEAD'));
  await rm(at('.git/HEAD'));
  await expect(open()).rejects.toMatchObject({ code: 'sync_not_possible' });
  await cp(join(top, 'HEAD'), at('.git/HEAD'));
  expect((await open()).kind).toBe('git');
});

/** In a process that kills itself at a step. */
function inChild(what: 'apply' | 'undo', changes: readonly TreeChange[], step: number): Promise<string | number> {
  const here = (name: string) => JSON.stringify(join(import.meta.dirname, name));
  const script = `
    import { applyChanges } from ${here('apply.ts')};
    import { openCheckout } from ${here('checkout.ts')};
    import { undo } from ${here('undo.ts')};
    const checkout = await openCheckout(${JSON.stringify(root)}, { env: process.env, stateDirectory: ${JSON.stringify(join(top, 'state'))} });
    let calls = 0;
    const onStep = () => { if (calls++ === ${step} + 1) process.kill(process.pid, 'SIGKILL'); };
    if (${JSON.stringify(what)} === 'undo') await undo(checkout, { onStep });
    else await applyChanges(checkout, ${JSON.stringify(changes)}, { sync: null, branch: null, undo: null }, onStep);
  `;
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      ['--input-type=module', '-e', script],
      { env: { ...process.env, HOME: top } },
      (error, _, said) => resolve(error === null ? 0 : (error.signal ?? said)),
    );
  });
}
