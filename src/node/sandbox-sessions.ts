/**
 * The sessions of a node's sandboxes, as NodeApi has them.
 *
 * Invariants:
 *  - Whatever happens in a shell has its turn in the session's queue, except looking where it is and killing it.
 *  - Life and lease are looked at when an order comes and again when its turn does: both may have changed while it waited.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type FaultPoints, KeyedMutex } from '../base/index.ts';
import {
  execInSession,
  type InitClient,
  InitRefusal,
  openSession,
  refusalCodes,
  SessionBusy,
  sessionDirectory,
  setSessionEnv,
  startInSession,
} from '../execution/index.ts';
import {
  type CreateSessionOrder,
  type DeleteSessionOrder,
  isPlatformError,
  type LifeOrder,
  type NodeProcess,
  type NodeSession,
  type NodeSessions,
  PlatformError,
  type SandboxId,
  type SessionExecOrder,
  type SessionExecOutcome,
  type SessionId,
  type SessionOrder,
  type SessionTurn,
  type SetSessionEnvOrder,
  type StartSessionProcessOrder,
} from '../protocol/index.ts';
import { LifeTables, type SurfaceOptions } from './life-tables.ts';
import type { NodeRecord } from './node-record.ts';
import { admitExec } from './order-rules.ts';
import type { Launch, SandboxProcesses } from './sandbox-processes.ts';
import { endOf, type SessionEntry } from './session-entry.ts';
import { hasSessions, type SessionRecord, sessionOf } from './session-record.ts';
import { SessionTable } from './session-table.ts';
import { withTemplate } from './templates/template-orders.ts';

const defaultShell = 'bash';
/** Before a shell is asked again that is busy with what nobody here waits for: a command whose connection was lost. */
const busyPauseMs = 20;

export interface SandboxSessionsOptions extends Pick<SurfaceOptions, 'get' | 'clock' | 'log'> {
  readonly faults: FaultPoints;
  readonly processes: Pick<SandboxProcesses, 'startFrom' | 'find'>;
}

interface Hold {
  readonly record: NodeRecord;
  readonly client: InitClient;
}

export class SandboxSessions implements NodeSessions {
  readonly #options: SandboxSessionsOptions;
  readonly #tables: LifeTables<SessionTable>;
  /** Guards the making and the deleting of one session, by its name or else its id. Rank 3: it is taken alone. */
  readonly #makingLock = new KeyedMutex<string>({ name: 'session making', rank: 3 });

