/**
 * The processes of a node's sandboxes, as NodeApi has them. Starts and inputs of one process go one after another.
 */
import { constants } from 'node:os';
import { type FaultPoints, KeyedMutex } from '../base/index.ts';
import { absoluteCwd, type InitClient, InitRefusal, probePort, refusalCodes, startRun } from '../execution/index.ts';
import {
  type FollowProcessOrder,
  type KillProcessesOrder,
  type LifeOrder,
  type ListProcessesOrder,
  type NodeProcess,
  type NodeProcesses,
  PlatformError,
  type PortReport,
  type ProbePortOrder,
  type ProcessId,
  type ProcessItem,
  type ProcessOrder,
  type ProcessPage,
  type SandboxId,
  type SessionId,
  type SignalProcessOrder,
  type StartProcessOrder,
  type WaitProcessOrder,
  type WriteStdinOrder,
} from '../protocol/index.ts';
import { LifeTables, type SurfaceOptions, type TableOwner } from './life-tables.ts';
import type { NodeRecord } from './node-record.ts';
import { admitExec, refuseOlderLife } from './order-rules.ts';
import type { ProcessEntry } from './process-entry.ts';
import { followProcess } from './process-follow.ts';
import { writeInput } from './process-input.ts';
import { hasProcesses, processOf, type RunId } from './process-record.ts';
import { ProcessTable } from './process-table.ts';
import { SandboxSessions } from './sandbox-sessions.ts';
import { type Started, startRecorded } from './start-recorded.ts';
import { withTemplate } from './templates/template-orders.ts';

/** How long an ended process with `autoCleanup` waits for somebody to read its output. */
const cleanupMs = 60_000;

/** How a process is launched. It answers with where that was, if the order alone does not tell. */
export type Launch = (hold: { readonly record: NodeRecord; readonly client: InitClient }) => Promise<Started>;

/** Where a process comes from, if it is from a session. */
interface Origin {
  readonly sessionId: SessionId | null;
  readonly launch: Launch;
}

export interface SandboxProcessesOptions extends SurfaceOptions {
  readonly faults: FaultPoints;
}

export class SandboxProcesses implements NodeProcesses {
  readonly #options: SandboxProcessesOptions;
  readonly #tables: LifeTables<ProcessTable>;
  /** Guards the start and the input of one process. Rank 3: it is taken alone. */
  readonly #processLock = new KeyedMutex<RunId>({ name: 'process', rank: 3 });
  readonly #timers = new Set<NodeJS.Timeout>();
  /** They begin and end with the lives that processes belong to. */
  readonly sessions: SandboxSessions;

