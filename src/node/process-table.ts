/**
 * The processes, or the terminals, of one life of one sandbox: what is on disk, what init tells, and what is forgotten when.
 *
 * Invariants:
 *  - Every entry has a record on disk, written before the process was started.
 *  - An entry that lives is in #live; one whose tree has ended is in #ended, until retention or its owner removes it.
 *  - Nothing of another life is here: `open` removes what earlier lives left.
 */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Clock, KeyedMutex, type Logger, type SmallFiles } from '../base/index.ts';
import { type ControlConnection, type InitClient, JournalReader, type RunEntry } from '../execution/index.ts';
import { isId, type OutputRange, PlatformError } from '../protocol/index.ts';
import { rethrowDiskFull } from './disk-full.ts';
import { exitOf, ProcessEntry, unseenExit } from './process-entry.ts';
import { ProcessFeed } from './process-feed.ts';
import {
  journalsDirectory,
  listJournals,
  type ProcessRecord,
  processRecordFiles,
  type RunId,
  type RunKind,
  readProcessRecords,
  removeProcessRecord,
  writeProcessRecord,
} from './process-record.ts';

/** Ended processes that are kept, with their output. */
export const retention = { ended: 500, endedMs: 24 * 3600 * 1000, endedBytes: 1024 ** 3 } as const;

/** How long after a start the file of the next one is made, where the process has not ended by then. */
const prepareMs = 50;
/** Long enough for the answer to a start to have left. */
const saveLaterMs = 5;

export interface TableOptions {
  readonly directory: string;
  /** Each kind has records and a table of its own. */
  readonly kind?: RunKind;
  readonly retention?: Record<keyof typeof retention, number>;
  readonly generation: number;
  /** `undefined`: the life is over. */
  readonly client: InitClient | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  /** Removes a tree without following anything in it. */
  readonly removeTree: (path: string) => Promise<void>;
}

export class ProcessTable {
  readonly #options: TableOptions;
  readonly #kind: RunKind;
  readonly #retention: Record<keyof typeof retention, number>;
  readonly #live = new Map<RunId, ProcessEntry>();
  readonly #ended = new Map<RunId, ProcessEntry>();
  readonly #work = new Set<Promise<void>>();
  readonly #files: SmallFiles;
  #prepareTimer: NodeJS.Timeout | undefined;
  /** Guards the file of one record: writers share a temporary name. Rank 4; nothing is taken inside. */
  readonly #fileLock = new KeyedMutex<RunId>({ name: 'process file', rank: 4 });
  readonly #over = new AbortController();
  #feed: ProcessFeed | undefined;
  #sequence = 0;

  private constructor(options: TableOptions) {
    this.#options = options;
    this.#kind = options.kind ?? 'process';
    this.#files = processRecordFiles(options.directory, this.#kind);
    this.#retention = options.retention ?? retention;
  }

