/**
 * The real thing, as a newcomer would start it: `atoll serve` in a process of its own on a new data directory, optionally with the
 * node in a second process, and an SDK client for it. What a test makes is gone after `close`.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { Atoll } from '../../src/sdk/index.ts';
import { deleteSandboxes } from './delete-sandboxes.ts';
import { programPath } from './program-path.ts';
import { smallPool } from './small-pool.ts';
import { type TestWorld, world as worldAddresses } from './test-world.ts';

const sources = join(import.meta.dirname, '../../src/cli/main.ts');
/** Servers and nodes that tests start have the order of their locks watched; what is measured is the server as users have it. */
const lockOrder = programPath('test/support/check-lock-order.ts');
/** Servers start in about a second; this is for a machine that does ten other things. */
const startLimitMs = 60_000;
/** A server that does not end by itself in this time is killed. */
const stopLimitMs = 20_000;

export interface PlatformOptions {
  /** `process`: the node is a process of its own, reached over HTTP. */
  readonly node?: 'inside' | 'process';
  /** Control's settings, as ATOLL_SETTINGS takes them. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Fault points of the server, as ATOLL_FAULTS takes them. */
  readonly faults?: string;
  readonly nodeFaults?: string;
  /** A directory that the test has made. Absent: a new one; gone afterwards either way. */
  readonly dataDirectory?: string;
  /** The machine that it runs on, as far as the network goes. Absent: this one, and sandboxes have no network unless they ask for it. */
  readonly world?: TestWorld;
  /** What its sandboxes' files stand on; a pool is a small one. Default: plain directories, which cost nothing. */
  readonly storage?: 'directories' | 'pool';
  /** Of a pool that must hold more. */
  readonly poolSizes?: typeof smallPool;
  /** More words for `atoll serve`. */
  readonly serveOptions?: readonly string[];
  /** More of its environment. */
  readonly serverEnvironment?: Readonly<Record<string, string>>;
  /** `sources`: the command line as a checkout has it. Default: bundled, where the run has a bundle, which starts sooner. */
  readonly program?: 'sources';
  /** For what is measured: nobody watches the order of locks. */
  readonly unwatched?: boolean;
  /** Words before the words of the server, to start it with less power than the test has. */
  readonly wrap?: readonly string[];
}

export interface Daemon {
  readonly pid: number;
  readonly url: string;
  /** Settles when it is gone. */
  readonly died: Promise<void>;
  readonly child: ChildProcess;
}

/** The process ended before it served. */
export class DiedAtStart extends Error {
  override readonly name = 'DiedAtStart';

  constructor(said: string) {
    super(`The process ended before it served: ${said}`);
  }
}

export interface CliAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export class Platform {
  readonly dataDirectory: string;
  readonly #options: PlatformOptions;
  server!: Daemon;
  node: Daemon | undefined;
  client!: Atoll;
  key!: string;

  private constructor(dataDirectory: string, options: PlatformOptions) {
    this.dataDirectory = dataDirectory;
    this.#options = options;
  }

  static async start(options: PlatformOptions = {}): Promise<Platform> {
    const directory = options.dataDirectory ?? (await mkdtemp(join(tmpdir(), 'atoll-e2e-')));
    const platform = new Platform(directory, options);
    try {
      if (options.node === 'process') await platform.startNode(options.nodeFaults);
      await platform.startServer(options.faults);
    } catch (error) {
      await platform.#remove();
      throw error;
    }
    return platform;
  }

  async startNode(faults = ''): Promise<void> {
    const port = this.node === undefined ? '0' : new URL(this.node.url).port;
    const options = ['node', '--data', join(this.dataDirectory, 'far'), '--port', port];
    this.node = await this.#startDaemon(options, { ATOLL_FAULTS: faults, ...this.#storage });
  }