  constructor(options: SandboxProcessesOptions) {
    this.#options = options;
    this.sessions = new SandboxSessions({ ...options, processes: this });
    this.#tables = new LifeTables({
      get: options.get,
      open: (owner) => this.#open(owner),
      hasRecords: (directory) => hasProcesses(directory, 'process'),
    });
  }

  async startProcess(asked: StartProcessOrder): Promise<NodeProcess> {
    const order = withTemplate(this.#options.get(asked.sandboxId).record, asked);
    const launch: Launch = async ({ record, client }) => {
      const context = { client, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
      return { pid: await startRun(context, { ...order, runId: order.processId }) };
    };
    return await this.startFrom(order, { sessionId: null, launch });
  }

  /** A process that `launch` starts; one that is there already is the answer, and is not launched. */
  async startFrom(order: StartProcessOrder, origin: Origin): Promise<NodeProcess> {
    return await this.#processLock.run(order.processId, async () => {
      const { record, client } = this.#options.get(order.sandboxId);
      const table = await this.#tables.get(order);
      const known = table.find(order.processId);
      if (known !== undefined) {
        refuseOtherRequest(known, order);
        return await viewOf(table, known);
      }
      admitExec(record, order);
      if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing ran.');
      return await this.#startLocked(table, { order, origin }, { record, client });
    });
  }

  /** The process with this id, if it was started before. */
  async find(order: LifeOrder & { readonly processId: ProcessId }): Promise<NodeProcess | undefined> {
    const table = await this.#tables.get(order);
    const known = table.find(order.processId);
    return known === undefined ? undefined : await viewOf(table, known);
  }

  async getProcess(order: ProcessOrder): Promise<NodeProcess> {
    const { table, entry } = await this.#find(order);
    return await viewOf(table, entry);
  }

  async listProcesses(order: ListProcessesOrder): Promise<ProcessPage> {
    const table = await this.#tables.get(order);
    const after = order.after === null ? undefined : parsePlace(order.after);
    const rest = table
      .inOrder()
      .filter(({ record }) => order.sessionId === null || record.sessionId === order.sessionId)
      .filter((entry) => after === undefined || isBehind(entry, after));
    const page = rest.slice(0, order.limit);
    const items = await Promise.all(page.map((entry) => viewOf(table, entry)));
    const last = page.at(-1);
    return { items, next: rest.length > page.length && last !== undefined ? placeOf(last) : null };
  }

  async *followProcess(order: FollowProcessOrder, signal: AbortSignal): AsyncGenerator<ProcessItem, void> {
    const { table, entry } = await this.#find(order);
    for await (const item of followProcess(table, entry, order, signal)) {
      yield item;
      if (item.kind === 'ended' && entry.record.autoCleanup) this.#cleanUpLater(table, entry, 0);
    }
  }

  async writeStdin(order: WriteStdinOrder): Promise<{ readonly offset: number }> {
    const { table, entry } = await this.#find(order);
    admitExec(this.#options.get(order.sandboxId).record, order);
    return await this.#processLock.run(entry.record.processId, () => writeInput(table, entry, order));
  }

  async signalProcess(order: SignalProcessOrder): Promise<NodeProcess> {
    const { table, entry } = await this.#find(order);
    const { record } = this.#options.get(order.sandboxId);
    if (entry.isLive) admitExec(record, order);
    await this.#signal(order, { table, entry }, order);
    return await viewOf(table, entry);
  }

  async killProcesses(order: KillProcessesOrder): Promise<{ readonly count: number }> {
    const { record } = this.#options.get(order.sandboxId);
    admitExec(record, order);
    const table = await this.#tables.get(order);
    const isKill = order.signal === constants.signals.SIGKILL;
    // Chosen and marked in one turn, so that a second call at the same time does not count them again.
    const chosen = table.live.filter((entry) => !entry.isKilled);
    for (const entry of chosen) entry.isKilled ||= isKill;
    await Promise.all(chosen.map((entry) => this.#signal(order, { table, entry }, { ...order, target: 'tree' })));
    return { count: chosen.length };
  }

  async waitProcess(order: WaitProcessOrder, signal: AbortSignal): Promise<NodeProcess> {
    const { table, entry } = await this.#find(order);
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), order.timeoutMs);
    try {
      const isDone = () => (order.for === 'exit' ? entry.record.exit !== null : !entry.isLive);
      await entry.until(isDone, AbortSignal.any([signal, over.signal]));
    } finally {
      clearTimeout(timer);
    }
    return await viewOf(table, entry);
  }

  async removeProcess(order: ProcessOrder & { readonly leaseToken: number | null }): Promise<void> {
    const { table, entry } = await this.#find(order);
    admitExec(this.#options.get(order.sandboxId).record, order);
    if (entry.isLive) throw new PlatformError('process_running', 'Something of the process still runs.');
    await table.remove(entry);
  }

  async probePort(order: ProbePortOrder, signal: AbortSignal): Promise<PortReport> {
    const { record, client } = this.#options.get(order.sandboxId);
    refuseOlderLife(record, order);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending.');
    return await probePort(client, order, signal);
  }

  /** After a start of the node or of a life: what is due for its processes is done, whether or not somebody asks for them. */
  async resume(order: LifeOrder): Promise<void> {
    await this.#tables.resume(order);
    await this.sessions.resume(order);
  }

  /** The life is over, and init with it. What is kept can be read until the next life begins. */
  async lifeEnded(sandboxId: SandboxId): Promise<void> {
    await this.sessions.lifeEnded(sandboxId);
    await this.#tables.lifeEnded(sandboxId);
  }

  /** The sandbox is deleted. */
  async forget(sandboxId: SandboxId): Promise<void> {
    await this.sessions.forget(sandboxId);
    await this.#tables.forget(sandboxId);
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.sessions.close();
    await this.#tables.close();
  }

  async #startLocked(
    table: ProcessTable,
    { order, origin }: { readonly order: StartProcessOrder; readonly origin: Origin },
    hold: { readonly record: NodeRecord; readonly client: InitClient },
  ): Promise<NodeProcess> {
    const { clock, faults } = this.#options;
    await faults.hit('node-process-before-record');
    const entry = await table.add({
      format: 1,
      processId: order.processId,
      request: order.request,
      generation: order.generation,
      name: order.name,
      sessionId: origin.sessionId,
      pid: null,
      command: typeof order.command === 'string' ? order.command : [...order.command],
      cwd: absoluteCwd(order.cwd),
      user: order.user,
      startedAtMs: clock.nowMs(),
      bootedAtMs: clock.nowMs() - clock.bootMs(),
      autoCleanup: order.autoCleanup,
      stdinOpen: order.stdinOpen,
      ...{ stdinOffset: 0, killAtBootMs: null, exit: null, treeEndedAtMs: null, output: null },
    });
    await startRecorded(table, entry, async () => {
      await faults.hit('node-process-before-start');
      return await origin.launch(hold);
    });
    await faults.hit('node-process-after-start');
    table.saveLater(entry);
    if (order.autoCleanup) void this.#cleanUpAtEnd(table, entry);
    await faults.hit('node-process-before-answer');
    // As it was when it began: its journal need not be looked at.
    return processOf(entry.record, { first: 0, end: 0 });
  }

  /** A run that init does not have any more has ended meanwhile. */
  async #signal(
    order: LifeOrder,
    found: { readonly table: ProcessTable; readonly entry: ProcessEntry },
    wanted: Pick<SignalProcessOrder, 'signal' | 'target' | 'graceMs'>,
  ): Promise<void> {
    const { table, entry } = found;
    const { client } = this.#options.get(order.sandboxId);
    if (!entry.isLive || client === undefined) return;
    const run = entry.record.processId;
    try {
      await client.control((control) => control.signal({ run, signal: wanted.signal, target: wanted.target }));
    } catch (error) {
      if (error instanceof InitRefusal && error.refusal.code === refusalCodes.noSuchRun) return;
      throw error;
    }
    if (wanted.graceMs === null) return;
    const killAtBootMs = this.#options.clock.bootMs() + wanted.graceMs;
    entry.record = { ...entry.record, killAtBootMs };
    await table.save(entry);
    this.#killLater(order, found);
  }

  #killLater(order: LifeOrder, found: { readonly table: ProcessTable; readonly entry: ProcessEntry }): void {
    const { killAtBootMs } = found.entry.record;
    if (killAtBootMs === null || !found.entry.isLive) return;
    const wanted = { signal: constants.signals.SIGKILL, target: 'tree', graceMs: null } as const;
    this.#after(Math.max(0, killAtBootMs - this.#options.clock.bootMs()), () => this.#signal(order, found, wanted));
  }

  async #cleanUpAtEnd(table: ProcessTable, entry: ProcessEntry): Promise<void> {
    await entry.until(() => !entry.isLive, new AbortController().signal);
    this.#cleanUpLater(table, entry, cleanupMs);
  }

  #cleanUpLater(table: ProcessTable, entry: ProcessEntry, delayMs: number): void {
    this.#after(delayMs, async () => {
      if (table.find(entry.record.processId) !== entry || entry.isLive) return;
      if (entry.followers > 0) this.#cleanUpLater(table, entry, Math.max(delayMs, 100));
      else await table.remove(entry);
    });
  }

  #after(delayMs: number, work: () => Promise<void>): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      work().catch((error: unknown) => this.#options.log.warn('What was due for a process failed.', { error }));
    }, delayMs);
    this.#timers.add(timer);
  }

  async #find(order: ProcessOrder): Promise<{ table: ProcessTable; entry: ProcessEntry }> {
    const table = await this.#tables.get(order);
    return { table, entry: table.get(order.process) };
  }

  /** With what is due for what was found. */
  async #open(owner: TableOwner): Promise<ProcessTable> {
    const { clock, log, removeTree } = this.#options;
    const table = await ProcessTable.open({ ...owner, clock, log, removeTree });
    for (const entry of table.inOrder()) {
      this.#killLater(owner, { table, entry });
      if (entry.record.autoCleanup) void this.#cleanUpAtEnd(table, entry);
    }
    return table;
  }
}

