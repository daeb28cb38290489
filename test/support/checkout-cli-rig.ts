/** Checkouts of a person in directories of their own, and the command line as that person types it there. */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { CliAnswer, Platform } from './platform.ts';
import { programPath } from './program-path.ts';

const cli = programPath('src/cli/main.ts');

export interface RunOptions {
  readonly cwd?: string;
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export class CheckoutRig {
  readonly directory: string;
  readonly #platform: Platform;

  private constructor(directory: string, platform: Platform) {
    this.directory = directory;
    this.#platform = platform;
  }

  static async open(platform: Platform): Promise<CheckoutRig> {
    return new CheckoutRig(await mkdtemp(join(tmpdir(), 'atoll-checkout-')), platform);
  }

  get state(): string {
    return join(this.directory, 'state');
  }

  /** A repository with one commit. */
  async repository(name: string, files: Readonly<Record<string, string>> = { 'a.txt': 'one\n' }): Promise<string> {
    const root = join(this.directory, name);
    await mkdir(root, { recursive: true });
    this.git(root, 'init', '-q', '-b', 'main');
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(root, path)), { recursive: true });
      await writeFile(join(root, path), text);
    }
    this.git(root, 'add', '-A');
    this.git(root, 'commit', '-q', '-m', `first of ${name}`);
    return root;
  }

  git(cwd: string, ...words: readonly string[]): string {
    const who = ['-c', 'user.name=Test', '-c', 'user.email=test@example.org'];
    return execFileSync('git', [...who, ...words], { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
  }

  run(cwd: string, words: readonly string[], options: RunOptions = {}): Promise<CliAnswer> {
    return new Promise((resolve) => {
      const child = execFile(
        process.execPath,
        [cli, ...words],
        { cwd, env: this.#env(options), maxBuffer: 2 ** 28 },
        (error, stdout, stderr) => {
          const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 128;
          resolve({ code, stdout, stderr });
        },
      );
      child.stdin?.end(options.stdin ?? '');
    });
  }

  async json<Result = Record<string, unknown>>(
    cwd: string,
    words: readonly string[],
    options: RunOptions = {},
  ): Promise<Result> {
    const { stdout } = await this.run(cwd, ['--json', ...words], options);
    return JSON.parse(stdout) as Result;
  }

  /** One that is not waited for. */
  spawn(cwd: string, words: readonly string[], options: RunOptions = {}): Spawned {
    return new Spawned(spawn(process.execPath, [cli, ...words], { cwd, env: this.#env(options) }));
  }

  close(): Promise<void> {
    return rm(this.directory, { recursive: true, force: true });
  }

  #env(options: RunOptions): NodeJS.ProcessEnv {
    const data = join(this.#platform.dataDirectory, 'server');
    return { ...process.env, ATOLL_DATA: data, ATOLL_STATE: this.state, USER: 'tester', ...options.env };
  }
}

export class Spawned {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  stdout = '';
  stderr = '';

  constructor(child: ChildProcess) {
    this.child = child;
    this.ended = once(child, 'close').then(() => child.exitCode);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
  }
}
