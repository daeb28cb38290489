/** One caller of a crash schedule: makes changes, asks again until each is answered, and compares what it hears with its model. */
import { deepEqual, equal, ok } from 'node:assert/strict';
import { isPlatformError, PlatformError } from '../../src/protocol/index.ts';
import { Sandbox } from '../../src/sdk/index.ts';
import { eventually, impatient, untilAnswered } from './crashes.ts';
import type { Platform } from './platform.ts';
import type { SeededRandom } from './seeded-random.ts';

const sandboxesMax = 3;
const hourMs = 3600 * 1000;
const metadataKeys = ['a', 'b', 'c', 'd'];

export interface Journal {
  readonly operations: Map<string, number>;
  doubts: number;
  readonly violations: string[];
}

/** Used by every worker, each only while it holds the lease. */
export class SharedSandbox {
  readonly id: string;
  holder: string | undefined;
  lastToken = 0;

  constructor(id: string) {
    this.id = id;
  }
}

/** What a sandbox must be. */
interface Model {
  readonly id: string;
  state: 'running' | 'stopped' | 'paused';
  /** How it was paused last. */
  mode: 'memory' | 'files';
  generation: number;
  metadata: Record<string, string>;
  metadataVersion: number;
  /** Lines that commands have written, once each. */
  readonly lines: Set<string>;
  /** Lines of commands of which nobody knows whether they ran. */
  readonly doubtful: Set<string>;
}

export interface WorkerOptions {
  readonly platform: Platform;
  readonly journal: Journal;
  readonly random: SeededRandom;
  readonly name: string;
  readonly shared: SharedSandbox;
}

