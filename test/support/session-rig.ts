/** Sessions of a real sandbox, driven through the engine alone: no queue, no names, no HTTP. */
import { join } from 'node:path';
import { SystemClock } from '../../src/base/index.ts';
import {
  type ExecInSessionOrder,
  execInSession,
  InitClient,
  type OpenSessionOrder,
  openSession,
  type RunEntry,
  type SessionOutcome,
  type StartInSessionOrder,
  sessionDirectory,
  setSessionEnv,
  startInSession,
} from '../../src/execution/index.ts';
import { type NodeSandbox, newId } from '../../src/protocol/index.ts';
import { type HarnessOptions, type NodeUnderTest, openDirectNode } from './node-harness.ts';
import { createOrder, run, type TextOutcome } from './node-orders.ts';

export type SessionText = Omit<SessionOutcome, 'stdout' | 'stderr'> & {
  readonly stdout: string;
  readonly stderr: string;
};

export class SessionRig {
  readonly harness: NodeUnderTest;
  readonly sandbox: NodeSandbox;
  readonly client: InitClient;
  readonly #clock = new SystemClock();

  private constructor(harness: NodeUnderTest, sandbox: NodeSandbox, client: InitClient) {
    this.harness = harness;
    this.sandbox = sandbox;
    this.client = client;
  }

  static async open(
    options: Parameters<typeof createOrder>[0] = {},
    nodeOptions: HarnessOptions = {},
  ): Promise<SessionRig> {
    const harness = await openDirectNode(nodeOptions);
    const sandbox = await harness.node.createSandbox(createOrder(options));
    const directory = join(harness.dataDirectory, 'sandboxes', sandbox.mark.sandboxId);
    const client = await InitClient.connect({ directory, generation: sandbox.generation });
    return new SessionRig(harness, sandbox, client);
  }

  get #context() {
    return { client: this.client, clock: this.#clock, sandboxEnv: {}, token: 0 };
  }

  /** Outside every session. */
  async run(command: string | readonly string[], options: { readonly cwd?: string } = {}): Promise<TextOutcome> {
    return await run(this.harness.node, this.sandbox, command, options);
  }

  async session(overrides: Partial<OpenSessionOrder> = {}): Promise<SessionUnderTest> {
    const { generation } = this.sandbox;
    const order = {
      generation,
      sessionId: newId('session'),
      leaseToken: null,
      shell: null,
      cwd: null,
      env: {},
      user: null,
      ...overrides,
    };
    const pid = await openSession(this.#context, order);
    return new SessionUnderTest(this, order, pid);
  }

  async exec(order: ExecInSessionOrder, signal?: AbortSignal): Promise<SessionText> {
    const outcome = await execInSession(this.#context, order, signal);
    return { ...outcome, stdout: textOf(outcome.stdout), stderr: textOf(outcome.stderr) };
  }

  async execBytes(order: ExecInSessionOrder): Promise<SessionOutcome> {
    return await execInSession(this.#context, order);
  }

  async start(order: StartInSessionOrder): Promise<number> {
    return await startInSession(this.#context, order);
  }

  async setEnv(sessionId: string, env: Readonly<Record<string, string | null>>): Promise<void> {
    const { generation } = this.sandbox;
    await setSessionEnv(this.#context, { generation, sessionId, leaseToken: null, runId: newId('operation'), env });
  }

  async directoryOf(pid: number, user: string | null): Promise<string | null> {
    return await sessionDirectory({ workers: this.client.files, user, token: 0 }, pid);
  }

  async entry(runId: string): Promise<RunEntry | undefined> {
    const runs = await this.client.control((connection) => connection.listRuns());
    return runs.find((entry) => entry.run === runId);
  }

  async close(): Promise<void> {
    await this.client.close();
    await this.harness.close();
  }
}

export class SessionUnderTest {
  readonly rig: SessionRig;
  readonly id: string;
  readonly pid: number;
  readonly user: string | null;

  constructor(rig: SessionRig, order: OpenSessionOrder, pid: number) {
    this.rig = rig;
    this.id = order.sessionId;
    this.user = order.user;
    this.pid = pid;
  }

  order(command: string, overrides: Partial<ExecInSessionOrder> = {}): ExecInSessionOrder {
    return {
      generation: this.rig.sandbox.generation,
      sessionId: this.id,
      leaseToken: null,
      runId: newId('operation'),
      command,
      cwd: null,
      env: {},
      stdin: null,
      timeoutMs: null,
      outputLimitBytes: 64 * 1024 * 1024,
      ...overrides,
    };
  }

  async exec(command: string, overrides: Partial<ExecInSessionOrder> = {}, signal?: AbortSignal): Promise<SessionText> {
    return await this.rig.exec(this.order(command, overrides), signal);
  }

  /** What a command writes on stdout; it succeeds and writes nothing else. */
  async out(command: string, overrides: Partial<ExecInSessionOrder> = {}): Promise<string> {
    const outcome = await this.exec(command, overrides);
    if (outcome.exitCode === 0 && outcome.stderr === '') return outcome.stdout;
    throw new Error(`"${command}" ended with ${outcome.exitCode}: ${outcome.stderr}`);
  }

  /** A process from the session; answers with its id and pid. */
  async start(command: string, overrides: Partial<StartInSessionOrder> = {}): Promise<{ id: string; pid: number }> {
    const processId = newId('process');
    const pid = await this.rig.start({
      generation: this.rig.sandbox.generation,
      sessionId: this.id,
      leaseToken: null,
      processId,
      command,
      cwd: null,
      env: {},
      stdinOpen: false,
      timeoutMs: null,
      graceMs: 1_000,
      keepBytes: 16 * 1024 * 1024,
      detach: false,
      ...overrides,
    });
    return { id: processId, pid };
  }

  async setEnv(env: Readonly<Record<string, string | null>>): Promise<void> {
    await this.rig.setEnv(this.id, env);
  }

  async directory(): Promise<string | null> {
    return await this.rig.directoryOf(this.pid, this.user);
  }

  async kill(): Promise<void> {
    await this.rig.client.control((connection) => connection.killTree(this.id));
  }

  /** What init remembers of it. */
  async entry(): Promise<RunEntry | undefined> {
    return await this.rig.entry(this.id);
  }
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8');
}
