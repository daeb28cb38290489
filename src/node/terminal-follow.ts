/**
 * The output of one terminal for one reader, from a place on.
 *
 * Invariants:
 *  - What follows a place follows it without gap or duplicate. What begins in the middle, because a reader fell behind what is kept or
 *    asked for the newest only, begins outside of any escape sequence or character as far as that can be seen.
 *  - The reader holds nobody back: its queue is the journal, which is bounded, and what was removed from it is told as `dropped`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { characterStart, safeStart } from '../base/index.ts';
import { JournalReader } from '../execution/index.ts';
import type { FollowTerminalOrder, ProcessItem, TerminalItem, TerminalPlace } from '../protocol/index.ts';
import type { ProcessEntry } from './process-entry.ts';
import { followProcess } from './process-follow.ts';
import type { ProcessTable } from './process-table.ts';

/** How much is looked through for a good place to begin, and how long more is waited for. */
const searchBytes = 64 * 1024;
const searchMs = 100;

export async function* followTerminal(
  table: ProcessTable,
  entry: ProcessEntry,
  order: Pick<FollowTerminalOrder, 'from' | 'replayBytes'>,
  signal: AbortSignal,
): AsyncGenerator<TerminalItem, void> {
  const from = order.from ?? (await newest(table, entry, order.replayBytes));
  // Behind the end of its program only the program's children write; whoever comes then hears of the end at once.
  const isOver = entry.record.exit !== null;
  const over = new AbortController();
  const within = AbortSignal.any([signal, over.signal]);
  const items = followProcess(table, entry, { cursor: from.cursor, live: !isOver, holds: false }, within);
  const reading = new Reading(from, { isBegun: order.from !== null });
  let next = items.next();
  try {
    // The very beginning is a good place.
    if (from.cursor + from.skip === 0) yield* reading.giveUp();
    for (;;) {
      const result = reading.isSearching ? await Promise.race([next, quiet(within)]) : await next;
      if (result === 'quiet') {
        yield* reading.giveUp();
        continue;
      }
      if (result.done || result.value.kind === 'exited' || result.value.kind === 'ended') break;
      yield* reading.take(result.value);
      next = items.next();
    }
    const { exit } = entry.record;
    if (within.aborted || exit === null) return;
    yield* reading.giveUp();
    yield { kind: 'exited', exit, place: reading.place };
  } finally {
    over.abort();
    next.catch(() => {}); // Whoever was here has left.
    await items.return();
  }
}

async function quiet(signal: AbortSignal): Promise<'quiet'> {
  return await delay(searchMs, 'quiet' as const, { signal }).catch(() => 'quiet' as const);
}

/** The beginning of about so much of the newest output. */
async function newest(table: ProcessTable, entry: ProcessEntry, bytes: number): Promise<TerminalPlace> {
  const reader = JournalReader.open(table.journalOf(entry.record.processId));
  try {
    return (await reader?.newest(bytes)) ?? { cursor: 0, skip: 0 };
  } finally {
    reader?.close();
  }
}

type OutputItem = Extract<ProcessItem, { kind: 'output' | 'dropped' }>;

interface Held {
  readonly start: TerminalPlace;
  readonly bytes: Uint8Array;
}

/** Turns items of the journal into those of a terminal. */
class Reading {
  #place: TerminalPlace;
  /** Output that the reader has already. */
  #skip: number;
  /** What was lost before `#held`, while a place to go on is looked for. */
  #lost: number | undefined;
  #held: Held[] = [];
  #isBegun: boolean;

  constructor(from: TerminalPlace, options: { readonly isBegun: boolean }) {
    this.#place = { cursor: from.cursor, skip: 0 };
    this.#skip = from.skip;
    this.#isBegun = options.isBegun;
    if (!this.#isBegun) this.#lost = 0;
  }

  get place(): TerminalPlace {
    return this.#place;
  }

  get isSearching(): boolean {
    return this.#lost !== undefined;
  }

  *take(item: OutputItem): Generator<TerminalItem, void> {
    const start = this.#place.cursor;
    this.#place = { cursor: item.cursor, skip: 0 };
    if (item.kind === 'dropped') {
      this.#lost = (this.#lost ?? 0) + item.bytes + heldBytes(this.#held);
      this.#held = [];
      this.#skip = 0;
      return;
    }
    const known = Math.min(this.#skip, item.bytes.byteLength);
    this.#skip -= known;
    if (known === item.bytes.byteLength) return;
    const fresh = item.bytes.subarray(known);
    if (this.#lost === undefined) yield { kind: 'output', bytes: fresh, place: this.#place };
    else {
      this.#held.push({ start: { cursor: start, skip: known }, bytes: fresh });
      const bytes = Buffer.concat(this.#held.map((one) => one.bytes));
      const at = safeStart(bytes);
      if (at !== undefined) yield* this.#begin(bytes, at);
      else if (bytes.byteLength >= searchBytes) yield* this.giveUp();
    }
  }

  /** There is no good place in what there is: it begins with a character. */
  *giveUp(): Generator<TerminalItem, void> {
    if (this.#lost === undefined) return;
    const bytes = Buffer.concat(this.#held.map((one) => one.bytes));
    yield* this.#begin(bytes, characterStart(bytes));
  }

  *#begin(bytes: Uint8Array, at: number): Generator<TerminalItem, void> {
    const lost = this.#lost ?? 0;
    const place = placeIn(this.#held, at) ?? this.#place;
    this.#lost = undefined;
    this.#held = [];
    yield this.#isBegun ? { kind: 'dropped', bytes: lost + at, place } : { kind: 'begun', place };
    this.#isBegun = true;
    if (at < bytes.byteLength) yield { kind: 'output', bytes: bytes.subarray(at), place: this.#place };
  }
}

function heldBytes(held: readonly Held[]): number {
  return held.reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
}

/** Where in the journal the byte `at` of what is held stands; `undefined`: behind all of it. */
function placeIn(held: readonly Held[], at: number): TerminalPlace | undefined {
  let before = 0;
  for (const { start, bytes } of held) {
    if (at < before + bytes.byteLength) return { cursor: start.cursor, skip: start.skip + at - before };
    before += bytes.byteLength;
  }
  return undefined;
}
