/**
 * The sessions of one life of one sandbox: what is on disk, what init tells, and what is forgotten when.
 *
 * Invariants:
 *  - Every entry has a record on disk, written before its shell was started.
 *  - An entry that lives is in #live; one that has ended is in #ended, until it is deleted or `sessionLimits.ended` newer ones have ended.
 *  - Nothing of another life is here: `open` removes what earlier lives left.
 */
import { type Clock, KeyedMutex, type Logger } from '../base/index.ts';
import type { ControlConnection, InitClient, RunEntry } from '../execution/index.ts';
import { isId, PlatformError, type SessionEnd, type SessionId, sessionLimits } from '../protocol/index.ts';
import { rethrowDiskFull } from './disk-full.ts';
import { ProcessFeed } from './process-feed.ts';
import { SessionEntry, unseenEnd } from './session-entry.ts';
import { readSessionRecords, removeSessionRecord, type SessionRecord, writeSessionRecord } from './session-record.ts';

export interface SessionTableOptions {
  readonly directory: string;
  readonly generation: number;
  /** `undefined`: the life is over. */
  readonly client: InitClient | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

export class SessionTable {
  readonly #options: SessionTableOptions;
  readonly #live = new Map<SessionId, SessionEntry>();
  readonly #ended = new Map<SessionId, SessionEntry>();
  readonly #work = new Set<Promise<void>>();
  /** Commands that an earlier run of the node began and that still run, each with what ends the wait for it. */
  readonly #inherited = new Map<string, () => void>();
  /** Guards the file of one record: writers share a temporary name. Rank 4; nothing is taken inside. */
  readonly #fileLock = new KeyedMutex<SessionId>({ name: 'session file', rank: 4 });
  #feed: ProcessFeed | undefined;
  /** While init's list is on its way: the runs whose end was heard since it was asked for. In the list they may still run. */
  #endedMeanwhile: Set<string> | undefined;
  #sequence = 0;

  private constructor(options: SessionTableOptions) {
    this.#options = options;
  }

