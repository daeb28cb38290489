/**
 * A node in memory, for tests of control: the same order rules as the real one (they are its own functions), no processes. A test can
 * make a call fail before or after it took effect, hold it at a gate, end a sandbox, or take the whole node away.
 */
import type { NodeRecord } from '../../src/node/node-record.ts';
import { admitExec, decideCreate, decideSettings, decideStart, refuseOlderLife } from '../../src/node/order-rules.ts';
import {
  type ApplySettingsOrder,
  type CreateSandboxOrder,
  type EndReason,
  type ExecOrder,
  type ExecOutcome,
  type LifeOrder,
  type NodeApi,
  type NodeBranches,
  type NodeDescription,
  type NodeEvent,
  type NodeInventory,
  type NodeSandbox,
  type NodeWorkspaces,
  newId,
  PlatformError,
  type RunReport,
  type SandboxId,
  type SandboxLoad,
  type StartSandboxOrder,
  type StopSandboxOrder,
} from '../../src/protocol/index.ts';
import { FakeBranches } from './fake-branches.ts';
import { FakeProcesses } from './fake-processes.ts';
import { FakeSessions } from './fake-sessions.ts';
import { noTemplates } from './fake-templates.ts';
import { FakeTerminals } from './fake-terminals.ts';
import { aroundWorkspaces, type LocalWorkspaces, openLocalWorkspaces } from './fake-workspaces.ts';

type Call =
  | Exclude<keyof NodeApi, 'watch' | 'followProcess' | 'terminals' | 'branches' | 'templates' | 'workspaces'>
  | keyof NodeBranches
  | `workspaces.${keyof NodeWorkspaces}`;

/** What happens to the next call of a kind. */
interface Mishap {
  readonly when: 'before' | 'after';
  readonly error: Error;
}

export interface CallGate {
  readonly reached: Promise<void>;
  open(): void;
}

export class FakeNode implements NodeApi {
  readonly nodeId = newId('node');
  readonly sandboxes = new Map<SandboxId, NodeSandbox>();
  readonly execs: ExecOrder[] = [];
  readonly applied: ApplySettingsOrder[] = [];
  readonly calls: Call[] = [];
  /** By life and run: a new life knows nothing of the runs of an earlier one. */
  readonly runs = new Map<string, RunReport>();
  quarantined: NodeInventory['quarantined'] = [];
  isAway = false;
  execute: (order: ExecOrder, signal?: AbortSignal) => Promise<Partial<ExecOutcome>> = async () => ({});
  readonly #mishaps = new Map<Call, Mishap[]>();
  readonly #gates = new Map<Call, { reached: () => void; opened: Promise<void> }>();
  readonly #delays = new Map<Call, { reached: () => void; opened: Promise<void> }[]>();
  readonly #flights = new Map<Call, { opened: Promise<void>; arrived: () => void }[]>();
  readonly #watchers = new Set<(event: NodeEvent | 'broken') => void>();

  fail(call: Call, mishap: Mishap): void {
    this.#mishaps.set(call, [...(this.#mishaps.get(call) ?? []), mishap]);
  }

  /** What was to happen to calls that nobody made does not happen. */
  forgetMishaps(): void {
    this.#mishaps.clear();
    this.#flights.clear();
  }

  /** Every call of this kind waits, before it takes effect, until the gate is opened. */
  hold(call: Call): CallGate {
    const reached = Promise.withResolvers<void>();
    const opened = Promise.withResolvers<void>();
    this.#gates.set(call, { reached: reached.resolve, opened: opened.promise });
    return {
      reached: reached.promise,
      open: () => {
        this.#gates.delete(call);
        opened.resolve();
      },
    };
  }

  /** Only the next call of this kind waits; those behind it overtake it. */
  holdNext(call: Call): CallGate {
    const reached = Promise.withResolvers<void>();
    const opened = Promise.withResolvers<void>();
    this.#delays.set(call, [...(this.#delays.get(call) ?? []), { reached: reached.resolve, opened: opened.promise }]);
    return { reached: reached.promise, open: opened.resolve };
  }

