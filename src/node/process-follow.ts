/**
 * The output of one process from a cursor on: what is kept, then what comes, until its tree has ended.
 *
 * Invariants:
 *  - Every item follows the one before it without gap or duplicate; what was removed in between is told as `dropped`.
 *  - While a live reader takes what it is given, init holds the process back rather than remove what the reader has not seen. One that
 *    takes nothing for `stallMs` holds nobody.
 */
import { JournalReader, type JournalRecord, watcherNumber } from '../execution/index.ts';
import { type FollowProcessOrder, PlatformError, type ProcessItem } from '../protocol/index.ts';
import { exitOf, type ProcessEntry } from './process-entry.ts';
import type { Follower } from './process-feed.ts';
import type { ProcessTable } from './process-table.ts';

/** Init forgets a reader five seconds after it last asked. */
const holdMs = 2_000;
const stallMs = 60_000;

/** `holds`: whether the process waits for a reader that is behind; else such a reader loses what is removed meanwhile. */
type FollowFrom = Pick<FollowProcessOrder, 'cursor' | 'live'> & { readonly holds?: boolean };

export async function* followProcess(
  table: ProcessTable,
  entry: ProcessEntry,
  order: FollowFrom,
  signal: AbortSignal,
): AsyncGenerator<ProcessItem, void> {
  const reader = JournalReader.open(table.journalOf(entry.record.processId));
  const hold = new Hold(table, entry, order);
  entry.followers++;
  try {
    if (reader === undefined && entry.isLive) {
      throw new PlatformError('sandbox_unavailable', 'The output of the process is not there yet.');
    }
    await reader?.check(order.cursor);
    yield* new Follow({ table, entry, reader, hold, signal, live: order.live }).items(order.cursor);
  } finally {
    entry.followers--;
    hold.end();
    reader?.close();
  }
}

interface FollowParts {
  readonly table: ProcessTable;
  readonly entry: ProcessEntry;
  /** `undefined` when nothing was ever written. */
  readonly reader: JournalReader | undefined;
  readonly hold: Hold;
  readonly signal: AbortSignal;
  readonly live: boolean;
}

class Follow {
  readonly #parts: FollowParts;

  constructor(parts: FollowParts) {
    this.#parts = parts;
  }

  async *items(cursor: number): AsyncGenerator<ProcessItem, void> {
    const { table, entry, reader, hold, signal, live } = this.#parts;
    // From the beginning on, of one that lives: it may just have begun, and have said nothing.
    for (let at = cursor, isBehind = cursor > 0; !signal.aborted; ) {
      // Init knows when there is more; a look at the files that finds nothing costs more than the question.
      if (!isBehind && live && entry.isLive) await hold.more(at, signal);
      // Looked at before the read: what was written until then is in it.
      const isOver = !entry.isLive;
      const part = await reader?.read(at);
      if (part !== undefined && part.removedBytes > 0) {
        at += part.removedBytes;
        yield { kind: 'dropped', bytes: part.removedBytes, cursor: at };
      }
      for (const record of part?.records ?? []) {
        at = hold.at(record.end);
        if (record.kind === 'leader ended' || record.kind === 'tree ended') await this.#note(record);
        yield itemOf(entry, record);
        if (record.kind === 'tree ended' || signal.aborted) return;
      }
      isBehind = part === undefined || part.records.length === 0 || part.isFull;
      if (part !== undefined && part.records.length > 0) continue;
      if (isOver && (await table.isComplete(entry, at))) return yield* unseenEnd(entry, at);
      if (!live) return;
      await hold.more(at, signal);
    }
  }

  /** The journal may tell an end before init's event does; whoever read it finds it in the record too. */
  async #note(record: JournalRecord): Promise<void> {
    const { table, entry } = this.#parts;
    if (record.kind === 'leader ended') entry.exited(exitOf(entry.record, { ...record, endedBootMs: record.bootMs }));
    if (record.kind === 'tree ended') await table.endTree(entry, entry.record.bootedAtMs + record.bootMs);
  }
}

/** The sandbox ended before init could write the end of the process: its record tells it. */
function* unseenEnd(entry: ProcessEntry, cursor: number): Generator<ProcessItem, void> {
  const { exit } = entry.record;
  if (exit !== null && exit.exitCode === null) yield { kind: 'exited', exit, cursor };
  yield { kind: 'ended', cursor };
}

function itemOf(entry: ProcessEntry, record: JournalRecord): ProcessItem {
  const cursor = record.end;
  switch (record.kind) {
    case 'stdout':
    case 'stderr':
      return { kind: 'output', stream: record.kind, bytes: record.bytes, cursor };
    case 'leader ended':
      return { kind: 'exited', exit: exitOf(entry.record, { ...record, endedBootMs: record.bootMs }), cursor };
    case 'tree ended':
      return { kind: 'ended', cursor };
    case 'dropped':
      return { kind: 'dropped', bytes: record.lostBytes, cursor };
  }
}

/** Where a live reader is, as init knows it: told while the reader is busy, and when it waits for more. */
class Hold {
  readonly #table: ProcessTable;
  readonly #entry: ProcessEntry;
  readonly #follower: Follower;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #first: NodeJS.Immediate | undefined;
  #at: number;
  #movedAt = performance.now();
  #isAsking = false;

  constructor(table: ProcessTable, entry: ProcessEntry, order: FollowFrom) {
    this.#table = table;
    this.#entry = entry;
    this.#at = order.cursor;
    const { holds = true } = order;
    const isHeld = holds && order.live && entry.isLive && !table.isOver;
    this.#follower = isHeld ? table.feed.newFollower() : { number: holds ? 0 : watcherNumber };
    if (!isHeld) return;
    // Behind the first read: where that finds nothing, the question for more tells it too.
    this.#first = setImmediate(() => void this.#tell());
    this.#timer = setInterval(() => void this.#tell(), holdMs);
  }

  at(position: number): number {
    this.#at = position;
    this.#movedAt = performance.now();
    return position;
  }

  /** Until there is more, or the life or the reading is over. */
  async more(at: number, signal: AbortSignal): Promise<void> {
    if (this.#table.isOver) return;
    this.#isAsking = true;
    const over = AbortSignal.any([signal, this.#table.over]);
    await this.#table.feed.beyond(this.#entry.record.processId, at, { follower: this.#follower, signal: over });
    this.#isAsking = false;
    this.at(at);
  }

  end(): void {
    clearImmediate(this.#first);
    clearInterval(this.#timer);
  }

  async #tell(): Promise<void> {
    const isStalled = performance.now() - this.#movedAt > stallMs;
    if (this.#isAsking || isStalled || !this.#entry.isLive || this.#table.isOver) return;
    this.#isAsking = true;
    await this.#table.feed.touch(this.#entry.record.processId, this.#at, this.#follower);
    this.#isAsking = false;
  }
}
