/**
 * A sandbox in which one step of a build runs, with the guards of any other. It lies below `making/`, so that the next start of the node
 * ends it and removes its files after a crash, and nobody outside the build has a name for it.
 */
import { lstat, mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/index.ts';
import { exec, type FileContext, type InitClient } from '../../execution/index.ts';
import {
  type Command,
  type ExecOutcome,
  type NetworkPolicy,
  newId,
  PlatformError,
  type SandboxId,
} from '../../protocol/index.ts';
import type { IdSlots } from '../id-slots.ts';
import type { NodePaths } from '../node-paths.ts';
import { makeSandboxDirectory } from '../sandbox-files.ts';
import type { LifeRecord, SandboxLives } from '../sandbox-lives.ts';
import { prepareNames, writeNames } from '../sandbox-names.ts';
import { SharedPlaces } from '../shared-places.ts';

/** Of one step: what it may use of the machine. */
const limits = { memoryBytes: 4 * 1024 ** 3, cpuMillis: 4_000, processes: 2_000, diskBytes: null } as const;
/** One step ends after this. */
const stepTimeoutMs = 60 * 60_000;

export interface BuildSandboxParts {
  readonly paths: NodePaths;
  readonly lives: SandboxLives;
  readonly slots: IdSlots;
  readonly clock: Clock;
}

export interface BuildGround {
  /** Names in the layers directory, uppermost first. */
  readonly layers: readonly string[];
  readonly usrLayers: readonly string[];
  readonly network: NetworkPolicy;
}

export interface StepCommand {
  readonly command: Command;
  readonly user: string;
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
}

export class BuildSandbox {
  readonly #parts: BuildSandboxParts;
  readonly #sandboxId: SandboxId;
  readonly #slot: number;
  #client: InitClient | undefined;
  #runs = 0;
  #isDiscarded = false;

  private constructor(parts: BuildSandboxParts) {
    this.#parts = parts;
    this.#sandboxId = newId('sandbox');
    this.#slot = parts.slots.take();
  }

  /** Its directory, with nothing running in it yet. */
  static async make(parts: BuildSandboxParts): Promise<BuildSandbox> {
    const sandbox = new BuildSandbox(parts);
    try {
      await makeSandboxDirectory(sandbox.directory, new SharedPlaces(undefined));
      await mkdir(sandbox.tree, { mode: 0o755 });
      await prepareNames(sandbox.directory);
      return sandbox;
    } catch (error) {
      await sandbox.discard();
      throw error;
    }
  }

  get directory(): string {
    return this.#parts.paths.unfinished(this.#sandboxId);
  }

  /** The writable layer: where everything that the step changes is found. */
  get tree(): string {
    return join(this.directory, 'upper');
  }

  /** Before it is started: this tree is what the sandbox writes to. */
  async adoptTree(path: string): Promise<void> {
    const stats = await lstat(path);
    if (!stats.isDirectory())
      throw new PlatformError('build_step_failed', 'A step left something else than a directory.');
    await rm(this.tree, { recursive: true });
    await rename(path, this.tree);
  }

  async start(ground: BuildGround, options: { readonly hasOwnNames: boolean }): Promise<void> {
    const { clock, lives } = this.#parts;
    if (options.hasOwnNames) await writeNames(this.directory, this.#sandboxId);
    const nowMs = clock.nowMs();
    const record: LifeRecord = {
      mark: { sandboxId: this.#sandboxId, teamId: 'build', name: null, createdAtMs: nowMs, createdBy: 'build' },
      spec: { template: 'build', limits, env: {}, noNewPrivileges: false },
      generation: 1,
      version: 1,
      settings: {
        metadata: {},
        metadataVersion: 1,
        expiresAtMs: null,
        leaseToken: 0,
        leaseHeld: false,
        network: ground.network,
        onExpiry: 'end',
        autoResume: false,
        keepCheckpoints: null,
        change: { by: 'build', atMs: nowMs, operationId: null },
      },
      deadlineBootMs: 0,
      layers: [...ground.layers],
      usrLayers: [...ground.usrLayers],
      slot: this.#slot,
      bootId: clock.bootId,
      life: { kind: 'running' },
    };
    this.#client = await lives.beginOn(record, { directory: this.directory });
  }

  async run(
    step: StepCommand,
    options: { readonly say: (text: string) => void; readonly signal: AbortSignal },
  ): Promise<ExecOutcome> {
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    const context = {
      client: this.#started,
      clock: this.#parts.clock,
      sandboxEnv: {},
      token: 0,
      onOutput: (stream: 'stdout' | 'stderr', bytes: Uint8Array) =>
        options.say(decoders[stream].decode(bytes, { stream: true })),
    };
    const order = {
      sandboxId: this.#sandboxId,
      generation: 1,
      runId: `step-${this.#runs++}`,
      leaseToken: null,
      command: step.command,
      cwd: step.workdir,
      env: step.env,
      user: step.user,
      stdin: null,
      timeoutMs: stepTimeoutMs,
      // Told while it comes.
      outputLimitBytes: 1,
    };
    return await exec(context, order, options.signal);
  }

  /** For what is put into it without a command. */
  get files(): FileContext {
    return { workers: this.#started.files, user: null, token: 0 };
  }

  /** Ends everything in it; its tree is nobody's to change any more. */
  async end(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    await client?.close();
    await this.#parts.lives.clear(this.#sandboxId);
  }

  /** Everything that is left of it goes. May be called twice. */
  async discard(): Promise<void> {
    if (this.#isDiscarded) return;
    this.#isDiscarded = true;
    await this.end();
    await this.#parts.lives.removeTree(this.directory);
    this.#parts.slots.release(this.#slot);
  }

  get #started(): InitClient {
    if (this.#client === undefined) throw new PlatformError('internal', 'The sandbox of a build is not running.');
    return this.#client;
  }
}

/** A layer without anything, for a root that is all in its writable layer. */
export async function ensureEmptyLayer(paths: NodePaths): Promise<string> {
  const name = 'empty';
  await mkdir(join(paths.layers, name), { recursive: true, mode: 0o755 });
  return name;
}
