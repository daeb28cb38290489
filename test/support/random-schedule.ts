/**
 * One random schedule of mutations, node mishaps and crashes, checked against what callers were told. Every choice comes from
 * the seed; crashes happen at fault points, so that the same seed runs the same way.
 *
 * What is checked is what callers can rely on, whatever was answered, lost or interrupted:
 *  - An answered patch is in the history once, under the version that was answered; a refused one is not. The history has no gap,
 *    no operation twice, and replays to the map on both sides.
 *  - A command runs at most once; an answered exit code is the one that it had; a refused command did not run.
 *  - A name is one sandbox. What was deleted is gone from both sides and does not come back.
 *  - Tokens grow; two leases that were answered never overlap; without the token nothing runs while one is held.
 *  - A checkpoint that was answered is there until it is deleted; forks that were answered are there, each once.
 *  - When everything has come to rest, reconcile has nothing to do, and after deletion nothing is left over.
 */
import { expect } from 'vitest';
import type { CheckpointId, LeaseId, SandboxId } from '../../src/protocol/index.ts';
import { isPlatformError } from '../../src/protocol/index.ts';
import type { ControlRig } from './control-rig.ts';
import { lostAnswer, nodeAway } from './fake-node.ts';

const crashPoints = [
  'after-journal-operation',
  'after-store-creating',
  'after-create-on-node',
  'before-exec-on-node',
  'after-exec-on-node',
  'before-apply-settings',
  'after-apply-settings',
  'after-store-stopping',
  'after-stop-on-node',
  'after-store-starting',
  'after-start-on-node',
  'after-store-deleting',
  'after-delete-on-node',
  'after-store-pausing',
  'after-pause-on-node',
  'after-store-resuming',
  'after-resume-on-node',
  'after-store-checkpoint',
  'after-checkpoint-on-node',
  'after-store-restoring',
  'after-restore-on-node',
  'after-fork-checkpoint',
  'after-forks-made',
  'before-acknowledge-lease',
  'before-store-answer',
  'after-store-answer',
];
const nodeCalls = [
  'createSandbox',
  'startSandbox',
  'stopSandbox',
  'deleteSandbox',
  'applySettings',
  'exec',
  'findSandbox',
  'findRun',
  'checkpoint',
  'restore',
  'pause',
  'resume',
  'removeCheckpoint',
] as const;

interface Attempt {
  /** Runs it under its idempotency key; says what is to be remembered when it is answered. */
  readonly run: () => Promise<void>;
  /** `unknown` also while nobody has answered. */
  outcome: 'not begun' | 'done' | 'refused' | 'unknown';
}

interface Patch extends Attempt {
  readonly sandboxId: SandboxId;
  readonly key: string;
  readonly value: string;
  version?: number;
}

interface Command extends Attempt {
  readonly label: string;
  readonly exitCode: number;
}

interface Held {
  readonly id: LeaseId;
  readonly grants: readonly { readonly resource: string; readonly token: number }[];
}

export class RandomSchedule {
  readonly #rig: ControlRig;
  readonly #seed: number;
  #state: number;
  #count = 0;
  readonly #ids = new Map<string, SandboxId>();
  readonly #deleted = new Set<SandboxId>();
  /** Somebody tried, and may not have been answered. */
  readonly #perhapsDeleted = new Set<SandboxId>();
  readonly #checkpoints = new Set<CheckpointId>();
  readonly #forks = new Set<SandboxId>();
  readonly #patches: Patch[] = [];
  readonly #commands: Command[] = [];
  readonly #held = new Map<LeaseId, Held>();
  readonly #tokens = new Map<string, number>();
  readonly #flights: { arrive(): Promise<void> }[] = [];

  constructor(rig: ControlRig, seed: number) {
    this.#rig = rig;
    this.#seed = seed;
    this.#state = seed;
  }