/** A process of another request, of which only the id was repeated, is not the answer. */
function refuseOtherRequest({ record }: ProcessEntry, { request }: StartProcessOrder): void {
  if (request === undefined || record.request === undefined || request === record.request) return;
  const message = 'This idempotency key was used with another request. Use a new key for a new request.';
  throw new PlatformError('idempotency_key_reused', message);
}

async function viewOf(table: ProcessTable, entry: ProcessEntry): Promise<NodeProcess> {
  return processOf(entry.record, await table.rangeOf(entry));
}

interface Place {
  readonly isLive: boolean;
  readonly sequence: number;
}

function placeOf({ isLive, record }: ProcessEntry): string {
  return `${isLive ? 'r' : 'e'}${record.sequence}`;
}

function parsePlace(text: string): Place {
  const match = /^([re])(\d{1,15})$/.exec(text);
  if (match !== null) return { isLive: match[1] === 'r', sequence: Number(match[2]) };
  throw new PlatformError('invalid_request', 'This cursor was not made by this list.', { details: { path: 'cursor' } });
}

/** One that ends while somebody pages may come a second time; none is left out. */
function isBehind({ isLive, record }: ProcessEntry, after: Place): boolean {
  if (isLive !== after.isLive) return !isLive;
  return record.sequence < after.sequence;
}