  /** The next call of this kind is given up for lost at once; it takes effect when, and if, the gate is opened. */
  loseInFlight(call: Call): { arrive(): Promise<void> } {
    const opened = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const flight = { opened: opened.promise, arrived: arrived.resolve };
    this.#flights.set(call, [...(this.#flights.get(call) ?? []), flight]);
    return {
      arrive: async () => {
        // Of a call that nobody has made there is nothing to wait for.
        if (this.#flights.get(call)?.includes(flight)) return;
        opened.resolve();
        await arrived.promise;
      },
    };
  }

  /** Its life ends, as if by itself. */
  end(sandboxId: SandboxId, reason: EndReason, atMs = 1): void {
    const sandbox = this.#get(sandboxId);
    this.sandboxes.set(sandboxId, { ...sandbox, life: { kind: 'ended', reason, atMs } });
    for (const tell of this.#watchers) tell({ kind: 'ended', sandboxId, generation: sandbox.generation, reason, atMs });
  }

  /** Its deadline comes, and its settings say that it is to stand still. */
  pauseAtDeadline(sandboxId: SandboxId, atMs = 1): void {
    const sandbox = this.#get(sandboxId);
    this.sandboxes.set(sandboxId, { ...sandbox, life: { kind: 'paused', atMs } });
    for (const tell of this.#watchers) tell({ kind: 'paused', sandboxId, generation: sandbox.generation, atMs });
  }

  /** Whoever watches hears no more. */
  breakWatches(): void {
    for (const tell of [...this.#watchers]) tell('broken');
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  describe(): Promise<NodeDescription> {
    const { nodeId } = this;
    return this.#call('describe', async () => ({
      nodeId,
      version: 'test',
      bootId: 'boot',
      templates: ['host'],
      capacity: { sandboxes: 1_000 },
    }));
  }

  inventory(): Promise<NodeInventory> {
    const { quarantined } = this;
    return this.#call('inventory', async () => ({ sandboxes: [...this.sandboxes.values()], quarantined }));
  }

  findSandbox(sandboxId: SandboxId): Promise<NodeSandbox | undefined> {
    return this.#call('findSandbox', async () => this.sandboxes.get(sandboxId));
  }

  createSandbox(order: CreateSandboxOrder): Promise<NodeSandbox> {
    return this.#call('createSandbox', async () => {
      const found = this.sandboxes.get(order.sandboxId);
      if (found !== undefined && decideCreate(found as unknown as NodeRecord, order) === 'repeat') return found;
      if (order.fromCheckpoint !== null) this.branches.begin(order.sandboxId, order.fromCheckpoint);
      const { mark, spec, generation, version, settings } = order;
      return this.#put({ mark, spec, generation, version, settings, life: { kind: 'running' } });
    });
  }

  startSandbox(order: StartSandboxOrder): Promise<NodeSandbox> {
    return this.#call('startSandbox', async () => {
      const found = this.#get(order.sandboxId);
      if (decideStart(found as unknown as NodeRecord, order) === 'repeat') return found;
      const { generation, version, settings } = order;
      return this.#put({ ...found, generation, version, settings, life: { kind: 'running' } });
    });
  }

  stopSandbox(order: StopSandboxOrder): Promise<NodeSandbox> {
    return this.#call('stopSandbox', async () => {
      const found = this.#get(order.sandboxId);
      refuseOlderLife(found as unknown as NodeRecord, order);
      if (found.life.kind === 'ended') return found;
      return this.#put({ ...found, life: { kind: 'ended', reason: 'requested', atMs: 1 } });
    });
  }

  deleteSandbox(order: LifeOrder): Promise<void> {
    return this.#call('deleteSandbox', async () => {
      this.sandboxes.delete(order.sandboxId);
    });
  }

  applySettings(order: ApplySettingsOrder): Promise<NodeSandbox> {
    return this.#call('applySettings', async () => {
      const found = this.#get(order.sandboxId);
      if (decideSettings(found as unknown as NodeRecord, order) === 'repeat') return found;
      this.applied.push(order);
      return this.#put({ ...found, version: order.version, settings: order.settings });
    });
  }

  exec(order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome> {
    return this.#call('exec', async () => {
      admitExec(this.#get(order.sandboxId) as unknown as NodeRecord, order);
      const run = runOf(order);
      if (this.runs.has(run)) throw new PlatformError('operation_in_doubt', 'This run was started before.');
      this.execs.push(order);
      this.runs.set(run, { kind: 'running', pid: 1 });
      const none = new Uint8Array();
      const outcome = {
        ...{ exitCode: 0, signal: null, timedOut: false, killed: false, outOfMemory: false },
        ...{ stdout: none, stderr: none, stdoutTruncated: false, stderrTruncated: false },
        ...{ startedAtMs: 0, durationMs: 1 },
        ...(await this.execute(order, signal)),
      };
      const { exitCode, timedOut, killed } = outcome;
      this.runs.set(run, { kind: 'ended', exitCode, signal: outcome.signal, timedOut, killed });
      return outcome;
    });
  }

  load(_order: LifeOrder): Promise<SandboxLoad> {
    return this.#call('load', async () => ({ cpuMicros: 0, memoryBytes: 0, memoryCacheBytes: 0, processes: 0 }));
  }

  findRun(order: LifeOrder & { readonly runId: string }): Promise<RunReport> {
    return this.#call('findRun', async () => this.runs.get(runOf(order)) ?? { kind: 'unknown' });
  }

  readonly processes = new FakeProcesses();
  startProcess: NodeApi['startProcess'] = (...given) =>
    this.#call('startProcess', () => this.processes.startProcess(...given));
  getProcess: NodeApi['getProcess'] = (...given) => this.#call('getProcess', () => this.processes.getProcess(...given));
  listProcesses: NodeApi['listProcesses'] = () => this.#call('listProcesses', () => this.processes.listProcesses());
  writeStdin: NodeApi['writeStdin'] = (...given) => this.#call('writeStdin', () => this.processes.writeStdin(...given));
  signalProcess: NodeApi['signalProcess'] = (...given) =>
    this.#call('signalProcess', () => this.processes.signalProcess(...given));
  killProcesses: NodeApi['killProcesses'] = (...given) =>
    this.#call('killProcesses', () => this.processes.killProcesses(...given));
  waitProcess: NodeApi['waitProcess'] = (...given) =>
    this.#call('waitProcess', () => this.processes.waitProcess(...given));
  removeProcess: NodeApi['removeProcess'] = (...given) =>
    this.#call('removeProcess', () => this.processes.removeProcess(...given));
  probePort: NodeApi['probePort'] = (...given) => this.#call('probePort', () => this.processes.probePort(...given));
  followProcess: NodeApi['followProcess'] = (order, signal) => this.processes.followProcess(order, signal);

  readonly sessions = new FakeSessions(this.runs);
  createSession: NodeApi['createSession'] = (order) =>
    this.#call('createSession', () => this.sessions.createSession(order));
  getSession: NodeApi['getSession'] = (order) => this.#call('getSession', () => this.sessions.getSession(order));
  listSessions: NodeApi['listSessions'] = () => this.#call('listSessions', () => this.sessions.listSessions());
  execInSession: NodeApi['execInSession'] = (order) =>
    this.#call('execInSession', () => this.sessions.execInSession(order));
  setSessionEnv: NodeApi['setSessionEnv'] = (order) =>
    this.#call('setSessionEnv', () => this.sessions.setSessionEnv(order));
  startSessionProcess: NodeApi['startSessionProcess'] = (order) =>
    this.#call('startSessionProcess', () => this.processes.startProcess({ ...order, user: null }));
  deleteSession: NodeApi['deleteSession'] = (order) =>
    this.#call('deleteSession', () => this.sessions.deleteSession(order));
  listPorts: NodeApi['listPorts'] = (order) => this.#call('listPorts', () => this.ports.listPorts(order));
  openPort: NodeApi['openPort'] = (order, signal) => this.#call('openPort', () => this.ports.openPort(order, signal));
  /** No port of this fake answers; a test puts what it needs in place of this. */
  ports: Pick<NodeApi, 'listPorts' | 'openPort'> = {
    listPorts: async () => [],
    openPort: async () => Promise.reject(new PlatformError('port_not_open', 'Nothing answers there.')),
  };
  readonly terminals = new FakeTerminals();
  readonly branches = new FakeBranches({
    sandboxes: this.sandboxes,
    call: (name, work) => this.#call(name, work),
  });
  readonly templates = noTemplates;
  #local: Promise<LocalWorkspaces> | undefined;
  readonly workspaces = aroundWorkspaces(
    async () => (await this.#localWorkspaces()).workspaces,
    (name, work) => this.#call(`workspaces.${name}`, work),
  );

  /** A directory of this machine that `collect` takes for the one at `path` in the sandbox. */
  async checkout(sandboxId: SandboxId, path: string): Promise<string> {
    return await (await this.#localWorkspaces()).checkout(sandboxId, path);
  }

  async close(): Promise<void> {
    await (await this.#local)?.close();
  }

  #localWorkspaces(): Promise<LocalWorkspaces> {
    this.#local ??= openLocalWorkspaces({ admitLife: ({ sandboxId }) => void this.#get(sandboxId) });
    return this.#local;
  }

  /** Files are not in this fake; a test puts what it needs in their place. */
  fileAction: NodeApi['fileAction'] = noFiles;
  fileChanges: NodeApi['fileChanges'] = noFiles;
  readFile: NodeApi['readFile'] = noFiles;
  writeFile: NodeApi['writeFile'] = noFiles;
  readTree: NodeApi['readTree'] = noFiles;
  writeTree: NodeApi['writeTree'] = noFiles;
  watchFiles: NodeApi['watchFiles'] = () => {
    throw new Error('This fake has no files.');
  };

  async *watch(signal: AbortSignal): AsyncIterable<NodeEvent> {
    this.#checkReach();
    const queue: (NodeEvent | 'broken')[] = [{ kind: 'watching' }];
    let wake = () => {};
    const tell = (event: NodeEvent | 'broken') => {
      queue.push(event);
      wake();
    };
    this.#watchers.add(tell);
    signal.addEventListener('abort', () => wake(), { once: true });
    try {
      while (!signal.aborted) {
        const event = queue.shift();
        if (event === 'broken') throw new PlatformError('node_unavailable', 'The connection broke.');
        if (event !== undefined) yield event;
        else {
          const next = Promise.withResolvers<void>();
          wake = next.resolve;
          await next.promise;
        }
      }
    } finally {
      this.#watchers.delete(tell);
    }
  }

  async #call<Result>(call: Call, work: () => Promise<Result>): Promise<Result> {
    this.#checkReach();
    this.calls.push(call);
    const gate = this.#delays.get(call)?.shift() ?? this.#gates.get(call);
    if (gate !== undefined) {
      gate.reached();
      await gate.opened;
    }
    const flight = this.#flights.get(call)?.shift();
    if (flight !== undefined) {
      const late = flight.opened.then(work).then(flight.arrived, flight.arrived);
      late.catch(() => {});
      throw lostAnswer();
    }
    const mishap = this.#mishaps.get(call)?.shift();
    if (mishap?.when === 'before') throw mishap.error;
    const result = await work();
    if (mishap?.when === 'after') throw mishap.error;
    return result;
  }

  #checkReach(): void {
    if (this.isAway) throw new PlatformError('node_unavailable', 'The node is away.');
  }

  #get(sandboxId: SandboxId): NodeSandbox {
    const found = this.sandboxes.get(sandboxId);
    if (found === undefined) throw new PlatformError('sandbox_not_found', 'The node does not have it.');
    return found;
  }

  #put(sandbox: NodeSandbox): NodeSandbox {
    this.sandboxes.set(sandbox.mark.sandboxId, sandbox);
    return sandbox;
  }
}

const noFiles = () => Promise.reject(new Error('This fake has no files.'));

export function runOf(order: LifeOrder & { readonly runId: string }): string {
  return `${order.sandboxId} ${order.generation} ${order.runId}`;
}

export const lostAnswer = () => new PlatformError('outcome_unknown', 'The connection was lost.');
export const nodeAway = () => new PlatformError('node_unavailable', 'The node is away.');
