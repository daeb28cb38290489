/** Sandboxes on writable layers of a store, made without a node: only the spawner, groups and init. */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SystemClock } from '../../src/base/index.ts';
import { exec, InitClient } from '../../src/execution/index.ts';
import { Cgroups } from '../../src/isolation/index.ts';
import { HostTemplate, type LayerStore, type Writable } from '../../src/layers/index.ts';
import { uidBaseOf } from '../../src/node/id-slots.ts';
import { execLimits, newId } from '../../src/protocol/index.ts';
import { eventually } from './crashes.ts';
import type { LayerRig } from './layer-rig.ts';

const limits = { memoryBytes: 256 * 1024 ** 2, cpuMillis: 1_000, processes: 100, diskBytes: null };
/** Slots that nodes of other tests do not begin with. */
let slot = 20_000;

export class LayeredSandbox {
  readonly id = newId('sandbox');
  readonly #rig: LayerRig;
  readonly #cgroups: Cgroups;
  readonly #directory: string;
  #client: InitClient | undefined;

  private constructor(rig: LayerRig, cgroups: Cgroups) {
    this.#rig = rig;
    this.#cgroups = cgroups;
    this.#directory = join(rig.directory, this.id);
  }

  static async start(rig: LayerRig, store: LayerStore, writable: Writable): Promise<LayeredSandbox> {
    const sandbox = new LayeredSandbox(rig, await Cgroups.open({ dataDirectory: rig.directory }));
    try {
      await sandbox.#start(store, writable);
      return sandbox;
    } catch (error) {
      await sandbox.end();
      throw error;
    }
  }

  async #start(store: LayerStore, writable: Writable): Promise<void> {
    const directory = process.env['ATOLL_LAYERS'] ?? join(this.#rig.directory, 'templates');
    const template = await new HostTemplate({ directory }).ensure();
    const { layers, usrLayers } = await store.treesUnder(writable.id);
    await mkdir(this.#directory, { mode: 0o700 });
    await this.#rig.spawner.create({
      ...(await this.#cgroups.make(this.id, limits)),
      id: this.id,
      directory: this.#directory,
      writable: writable.directory,
      layers: [...layers, ...template.layers],
      usrLayers: [...usrLayers, ...template.usrLayers],
      uidBase: uidBaseOf(slot++),
      deadlineBootMs: 0,
      generation: 1,
      noNewPrivileges: false,
      fence: 0,
      openGuards: [],
      endFile: 'end-1',
    });
    this.#client = await InitClient.connect({ directory: this.#directory, generation: 1 });
  }

  /** What a shell command prints, or why it failed. */
  async run(command: string, user: string | null = null): Promise<string> {
    const context = { client: this.#client!, clock: new SystemClock(), sandboxEnv: {}, token: 0 };
    const outcome = await exec(context, {
      ...{ sandboxId: this.id, generation: 1, runId: newId('operation'), leaseToken: null },
      ...{ command: ['sh', '-c', command], cwd: '/', env: {}, user, stdin: null, timeoutMs: null },
      outputLimitBytes: execLimits.outputBytes,
    });
    return `${Buffer.from(outcome.stdout).toString()}${Buffer.from(outcome.stderr).toString()}`;
  }

  /** Runs the work while every command stands still. */
  async frozen<Result>(work: () => Promise<Result>): Promise<Result> {
    const events = join(this.#cgroups.groupOf(this.id).cgroup, 'run/cgroup.events');
    await this.#cgroups.freeze(this.id, true);
    try {
      await eventually(async () => {
        if (!(await readFile(events, 'utf8')).includes('frozen 1')) throw new Error('It still runs.');
      });
      return await work();
    } finally {
      await this.#cgroups.freeze(this.id, false);
    }
  }

  async end(): Promise<void> {
    await this.#client?.close();
    await this.#cgroups.remove(this.id);
    await this.#cgroups.removeRoots();
    await this.#rig.operations.removeTree(this.#directory);
  }
}
