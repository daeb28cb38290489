/**
 * One random schedule over three plans and four targets: members come and go, work, are deleted and made anew; plans are committed, tried, rolled
 * back, deleted and made again, and the server dies at fault points. Every choice comes from the seed.
 *
 * What is checked, whatever was answered, lost or interrupted:
 *  - The history of targets holds whole plans only: a commit is in all of the targets that it says, or in none.
 *  - What a sandbox had when it was committed is in the version and in every later one; what nobody committed is still in its sandbox, unless it
 *    was rolled back; and no version has anything else. Bytes are compared, and none is lost.
 *  - A commit that was answered is what the history shows, and its versions carry its plan.
 *  - When all has come to rest, every plan is in a state that stays, no lease of a plan is held, and nothing is left to recover.
 */
import { expect } from 'vitest';
import {
  isPlatformError,
  newId,
  type PlanCommitId,
  type PlanCommitView,
  type SandboxId,
  type WorkspaceId,
} from '../../src/protocol/index.ts';
import type { WorkspaceVersionRecord } from '../../src/store/index.ts';
import type { PlanRig } from './plan-rig.ts';
import { SeededRandom } from './seeded-random.ts';
import { type AskedCommit, firstTree, sharedPath, WrittenBytes } from './written-bytes.ts';

const crashPoints = [
  ...['after-plan-committing', 'after-plan-leases', 'after-plan-collected', 'after-plan-combined'],
  ...['before-plan-decision', 'after-plan-decision', 'after-plan-lease-ended', 'after-plan-released'],
  ...[
    'after-plan-rolling-back',
    'after-plan-member-dropped',
    'before-plan-rolled-back',
    'after-plan-taken-over',
    'after-plan-fence-given',
  ],
  ...['after-plan-target', 'after-apply-settings', 'before-acknowledge-lease', 'after-plan-deleted'],
];

interface Planned {
  readonly name: string;
  boxes: SandboxId[];
  rollbackAskedIn?: number;
}

export class PlanSchedule {
  readonly #rig: PlanRig;
  readonly #random: SeededRandom;
  readonly #label: string;
  readonly #targets: WorkspaceId[] = [];
  readonly #plans: Planned[] = [];
  readonly #answers: PlanCommitView[] = [];
  /** In which batch. */
  readonly #asked = new Map<PlanCommitId, number>();
  readonly #bytes: WrittenBytes;
  #count = 0;
  #batchNumber = 0;

  constructor(rig: PlanRig, seed: number) {
    this.#rig = rig;
    this.#random = new SeededRandom(seed);
    this.#label = String(seed);
    this.#bytes = new WrittenBytes(rig.model);
  }

  /** How many texts were found where they belong. */
  get found(): number {
    return this.#bytes.found;
  }

  async run(options: { readonly steps: number }): Promise<void> {
    for (let index = 0; index < 4; index++) {
      this.#targets.push(await this.#rig.workspace(`${this.#label}-${index}`, firstTree));
    }
    for (let index = 0; index < 3; index++) {
      const plan: Planned = { name: `${this.#label}-plan${index}`, boxes: [] };
      this.#plans.push(plan);
      await this.#rig.create(plan.name);
      for (let box = 0; box < 2; box++) await this.#newBox(plan);
    }
    for (let step = 0; step < options.steps; step++) {
      await this.#batch(Array.from({ length: this.#random.between(1, 3) }, () => this.#choose()));
    }
    await this.#comeToRest();
    await this.#check();
  }