  async run(options: { readonly steps: number }): Promise<void> {
    const exitCodes = new Map<string, number>();
    this.#rig.node.execute = async ({ command }) => ({ exitCode: exitCodes.get(command[1] ?? '') ?? 255 });
    await this.#attempt(this.#create());
    for (let step = 0; step < options.steps; step++) {
      this.#mishap();
      const batch = Array.from({ length: 1 + this.#below(3) }, () => this.#choose());
      for (const one of this.#commands) exitCodes.set(one.label, one.exitCode);
      await this.#runBatch(batch);
      if (this.#chance(0.3)) await this.#flights.shift()?.arrive();
      if (this.#chance(0.2)) await this.#rig.reconcile();
    }
    await this.#comeToRest();
    await this.#check();
    await this.#leaveNothing();
  }

  // ---- choosing

  /** The mulberry32 generator: small, and the same everywhere. */
  #random(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[this.#below(items.length)]!;
  }

  #next(): string {
    return `${this.#seed}-${this.#count++}`;
  }

  #mishap(): void {
    if (!this.#chance(0.4)) return;
    const call = this.#pick(nodeCalls);
    const kind = this.#pick(['away', 'lost before', 'lost after', 'late'] as const);
    if (kind === 'away') this.#rig.node.fail(call, { when: 'before', error: nodeAway() });
    else if (kind === 'lost before') this.#rig.node.fail(call, { when: 'before', error: lostAnswer() });
    else if (kind === 'lost after') this.#rig.node.fail(call, { when: 'after', error: lostAnswer() });
    else if (call !== 'findSandbox' && call !== 'findRun') this.#flights.push(this.#rig.node.loseInFlight(call));
  }

  #choose(): Attempt {
    const id = this.#pick([...this.#ids.values(), undefined]);
    const kind = this.#pick([
      'create',
      'patch',
      'patch',
      'patch',
      'exec',
      'exec',
      'stop',
      'start',
      'delete',
      'lease',
      'release',
      'checkpoint',
      'restore',
      'fork',
      'pause',
      'pause',
      'resume',
      'resume',
    ]);
    if (kind === 'create' || id === undefined) return this.#create();
    if (kind === 'patch') return this.#patch(id);
    if (kind === 'exec') return this.#exec(id);
    if (kind === 'lease') return this.#acquire(id);
    if (kind === 'release') return this.#release();
    if (kind === 'checkpoint' || kind === 'restore' || kind === 'fork') return this.#branch(kind, id);
    if (kind === 'pause' || kind === 'resume') return this.#pace(kind, id);
    return this.#life(kind as 'stop' | 'start' | 'delete', id);
  }

  // ---- what can be attempted