  static async open(options: TableOptions): Promise<ProcessTable> {
    const table = new ProcessTable(options);
    await table.#load();
    const { client } = options;
    if (client === undefined) await table.endLife();
    else {
      table.#feed = await ProcessFeed.open(client, {
        onOpen: (connection) => table.#settle(connection),
        onEvent: (run) => table.#take(run),
      });
    }
    await table.trim();
    return table;
  }

  get directory(): string {
    return this.#options.directory;
  }

  /** Refuses when the life is over. */
  get feed(): ProcessFeed {
    if (this.#feed !== undefined) return this.#feed;
    throw new PlatformError('sandbox_wrong_state', 'The sandbox does not run.', { details: { state: 'stopped' } });
  }

  /** Aborts when the life is over or the table is closed. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get isOver(): boolean {
    return this.#feed === undefined;
  }

  get live(): readonly ProcessEntry[] {
    return [...this.#live.values()];
  }

  /** What lives, then what does not, the newest first in each. */
  inOrder(): ProcessEntry[] {
    const newestFirst = (a: ProcessEntry, b: ProcessEntry) => b.record.sequence - a.record.sequence;
    return [...[...this.#live.values()].sort(newestFirst), ...[...this.#ended.values()].sort(newestFirst)];
  }

  find(process: string): ProcessEntry | undefined {
    if (isId(this.#kind, process)) return this.#live.get(process) ?? this.#ended.get(process);
    return this.inOrder().find(({ record }) => record.name === process);
  }

  get(process: string): ProcessEntry {
    const found = this.find(process);
    if (found !== undefined) return found;
    throw new PlatformError(`${this.#kind}_not_found`, `There is no ${this.#kind} "${process}" in this sandbox.`);
  }

  /** Takes the name before the first await, so that two starts with one name cannot both have it. Whoever starts it says when that is over. */
  async add(record: Omit<ProcessRecord, 'sequence'>): Promise<ProcessEntry> {
    const { name, processId } = record;
    if (name !== null && this.live.some((entry) => entry.record.name === name && !this.#isNameFree(entry))) {
      throw new PlatformError('process_exists', `A process named "${name}" runs.`, { details: { name } });
    }
    const entry = new ProcessEntry({ ...record, sequence: ++this.#sequence });
    entry.isStarting = true;
    this.#live.set(processId, entry);
    try {
      await this.save(entry, { isNew: true });
    } catch (error) {
      this.#live.delete(processId);
      rethrowDiskFull(error);
    }
    this.#prepareLater(prepareMs);
    return entry;
  }

  /** After a start whose answer was lost: whether init has it. One that it does not have is forgotten. */
  async adopt(entry: ProcessEntry): Promise<boolean> {
    const { client } = this.#options;
    const runs = await client?.control((connection) => connection.listRuns());
    const run = runs?.find((one) => one.run === entry.record.processId);
    if (run === undefined) await this.remove(entry);
    else this.#take(run);
    return run !== undefined;
  }

  /** Writes what the entry is by then; of one that was removed meanwhile, nothing. */
  async save(entry: ProcessEntry, options = { isNew: false }): Promise<void> {
    const { processId } = entry.record;
    await this.#fileLock.run(processId, async () => {
      if (this.find(processId) === entry) writeProcessRecord(this.#files, entry.record, options);
    });
  }

  /** As `save`, when nobody waits for the answer any more. If the node dies before, init tells what it would have kept. */
  saveLater(entry: ProcessEntry): void {
    this.#inBackground(delay(saveLaterMs).then(() => this.save(entry)));
  }

  /** Forgets it with its output. */
  async remove(entry: ProcessEntry): Promise<void> {
    const { processId } = entry.record;
    this.#live.delete(processId);
    this.#ended.delete(processId);
    await this.#fileLock.run(processId, () => removeProcessRecord(this.directory, processId));
    await this.#options.removeTree(this.journalOf(processId));
  }

  journalOf(processId: RunId): string {
    return join(journalsDirectory(this.directory), processId);
  }

  /** The output that is kept, from the files: the same whether or not init is there. */
  async rangeOf(entry: ProcessEntry): Promise<OutputRange> {
    if (entry.record.output !== null) return entry.record.output;
    const reader = JournalReader.open(this.journalOf(entry.record.processId));
    if (reader === undefined) return { first: 0, end: 0 };
    try {
      return await reader.range();
    } finally {
      reader.close();
    }
  }

  /** Whether nothing will be written behind `at` any more, for a process whose tree has ended. */
  async isComplete(entry: ProcessEntry, at: number): Promise<boolean> {
    const { client } = this.#options;
    if (this.#feed === undefined || client === undefined) return true;
    try {
      const state = await client.control((connection) => connection.journalState(entry.record.processId));
      return state.isComplete && at >= state.end;
    } catch {
      return true; // Init remembers 10,000 that have ended, and this one is not among them; or it is gone.
    }
  }

  /** Nothing of it is left, as init or its journal told. */
  async endTree(entry: ProcessEntry, atMs: number): Promise<void> {
    if (entry.isLive) await this.#moveToEnded(entry, { atMs, output: await this.rangeOf(entry) });
  }

  /** Init is gone: what it wrote last is what is known, and nothing is made up for the rest. */
  async endLife(): Promise<void> {
    clearTimeout(this.#prepareTimer);
    const feed = this.#feed;
    this.#feed = undefined;
    await feed?.close();
    // Ends that init told of and that are being kept: whoever ends a life may remove its directory next.
    await Promise.all(this.#work);
    for (const entry of this.live) await this.#settleFromJournal(entry, { isOver: true });
    this.#over.abort();
  }

  async close(): Promise<void> {
    this.#over.abort();
    clearTimeout(this.#prepareTimer);
    await this.#feed?.close();
    await Promise.all(this.#work);
  }

  /** Removes ended ones beyond what is kept: the oldest ends first. */
  async trim(): Promise<void> {
    const kept = this.#retention;
    const oldestMs = this.#options.clock.nowMs() - kept.endedMs;
    let bytes = 0;
    let count = 0;
    for (const entry of [...this.#ended.values()].reverse()) {
      const { treeEndedAtMs, output } = entry.record;
      bytes += output === null ? 0 : output.end - output.first;
      count++;
      const isKept = count <= kept.ended && bytes <= kept.endedBytes && (treeEndedAtMs ?? 0) >= oldestMs;
      if (!isKept && entry.followers === 0) await this.remove(entry);
    }
  }

  /** A terminal is over with its program, whatever still runs of its tree. */
  #isNameFree({ record }: ProcessEntry): boolean {
    return this.#kind === 'terminal' && record.exit !== null;
  }

  async #load(): Promise<void> {
    const known = new Set<RunId>();
    const records = await readProcessRecords(this.directory, this.#kind);
    // In the order they ended, which is the order in which they are forgotten.
    records.sort((a, b) => (a.treeEndedAtMs ?? 0) - (b.treeEndedAtMs ?? 0) || a.sequence - b.sequence);
    for (const record of records) {
      if (record.generation !== this.#options.generation) {
        await removeProcessRecord(this.directory, record.processId);
        continue;
      }
      known.add(record.processId);
      this.#sequence = Math.max(this.#sequence, record.sequence);
      (record.treeEndedAtMs === null ? this.#live : this.#ended).set(record.processId, new ProcessEntry(record));
    }
    for (const name of await listJournals(this.directory, this.#kind)) {
      if (!known.has(name)) await this.#options.removeTree(this.journalOf(name));
    }
  }

  /** Compares with what init remembers. A record of a start that never reached init goes. */
  async #settle(connection: ControlConnection): Promise<void> {
    if (this.#live.size === 0) return;
    // Chosen before init makes its list, which need not have what is started meanwhile.
    const waiting = this.live.filter(({ isStarting }) => !isStarting);
    const runs = new Map((await connection.listRuns()).map((run) => [run.run, run]));
    for (const run of runs.values()) this.#take(run);
    for (const entry of waiting) {
      if (!runs.has(entry.record.processId)) await this.#settleFromJournal(entry, { isOver: false });
    }
  }

  #take(run: RunEntry): void {
    const entry = isId(this.#kind, run.run) ? this.#live.get(run.run) : undefined;
    if (entry === undefined) return;
    entry.take(run);
    this.#inBackground(run.state === 'ended' ? this.#endTree(entry) : this.save(entry));
  }

  async #endTree(entry: ProcessEntry): Promise<void> {
    await this.endTree(entry, this.#options.clock.nowMs());
  }

  async #moveToEnded(entry: ProcessEntry, end: { readonly atMs: number; readonly output: OutputRange }): Promise<void> {
    const { processId } = entry.record;
    if (!this.#live.delete(processId)) return;
    this.#ended.set(processId, entry);
    entry.treeEnded(end.atMs, end.output);
    if (this.#prepareTimer !== undefined) this.#prepareLater(0);
    await this.save(entry);
    await this.trim();
  }

  /** `isOver`: the life has ended, so what the journal does not tell nobody saw. */
  async #settleFromJournal(entry: ProcessEntry, options: { readonly isOver: boolean }): Promise<void> {
    const { record } = entry;
    const reader = JournalReader.open(this.journalOf(record.processId));
    if (reader === undefined) {
      // Never started, if init never said that it was.
      if (record.pid === null) return await this.remove(entry);
      if (!options.isOver) return;
    }
    const nowMs = this.#options.clock.nowMs();
    let treeEndedAtMs: number | undefined;
    let output: OutputRange = { first: 0, end: 0 };
    try {
      for (let at = 0; reader !== undefined; ) {
        const { records, next } = await reader.read(at);
        if (records.length === 0) break;
        at = next;
        for (const one of records) {
          const { kind, bootMs } = one;
          if (kind === 'leader ended') entry.exited(exitOf(record, { ...one, endedBootMs: bootMs }));
          if (kind === 'tree ended') treeEndedAtMs = record.bootedAtMs + bootMs;
        }
      }
      if (reader !== undefined) output = await reader.range();
    } catch (error) {
      this.#options.log.warn('A journal cannot be read.', { processId: record.processId, error });
    } finally {
      reader?.close();
    }
    if (treeEndedAtMs === undefined && !options.isOver) return;
    entry.exited(unseenExit(nowMs));
    await this.#moveToEnded(entry, { atMs: treeEndedAtMs ?? nowMs, output });
  }

  /** The file of the next record is made when nobody waits for this process any more. */
  #prepareLater(delayMs: number): void {
    clearTimeout(this.#prepareTimer);
    if (this.#over.signal.aborted) return;
    this.#prepareTimer = setTimeout(() => {
      this.#prepareTimer = undefined;
      this.#inBackground(this.#files.prepare());
    }, delayMs).unref();
  }

  #inBackground(work: Promise<void>): void {
    const logged = work.catch((error: unknown) =>
      this.#options.log.error('What became of a process could not be kept.', { error }),
    );
    this.#work.add(logged);
    void logged.then(() => this.#work.delete(logged));
  }
}
