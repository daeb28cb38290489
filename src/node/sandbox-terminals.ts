/**
 * The terminals of a node's sandboxes, as NodeApi has them. A terminal is a run with a pty and a journal, kept as a process is, in a table
 * of its own.
 *
 * Invariant: of one name at most one pty is being made or has a program in it. Whoever asks while it is made shares the making.
 */
import { constants } from 'node:os';
import type { FaultPoints } from '../base/index.ts';
import { absoluteCwd, type ControlConnection, InitRefusal, refusalCodes, startRun } from '../execution/index.ts';
import {
  type ChangeTerminalOrder,
  type DestroyTerminalOrder,
  type FollowTerminalOrder,
  type LifeOrder,
  type NodeTerminal,
  type NodeTerminals,
  type OpenTerminalOrder,
  PlatformError,
  type SandboxId,
  type SignalTerminalOrder,
  type TerminalItem,
  type TerminalOrder,
  type TerminalSize,
  terminalLimits,
  type WriteTerminalOrder,
} from '../protocol/index.ts';
import { LifeTables, type SurfaceOptions } from './life-tables.ts';
import { admitExec } from './order-rules.ts';
import type { ProcessEntry } from './process-entry.ts';
import { offerInput } from './process-input.ts';
import { hasProcesses } from './process-record.ts';
import { ProcessTable } from './process-table.ts';
import { startRecorded } from './start-recorded.ts';
import { withTemplate } from './templates/template-orders.ts';
import { followTerminal } from './terminal-follow.ts';
import { terminalOf } from './terminal-view.ts';

const { signals } = constants;
const defaultTerm = 'xterm-256color';
const retention = { ended: terminalLimits.ended, endedMs: terminalLimits.endedMs, endedBytes: 256 * 1024 ** 2 };
/** How long what was killed may take to be gone. */
const killedMs = 15_000;

type Opened = Awaited<ReturnType<NodeTerminals['open']>>;

export class SandboxTerminals implements NodeTerminals {
  readonly #options: SurfaceOptions & { readonly faults: FaultPoints };
  readonly #tables: LifeTables<ProcessTable>;
  readonly #opening = new Map<string, Promise<Opened>>();