  async startServer(faults = ''): Promise<void> {
    const data = join(this.dataDirectory, 'server');
    const options = ['serve', '--data', data, '--port', '0', ...(this.#options.serveOptions ?? [])];
    if (this.node !== undefined) {
      options.push('--node-url', this.node.url, '--node-token-file', join(this.dataDirectory, 'far', 'node-token'));
    }
    const { world, settings = {} } = this.#options;
    // Most tests are about something else: a network would only cost them, and change this machine.
    const all = world === undefined ? { defaultNetwork: { mode: 'none' }, ...settings } : settings;
    const env = {
      ...{ ATOLL_FAULTS: faults, ATOLL_SETTINGS: JSON.stringify(all), ATOLL_RESOLVERS: worldAddresses.resolver },
      ...this.#storage,
      ...this.#options.serverEnvironment,
    };
    this.server = await this.#startDaemon(options, env);
    this.key = (await readFile(join(this.dataDirectory, 'server', 'key'), 'utf8')).trim();
    this.client = new Atoll({ url: await this.#reach(this.server.url), apiKey: this.key });
  }

  /** A real SIGKILL; the sandboxes are not asked. */
  async killServer(): Promise<void> {
    this.server.child.kill('SIGKILL');
    await this.server.died;
  }

  async killNode(): Promise<void> {
    this.node?.child.kill('SIGKILL');
    await this.node?.died;
  }

  async restartServer(faults = ''): Promise<void> {
    await this.killServer();
    await this.startServer(faults);
  }

  /** The command line, as somebody on this machine would type it. */
  cli(...words: readonly string[]): Promise<CliAnswer> {
    return this.cliWith({}, ...words);
  }

  cliWith(options: { stdin?: string; env?: Record<string, string> }, ...words: readonly string[]): Promise<CliAnswer> {
    const env = { ...process.env, ATOLL_DATA: join(this.dataDirectory, 'server'), ...options.env };
    return new Promise((resolve) => {
      const [program, ...rest] = [...this.#enter, process.execPath, this.#cli, ...words];
      const child = execFile(program!, rest, { env, maxBuffer: 2 ** 28 }, (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 128;
        resolve({ code, stdout, stderr });
      });
      child.stdin?.end(options.stdin ?? '');
    });
  }

  /** Where the node keeps its sandboxes. */
  get nodeDirectory(): string {
    return join(this.dataDirectory, this.#options.node === 'process' ? 'far' : 'server', 'node');
  }

  /** Ends the processes, deletes every sandbox, whatever state a test left things in, and removes the directory. */
  async close(): Promise<void> {
    await this.#remove();
  }

  get #cli(): string {
    return this.#options.program === 'sources' ? sources : programPath('src/cli/main.ts');
  }

  get #storage(): Readonly<Record<string, string>> {
    const { storage = 'directories', poolSizes = smallPool } = this.#options;
    return { ATOLL_STORAGE: storage, ATOLL_POOL: JSON.stringify(poolSizes) };
  }

  get #enter(): readonly string[] {
    return [...(this.#options.world?.enter ?? []), ...(this.#options.wrap ?? [])];
  }

  #startDaemon(words: readonly string[], env: Readonly<Record<string, string>>): Promise<Daemon> {
    const watch = this.#options.unwatched === true ? [] : ['--import', lockOrder];
    return startDaemon([...this.#enter, process.execPath, ...watch, this.#cli, ...words], env);
  }

  /** Where this process reaches what the server calls its address. */
  async #reach(url: string): Promise<string> {
    const { world } = this.#options;
    return world === undefined ? url : `http://127.0.0.1:${await world.bridge(Number(new URL(url).port))}`;
  }

  /** Where the network is: a node that finds its sandboxes again gives them theirs again. */
  async #deleteSandboxes(): Promise<void> {
    if (this.#enter.length === 0) return await deleteSandboxes(this.nodeDirectory);
    const program = programPath('test/support/delete-sandboxes-program.ts');
    const [enter, ...words] = [...this.#enter, process.execPath, program, this.nodeDirectory];
    await promisify(execFile)(enter!, words);
  }

  async #remove(): Promise<void> {
    for (const daemon of [this.server, this.node]) {
      if (daemon === undefined) continue;
      daemon.child.kill('SIGTERM');
      const late = setTimeout(() => daemon.child.kill('SIGKILL'), stopLimitMs);
      await daemon.died;
      clearTimeout(late);
    }
    if (existsSync(this.nodeDirectory)) await this.#deleteSandboxes();
    await rm(this.dataDirectory, { recursive: true, force: true });
  }
}

async function startDaemon(words: readonly string[], env: Readonly<Record<string, string>>): Promise<Daemon> {
  const [program, ...all] = [...words, '--json', '--log-level', 'warn'];
  const child = spawn(program!, all, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-4_000);
    // A bug that a test meets as `internal` is told only here.
    if (text.includes('"level":"error"')) process.stderr.write(text);
  });
  const died = once(child, 'exit').then(() => {});
  const line = once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(startLimitMs) });
  const first = (await Promise.race([line, died]).catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  })) as [string] | undefined;
  if (first === undefined) throw new DiedAtStart(said);
  const { url, error } = JSON.parse(first[0]) as { url: string; error?: { message: string } };
  if (error !== undefined) throw new Error(`The process refused to start: ${error.message}`);
  return { pid: child.pid ?? 0, url, died, child };
}
