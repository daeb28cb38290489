/** SIGKILL at every step of an apply, an undo, and their recoveries: afterwards every target is before, or every target is after. */
import { existsSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ApplyProcess } from '../support/apply-process.ts';
import { ApplyRig, type RigTarget, runGit, treeOf } from '../support/apply-rig.ts';
import type { ApplyOrder } from '../support/apply-worker.ts';

const before = { a: '1\n', gone: 'x\n', other: '1\n' };
const change = { a: '2\n', gone: null, 'new/file': '#!/bin/sh\n' };

/** A repository that is checked out and dirty elsewhere, a directory, and one that is bare; or only a directory behind a symlink. */
class Scene implements AsyncDisposable {
  readonly rig = new ApplyRig();
  readonly worker = new ApplyProcess();
  readonly one = this.rig.repository('one', before);
  readonly bare = join(this.rig.directory, 'bare.git');
  readonly plain = this.rig.folder('plain', before);
  readonly targets: readonly RigTarget[];
  readonly #flip: boolean;

  constructor(options: { readonly flip?: boolean; readonly bare?: boolean } = {}) {
    const { rig, one, bare, plain } = this;
    const { flip = false, bare: withBare = false } = options;
    this.#flip = flip;
    runGit(rig.directory, 'clone', '-q', '--bare', one, bare);
    const live = join(rig.directory, 'live');
    symlinkSync('plain', live);
    const folder = rig.foreignResult(before, change, { path: flip ? live : plain }, 'plain');
    const inBare = withBare ? [rig.result(one, { a: '3\n' }, { path: bare, branch: 'main' }, 'bare')] : [];
    this.targets = flip ? [folder] : [rig.result(one, change), ...inBare, folder];
    writeFileSync(join(one, 'other'), 'edited, and nobody touches it\n');
  }