  #create(): Attempt {
    const name = `box-${this.#next()}`;
    const conditions = { idempotencyKey: this.#next() };
    return this.#new(async () => {
      const { view } = await this.#rig.createWith(conditions, { name, metadata: { name } }).catch((error: unknown) => {
        // Nobody else uses this name: who has it is our own first attempt.
        if (isPlatformError(error, 'name_taken')) throw new Error('A repeat of a create met itself.');
        throw error;
      });
      this.#ids.set(name, view.id);
    });
  }

  #patch(sandboxId: SandboxId): Attempt {
    const [key, value] = [`k${this.#below(3)}`, `v${this.#next()}`];
    const conditions = { idempotencyKey: this.#next(), ...this.#tokenFor(sandboxId) };
    const patch: Patch = {
      ...this.#new(async () => {
        patch.version = (await this.#rig.patch(sandboxId, { [key]: value }, conditions)).version;
      }),
      ...{ sandboxId, key, value },
    };
    this.#patches.push(patch);
    return patch;
  }

  #exec(sandboxId: SandboxId): Attempt {
    const label = this.#next();
    const conditions = { idempotencyKey: this.#next(), ...this.#tokenFor(sandboxId) };
    const guards = conditions.leaseToken === undefined ? this.#holdersOf(sandboxId) : [];
    const command: Command = {
      ...this.#new(async () => {
        const result = await this.#rig.exec(sandboxId, conditions, { command: ['run', label] });
        expect(result.exitCode, 'an exit code is the one of its command').toBe(command.exitCode);
        const isGuarded = guards.some((leaseId) => this.#held.has(leaseId));
        expect(isGuarded, 'nothing runs without the token while a lease is held').toBe(false);
      }),
      ...{ label, exitCode: 1 + this.#below(200) },
    };
    this.#commands.push(command);
    return command;
  }

  #life(kind: 'stop' | 'start' | 'delete', sandboxId: SandboxId): Attempt {
    const conditions = { idempotencyKey: this.#next(), ...this.#tokenFor(sandboxId) };
    return this.#new(async () => {
      if (kind === 'delete') {
        for (const leaseId of this.#holdersOf(sandboxId)) this.#held.delete(leaseId);
        this.#perhapsDeleted.add(sandboxId);
        await this.#rig.delete(sandboxId, conditions, { force: false });
        this.#deleted.add(sandboxId);
      } else if (kind === 'stop') {
        expect((await this.#rig.stop(sandboxId, conditions)).state).toBe('stopped');
      } else {
        expect((await this.#rig.start(sandboxId, conditions)).state).toBe('running');
      }
    });
  }

  #branch(kind: 'checkpoint' | 'restore' | 'fork', sandboxId: SandboxId): Attempt {
    const conditions = { idempotencyKey: this.#next(), ...this.#tokenFor(sandboxId) };
    const from = this.#pick([...this.#checkpoints, undefined]);
    if (kind === 'restore' && from !== undefined) {
      return this.#new(async () => {
        expect((await this.#rig.restore(sandboxId, from, conditions)).state).toBe('running');
      });
    }
    if (kind === 'fork') {
      return this.#new(async () => {
        const { items } = await this.#rig.fork(sandboxId, { count: 2 }, conditions);
        for (const { sandbox } of items) if (sandbox !== null) this.#forks.add(sandbox.id);
      });
    }
    return this.#new(async () => {
      this.#checkpoints.add((await this.#rig.checkpoint(sandboxId, conditions)).id);
    });
  }

  #pace(kind: 'pause' | 'resume', sandboxId: SandboxId): Attempt {
    const conditions = { idempotencyKey: this.#next(), ...this.#tokenFor(sandboxId) };
    const mode = this.#pick(['memory', 'files'] as const);
    return this.#new(async () => {
      if (kind === 'pause') expect((await this.#rig.pause(sandboxId, conditions, mode)).state).toBe('paused');
      else expect((await this.#rig.resume(sandboxId, conditions)).state).toBe('running');
    });
  }

  #acquire(sandboxId: SandboxId): Attempt {
    const resources = this.#pick([[sandboxId], ['name:x'], [sandboxId, 'name:x'], ['name:x', sandboxId]]);
    const conditions = { idempotencyKey: this.#next() };
    return this.#new(async () => {
      const lease = await this.#rig.acquireWith(conditions, resources, { ttlMs: 3600_000 });
      for (const { resource, token } of lease.grants) {
        expect(this.#holdersOf(resource), 'two leases never overlap').toEqual([]);
        expect(token, 'tokens grow').toBeGreaterThan(this.#tokens.get(resource) ?? 0);
        this.#tokens.set(resource, token);
      }
      this.#held.set(lease.id, lease);
    });
  }

  #release(): Attempt {
    const conditions = { idempotencyKey: this.#next() };
    return this.#new(async () => {
      const [lease] = this.#held.values();
      if (lease === undefined) return;
      // From the moment it is asked for, nobody can rely on the lease.
      this.#held.delete(lease.id);
      await this.#rig.release(lease.id, conditions);
    });
  }

  #new(run: () => Promise<void>): Attempt {
    return { run, outcome: 'not begun' };
  }

  #holdersOf(resource: string): LeaseId[] {
    const held = [...this.#held.values()].filter(({ grants }) => grants.some((grant) => grant.resource === resource));
    return held.map(({ id }) => id);
  }

  #tokenFor(resource: string): { leaseToken?: number } {
    const [leaseId] = this.#holdersOf(resource);
    if (leaseId === undefined || this.#chance(0.3)) return {};
    return { leaseToken: this.#held.get(leaseId)!.grants.find((grant) => grant.resource === resource)!.token };
  }

  // ---- carrying out

  /** All at once; with some probability the server dies at a fault point on the way, and comes back. */
  async #runBatch(batch: readonly Attempt[]): Promise<void> {
    const crashesAt = this.#chance(0.35) ? this.#pick(crashPoints) : undefined;
    const gate = crashesAt === undefined ? undefined : this.#rig.faults.hold(crashesAt);
    const answers = Promise.all(batch.map((one) => this.#attempt(one)));
    const first = await Promise.race([answers, gate?.reached.then(() => 'crash' as const) ?? answers]);
    if (first === 'crash') {
      await this.#rig.crash();
      gate?.open();
      await this.#rig.restart();
    } else gate?.open();
    for (const one of batch) {
      if (one.outcome === 'unknown' && this.#chance(0.7)) await this.#attempt(one);
    }
  }

  async #attempt(one: Attempt): Promise<void> {
    const isRepeat = one.outcome !== 'not begun';
    one.outcome = 'unknown';
    try {
      await one.run();
      one.outcome = 'done';
    } catch (error) {
      if (!isPlatformError(error) || error.code === 'internal') throw error;
      // What a repeat is refused with says nothing about the attempt before it.
      if (error.retry !== 'unknown' && !isRepeat) one.outcome = 'refused';
    }
  }

  async #comeToRest(): Promise<void> {
    for (const flight of this.#flights) await flight.arrive();
    this.#rig.node.forgetMishaps();
    // Terms and deadlines of whatever was interrupted pass.
    this.#held.clear();
    this.#rig.clock.step(2 * 3600_000);
    for (let round = 0; round < 3; round++) {
      await this.#rig.reconcile();
      this.#rig.clock.step(2_000);
      for (let turn = 0; turn < 5; turn++) await this.#rig.store.transact(async () => {});
    }
  }

  // ---- checking

  async #check(): Promise<void> {
    const rig = this.#rig;
    expect((await rig.reconcile()).actions, 'nothing is left to settle').toEqual([]);
    const { items } = await rig.control.sandboxes.list(rig.caller, { limit: 1_000 });
    const names = items.flatMap(({ name }) => (name === null ? [] : [name]));
    expect(new Set(names).size, 'a name is one sandbox').toBe(names.length);
    for (const [name, id] of this.#ids) {
      const isThere = items.some((item) => item.id === id && item.name === name);
      if (this.#deleted.has(id)) expect(isThere, 'what was deleted is gone').toBe(false);
      else if (!this.#perhapsDeleted.has(id)) expect(isThere, 'what was made is there').toBe(true);
    }
    const made = new Set(items.filter((item) => item.state !== 'failed').map((item) => item.id));
    expect(new Set(rig.node.sandboxes.keys()), 'both sides have the same sandboxes').toEqual(made);
    for (const item of items) if (made.has(item.id)) await this.#checkSandbox(item.id);
    this.#checkCommands();
    await this.#checkBranches(new Set(items.map((item) => item.id)));
    expect((await rig.control.leases.list(rig.caller, {})).items, 'terms end').toEqual([]);
    const metrics = await rig.control.metrics();
    const gauge = (name: string) => metrics.find((metric) => metric.name === name)?.samples[0]?.value;
    expect(gauge('atoll_lanes_busy')).toBe(0);
    expect(gauge('atoll_operations_running')).toBe(0);
    expect(gauge('atoll_sandboxes_in_doubt')).toBe(0);
  }

  async #checkBranches(present: ReadonlySet<SandboxId>): Promise<void> {
    const rig = this.#rig;
    for (const fork of this.#forks) expect(present.has(fork), 'a fork that was answered is there').toBe(true);
    const { items } = await rig.control.checkpoints.list(rig.caller, { limit: 1_000 });
    const known = new Set(items.map((item) => item.id));
    for (const id of this.#checkpoints) expect(known.has(id), 'a checkpoint that was answered is there').toBe(true);
    expect(new Set(rig.node.branches.checkpoints.keys()), 'both sides have the same checkpoints').toEqual(known);
  }

  async #checkSandbox(id: SandboxId): Promise<void> {
    const view = await this.#rig.get(id);
    const node = this.#rig.node.sandboxes.get(id)!;
    const isStill = view.state === 'paused' && view.paused?.mode === 'memory';
    const life = view.state === 'running' ? 'running' : isStill ? 'paused' : 'ended';
    expect(node.life.kind, 'both sides agree on whether it runs').toBe(life);
    expect(view.lease).toBeNull();
    if (view.state === 'running' || isStill) {
      expect(node.generation).toBe(view.generation);
      expect(node.settings.leaseHeld).toBe(false);
      expect([node.settings.metadata, node.settings.metadataVersion]).toEqual([view.metadata, view.metadataVersion]);
    }
    const { items } = await this.#rig.control.metadata.history(this.#rig.caller, id, { limit: 1_000 });
    const history = items.reverse();
    expect(
      history.map((change) => change.version),
      'versions have no gap',
    ).toEqual(history.map((_, index) => index + 1));
    const operations = history.map((change) => change.operationId).filter((one) => one !== null);
    expect(new Set(operations).size, 'no operation took effect twice').toBe(operations.length);
    const replayed = Object.assign({}, ...history.map((change) => change.changes)) as object;
    expect(replayed, 'the history replays to the map').toEqual(view.metadata);
    for (const patch of this.#patches.filter((one) => one.sandboxId === id)) {
      const found = history.filter((change) => change.changes[patch.key] === patch.value);
      if (patch.outcome === 'done')
        expect(
          found.map((change) => change.version),
          'no lost update',
        ).toEqual([patch.version]);
      else expect(found.length, 'no refused update').toBeLessThanOrEqual(patch.outcome === 'refused' ? 0 : 1);
    }
  }

  #checkCommands(): void {
    for (const { label, outcome } of this.#commands) {
      const runs = this.#rig.node.execs.filter((order) => order.command[1] === label).length;
      if (outcome === 'done') expect(runs, 'an answered command ran once').toBe(1);
      else
        expect(runs, 'no command runs twice, and no refused one at all').toBeLessThanOrEqual(
          outcome === 'refused' ? 0 : 1,
        );
    }
  }

  async #leaveNothing(): Promise<void> {
    const { items } = await this.#rig.control.sandboxes.list(this.#rig.caller, { limit: 1_000 });
    for (const item of items) await this.#rig.delete(item.id);
    for (const id of [...this.#rig.node.branches.checkpoints.keys()]) {
      await this.#rig.control.checkpoints.delete(this.#rig.caller, id, {});
    }
    expect(this.#rig.node.branches.checkpoints.size, 'no checkpoint is left on the node').toBe(0);
    expect(this.#rig.node.sandboxes.size, 'nothing is left on the node').toBe(0);
    expect(await this.#rig.store.read((tables) => tables.leases.listHeld())).toEqual([]);
  }
}
