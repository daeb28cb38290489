/** Control on a real SQLite store and a node in memory. `restart` is a crash: a new Control on the same store and node. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { KeptFiles, ScriptedFaults, silentLogger } from '../../src/base/index.ts';
import type { Delivery } from '../../src/control/index.ts';
import {
  type Caller,
  Control,
  type ControlSettings,
  defaultControlSettings,
  NodeDirectory,
} from '../../src/control/index.ts';
import type { PlanWork } from '../../src/control/plans/plan-work.ts';
import {
  type BodyInputOf,
  type CheckpointId,
  type Conditions,
  type LeaseId,
  type LeaseView,
  type NodeApi,
  newId,
  PlatformError,
  routes,
  type SandboxId,
  systemRandom,
} from '../../src/protocol/index.ts';
import { openSqliteStore, type Store } from '../../src/store/index.ts';
import { CrashLine } from './crash-line.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeNode } from './fake-node.ts';
import { quickDirectory } from './quick-directory.ts';

export interface RigOptions {
  /** Who does the work of plans on workspaces, where it is not the real one. */
  readonly planWork?: (rig: ControlRig) => PlanWork;
  readonly settings?: Partial<ControlSettings>;
  /** True: reconcile also runs by itself, as it does in production. Otherwise only when a test asks, which it can reason about. */
  readonly reconcilesByItself?: boolean;
}

export class ControlRig {
  readonly clock = new FakeClock();
  readonly node = new FakeNode();
  readonly faults = new ScriptedFaults();
  readonly deliveries: Delivery[] = [];
  deliver: (delivery: Delivery) => Promise<void> = async (delivery) => void this.deliveries.push(delivery);
  control!: Control;
  store!: Store;
  caller!: Caller;
  #line = new CrashLine();
  readonly directory: string;
  readonly #settings: ControlSettings;
  readonly #reconcilesByItself: boolean;
  readonly #planWork: RigOptions['planWork'];
  #isAskedToReconcile = false;
  /** What a round that nobody asked for waits for. */
  #rest = Promise.withResolvers<never>();

  private constructor(directory: string, options: RigOptions) {
    this.directory = directory;
    this.#settings = { ...defaultControlSettings, ...options.settings };
    this.#reconcilesByItself = options.reconcilesByItself ?? false;
    this.#planWork = options.planWork;
  }

  static async open(options: RigOptions = {}): Promise<ControlRig> {
    const rig = new ControlRig(await quickDirectory('atoll-rig-'), options);
    rig.store = await openSqliteStore({ path: join(rig.directory, 'atoll.db') });
    await rig.#start();
    const key = await rig.control.who.ensureFirstKey();
    rig.caller = await rig.control.who.authenticate(key ?? '');
    return rig;
  }

  /** Without a word of goodbye: whatever was running in the old Control goes nowhere, and nobody hears of it. */
  async restart(): Promise<void> {
    await this.crash();
    await this.#start();
  }

  /** The first half of a restart. */
  async crash(): Promise<void> {
    this.#line.cut();
    // What the old one had given to the database is there, or is not, before the new one looks.
    await this.store.transact(async () => {});
  }

  /** The machine boots: the server with it. */
  async reboot(): Promise<void> {
    await this.crash();
    this.clock.reboot();
    await this.#start();
  }

  /** Compares and settles everything once. */
  reconcile(options = { dryRun: false }) {
    this.#isAskedToReconcile = true;
    // It asks the node before its first await.
    const round = this.control.reconciler.run('system', options);
    this.#isAskedToReconcile = false;
    return round;
  }

  async create(body: BodyInputOf<typeof routes.createSandbox> = {}) {
    const { view } = await this.createWith({}, body);
    return view;
  }

  createWith(conditions: Conditions, body: BodyInputOf<typeof routes.createSandbox> = {}) {
    return this.control.sandboxes.create(this.caller, conditions, routes.createSandbox.body.parse(body));
  }

  get(sandboxId: SandboxId) {
    return this.control.sandboxes.get(this.caller, sandboxId);
  }

  patch(sandboxId: SandboxId, patch: Record<string, string | null>, conditions: Conditions = {}) {
    return this.control.metadata.patch(this.caller, sandboxId, conditions, patch);
  }

  stop(sandboxId: SandboxId, conditions: Conditions = {}) {
    return this.control.sandboxes.stop(this.caller, sandboxId, conditions, { graceMs: 0 });
  }

  start(sandboxId: SandboxId, conditions: Conditions = {}) {
    return this.control.sandboxes.start(this.caller, sandboxId, conditions, {});
  }