  order(what: Partial<ApplyOrder> & Pick<ApplyOrder, 'do'>) {
    const { state, targets } = { ...this.rig, targets: this.targets };
    return this.worker.order({ state, nowMs: this.rig.tick(), targets, flip: this.#flip, ...what });
  }

  /** Whatever is asked next settles what was cut off. */
  async settle(): Promise<void> {
    expect(await this.order({ do: 'apply', targets: [] })).toMatchObject({ result: { state: 'nothing' } });
  }

  look(): string {
    const status = runGit(this.one, 'status', '--porcelain=v2', '--branch', '-uall');
    const heads = [runGit(this.one, 'ls-files', '-s'), runGit(this.bare, 'rev-parse', 'main')];
    return JSON.stringify([status, heads, treeOf(this.one), treeOf(realpathSync(join(this.rig.directory, 'live')))]);
  }

  leftovers(): string[] {
    const places = [this.one, join(this.one, '.git'), this.bare, ...(this.#flip ? [] : [this.rig.directory])];
    return places.flatMap((place) => Object.keys(treeOf(place)).filter((name) => /(^|\/)\.atoll-|\.lock$/.test(name)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.worker[Symbol.asyncDispose]();
    this.rig[Symbol.dispose]();
  }
}

/** Kills at point 1, 2, … until the order ends by itself. Answers where each kill led, once it was settled. */
async function killEverywhere(scene: Scene, kind: 'apply' | 'undo'): Promise<string[]> {
  const untouched = scene.look();
  expect(await scene.order({ do: 'apply' })).toMatchObject({ result: { state: 'applied' } });
  const applied = scene.look();
  if (kind === 'apply') expect(await scene.order({ do: 'undo' })).toMatchObject({ result: { state: 'undone' } });
  const outcomes: string[] = [];
  for (let killAt = 1; ; killAt++) {
    const answer = await scene.order({ do: kind, killAt });
    if (!('killed' in answer)) {
      expect(answer).toMatchObject({ result: { state: kind === 'apply' ? 'applied' : 'undone' } });
      return outcomes;
    }
    await scene.settle();
    const now = scene.look();
    expect([untouched, applied], `killed at ${killAt}`).toContain(now);
    expect(scene.leftovers()).toEqual([]);
    outcomes.push(now === untouched ? 'before' : 'after');
    // Back to where it began.
    if (kind === 'apply' && now === applied)
      expect(await scene.order({ do: 'undo' })).toMatchObject({ result: { state: 'undone' } });
    if (kind === 'undo' && now === untouched)
      expect(await scene.order({ do: 'apply' })).toMatchObject({ result: { state: 'applied' } });
  }
}

/** All of one kind, then all of the other: the decision is one point. */
function expectOneTurn(outcomes: readonly string[], from: string, to: string): void {
  const turn = outcomes.indexOf(to);
  expect(turn, outcomes.join(' ')).toBeGreaterThan(1);
  expect(outcomes).toEqual(outcomes.map((_, index) => (index < turn ? from : to)));
  expect(outcomes.length - turn).toBeGreaterThan(3);
}

test('C32, C34: an apply that is killed anywhere is taken back before its decision and goes on after it', async () => {
  await using scene = new Scene();
  expectOneTurn(await killEverywhere(scene, 'apply'), 'before', 'after');
  expect(runGit(scene.one, 'fsck', '--no-dangling')).toBe('');
}, 120_000);

test('C45, C32: an undo that is killed anywhere has changed nothing before its decision and goes on after it', async () => {
  await using scene = new Scene();
  expectOneTurn(await killEverywhere(scene, 'undo'), 'after', 'before');
}, 120_000);

test('C41, C32: a flip that is killed anywhere shows the directory before, or after', async () => {
  await using scene = new Scene({ flip: true });
  expectOneTurn(await killEverywhere(scene, 'apply'), 'before', 'after');
}, 120_000);

test('C52: a recovery that is killed again and again, further on each time, is taken up by the next one', async () => {
  await using scene = new Scene({ bare: true });
  const untouched = scene.look();
  for (const [what, first, expected] of [
    ['apply', 'plan-before-decision', 'before'],
    ['apply', 'plan-decided', 'after'],
    ['undo', 'plan-undo-decided', 'before'],
  ] as const) {
    expect(await scene.order({ do: what, killIn: first })).toEqual({ killed: true });
    let kills = 0;
    while ('killed' in (await scene.order({ do: 'apply', targets: [], killAt: kills + 1 }))) kills++;
    expect(kills, first).toBeGreaterThan(1);
    expect(scene.look() === untouched ? 'before' : 'after', first).toBe(expected);
    expect(scene.leftovers()).toEqual([]);
  }
}, 120_000);

test('C37: locks that a killed apply left are removed by their inode; a lock of anybody else stays', async () => {
  await using scene = new Scene({ bare: true });
  const { one, bare } = scene;
  const locks = ['index.lock', 'refs/heads/main.lock'].map((name) => join(one, '.git', name)) as [string, string];
  const other = join(bare, 'refs/heads/main.lock');
  const targets = scene.targets.filter(({ workspace }) => workspace === 'one');
  writeFileSync(other, '');
  for (const point of ['plan-before-decision', 'plan-step', 'plan-branch-moved']) {
    expect(await scene.order({ do: 'apply', targets, killIn: point })).toEqual({ killed: true });
    expect(
      locks.map((lock) => existsSync(lock)),
      point,
    ).toEqual([true, true]);
    // Somebody removed one of ours, and another git has taken its place.
    rmSync(locks[0]);
    writeFileSync(locks[0], 'of another git');
    await scene.settle();
    expect(readFileSync(locks[0], 'utf8')).toBe('of another git');
    rmSync(locks[0]);
    await scene.settle();
    expect(
      locks.map((lock) => existsSync(lock)),
      point,
    ).toEqual([false, false]);
    expect(existsSync(other)).toBe(true);
    expect(runGit(one, 'log', '-1', '--format=%s')).toBe(
      point === 'plan-before-decision' ? 'a change' : 'result for one',
    );
    expect(runGit(one, 'status', '--porcelain')).toBe('M other');
    await scene.order({ do: 'undo' });
  }
}, 120_000);
