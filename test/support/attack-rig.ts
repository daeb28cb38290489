/**
 * Sandboxes to attack. The same steps run three ways: in a sandbox as it is made for everybody, in one with named guards left out, and
 * on the machine itself. An attack that is refused in the first proves something only where it succeeds in one of the others.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { Cgroups, type OpenGuard } from '../../src/isolation/index.ts';
import type { ExecOrder, NodeSandbox, SandboxSpec } from '../../src/protocol/index.ts';
import { keptBuild } from './kept-build.ts';
import { initProgram, openDirectNode } from './node-harness.ts';
import { createOrder, execOrder, run, type TextOutcome } from './node-orders.ts';
import { ownTreeOf } from './sandbox-tree.ts';

const programs = join(import.meta.dirname, '../security/programs');
const compilerFlags = ['-std=gnu11', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror', '-O1', '-static'];
/** Long enough for a busy machine; an attack that takes longer hangs, and its outcome says so. */
const patienceMs = 30_000;

/** What an attack said, by step: `ok`, or the name of an error. */
export type Steps = Readonly<Record<string, string>>;

export interface Target {
  readonly sandbox: NodeSandbox;
  /** Runs the attack program. */
  attack(...argv: readonly string[]): Promise<Steps>;
  run(command: ExecOrder['command'], overrides?: Partial<ExecOrder>): Promise<TextOutcome>;
  /** Starts a command that goes on; its end is awaited with the rig's. */
  start(command: ExecOrder['command']): { readonly stop: () => Promise<void>; readonly ended: Promise<unknown> };
  /** Init as this machine sees it. */
  initPid(): Promise<number>;
  directory(): string;
  /** What it has written below `/`. */
  tree(): string;
}

type Harness = Awaited<ReturnType<typeof openDirectNode>>;

export class AttackRig {
  readonly directory: string;
  readonly program: string;
  readonly #nodes = new Map<string, Promise<Harness>>();
  readonly #initProgram: string;
  readonly #endings: (() => Promise<void>)[] = [];

  private constructor(directory: string, init: string) {
    this.directory = directory;
    this.program = join(directory, 'attack');
    this.#initProgram = init;
  }

  static async open(options: { readonly initProgram?: string } = {}): Promise<AttackRig> {
    const rig = new AttackRig(await mkdtemp(join(tmpdir(), 'atoll-attack-')), options.initProgram ?? initProgram);
    const sources = globSync('*.c', { cwd: programs }).map((name) => join(programs, name));
    const build = (output: string) => promisify(execFile)('cc', [...compilerFlags, '-o', output, ...sources, '-lrt']);
    const headers = globSync('*.h', { cwd: programs }).map((name) => join(programs, name));
    await copyFile(await keptBuild({ name: 'attack', sources: [...sources, ...headers], build }), rig.program);
    return rig;
  }

  /** A new sandbox with the attack program in it as /attack. */
  async sandbox(
    options: { readonly openGuards?: readonly OpenGuard[]; readonly spec?: Partial<SandboxSpec> } = {},
  ): Promise<Target> {
    const harness = await this.node(options.openGuards);
    const sandbox = await harness.node.createSandbox(createOrder({ spec: options.spec ?? {} }));
    const target = this.#target(harness, sandbox);
    const stdin = await readFile(this.program);
    const put = await target.run(['sh', '-c', 'cat > /attack && chmod 755 /attack'], { stdin });
    expect(put).toMatchObject({ exitCode: 0, stderr: '' });
    return target;
  }

  /** The node whose sandboxes lack these guards. */
  node(openGuards: readonly OpenGuard[] = []): Promise<Harness> {
    const key = openGuards.join(' ');
    const known = this.#nodes.get(key);
    if (known !== undefined) return known;
    const opened = openDirectNode({ initProgram: this.#initProgram, openGuards });
    this.#nodes.set(key, opened);
    return opened;
  }

  /** The attack program on the machine itself, as root. */
  async attackHost(...argv: readonly string[]): Promise<Steps> {
    const { stdout } = await promisify(execFile)(this.program, argv, { cwd: this.directory, timeout: patienceMs });
    return stepsOf(stdout);
  }

  /** A process of the machine that ends with the rig. */
  spawnOnHost(program: string, argv: readonly string[]): ChildProcess {
    const child = spawn(program, argv, { stdio: ['pipe', 'pipe', 'inherit'] });
    const exited = once(child, 'exit');
    this.#endings.push(async () => {
      child.kill('SIGKILL');
      await exited;
    });
    return child;
  }

  async close(): Promise<void> {
    for (const end of this.#endings.reverse()) await end();
    for (const opened of this.#nodes.values()) await opened.then((harness) => harness.close());
    await rm(this.directory, { recursive: true });
  }

  #target(harness: Harness, sandbox: NodeSandbox): Target {
    const { node, dataDirectory } = harness;
    const { sandboxId } = sandbox.mark;
    const runIn: Target['run'] = (command, overrides) =>
      run(node, sandbox, command, { timeoutMs: patienceMs, cwd: '/', ...overrides });
    return {
      sandbox,
      run: runIn,
      attack: async (...argv) => {
        const outcome = await runIn(['/attack', ...argv]);
        expect(outcome, outcome.stderr).toMatchObject({ exitCode: 0 });
        return stepsOf(outcome.stdout);
      },
      start: (command) => {
        const abort = new AbortController();
        const ended = node.exec(execOrder(sandbox, { command, cwd: '/' }), abort.signal);
        ended.catch(() => {}); // Whoever waits for it is told; a test that failed before does not.
        const stop = async () => {
          abort.abort();
          await ended;
        };
        return { stop, ended };
      },
      initPid: async () => {
        const { cgroup } = (await Cgroups.open({ dataDirectory })).groupOf(sandboxId);
        return Number((await readFile(join(cgroup, 'init', 'cgroup.procs'), 'utf8')).trim());
      },
      directory: () => join(dataDirectory, 'sandboxes', sandboxId),
      tree: () => ownTreeOf(dataDirectory, sandboxId),
    };
  }
}

export function stepsOf(text: string): Steps {
  const lines = text.split('\n').filter((line) => line.includes('='));
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}