  #choose(): () => Promise<unknown> {
    const plan = this.#random.pick(this.#plans);
    const box = plan.boxes.length === 0 ? undefined : this.#random.pick(plan.boxes);
    const kind = this.#random.pick([
      'write',
      'write',
      'commit',
      'commit',
      'commit',
      'add',
      'remove',
      'rollback',
      'cleanup',
      'exec',
      'delete',
    ] as const);
    const mode = this.#random.next() < 0.15 ? 'bestEffort' : 'atomic';
    const dryRun = this.#random.next() < 0.1;
    if (kind === 'commit') return () => this.#commit(plan, { mode, dryRun });
    if (kind === 'add' || box === undefined) return () => this.#newBox(plan);
    if (kind === 'remove') return () => this.#rig.remove(plan.name, box);
    if (kind === 'rollback') return () => this.#rollBack(plan);
    if (kind === 'cleanup') return () => this.#remake(plan);
    if (kind === 'exec') return () => this.#rig.rig.exec(box);
    if (kind === 'delete') return () => this.#rig.rig.delete(box);
    const target = this.#random.pick(this.#targets);
    const path = this.#random.next() < 0.2 ? sharedPath : `f${this.#count++}`;
    return async () => this.#write(box, target, path);
  }

  /** As a command would: not while a lease is held. */
  async #write(box: SandboxId, target: WorkspaceId, path: string): Promise<void> {
    await this.#rig.rig.exec(box);
    const plan = this.#plans.find(({ boxes }) => boxes.includes(box));
    const view = plan && (await this.#rig.get(plan.name).catch(() => undefined));
    // A rollback that was begun and has not come as far as this sandbox, because its server died, takes this too.
    if (view?.state.kind === 'rollingBack') this.#bytes.rollbackAsked([box], this.#batchNumber);
    this.#writeNow(box, target, path);
  }

  #writeNow(box: SandboxId, target: WorkspaceId, path: string): void {
    this.#bytes.write({ box, target, path, text: `${box} ${this.#count++}`, batch: this.#batchNumber });
  }

  async #newBox(plan: Planned): Promise<void> {
    const targets = this.#targets.filter(() => this.#random.next() < 0.6);
    const attached = targets.length === 0 ? [this.#targets[0]!] : targets;
    const box = await this.#rig.sandbox(...attached);
    plan.boxes.push(box);
    // Asked for at the same time: it may come before or after.
    if (plan.rollbackAskedIn === this.#batchNumber) this.#bytes.rollbackAsked([box], this.#batchNumber);
    // It comes with something of its own, before anybody can have it.
    this.#writeNow(box, attached[0]!, `f${this.#count++}`);
    await this.#rig.add(plan.name, box);
  }

  async #commit(plan: Planned, how: { mode: 'atomic' | 'bestEffort'; dryRun: boolean }): Promise<void> {
    const commitId = newId('planCommit');
    this.#asked.set(commitId, this.#batchNumber);
    const answer = await this.#rig.commit(plan.name, { ...how, commitId, waitMs: 1_000 });
    this.#answers.push(answer);
  }

  async #rollBack(plan: Planned): Promise<void> {
    plan.rollbackAskedIn = this.#batchNumber;
    this.#bytes.rollbackAsked(plan.boxes, this.#batchNumber);
    await this.#rig.rollBack(plan.name);
  }

  async #remake(plan: Planned): Promise<void> {
    await this.#rig.delete(plan.name, { discard: true });
    plan.boxes = [];
    await this.#rig.create(plan.name);
  }

  /** All at once; with some probability the server dies at a fault point on the way, and comes back. */
  async #batch(batch: readonly (() => Promise<unknown>)[]): Promise<void> {
    const { rig } = this.#rig;
    this.#batchNumber++;
    const point = this.#random.next() < 0.35 ? this.#random.pick(crashPoints) : undefined;
    const gate = point === undefined ? undefined : rig.faults.hold(point);
    const done = Promise.all(batch.map((one) => this.#attempt(one)));
    const crashed = gate?.reached.then(() => 'crash' as const);
    // Waits for leases end by the clock.
    const moved = this.#moveClockUntil(done);
    const first = await Promise.race([done, ...(crashed ? [crashed] : [])]);
    if (first === 'crash') {
      await rig.crash();
      gate?.open();
      await rig.restart();
    } else gate?.open();
    moved.stop();
  }

  #moveClockUntil(done: Promise<unknown>): { stop(): void } {
    let isOver = false;
    const { rig } = this.#rig;
    const move = async () => {
      for (let turn = 0; !isOver; turn++) {
        await rig.quiet();
        if (turn > 3) rig.clock.step(500);
      }
    };
    // The rig may be closed while it looks for the last time.
    void move().catch((error: unknown) => {
      if (!isOver) throw error;
    });
    void done.finally(() => {
      isOver = true;
    });
    return {
      stop: () => {
        isOver = true;
      },
    };
  }

  async #attempt(one: () => Promise<unknown>): Promise<void> {
    try {
      await one();
    } catch (error) {
      if (!isPlatformError(error) || error.code === 'internal') throw error;
    }
  }

  async #comeToRest(): Promise<void> {
    const { rig } = this.#rig;
    for (let round = 0; round < 4; round++) {
      await rig.quiet();
      await rig.reconcile();
      await this.#recover();
      // In all longer than the lease of a coordinator that died lasts.
      rig.clock.step(20_000);
    }
    await rig.quiet();
  }

  /** It joins what settles a plan already, and that may wait for a lease, which ends by the clock. */
  async #recover(): ReturnType<PlanRig['recover']> {
    const recovering = this.#rig.recover();
    const moved = this.#moveClockUntil(recovering);
    try {
      return await recovering;
    } finally {
      moved.stop();
    }
  }

  // ---- checking

  async #check(): Promise<void> {
    const { rig } = this.#rig;
    const report = await this.#recover();
    expect(report.waiting, 'every plan comes to rest').toEqual([]);
    for (const { name } of this.#plans) {
      const found = await this.#rig.get(name).catch(() => undefined);
      if (found === undefined) continue;
      expect(['open', 'committed', 'rolledBack', 'rollbackIncomplete']).toContain(found.state.kind);
      if (found.state.kind !== 'rolledBack') continue;
      for (const { sandboxId, attachments } of found.members) {
        const baseOf = (target: WorkspaceId) => attachments.find((one) => one.workspaceId === target)?.base.commit;
        this.#bytes.checkRolledBack({ sandboxId, baseOf });
      }
    }
    const held = (await rig.leases()).filter(({ holder }) => holder.startsWith('plan '));
    expect(held, 'no lease of a plan is held').toEqual([]);
    const commits = await this.#commits();
    await this.#checkHistory(commits);
    await this.#checkBytes(commits);
  }

  /** Those that were asked for and are known still, with what came of them. */
  async #commits(): Promise<AskedCommit[]> {
    const commits: AskedCommit[] = [];
    for (const [id, batch] of this.#asked) {
      const record = await this.#rig.rig.store.read(({ plans }) => plans.findCommit(id));
      if (record?.result) commits.push({ batch, view: JSON.parse(record.result) as PlanCommitView });
    }
    return commits;
  }

  /** Each commit is in every target that it published, under its plan, or in none. */
  async #checkHistory(commits: readonly AskedCommit[]): Promise<void> {
    const { store } = this.#rig.rig;
    const inHistory = new Map<string, Set<WorkspaceId>>();
    for (const target of this.#targets) {
      for (const { planId, commit } of await store.read(({ workspaces }) =>
        workspaces.versions(target, { limit: 1_000 }),
      )) {
        if (planId === null) continue;
        inHistory.set(`${target} ${commit}`, new Set([target]));
      }
    }
    const told = new Set<string>();
    for (const { view } of commits) {
      const { id } = view;
      const published = view.targets.filter(({ state }) => state === 'published');
      const isWhole = view.targets.every(({ state }) => state === 'published' || state === 'unchanged');
      if (view.mode === 'atomic') {
        const isSome = published.length > 0;
        expect(!isSome || (isWhole && view.state === 'committed'), `${id} is whole or not there`).toBe(true);
      }
      for (const { workspaceId, after } of published) {
        expect(inHistory.has(`${workspaceId} ${after!.commit}`), `${id} is in the history`).toBe(true);
        told.add(`${workspaceId} ${after!.commit}`);
      }
    }
    for (const answer of this.#answers) {
      for (const { workspaceId, after } of answer.targets) {
        if (after !== null) expect(inHistory.has(`${workspaceId} ${after.commit}`), 'an answer is true').toBe(true);
      }
    }
    // Records of plans that were deleted are gone with them; every other version is some commit's.
    const deleted = (await this.#rig.rig.events('plan.deleted')).map(({ data }) => data['planId']);
    for (const target of this.#targets) {
      for (const { planId, commit } of await store.read(({ workspaces }) =>
        workspaces.versions(target, { limit: 1_000 }),
      )) {
        if (planId === null || deleted.includes(planId)) continue;
        expect(told.has(`${target} ${commit}`), 'no version without its commit').toBe(true);
      }
    }
  }

  /** What a living sandbox changed is in its files; what was published of it is in a version. */
  async #checkBytes(commits: readonly AskedCommit[]): Promise<void> {
    const { store } = this.#rig.rig;
    const histories = new Map<WorkspaceId, readonly WorkspaceVersionRecord[]>();
    for (const target of this.#targets) {
      const versions = await store.read(({ workspaces }) => workspaces.versions(target, { limit: 1_000 }));
      histories.set(target, versions);
      for (const { commit } of versions) expect(this.#rig.model.commits.has(commit)).toBe(true);
      this.#bytes.checkVersions(
        target,
        versions.map(({ commit }) => commit),
      );
      for (const [number, version] of versions.toReversed().entries()) expect(version.number).toBe(number + 1);
      for (const attachment of await store.read(({ workspaces }) => workspaces.attachmentsTo(target))) {
        expect(this.#rig.model.commits.has(attachment.baseCommit), 'a base is there').toBe(true);
      }
    }
    this.#bytes.checkSandboxes();
    const since = (target: WorkspaceId, number: number) =>
      histories
        .get(target)!
        .filter((one) => one.number >= number)
        .map(({ commit }) => commit);
    for (const commit of commits) this.#bytes.checkCommit(commit, since);
  }
}
