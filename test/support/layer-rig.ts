/**
 * Stores of layers for tests, each in a directory of its own that is gone afterwards, with its mounts and loop devices, and a look at
 * their trees as overlayfs shows them.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Clock, type FaultPoints, ScriptedFaults, SystemClock, silentLogger } from '../../src/base/index.ts';
import { LayerOperations, Spawner } from '../../src/isolation/index.ts';
import {
  type LayerStore,
  openLayerStore,
  type PoolSizes,
  type StorageKind,
  type Writable,
} from '../../src/layers/index.ts';
import { makeBtrfs } from '../../src/layers/loop-pool.ts';
import type { LayerId } from '../../src/protocol/index.ts';
import { btrfs } from './btrfs.ts';
import { keptBuild } from './kept-build.ts';
import type { LayerAction, LayerWorkerOptions } from './layer-worker.ts';
import { initProgram } from './node-harness.ts';
import { programPath } from './program-path.ts';
import { type Requirement, requires } from './requires.ts';
import { smallPool } from './small-pool.ts';

const mebibyte = 1024 ** 2;
const outerBytes = 512 * mebibyte;

/** What a store stands on in a test. */
export interface RigKind {
  readonly title: string;
  readonly kind: StorageKind;
  /** The directory is on a btrfs that the rig mounts, not on the machine's own file system. */
  readonly isOnBtrfs: boolean;
  readonly needs: readonly Requirement[];
}

const machine = [requires.linux, requires.root, requires.compiler];
export const rigKinds: readonly RigKind[] = [
  { title: 'plain directories', kind: 'directories', isOnBtrfs: false, needs: machine },
  { title: 'plain directories that share blocks', kind: 'directories', isOnBtrfs: true, needs: [...machine, btrfs] },
  { title: 'subvolumes of a btrfs', kind: 'subvolumes', isOnBtrfs: true, needs: [...machine, btrfs] },
  { title: 'a pool in a loop device', kind: 'pool', isOnBtrfs: false, needs: [...machine, btrfs] },
];

export class LayerRig {
  readonly directory: string;
  readonly faults = new ScriptedFaults();
  readonly #kind: RigKind;
  readonly #sizes: PoolSizes;
  readonly spawner: Spawner;
  readonly operations: LayerOperations;
  #tool: Promise<string> | undefined;
  #store: LayerStore | undefined;

  private constructor(kind: RigKind, directory: string, sizes: PoolSizes) {
    this.#kind = kind;
    this.#sizes = sizes;
    this.directory = directory;
    this.spawner = new Spawner({ program: initProgram, directory });
    this.operations = new LayerOperations(this.spawner);
  }