export class CrashWorker {
  readonly #options: WorkerOptions;
  readonly #models: Model[] = [];
  #count = 0;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  get sandboxIds(): string[] {
    return this.#models.map(({ id }) => id);
  }

  /** Ends after a violation: what follows from it would only hide it. */
  async run(signal: AbortSignal): Promise<void> {
    const { random, journal, name } = this.#options;
    while (!signal.aborted) {
      const { kind, act } = this.#choose(random);
      try {
        await act();
        journal.operations.set(kind, (journal.operations.get(kind) ?? 0) + 1);
      } catch (error) {
        const text = error instanceof PlatformError ? `${error.code}: ${error.message}` : String(error);
        journal.violations.push(`${name}, ${kind} (${this.#count}): ${text} ${JSON.stringify(this.#models)}`);
        return;
      }
    }
  }

  #choose(random: SeededRandom): { kind: string; act: () => Promise<void> } {
    const create = { kind: 'create', act: () => this.#create() };
    const lease = { kind: 'lease', act: () => this.#useShared() };
    if (this.#models.length === 0) return create;
    const model = random.pick(this.#models);
    const look = { kind: 'look', act: () => this.#compare(model) };
    const remove = { kind: 'delete', act: () => this.#delete(model) };
    const start = { kind: 'start', act: () => this.#start(model) };
    const grow = this.#models.length < sandboxesMax ? [create] : [remove];
    if (model.state === 'stopped') return random.pick([start, start, start, look, lease, remove, ...grow]);
    const patch = { kind: 'patch', act: () => this.#patch(model) };
    const resume = { kind: 'resume', act: () => this.#resume(model) };
    if (model.state === 'paused') return random.pick([resume, resume, resume, patch, look, remove, ...grow]);
    const pause = { kind: 'pause', act: () => this.#pause(model) };
    const restore = { kind: 'restore', act: () => this.#restore(model) };
    const fork = { kind: 'fork', act: () => this.#fork(model) };
    const exec = { kind: 'exec', act: () => this.#exec(model) };
    const stop = { kind: 'stop', act: () => this.#stop(model) };
    const branches = [pause, restore, fork];
    return random.pick([exec, exec, exec, patch, patch, patch, lease, look, stop, remove, ...branches, ...grow]);
  }

  async #create(): Promise<void> {
    const idempotencyKey = this.#nextKey();
    const metadata = { by: this.#options.name };
    const create = () => impatient(this.#options.platform).sandboxes.create({ idempotencyKey, metadata });
    const { view } = await untilAnswered(create);
    equal(view.state, 'running');
    deepEqual(view.metadata, metadata);
    this.#models.push({
      id: view.id,
      state: 'running',
      mode: 'memory',
      generation: 1,
      metadata,
      metadataVersion: 1,
      lines: new Set(),
      doubtful: new Set(),
    });
  }

  async #exec(model: Model): Promise<void> {
    const { random } = this.#options;
    const idempotencyKey = this.#nextKey();
    const exitCode = random.between(0, 9);
    const command = `echo ${idempotencyKey} >> /root/log; exit ${exitCode}`;
    try {
      const result = await this.#ask(model, (sandbox) => sandbox.exec(command, { idempotencyKey }));
      equal(result.exitCode, exitCode, 'the exit code is not that of the command');
      model.lines.add(idempotencyKey);
    } catch (error) {
      if (!isPlatformError(error, 'operation_in_doubt')) throw error;
      this.#options.journal.doubts++;
      const known = error.details['exitCode'];
      ok(known === null || known === undefined || known === exitCode, `an exit code was invented: ${String(known)}`);
      (known === exitCode ? model.lines : model.doubtful).add(idempotencyKey);
    }
    if (random.next() < 0.3) await this.#compareLines(model);
  }

  async #patch(model: Model): Promise<void> {
    const { random } = this.#options;
    const idempotencyKey = this.#nextKey();
    const change: Record<string, string | null> = {};
    for (const key of metadataKeys) {
      const choice = random.next();
      if (choice < 0.3) change[key] = idempotencyKey;
      else if (choice < 0.4) change[key] = null;
    }
    const next = merge(model.metadata, change);
    const isChanged = JSON.stringify(sorted(next)) !== JSON.stringify(sorted(model.metadata));
    if (random.next() < 0.7) {
      const answer = await this.#ask(model, (sandbox) => sandbox.patchMetadata(change, { idempotencyKey }));
      this.#advance(model, next, isChanged);
      deepEqual(answer, { metadata: model.metadata, version: model.metadataVersion });
    } else {
      const update = { metadata: change, expiresInMs: hourMs };
      const { view } = await this.#ask(model, (sandbox) => sandbox.update(update, { idempotencyKey }));
      this.#advance(model, next, isChanged);
      deepEqual(view.metadata, model.metadata);
      ok((view.expiresAt ?? view.paused?.leftMs ?? null) !== null, 'metadata and deadline came apart');
    }
  }

  #advance(model: Model, next: Record<string, string>, isChanged: boolean): void {
    model.metadata = next;
    if (isChanged) model.metadataVersion++;
  }

  async #stop(model: Model): Promise<void> {
    const idempotencyKey = this.#nextKey();
    const { view } = await this.#ask(model, (sandbox) => sandbox.stop({ graceMs: 0, idempotencyKey }));
    deepEqual({ state: view.state, reason: view.reason }, { state: 'stopped', reason: 'requested' });
    model.state = 'stopped';
  }

  async #start(model: Model): Promise<void> {
    const idempotencyKey = this.#nextKey();
    const { view } = await this.#ask(model, (sandbox) => sandbox.start({ idempotencyKey }));
    equal(view.state, 'running');
    equal(view.generation, model.generation + 1);
    model.state = 'running';
    model.generation++;
    await this.#compareLines(model);
  }

  async #pause(model: Model): Promise<void> {
    const idempotencyKey = this.#nextKey();
    const mode = this.#options.random.pick(['memory', 'files'] as const);
    const { view } = await this.#ask(model, (sandbox) => sandbox.pause({ mode, idempotencyKey }));
    deepEqual({ state: view.state, mode: view.paused?.mode }, { state: 'paused', mode });
    model.state = 'paused';
    model.mode = mode;
  }

  async #resume(model: Model): Promise<void> {
    const idempotencyKey = this.#nextKey();
    const { view } = await this.#ask(model, (sandbox) => sandbox.resume({ idempotencyKey }));
    equal(view.state, 'running');
    model.state = 'running';
    if (model.mode === 'files') model.generation++;
    equal(view.generation, model.generation);
    await this.#compareLines(model);
  }

  /** Nobody else uses the sandbox: what the checkpoint has is what it had. */
  async #restore(model: Model): Promise<void> {
    const { platform } = this.#options;
    const [takeKey, restoreKey] = [this.#nextKey(), this.#nextKey()];
    const { id } = await this.#ask(model, (sandbox) => sandbox.checkpoints.create({ idempotencyKey: takeKey }));
    const { view } = await this.#ask(model, (sandbox) => sandbox.restore(id, { idempotencyKey: restoreKey }));
    model.generation++;
    deepEqual({ state: view.state, generation: view.generation }, { state: 'running', generation: model.generation });
    await untilAnswered(() => impatient(platform).checkpoints.delete(id, { idempotencyKey: `${takeKey}-delete` }));
    await this.#compareLines(model);
  }

  /** A fork has the lines of its source, and is gone afterwards, whatever its answer was. */
  async #fork(model: Model): Promise<void> {
    const { platform, journal } = this.#options;
    const idempotencyKey = this.#nextKey();
    const [fork] = await this.#ask(model, (sandbox) => sandbox.fork({ idempotencyKey }));
    const id = fork!.sandbox?.id ?? String(fork!.error?.details['sandboxId']);
    if (fork!.sandbox === null) journal.doubts++;
    else {
      const { view } = fork!.sandbox;
      deepEqual(view.metadata, model.metadata);
      const look = () => new Sandbox(impatient(platform).connection, view).exec('cat /root/log 2>/dev/null');
      this.#checkLines(model, (await untilAnswered(look)).stdout);
    }
    await untilAnswered(async () => {
      const left = await impatient(platform).sandboxes.connect(id).catch(gone);
      await left?.delete({ force: true }).catch(gone);
    });
  }

  async #delete(model: Model): Promise<void> {
    const idempotencyKey = this.#nextKey();
    await this.#ask(model, (sandbox) => sandbox.delete({ idempotencyKey }));
    this.#models.splice(this.#models.indexOf(model), 1);
    const left = await untilAnswered(() =>
      impatient(this.#options.platform)
        .sandboxes.get(model.id)
        .catch((error: unknown) => {
          if (isPlatformError(error, 'sandbox_not_found')) return undefined;
          throw error;
        }),
    );
    ok(left === undefined || left.state === 'deleting', `it was deleted, and is ${left?.state}`);
  }

  /** Takes the lease, has an effect that names its token, and gives it up. */
  async #useShared(): Promise<void> {
    const { platform, shared, name, journal } = this.#options;
    const idempotencyKey = this.#nextKey();
    const request = { resources: [shared.id], holder: name, ttlMs: hourMs, waitMs: 30_000, idempotencyKey };
    const lease = await untilAnswered(() => impatient(platform).leases.acquire(request));
    const { token } = lease.grants[0]!;
    equal(shared.holder, undefined, `${shared.holder} and ${name} hold the lease`);
    shared.holder = name;
    ok(token > shared.lastToken, `token ${token} was given after ${shared.lastToken}`);
    shared.lastToken = token;
    const view = await untilAnswered(() => impatient(platform).sandboxes.get(shared.id));
    deepEqual(view.lease, { holder: name, reason: '', token });
    try {
      await untilAnswered(() => {
        const sandbox = new Sandbox(impatient(platform).connection, view, { leaseToken: token });
        return sandbox.exec(`echo ${token} >> /root/tokens`, { idempotencyKey: `${idempotencyKey}-effect` });
      });
    } catch (error) {
      if (!isPlatformError(error, 'operation_in_doubt')) throw error;
      journal.doubts++;
    }
    const refused = untilAnswered(() => new Sandbox(impatient(platform).connection, view).exec(['true']));
    const code = await refused.then(
      () => 'it ran',
      (error: unknown) => (isPlatformError(error) ? error.code : String(error)),
    );
    equal(code, 'lease_held', 'a command without the token');
    shared.holder = undefined;
    await untilAnswered(() => impatient(platform).leases.release(lease.id));
  }

  /** Everything of this worker, when all is quiet. */
  async checkAll(): Promise<void> {
    for (const model of this.#models) {
      await this.#compare(model);
      if (model.state === 'stopped') await this.#start(model);
      if (model.state === 'paused') await this.#resume(model);
      await this.#compareLines(model);
      await this.#compareHistory(model);
    }
  }

  /** Effects under leases came in the order of their tokens, each once. */
  async checkShared(): Promise<void> {
    const { platform, shared } = this.#options;
    const sandbox = await platform.client.sandboxes.connect(shared.id);
    // A lease that was given up while its node was away counts until the node knows.
    const { stdout } = await eventually(() => sandbox.exec('cat /root/tokens 2>/dev/null'));
    const tokens = stdout
      .split('\n')
      .filter((line) => line !== '')
      .map(Number);
    deepEqual(
      tokens,
      [...new Set(tokens)].sort((a, b) => a - b),
      'effects of leases are out of order',
    );
  }

  async #compare(model: Model): Promise<void> {
    const view = await untilAnswered(() => impatient(this.#options.platform).sandboxes.get(model.id));
    const { id, state, generation, metadata, metadataVersion } = view;
    const wanted = { id: model.id, state: model.state, generation: model.generation };
    deepEqual(
      { id, state, generation, metadata, metadataVersion },
      { ...wanted, metadata: model.metadata, metadataVersion: model.metadataVersion },
    );
  }

  async #compareLines(model: Model): Promise<void> {
    const { stdout } = await this.#ask(model, (sandbox) => sandbox.exec('cat /root/log 2>/dev/null'));
    this.#checkLines(model, stdout);
  }

  #checkLines(model: Model, stdout: string): void {
    const found = stdout.split('\n').filter((line) => line !== '');
    equal(new Set(found).size, found.length, 'a command ran twice');
    for (const line of model.lines) ok(found.includes(line), `a command that was answered has not run: ${line}`);
    for (const line of found) ok(model.lines.has(line) || model.doubtful.has(line), `nobody ran this: ${line}`);
  }

  /** No version is missing, and together the changes make the map. */
  async #compareHistory(model: Model): Promise<void> {
    const { items } = await this.#ask(model, (sandbox) => sandbox.metadataHistory({ limit: 1_000 }));
    deepEqual(
      items.map(({ version }) => version),
      Array.from({ length: model.metadataVersion }, (_, index) => model.metadataVersion - index),
    );
    const made = items.toReversed().reduce<Record<string, string>>((map, { changes }) => merge(map, changes), {});
    deepEqual(made, model.metadata);
  }

  /** As one caller would: with a handle on the life it knows, and again until there is an answer. */
  async #ask<Result>(model: Model, call: (sandbox: Sandbox) => Promise<Result>): Promise<Result> {
    const { platform } = this.#options;
    const view = await untilAnswered(() => impatient(platform).sandboxes.get(model.id));
    return await untilAnswered(() => {
      const known = { ...view, generation: model.generation };
      return call(new Sandbox(impatient(platform).connection, known));
    });
  }

  #nextKey(): string {
    return `${this.#options.name}-${this.#count++}`;
  }
}

/** What is not there any more is gone, as it should be. */
function gone(error: unknown): undefined {
  if (isPlatformError(error, 'sandbox_not_found')) return undefined;
  throw error;
}

function merge(map: Readonly<Record<string, string>>, change: Readonly<Record<string, string | null>>) {
  const next = new Map(Object.entries(map));
  for (const [key, value] of Object.entries(change)) {
    if (value === null) next.delete(key);
    else next.set(key, value);
  }
  return Object.fromEntries(next);
}

function sorted(map: Readonly<Record<string, string>>): [string, string][] {
  return Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1));
}