  static async open(options: SessionTableOptions): Promise<SessionTable> {
    const table = new SessionTable(options);
    await table.#load();
    const { client } = options;
    if (client === undefined) await table.endLife();
    else {
      table.#feed = await ProcessFeed.open(client, {
        onOpen: (connection) => table.#settle(connection),
        onEvent: (run) => table.#take(run),
      });
    }
    return table;
  }

  /** What lives, then what does not, the newest first in each. */
  inOrder(): SessionEntry[] {
    const newestFirst = (a: SessionEntry, b: SessionEntry) => b.record.sequence - a.record.sequence;
    return [...[...this.#live.values()].sort(newestFirst), ...[...this.#ended.values()].sort(newestFirst)];
  }

  find(session: string): SessionEntry | undefined {
    if (isId('session', session)) return this.#live.get(session) ?? this.#ended.get(session);
    return this.inOrder().find(({ record }) => record.name === session);
  }

  get(session: string): SessionEntry {
    const found = this.find(session);
    if (found !== undefined) return found;
    throw notFound(session);
  }

  /**
   * Writes its record, then starts it. Its place and its first turn are taken before the first await: the limit holds however many come at once,
   * and whoever finds it meanwhile waits until it has a shell.
   */
  async add(
    record: Omit<SessionRecord, 'sequence'>,
    start: (entry: SessionEntry) => Promise<void>,
  ): Promise<SessionEntry> {
    const { sessionId } = record;
    if (this.#live.size >= sessionLimits.live) {
      throw new PlatformError('limit_exceeded', `A sandbox has at most ${sessionLimits.live} sessions; delete one.`);
    }
    const entry = new SessionEntry({ ...record, sequence: ++this.#sequence }, this.#options.clock);
    entry.isStarting = true;
    this.#live.set(sessionId, entry);
    await entry.queue.run({ runId: sessionId, timeoutMs: null }, async () => {
      try {
        await this.#saveFirst(entry);
        await start(entry);
      } finally {
        entry.isStarting = false;
      }
    });
    return entry;
  }

  /** After a start whose answer was lost: whether init has it. One that it does not have is forgotten. */
  async adopt(entry: SessionEntry): Promise<boolean> {
    const run = await this.#runOf(entry);
    if (run === undefined) await this.remove(entry);
    else this.#takeOwn(run);
    return run !== undefined;
  }

  /** Asks init whether it lives. */
  async look(entry: SessionEntry): Promise<void> {
    const { isStarting } = entry;
    const run = await this.#runOf(entry);
    if (run !== undefined) this.#takeOwn(run);
    else if (!isStarting) await this.#miss(entry);
  }

  async save(entry: SessionEntry): Promise<void> {
    const { sessionId } = entry.record;
    await this.#fileLock.run(sessionId, async () => {
      if (this.find(sessionId) === entry) await writeSessionRecord(this.#options.directory, entry.record);
    });
  }

  async remove(entry: SessionEntry): Promise<void> {
    const { sessionId } = entry.record;
    this.#drop(entry);
    await this.#fileLock.run(sessionId, () => removeSessionRecord(this.#options.directory, sessionId));
  }

  /** Its shell has ended, as init or a command in it told. */
  end(entry: SessionEntry, end: SessionEnd): void {
    entry.end(end);
    this.#moveToEnded(entry);
  }

  /** A command of this node's own is over. Its connection told that, so no event does; a list of init's may be older. */
  commandOver(runId: string): void {
    this.#endedMeanwhile?.add(runId);
  }

  /** Init is gone, and every shell with it. */
  async endLife(): Promise<void> {
    const feed = this.#feed;
    this.#feed = undefined;
    await feed?.close();
    const nowMs = this.#options.clock.nowMs();
    for (const entry of this.#live.values()) this.end(entry, unseenEnd('sandbox_ended', nowMs));
    await Promise.all(this.#work);
  }

  async close(): Promise<void> {
    await this.#feed?.close();
    await Promise.all(this.#work);
  }

  async #load(): Promise<void> {
    const { directory, generation, clock } = this.#options;
    const records = await readSessionRecords(directory);
    // In the order they ended, which is the order in which they are forgotten.
    records.sort((a, b) => (a.end?.endedAtMs ?? 0) - (b.end?.endedAtMs ?? 0) || a.sequence - b.sequence);
    for (const record of records) {
      if (record.generation !== generation) {
        await removeSessionRecord(directory, record.sessionId);
        continue;
      }
      this.#sequence = Math.max(this.#sequence, record.sequence);
      const entry = new SessionEntry(record, clock);
      (entry.isLive ? this.#live : this.#ended).set(record.sessionId, entry);
    }
  }

  async #saveFirst(entry: SessionEntry): Promise<void> {
    try {
      await this.save(entry);
    } catch (error) {
      this.#drop(entry);
      rethrowDiskFull(error);
    }
  }

  #drop(entry: SessionEntry): void {
    const { sessionId, name } = entry.record;
    this.#live.delete(sessionId);
    this.#ended.delete(sessionId);
    entry.queue.close(() => notFound(name ?? sessionId));
  }

  /** Compares with what init remembers. A record of a start that never reached init goes. */
  async #settle(connection: ControlConnection): Promise<void> {
    if (this.#live.size === 0) return;
    // Chosen before init makes its list, which need not have what is started meanwhile.
    const waiting = [...this.#live.values()].filter(({ isStarting }) => !isStarting);
    const ended = new Set<string>();
    this.#endedMeanwhile = ended;
    try {
      const runs = new Map((await connection.listRuns()).map((run) => [run.run, run]));
      for (const [run, release] of this.#inherited) if (runs.get(run)?.state !== 'running') release();
      for (const run of runs.values()) this.#takeOwn(run);
      for (const entry of waiting) if (!runs.has(entry.record.sessionId)) await this.#miss(entry);
      const commands = [...runs.values()].filter(({ kind, state }) => kind === 'in session' && state === 'running');
      for (const command of commands) if (!ended.has(command.run)) this.#inherit(command);
    } finally {
      this.#endedMeanwhile = undefined;
    }
  }

  async #runOf(entry: SessionEntry): Promise<RunEntry | undefined> {
    const runs = await this.#options.client?.control((connection) => connection.listRuns());
    return runs?.find(({ run }) => run === entry.record.sessionId);
  }

  /** Init, which knows of every start that it answered, does not have it. */
  async #miss(entry: SessionEntry): Promise<void> {
    if (entry.record.pid === null) await this.remove(entry);
    // Init remembers so many that have ended, and it is not among them.
    else this.end(entry, unseenEnd('crashed', this.#options.clock.nowMs()));
  }

  /** It has its turn, as if this node had begun it: whoever comes waits behind it. */
  #inherit({ run, session }: RunEntry): void {
    const entry = session !== null && isId('session', session) ? this.#live.get(session) : undefined;
    if (entry === undefined || entry.queue.current !== null) return;
    const over = Promise.withResolvers<void>();
    this.#inherited.set(run, over.resolve);
    const turn = entry.queue.run({ runId: run, timeoutMs: null }, async () => {
      await Promise.race([over.promise, entry.ended]);
      this.#inherited.delete(run);
    });
    turn.catch(() => {});
  }

  #take(run: RunEntry): void {
    if (run.state !== 'running') {
      this.#endedMeanwhile?.add(run.run);
      this.#inherited.get(run.run)?.();
    }
    this.#takeOwn(run);
  }

  /** What init tells of a session's shell. */
  #takeOwn(run: RunEntry): void {
    const entry = isId('session', run.run) ? this.#live.get(run.run) : undefined;
    if (entry === undefined) return;
    entry.take(run);
    if (!entry.isLive) this.#moveToEnded(entry);
  }

  #moveToEnded(entry: SessionEntry): void {
    const { sessionId } = entry.record;
    if (!this.#live.delete(sessionId)) return;
    this.#ended.set(sessionId, entry);
    this.#inBackground(this.save(entry));
    const [oldest] = this.#ended.values();
    if (oldest !== undefined && this.#ended.size > sessionLimits.ended) this.#inBackground(this.remove(oldest));
  }

  #inBackground(work: Promise<void>): void {
    const logged = work.catch((error: unknown) =>
      this.#options.log.error('The end of a session could not be kept.', { error }),
    );
    this.#work.add(logged);
    void logged.then(() => this.#work.delete(logged));
  }
}

function notFound(session: string): PlatformError {
  const message = `There is no session "${session}" in this sandbox. Create it first.`;
  return new PlatformError('session_not_found', message, { details: { session } });
}