  static async open(kind: RigKind, options: { readonly sizes?: PoolSizes } = {}): Promise<LayerRig> {
    const rig = new LayerRig(kind, await mkdtemp(join(tmpdir(), 'atoll-storage-')), options.sizes ?? smallPool);
    try {
      await mkdir(rig.#outer);
      if (kind.isOnBtrfs) {
        const image = join(rig.directory, 'outer.btrfs');
        await rig.operations.allocatePool(image, outerBytes);
        await makeBtrfs(image);
        await rig.operations.mountPool({ image, point: rig.#outer });
      }
      await mkdir(join(rig.directory, 'point'));
      await mkdir(rig.base);
      return rig;
    } catch (error) {
      await rig.close();
      throw error;
    }
  }

  get #outer(): string {
    return join(this.directory, 'outer');
  }

  /** Where the store is. */
  get storage(): string {
    return join(this.#outer, 'storage');
  }

  /** Where its directories are. */
  get root(): string {
    return this.#kind.kind === 'pool' ? join(this.storage, 'pool') : this.storage;
  }

  /** The tree of a template. */
  get base(): string {
    return join(this.directory, 'base');
  }

  /** Of the stores that are opened from now on. */
  clock: Clock = new SystemClock();

  /** Opens the store, again if it was open before. */
  async store(faults: FaultPoints = this.faults): Promise<LayerStore> {
    await this.#store?.close();
    this.#store = undefined;
    this.#store = await openLayerStore({
      directory: this.storage,
      operations: this.operations,
      clock: this.clock,
      faults,
      log: silentLogger,
      kind: this.#kind.kind,
      poolSizes: this.#sizes,
    });
    return this.#store;
  }

  /**
   * Does something in a process of its own, while this one has the store closed; answers what ended it, and what it had said. With `killAfterMs`
   * it is killed that long after it had the store open.
   */
  async elsewhere(
    action: LayerAction,
    options: { readonly faults?: string; readonly killAfterMs?: number } = {},
  ): Promise<{ readonly signal: string | null; readonly exitCode: number | null; readonly said: string }> {
    await this.#store?.close();
    this.#store = undefined;
    const told: LayerWorkerOptions = {
      program: initProgram,
      directory: this.directory,
      storage: this.storage,
      kind: this.#kind.kind,
      sizes: this.#sizes,
      faults: options.faults ?? '',
      action,
    };
    const program = programPath('test/support/layer-worker.ts');
    const child = spawn(process.execPath, [program, JSON.stringify(told)], { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.on('data', (bytes: Buffer) => {
      said += bytes.toString();
      if (options.killAfterMs !== undefined) setTimeout(() => child.kill('SIGKILL'), options.killAfterMs);
    });
    const [exitCode, signal] = (await once(child, 'close')) as [number | null, string | null];
    return { signal, exitCode, said };
  }

  /** Everything of the store that should not be there, or is under no final name. */
  async leftovers(): Promise<string[]> {
    const lists = ['making', 'trash'].map(async (name) =>
      (await readdir(join(this.root, name))).map((each) => `${name}/${each}`),
    );
    const unfinished = (await readdir(this.storage)).filter((name) => name.endsWith('.new'));
    return [...(await Promise.all(lists)).flat(), ...unfinished];
  }

  /** Changes a tree on disk as the script says and describes it, every entry a line. */
  async raw(directory: string, script: readonly string[] = []): Promise<string[]> {
    return await this.#run(['raw', directory], script);
  }

  /** The same through an overlay of the writable layer, the layers under it and the template; for `/`, or for `/usr`. */
  async view(
    store: LayerStore,
    writable: Writable,
    script: readonly string[] = [],
    tree: 'root' | 'usr' = 'root',
  ): Promise<string[]> {
    const { layers, usrLayers } = await store.treesUnder(writable.id);
    const [upper, work] = tree === 'root' ? ['upper', 'work'] : ['usr-upper', 'usr-work'];
    const own = [upper, work].map((name) => join(writable.directory, name));
    const under = tree === 'root' ? layers : usrLayers;
    return await this.#run(['view', join(this.directory, 'point'), ...own, ...under, this.base], script);
  }

  /** A new writable layer, a fork of this one if it is given. */
  async fork(store: LayerStore, from?: LayerId): Promise<Writable> {
    return await store.openWritable({ base: 'test', from });
  }

  /** A chain of directories. */
  async deepen(directory: string, depth: number): Promise<void> {
    await this.#run(['deep', directory, String(depth)], []);
  }

  /** A process that writes to an open file and a mapping of it. It ends with a signal. */
  async hold(file: string): Promise<ChildProcess> {
    this.#tool ??= compileTreeTool();
    const child = spawn(await this.#tool, ['hold', file], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    return child;
  }

  async close(): Promise<void> {
    for (const writable of this.#store?.listWritables() ?? [])
      await this.#store?.discardWritable(writable.id).catch(() => {});
    await this.#store?.close().catch(() => {});
    await this.operations.unmountPool(join(this.storage, 'pool'));
    await this.operations.unmountPool(this.#outer);
    for (const name of ['outer', 'base', 'point']) await this.operations.removeTree(join(this.directory, name));
    await this.spawner.close();
    await rm(this.directory, { recursive: true, force: true });
  }

  async #run(words: readonly string[], script: readonly string[]): Promise<string[]> {
    this.#tool ??= compileTreeTool();
    const running = promisify(execFile)(await this.#tool, [...words], { maxBuffer: 64 * mebibyte });
    running.child.stdin?.end(script.map((line) => `${line}\n`).join(''));
    return (await running).stdout.trimEnd().split('\n');
  }
}

/** The program of programs/tree-tool.c, which needs no library where it runs. */
export function compileTreeTool(): Promise<string> {
  const source = join(import.meta.dirname, 'programs/tree-tool.c');
  return keptBuild({
    name: 'tree-tool',
    sources: [source],
    build: (output) => promisify(execFile)('cc', ['-O1', '-static', '-D_GNU_SOURCE', '-o', output, source]),
  });
}