  pause(sandboxId: SandboxId, conditions: Conditions = {}, mode: 'memory' | 'files' = 'memory') {
    return this.control.pauses.pause(this.caller, sandboxId, conditions, { mode });
  }

  resume(sandboxId: SandboxId, conditions: Conditions = {}, body: BodyInputOf<typeof routes.resumeSandbox> = {}) {
    return this.control.pauses.resume(this.caller, sandboxId, conditions, body);
  }

  checkpoint(
    sandboxId: SandboxId,
    conditions: Conditions = {},
    body: BodyInputOf<typeof routes.createCheckpoint> = {},
  ) {
    const parsed = routes.createCheckpoint.body.parse(body);
    return this.control.checkpoints.create(this.caller, sandboxId, conditions, parsed);
  }

  restore(sandboxId: SandboxId, checkpoint: CheckpointId, conditions: Conditions = {}) {
    return this.control.restores.restore(this.caller, sandboxId, conditions, { checkpoint });
  }

  fork(sandboxId: SandboxId, body: BodyInputOf<typeof routes.forkSandbox> = {}, conditions: Conditions = {}) {
    return this.control.forks.fork(this.caller, sandboxId, conditions, routes.forkSandbox.body.parse(body));
  }

  delete(sandboxId: SandboxId, conditions: Conditions = {}, options = { force: false }) {
    return this.control.sandboxes.delete(this.caller, sandboxId, conditions, options);
  }

  exec(sandboxId: string, conditions = {}, body: Partial<BodyInputOf<typeof routes.exec>> = {}) {
    const parsed = routes.exec.body.parse({ command: ['true'], ...body });
    return this.control.execution.exec(this.caller, sandboxId as never, conditions, parsed);
  }

  acquire(resources: string[], more: Partial<BodyInputOf<typeof routes.acquireLease>> = {}, signal?: AbortSignal) {
    return this.acquireWith({}, resources, more, signal);
  }

  acquireWith(
    conditions: Conditions,
    resources: string[],
    more: Partial<BodyInputOf<typeof routes.acquireLease>> = {},
    signal?: AbortSignal,
  ) {
    const body = routes.acquireLease.body.parse({ resources, holder: 'somebody', ...more });
    return this.control.leases.acquire(this.caller, conditions, body, signal);
  }

  release(leaseId: LeaseId, conditions: Conditions = {}) {
    return this.control.leases.release(this.caller, leaseId, conditions);
  }

  /** The leases that are held. */
  async leases(query: { resource?: string } = {}) {
    return (await this.control.leases.list(this.caller, query)).items;
  }

  renew(lease: LeaseView, body: BodyInputOf<typeof routes.renewLease> = {}) {
    return this.control.leases.renew(this.caller, lease.id, {}, body);
  }

  /** Everything that was begun, and needs no time to pass, has happened. */
  async quiet(): Promise<void> {
    for (let turn = 0; turn < 20; turn++) await this.store.transact(async () => {});
  }

  async events(kindPrefix = ''): Promise<{ kind: string; data: Record<string, unknown> }[]> {
    const found = await this.store.read((tables) =>
      tables.events.list({ teamId: this.caller.teamId, after: 0, limit: 10_000 }),
    );
    return found
      .filter((event) => event.kind.startsWith(kindPrefix))
      .map(({ kind, data }) => ({ kind, data: { ...data } }));
  }

  /** In good order. */
  async shutDown(): Promise<void> {
    this.#rest.reject(new PlatformError('node_unavailable', 'The server stops.'));
    await this.control.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async close(): Promise<void> {
    await this.shutDown();
    await this.store.close();
    await this.node.close();
    await rm(this.directory, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const line = new CrashLine();
    this.#line = line;
    const nodes = new NodeDirectory();
    const node = line.node(this.node);
    const rest = Promise.withResolvers<never>();
    rest.promise.catch(() => {});
    this.#rest = rest;
    const inventory: NodeApi['inventory'] = (signal) =>
      this.#reconcilesByItself || this.#isAskedToReconcile ? node.inventory(signal) : rest.promise;
    nodes.add(this.node.nodeId, { ...node, inventory });
    this.control = new Control({
      store: line.store(this.store),
      nodes,
      clock: this.clock,
      timers: line.timers(this.clock),
      logger: silentLogger,
      faults: line.faults(this.faults),
      random: systemRandom,
      settings: this.#settings,
      secret: new Uint8Array(32),
      serverRun: newId('request'),
      deliver: (delivery) => this.deliver(delivery),
      archives: await KeptFiles.open(join(this.directory, 'backups')),
      ...(this.#planWork && { planWork: line.planWork(this.#planWork(this)) }),
    });
    await this.control.open();
  }
}
