/**
 * Random schedules of applies, undos, edits and kills over three plans and four targets. After each step: a plan is in all of its targets or in
 * none, unless somebody edited one in the middle of it; and nothing that a person wrote is lost.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ApplyResult } from '../../src/checkout/apply/index.ts';
import { ApplyProcess } from '../support/apply-process.ts';
import { ApplyRig, type RigTarget, runGit, treeOf } from '../support/apply-rig.ts';
import { SeededRandom } from '../support/seeded-random.ts';

const schedules = 6;
const stepsEach = 12;
const planNames = ['p', 'q', 'r'] as const;
const text = (marks: readonly string[]) =>
  `${Array.from({ length: 12 }, (_, at) => marks[at] ?? `line ${at}`).join('\n')}\n`;

class Schedule implements AsyncDisposable {
  readonly #rig = new ApplyRig();
  readonly #worker = new ApplyProcess();
  readonly #random: SeededRandom;
  readonly #places: readonly { readonly root: string; readonly isGit: boolean }[];
  readonly #plans: Readonly<Record<string, readonly RigTarget[]>>;
  /** What a person wrote last, by file. */
  readonly #written = new Map<string, string>();
  readonly log: string[] = [];
  #count = 0;

  constructor(seed: number) {
    const rig = this.#rig;
    this.#random = new SeededRandom(seed);
    const base = { shared: text([]), 'p/a': '1\n', 'q/a': '1\n', 'r/a': '1\n' };
    this.#places = [
      { root: rig.repository('one', base), isGit: true },
      { root: rig.repository('two', base), isGit: true },
      { root: rig.repository('three', base), isGit: true },
      { root: rig.folder('four', base), isGit: false },
    ];
    const resultFor = (name: string, at: number) => {
      const { root, isGit } = this.#places[at]!;
      const line = planNames.indexOf(name as 'p');
      const files = {
        [`${name}/a`]: null,
        [`${name}/new`]: `of ${name}\n`,
        shared: text(Array(line * 3).concat([`of ${name}`])),
      };
      const workspace = `${name}-${at}`;
      return isGit
        ? rig.result(root, files, { path: root }, workspace)
        : rig.foreignResult(base, files, { path: root }, workspace);
    };
    this.#plans = {
      p: [0, 1, 3].map((at) => resultFor('p', at)),
      q: [1, 2].map((at) => resultFor('q', at)),
      r: [0, 2, 3].map((at) => resultFor('r', at)),
    };
  }

  async run(): Promise<void> {
    for (let step = 0; step < stepsEach; step++) {
      const choice = this.#random.between(0, 9);
      if (choice < 3) this.#edit();
      else await this.#change(choice < 8 ? 'apply' : 'undo', this.#random.pick(planNames));
      await this.#check();
    }
  }

  async #change(what: 'apply' | 'undo', name: (typeof planNames)[number]): Promise<void> {
    const how = this.#random.pick(['whole', 'killed', 'edited'] as const);
    const at = this.#random.between(1, 30);
    const before = this.#state();
    const isIn = this.#whereIn(name);
    let answer = await this.#order(
      what,
      name,
      how === 'killed' ? { killAt: at } : how === 'edited' ? { pauseAt: at } : {},
    );
    if ('paused' in answer) {
      this.#edit();
      answer = await this.#worker.goOn();
    }
    if ('killed' in answer) {
      this.log.push(`  killed at ${at}`);
      if (this.#random.between(0, 2) === 0) this.#edit();
      await this.#order(
        'apply',
        undefined,
        this.#random.between(0, 1) === 0 ? { killAt: this.#random.between(1, 12) } : {},
      );
      answer = await this.#order('apply', undefined);
    }
    expect(answer, JSON.stringify(answer)).toHaveProperty('result');
    const { result } = answer as { result: ApplyResult | null };
    this.log.push(`  ${result?.state ?? 'nothing to undo'}`);
    const isRefused = ['conflict', 'refused', 'busy', 'aborted'].includes(result?.state ?? '');
    if (how === 'whole' && isRefused) expect(this.#state()).toEqual(before);
    if (how === 'whole' && result?.state === 'applied') expect(this.#whereIn(name)).toEqual(isIn.map(() => true));
  }

  async #order(what: 'apply' | 'undo' | 'status', name: string | undefined, more: object = {}) {
    this.log.push(`${what} ${name ?? 'nothing'} ${JSON.stringify(more)}`);
    const targets = name === undefined ? [] : this.#plans[name]!;
    const order = { state: this.#rig.state, nowMs: this.#rig.tick(), commitId: `cmt-${name}`, targets, ...more };
    return await this.#worker.order({ do: what, ...order });
  }

  /** A person's hand: a file of their own, or one that a plan wants too; sometimes committed. */
  #edit(): void {
    const { root, isGit } = this.#random.pick(this.#places);
    const mark = `typed ${this.#count++}`;
    const file = join(root, this.#random.pick(['mine', 'shared', 'p/a', 'q/new']));
    const was = existsSync(file) ? readFileSync(file, 'utf8') : '';
    writeFileSync(file, file.endsWith('shared') ? was.replace(/^(line 11|typed \d+)$/m, mark) : `${mark}\n`);
    this.#written.set(file, mark);
    const isBusy = isGit && existsSync(join(root, '.git/index.lock'));
    const isCommitted = isGit && !isBusy && this.#random.between(0, 1) === 0;
    this.log.push(`edit ${file.slice(this.#rig.directory.length)} ${mark}${isCommitted ? ', committed' : ''}`);
    if (!isCommitted) return;
    runGit(root, 'add', '-A');
    runGit(root, 'commit', '-q', '-m', mark);
  }

  #whereIn(name: string): boolean[] {
    return this.#plans[name]!.map(({ place }) =>
      readFileSync(join(place.path, 'shared'), 'utf8').includes(`of ${name}\n`),
    );
  }

  async #check(): Promise<void> {
    for (const [file, mark] of this.#written) {
      const content = existsSync(file) ? readFileSync(file, 'utf8') : 'nothing';
      // In history it is kept too, where a plan has removed what was committed.
      const root = this.#places.find((place) => file.startsWith(`${place.root}/`))!;
      const isKept =
        content.includes(mark) || (root.isGit && runGit(root.root, 'log', '--all', '--format=%s').includes(mark));
      expect(isKept, `${mark} in ${file}: ${content}`).toBe(true);
    }
    const answer = await this.#order('status', undefined);
    const { records } = answer as { records: readonly ApplyResult[] };
    for (const record of records) {
      // Only an edit in the middle of it, which is told, keeps a plan out of one of its targets.
      const states = new Set(record.targets.map(({ state }) => state).filter((state) => state !== 'unchanged'));
      if (!states.has('conflictPending') && !states.has('undone')) expect([...states], record.id).toEqual(['applied']);
    }
    for (const name of planNames) {
      const expected = this.#plans[name]!.map(({ workspace }) => isLastApplied(records, workspace));
      expect(this.#whereIn(name), `${name} by its records ${expected.join()}`).toEqual(expected);
    }
  }

  #state(): unknown {
    return this.#places.map(({ root, isGit }) => [treeOf(root), isGit ? runGit(root, 'rev-parse', 'HEAD') : '']);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker[Symbol.asyncDispose]();
    this.#rig[Symbol.dispose]();
  }
}

/** What the newest record that changed a target says of it. */
function isLastApplied(records: readonly ApplyResult[], workspace: string): boolean {
  const states = records
    .flatMap(({ targets }) => targets.filter((target) => target.workspace === workspace))
    .map(({ state }) => state);
  return states.findLast((state) => state === 'applied' || state === 'undone') === 'applied';
}

test('C83, C32: in random schedules of applies, undos, edits and kills, plans are whole and nothing that a person wrote is lost', async () => {
  const first = Number(process.env['ATOLL_TEST_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`seeds ${first} to ${first + schedules - 1}`);
  for (let seed = first; seed < first + schedules; seed++) {
    await using schedule = new Schedule(seed);
    await schedule.run().catch((error: unknown) => {
      throw new Error(`seed ${seed}: ${String(error)}\n${schedule.log.join('\n')}`, { cause: error });
    });
  }
}, 240_000);
