/** Control on a real SQLite store and a node in memory. `restart` is a crash: a new Control on the same store and node. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ScriptedFaults, silentLogger } from '../../src/base/index.ts';
import type { Delivery } from '../../src/control/index.ts';
import {
  type Caller,
  Control,
  type ControlSettings,
  defaultControlSettings,
  NodeDirectory,
} from '../../src/control/index.ts';
import { type BodyInputOf, newId, routes, systemRandom } from '../../src/protocol/index.ts';
import { openSqliteStore, type Store } from '../../src/store/index.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeNode } from './fake-node.ts';

export interface RigOptions {
  readonly settings?: Partial<ControlSettings>;
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
  readonly #directory: string;
  readonly #settings: ControlSettings;

  private constructor(directory: string, options: RigOptions) {
    this.#directory = directory;
    this.#settings = { ...defaultControlSettings, ...options.settings };
  }

  static async open(options: RigOptions = {}): Promise<ControlRig> {
    const rig = new ControlRig(await mkdtemp(join(tmpdir(), 'atoll-rig-')), options);
    rig.store = await openSqliteStore({ path: join(rig.#directory, 'atoll.db') });
    await rig.#start();
    const key = await rig.control.who.ensureFirstKey();
    rig.caller = await rig.control.who.authenticate(key ?? '');
    return rig;
  }

  /** Without a word of goodbye: whatever was running in the old Control goes nowhere. */
  async restart(): Promise<void> {
    const old = this.control;
    await this.#start();
    await old.close();
  }

  async create(body: BodyInputOf<typeof routes.createSandbox> = {}) {
    const { view } = await this.control.sandboxes.create(this.caller, {}, routes.createSandbox.body.parse(body));
    return view;
  }

  exec(sandboxId: string, conditions = {}, body: Partial<BodyInputOf<typeof routes.exec>> = {}) {
    const parsed = routes.exec.body.parse({ command: ['true'], ...body });
    return this.control.execution.exec(this.caller, sandboxId as never, conditions, parsed);
  }

  acquire(resources: string[], more: Partial<BodyInputOf<typeof routes.acquireLease>> = {}, signal?: AbortSignal) {
    const body = routes.acquireLease.body.parse({ resources, holder: 'somebody', ...more });
    return this.control.leases.acquire(this.caller, {}, body, signal);
  }

  async events(kindPrefix = ''): Promise<{ kind: string; data: Record<string, unknown> }[]> {
    const found = await this.store.read((tables) =>
      tables.events.list({ teamId: this.caller.teamId, after: 0, limit: 10_000 }),
    );
    return found
      .filter((event) => event.kind.startsWith(kindPrefix))
      .map(({ kind, data }) => ({ kind, data: { ...data } }));
  }

  async close(): Promise<void> {
    await this.control.close();
    await this.store.close();
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const nodes = new NodeDirectory();
    nodes.add(this.node.nodeId, this.node);
    this.control = new Control({
      store: this.store,
      nodes,
      clock: this.clock,
      timers: this.clock,
      logger: silentLogger,
      faults: this.faults,
      random: systemRandom,
      settings: this.#settings,
      secret: new Uint8Array(32),
      serverRun: newId('request'),
      deliver: (delivery) => this.deliver(delivery),
    });
    await this.control.open();
  }
}