  constructor(options: SurfaceOptions & { readonly faults: FaultPoints }) {
    this.#options = options;
    const { get, clock, log, removeTree } = options;
    this.#tables = new LifeTables({
      get,
      open: (owner) => ProcessTable.open({ ...owner, kind: 'terminal', retention, clock, log, removeTree }),
      hasRecords: (directory) => hasProcesses(directory, 'terminal'),
    });
  }

  async open(asked: OpenTerminalOrder): Promise<Opened> {
    const order = withTemplate(this.#options.get(asked.sandboxId).record, asked);
    const key = `${order.sandboxId} ${order.generation} ${order.name ?? order.terminalId}`;
    const other = this.#opening.get(key);
    if (other !== undefined) return { ...(await other), created: false };
    // In the map before the first await: two callers must never both find nothing.
    const opening = this.#open(order).finally(() => this.#opening.delete(key));
    this.#opening.set(key, opening);
    return await opening;
  }

  async get(order: TerminalOrder): Promise<NodeTerminal> {
    return terminalOf((await this.#find(order)).entry.record);
  }

  async list(order: LifeOrder): Promise<readonly NodeTerminal[]> {
    const table = await this.#tables.get(order);
    return table.inOrder().map((entry) => terminalOf(entry.record));
  }

  async *follow(order: FollowTerminalOrder, signal: AbortSignal): AsyncGenerator<TerminalItem, void> {
    const { table, entry } = await this.#find(order);
    yield* followTerminal(table, entry, order, signal);
  }

  async write(order: WriteTerminalOrder): Promise<void> {
    const { table, entry } = await this.#admitted(order);
    await offerInput(table, { run: entry.record.processId, offset: null, bytes: order.bytes });
  }

  async resize(order: ChangeTerminalOrder & TerminalSize): Promise<NodeTerminal> {
    const { table, entry } = await this.#admitted(order);
    const { columns, rows } = order;
    await this.#tell(order, entry, (control) => control.resize({ run: entry.record.processId, columns, rows }));
    entry.record = { ...entry.record, terminal: { columns, rows } };
    await table.save(entry);
    return terminalOf(entry.record);
  }

  async signal(order: SignalTerminalOrder): Promise<NodeTerminal> {
    const { entry } = await this.#admitted(order);
    await this.#signal(order, entry, order);
    return terminalOf(entry.record);
  }

  async destroy(order: DestroyTerminalOrder): Promise<void> {
    const table = await this.#tables.get(order);
    const entry = table.find(order.terminal);
    if (entry === undefined) return;
    if (entry.isLive) {
      admitExec(this.#options.get(order.sandboxId).record, order);
      // A shell at its prompt heeds HUP and not TERM, other programs the other way round; what is stopped heeds neither.
      for (const signal of [signals.SIGHUP, signals.SIGTERM, signals.SIGCONT]) {
        await this.#signal(order, entry, { signal, target: 'tree' });
      }
      await entry.until(() => !entry.isLive, AbortSignal.timeout(order.graceMs));
      await this.#signal(order, entry, { signal: signals.SIGKILL, target: 'tree' });
      await entry.until(() => !entry.isLive, AbortSignal.timeout(killedMs));
      if (entry.isLive) throw new PlatformError('outcome_unknown', 'What was started in the terminal does not end.');
    }
    await table.remove(entry);
  }

  /** After a start of the node or of a life: ends that came meanwhile are taken down. */
  resume(order: LifeOrder): Promise<void> {
    return this.#tables.resume(order);
  }

  lifeEnded(sandboxId: SandboxId): Promise<void> {
    return this.#tables.lifeEnded(sandboxId);
  }

  forget(sandboxId: SandboxId): Promise<void> {
    return this.#tables.forget(sandboxId);
  }

  close(): Promise<void> {
    return this.#tables.close();
  }

  async #open(order: OpenTerminalOrder): Promise<Opened> {
    const { record } = this.#options.get(order.sandboxId);
    const table = await this.#tables.get(order);
    const known = table.find(order.terminalId) ?? (order.name === null ? undefined : table.find(order.name));
    const isThere = known !== undefined && (known.record.exit === null || known.record.processId === order.terminalId);
    if (isThere) return { terminal: terminalOf(known.record), created: false };
    admitExec(record, order);
    return { terminal: terminalOf((await this.#make(table, order)).record), created: true };
  }

  async #make(table: ProcessTable, order: OpenTerminalOrder): Promise<ProcessEntry> {
    const { clock, faults } = this.#options;
    const { record, client } = this.#options.get(order.sandboxId);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing ran.');
    const { terminalId, command, columns, rows } = order;
    await faults.hit('node-terminal-before-record');
    // In one turn with the adding: many may come here at once.
    if (table.live.length >= terminalLimits.live) {
      throw new PlatformError('limit_exceeded', `A sandbox has at most ${terminalLimits.live} terminals.`);
    }
    const entry = await table.add({
      format: 1,
      processId: terminalId,
      generation: order.generation,
      name: order.name,
      sessionId: null,
      pid: null,
      command: typeof command === 'string' ? command : [...(command ?? [])],
      cwd: absoluteCwd(order.cwd),
      user: order.user,
      startedAtMs: clock.nowMs(),
      bootedAtMs: clock.nowMs() - clock.bootMs(),
      terminal: { columns, rows },
      ...{ autoCleanup: false, stdinOpen: true, stdinOffset: 0, killAtBootMs: null },
      ...{ exit: null, treeEndedAtMs: null, output: null },
    });
    const context = { client, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
    await startRecorded(table, entry, async () => {
      await faults.hit('node-terminal-before-start');
      const pid = await startRun(context, {
        ...order,
        runId: terminalId,
        env: { TERM: record.spec.env['TERM'] ?? defaultTerm, ...order.env },
        terminal: { columns, rows },
        ...{ stdinOpen: true, graceMs: 0, keepBytes: terminalLimits.keepBytes },
      });
      return { pid };
    });
    await faults.hit('node-terminal-after-start');
    await table.save(entry);
    await faults.hit('node-terminal-before-answer');
    return entry;
  }

  async #find(order: TerminalOrder): Promise<{ table: ProcessTable; entry: ProcessEntry }> {
    const table = await this.#tables.get(order);
    return { table, entry: table.get(order.terminal) };
  }

  async #admitted(order: ChangeTerminalOrder): Promise<{ table: ProcessTable; entry: ProcessEntry }> {
    const found = await this.#find(order);
    admitExec(this.#options.get(order.sandboxId).record, order);
    return found;
  }

  async #signal(
    order: LifeOrder,
    entry: ProcessEntry,
    wanted: Pick<SignalTerminalOrder, 'signal' | 'target'>,
  ): Promise<void> {
    const { signal, target } = wanted;
    if (target === 'foreground' && ![signals.SIGINT, signals.SIGQUIT, signals.SIGTSTP].includes(signal)) {
      const message = 'What runs in front takes INT, QUIT and TSTP; other signals go to the leader or the tree.';
      throw new PlatformError('invalid_request', message, { details: { path: 'signal' } });
    }
    await this.#tell(order, entry, (control) => control.signal({ run: entry.record.processId, signal, target }));
  }

  /** What init has no run or no pty for any more has ended meanwhile, and hears nothing. */
  async #tell(
    order: LifeOrder,
    entry: ProcessEntry,
    tell: (control: ControlConnection) => Promise<void>,
  ): Promise<void> {
    const { client } = this.#options.get(order.sandboxId);
    if (!entry.isLive || client === undefined) return;
    try {
      await client.control(tell);
    } catch (error) {
      const gone: readonly number[] = [refusalCodes.noSuchRun, refusalCodes.malformed];
      if (!(error instanceof InitRefusal) || !gone.includes(error.refusal.code)) throw error;
    }
  }
}
