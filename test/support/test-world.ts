/**
 * A machine and an internet for tests, made of network namespaces: nothing a test sends there can leave them.
 *
 *   host        what `atoll serve` takes for the machine: services of its own on loopback and on every address, a default route
 *   internet    everything else: web and stream servers on several addresses, a resolver, a private network, a metadata address
 *
 *   host wan 203.0.113.10, 2001:db8:1::10 ── 203.0.113.1, 2001:db8:1::1 internet (198.51.100.7 and .8, 2001:db8:2::7 and ::8, 169.254.169.254)
 *   host lan 10.77.0.2                    ── 10.77.0.1
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { createConnection, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { programPath } from './program-path.ts';

const run = promisify(execFile);
const startLimitMs = 60_000;

export const world = {
  web: '198.51.100.7',
  otherWeb: '198.51.100.8',
  web6: '2001:db8:2::7',
  name: 'web.test',
  resolver: '203.0.113.1',
  metadata: '169.254.169.254',
  lan: '10.77.0.1',
  host: ['203.0.113.10', '10.77.0.2', '2001:db8:1::10'],
  /** Where every server says who it is and who asks; in both namespaces. */
  port: 8080,
  otherPort: 8081,
  /** A line every few milliseconds, for as long as the connection lives. */
  streamPort: 9000,
} as const;

export class TestWorld {
  readonly host: string;
  readonly #internet: string;
  readonly #children: ChildProcess[] = [];
  readonly #bridges: Server[] = [];
  readonly #sockets: string[] = [];

  private constructor(tag: string) {
    this.host = `atest-${tag}-h`;
    this.#internet = `atest-${tag}-i`;
  }

  static async open(): Promise<TestWorld> {
    // The name says of which run it is (run-leftovers.ts).
    const made = new TestWorld(`${process.env['ATOLL_TEST_RUN'] ?? ''}${randomBytes(3).toString('hex')}`);
    try {
      await made.#build();
      await made.serve(made.#internet, 'dns');
      await made.serve(made.host);
      return made;
    } catch (error) {
      await made.close();
      throw error;
    }
  }

  /** The words before a program that is to run on the test's machine. */
  get enter(): readonly string[] {
    return ['nsenter', `--net=/run/netns/${this.host}`, '--'];
  }

  /** Runs a program on the test's machine, outside every sandbox. */
  async onHost(program: string, ...words: readonly string[]): Promise<string> {
    const [first, ...rest] = [...this.enter, program, ...words];
    return (await run(first!, rest)).stdout;
  }

  /** A port on this process's loopback that leads to one on the loopback of the test's machine. */
  async bridge(port: number): Promise<number> {
    const path = join(tmpdir(), `atest-${randomBytes(6).toString('hex')}.sock`);
    this.#sockets.push(path);
    await this.#start([
      ...this.enter,
      process.execPath,
      programPath('test/support/world-bridge.ts'),
      path,
      String(port),
    ]);
    const server = createServer({ allowHalfOpen: true }, (near) => {
      const far = createConnection({ path, allowHalfOpen: true });
      near.pipe(far).pipe(near);
      near.on('error', () => far.destroy());
      far.on('error', () => near.destroy());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#bridges.push(server);
    return (server.address() as { port: number }).port;
  }

  /** What is on the test's machine of the kinds that a router leaves. */
  async census(): Promise<{ readonly links: string[]; readonly tables: string[]; readonly switches: string[] }> {
    const links = JSON.parse(await this.onHost('ip', '-j', 'link', 'show')) as { ifname: string }[];
    const tables = (await this.onHost('nft', 'list', 'tables')).split('\n').filter((line) => line !== '');
    const names = ['wan', 'lan'].flatMap((name) => [
      `ipv4/conf/${name}/forwarding`,
      `ipv6/conf/${name}/force_forwarding`,
    ]);
    const values = await Promise.all(
      names.map((name) => this.onHost('cat', `/proc/sys/net/${name}`).catch(() => '0\n')),
    );
    const switches = names.filter((_, index) => values[index] !== '0\n');
    return { links: links.map(({ ifname }) => ifname).sort(), tables, switches };
  }

  async close(): Promise<void> {
    for (const server of this.#bridges) server.close();
    for (const child of this.#children) {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
      child.kill('SIGKILL');
      await exited;
    }
    for (const path of this.#sockets) await rm(path, { force: true });
    for (const name of [this.host, this.#internet]) await run('ip', ['netns', 'delete', name]).catch(() => {});
  }

  async serve(namespace: string, ...words: readonly string[]): Promise<void> {
    const program = programPath('test/support/world-server.ts');
    await this.#start(['nsenter', `--net=/run/netns/${namespace}`, '--', process.execPath, program, ...words]);
  }

  async #build(): Promise<void> {
    await run('ip', ['netns', 'add', this.host]);
    await run('ip', ['netns', 'add', this.#internet]);
    const ip = async (namespace: string, commands: string) => {
      for (const line of commands.trim().split('\n')) await run('ip', ['-n', namespace, ...line.trim().split(' ')]);
    };
    await ip(
      this.host,
      `link add wan type veth peer name wan netns ${this.#internet}
       link add lan type veth peer name lan netns ${this.#internet}`,
    );
    await ip(
      this.#internet,
      `link set lo up
       link set wan up
       link set lan up
       addr add 203.0.113.1/24 dev wan
       addr add 2001:db8:1::1/64 dev wan nodad
       addr add 10.77.0.1/24 dev lan
       addr add 198.51.100.7/32 dev lo
       addr add 198.51.100.8/32 dev lo
       addr add 169.254.169.254/32 dev lo
       addr add 2001:db8:2::7/128 dev lo nodad
       addr add 2001:db8:2::8/128 dev lo nodad`,
    );
    await ip(
      this.host,
      `link set lo up
       link set wan up
       link set lan up
       addr add 203.0.113.10/24 dev wan
       addr add 2001:db8:1::10/64 dev wan nodad
       addr add 10.77.0.2/24 dev lan
       route add default via 203.0.113.1
       -6 route add default via 2001:db8:1::1`,
    );
  }

  async #start(words: readonly string[]): Promise<void> {
    const [program, ...rest] = words;
    const child = spawn(program!, rest, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.#children.push(child);
    const line = once(createInterface({ input: child.stdout! }), 'line', { signal: AbortSignal.timeout(startLimitMs) });
    const died = once(child, 'exit').then(() => {
      throw new Error(`${words.join(' ')} ended before it was ready.`);
    });
    died.catch(() => {}); // It ends with the world, long after anybody asks.
    await Promise.race([line, died]);
  }
}