  constructor(options: SandboxSessionsOptions) {
    this.#options = options;
    const { get, clock, log } = options;
    this.#tables = new LifeTables({
      get,
      open: (owner) => SessionTable.open({ ...owner, clock, log }),
      hasRecords: hasSessions,
    });
  }

  async createSession(asked: CreateSessionOrder): Promise<NodeSession> {
    const order = withTemplate(this.#options.get(asked.sandboxId).record, asked);
    return await this.#makingLock.run(makingKey(order, order), async () => {
      const table = await this.#tables.get(order);
      const known = table.find(order.sessionId);
      if (known !== undefined) return await this.#viewOf(order, known);
      const hold = this.#admit(order);
      const rival = order.name === null ? undefined : table.find(order.name);
      if (rival?.isLive) {
        const message = `A session named "${order.name}" lives. Use it, delete it, or take another name.`;
        const { sessionId } = rival.record;
        throw new PlatformError('session_exists', message, { details: { name: order.name, sessionId } });
      }
      return await this.#createLocked(table, order, hold);
    });
  }

  async getSession(order: SessionOrder): Promise<NodeSession> {
    const table = await this.#tables.get(order);
    return await this.#viewOf(order, table.get(order.session));
  }

  async listSessions(order: LifeOrder): Promise<readonly NodeSession[]> {
    const table = await this.#tables.get(order);
    return await Promise.all(table.inOrder().map((entry) => this.#viewOf(order, entry)));
  }

  async execInSession(order: SessionExecOrder, signal?: AbortSignal): Promise<SessionExecOutcome> {
    const { clock } = this.#options;
    const { table, entry } = await this.#find(order);
    const { sessionId } = entry.record;
    const cameAt = performance.now();
    return await this.#inTurn({ table, entry, order, runId: order.runId, signal }, async ({ record, client }) => {
      const queuedMs = Math.round(performance.now() - cameAt);
      const context = { client, clock, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
      const wanted = { ...order, sessionId, timeoutMs: order.timeoutMs ?? entry.record.timeoutMs };
      const { sessionEnded, ...outcome } = await execInSession(context, wanted, signal);
      if (sessionEnded === null) return { ...outcome, sessionId, queuedMs, sessionEnded };
      // As its own record will say: init's event comes on another connection, and may be later or earlier.
      table.end(entry, endOf(entry.record, { ...sessionEnded, endedBootMs: clock.bootMs() }));
      return { ...outcome, sessionId, queuedMs, sessionEnded: entry.record.end };
    });
  }

  async setSessionEnv(order: SetSessionEnvOrder): Promise<void> {
    const { table, entry } = await this.#find(order);
    const { clock } = this.#options;
    await this.#inTurn({ table, entry, order, runId: order.runId }, ({ record, client }) => {
      const context = { client, clock, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
      return setSessionEnv(context, { ...order, sessionId: entry.record.sessionId });
    });
  }

  async startSessionProcess(order: StartSessionProcessOrder): Promise<NodeProcess> {
    const known = await this.#options.processes.find(order);
    if (known !== undefined) return known;
    const { table, entry } = await this.#find(order);
    const { sessionId, user } = entry.record;
    return await this.#inTurn({ table, entry, order, runId: order.processId }, async () => {
      // A relative directory begins where the shell is, which stays where it is for this turn.
      const isRelative = order.cwd !== null && !order.cwd.startsWith('/');
      const here = isRelative ? await this.#directoryOf(order, entry) : null;
      const cwd = here === null ? order.cwd : `${here === '/' ? '' : here}/${order.cwd}`;
      const launch: Launch = async ({ record, client }) => {
        const context = { client, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
        // That it runs is certain once it is started, also if nobody can tell where.
        const directory = cwd ?? this.#directoryOf(order, entry).catch(() => null);
        const pid = await startInSession(context, { ...order, cwd, sessionId });
        return { pid, cwd: await directory };
      };
      return await this.#options.processes.startFrom({ ...order, cwd, user }, { sessionId, launch });
    });
  }

  async deleteSession(order: DeleteSessionOrder): Promise<void> {
    const { table, entry } = await this.#find(order, { isEndedFine: true });
    // One that is being made has no shell yet that could be killed, and would get one afterwards.
    await this.#makingLock.run(makingKey(order, entry.record), async () => {
      // Also one whose end nobody saw, while there is somebody who can be asked: nothing of it may outlive its record.
      const isDoubtful = entry.isEndUnseen && this.#options.get(order.sandboxId).client !== undefined;
      if (entry.isLive || isDoubtful) await this.#kill(this.#admit(order).client, entry);
      await table.remove(entry);
    });
  }

  async #kill(client: InitClient, entry: SessionEntry): Promise<void> {
    try {
      await client.control((connection) => connection.killTree(entry.record.sessionId));
      await Promise.race([entry.ended, client.gone]);
    } catch (error) {
      // Init does not have it any more, so it has ended.
      if (!(error instanceof InitRefusal) || error.refusal.code !== refusalCodes.noSuchRun) throw error;
    }
  }

  /** After a start of the node or of a life: what was there is found again, whether or not somebody asks for it. */
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

  async #createLocked(table: SessionTable, order: CreateSessionOrder, hold: Hold): Promise<NodeSession> {
    const { clock, faults } = this.#options;
    const { sessionId, generation, name, user, timeoutMs } = order;
    await faults.hit('node-session-before-record');
    const record: Omit<SessionRecord, 'sequence'> = {
      ...{ format: 1, sessionId, generation, name, user, timeoutMs, pid: null, end: null },
      shell: order.shell ?? defaultShell,
      startedAtMs: clock.nowMs(),
      bootedAtMs: clock.nowMs() - clock.bootMs(),
    };
    const entry = await table.add(record, (added) => this.#begin(table, added, { order, hold }));
    await faults.hit('node-session-after-start');
    await table.save(entry);
    await faults.hit('node-session-before-answer');
    return await this.#viewOf(order, entry);
  }

  async #begin(
    table: SessionTable,
    entry: SessionEntry,
    wanted: { readonly order: CreateSessionOrder; readonly hold: Hold },
  ): Promise<void> {
    const { record, client } = wanted.hold;
    try {
      await this.#options.faults.hit('node-session-before-start');
      const context = { client, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
      const pid = await openSession(context, wanted.order);
      entry.record = { ...entry.record, pid };
    } catch (error) {
      // Init refused it, so nothing ran and nothing stays. When nobody knows, init is asked; if it cannot be, the record stays.
      const isOpen = isPlatformError(error, 'outcome_unknown', 'operation_in_doubt');
      if (!isOpen) await table.remove(entry);
      if (!isOpen || !(await table.adopt(entry))) throw error;
    }
  }

  async #inTurn<Result>(
    turn: {
      readonly table: SessionTable;
      readonly entry: SessionEntry;
      readonly order: SessionTurn;
      readonly runId: string;
      readonly signal?: AbortSignal | undefined;
    },
    work: (hold: Hold) => Promise<Result>,
  ): Promise<Result> {
    const { table, entry, order, runId, signal } = turn;
    this.#admit(order);
    const wanted = { runId, timeoutMs: order.queueTimeoutMs, signal };
    const cameAt = performance.now();
    return await entry.queue.run(wanted, async () => {
      for (;;) {
        const hold = this.#admit(order);
        let isOver = true;
        try {
          return await work(hold);
        } catch (error) {
          isOver = !isPlatformError(error, 'outcome_unknown');
          // Init knew of its end before we did.
          if (isPlatformError(error, 'session_terminated', 'session_not_found')) {
            await table.look(entry);
            throw entry.isLive ? error : entry.terminated();
          }
          if (!(error instanceof SessionBusy)) throw error;
          if (signal?.aborted) throw entry.queue.left();
          if (wanted.timeoutMs !== null && performance.now() - cameAt > wanted.timeoutMs)
            throw entry.queue.late(wanted);
        } finally {
          if (isOver) table.commandOver(runId);
        }
        await delay(busyPauseMs);
      }
    });
  }

  #admit(order: LifeOrder & { readonly leaseToken: number | null }): Hold {
    const { record, client } = this.#options.get(order.sandboxId);
    admitExec(record, order);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing ran.');
    return { record, client };
  }

  async #viewOf(order: LifeOrder, entry: SessionEntry): Promise<NodeSession> {
    const cwd = await this.#directoryOf(order, entry);
    return sessionOf(entry.record, { cwd, current: entry.queue.current, queued: entry.queue.length });
  }

  /**
   * Read from the kernel by a process of the sandbox, so it needs no turn. null also when that process cannot tell, because the sandbox has no room
   * for it or the shell has become another user's: whoever lists sessions hears of the rest. So it is when the node is closing: whoever made a
   * session by then must hear of it.
   */
  async #directoryOf(order: LifeOrder, entry: SessionEntry): Promise<string | null> {
    const { pid, user } = entry.record;
    if (!entry.isLive || pid === null) return null;
    try {
      const { record, client } = this.#options.get(order.sandboxId);
      if (client === undefined) return null;
      return await sessionDirectory({ workers: client.files, user, token: record.settings.leaseToken }, pid);
    } catch (error) {
      if (isPlatformError(error)) return null;
      throw error;
    }
  }

  async #find(order: SessionOrder, options: { readonly isEndedFine?: boolean } = {}) {
    const table = await this.#tables.get(order);
    const entry = table.get(order.session);
    if (!entry.isLive && options.isEndedFine !== true) throw entry.terminated();
    return { table, entry };
  }
}

function makingKey(order: LifeOrder, session: { readonly sessionId: SessionId; readonly name: string | null }): string {
  return `${order.sandboxId} ${session.name ?? session.sessionId}`;
}
