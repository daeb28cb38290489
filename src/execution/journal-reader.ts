/**
 * Reads the journal of one process: segment files, each named by the offset of its first byte, written by init and removed by it from
 * the oldest on. Init is not trusted: no symlink is followed, nothing but regular files is read, and everything is bounded. Files are opened
 * without leaving the thread: their names were just written, and whoever waits for the first byte of a process waits for each trip.
 *
 * Invariants:
 *  - What `read` hands out for a cursor follows it without gap or duplicate; what init has removed is one item `removed`.
 *  - A cursor is a record boundary: `check` refuses any other, and `next` is always one.
 */
import { closeSync, constants, fstatSync, openSync, read, readSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { MalformedFrame } from '../base/index.ts';
import { PlatformError } from '../protocol/index.ts';
import {
  type JournalRecord,
  parseRecord,
  payloadLimitBytes,
  recordHeaderBytes,
  recordLength,
} from './journal-format.ts';

/** Read at once: four records, where they are as long as can be. */
const readBytes = 4 * (recordHeaderBytes + payloadLimitBytes);
/** From this on a read keeps its memory to itself; what is shorter is copied out of it. */
const largeBytes = payloadLimitBytes;
/** Init makes segments of at most 1 MiB; more than this is not one. */
const segmentLimitBytes = 2 * 1024 * 1024;
/** 4 GiB in segments of 1 MiB, and some that are being replaced. */
const segmentsMax = 8_192;
/** How often a segment may vanish while it is looked for. */
const attemptsMax = 20;

export interface JournalPart {
  /** Bytes of the journal that stood between the cursor and the first record here, and are no longer kept. */
  readonly removedBytes: number;
  readonly records: readonly JournalRecord[];
  readonly next: number;
  /** Only its size ended the read: there is more now. */
  readonly isFull: boolean;
}

export class JournalReader {
  readonly #directory: number;
  /** The segment that was read last, kept open: most reads are of more of it. `isNewest` when it was opened. */
  #current: { readonly start: number; readonly file: number; readonly isNewest: boolean } | undefined;
  #room: Buffer | undefined;

  private constructor(directory: number) {
    this.#directory = directory;
  }

  /** `undefined` when there is no such journal. */
  static open(path: string): JournalReader | undefined {
    try {
      return new JournalReader(
        openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK),
      );
    } catch (error) {
      if (isCode(error, 'ENOENT', 'ELOOP', 'ENOTDIR')) return undefined;
      throw error;
    }
  }

  close(): void {
    this.#letGo();
    closeSync(this.#directory);
  }

  /** Where about so many bytes of the newest output begin: a record, and how much of it is older. */
  async newest(bytes: number): Promise<{ readonly cursor: number; readonly skip: number }> {
    for (let attempt = 0; ; attempt++) {
      const { first, end } = await this.range();
      const until = end - bytes;
      if (until <= first) return { cursor: first, skip: 0 };
      const segment = (await this.#segments()).findLast((start) => start <= until);
      const found =
        segment === undefined
          ? undefined
          : await this.#withSegment(segment, (file) => walk(file, { from: segment, until, stop: 'before' }));
      if (found !== undefined) return { cursor: found, skip: Math.max(0, until - found - recordHeaderBytes) };
      if (attempt >= attemptsMax) throw vanishing();
    }
  }

  /** What is kept, as far as whole records go. */
  async range(): Promise<{ readonly first: number; readonly end: number }> {
    for (let attempt = 0; ; attempt++) {
      const segments = await this.#segments();
      const [first] = segments;
      const last = segments.at(-1);
      if (first === undefined || last === undefined) return { first: 0, end: 0 };
      const end = await this.#withSegment(last, (file) => walk(file, { from: last, until: Number.POSITIVE_INFINITY }));
      if (end !== undefined) return { first, end };
      if (attempt >= attemptsMax) throw vanishing();
    }
  }

  /** Refuses a cursor that is beyond the end, or within a record. One that is before what is kept is good. */
  async check(cursor: number): Promise<void> {
    if (cursor === 0) return;
    for (let attempt = 0; ; attempt++) {
      const segments = await this.#segments();
      if (cursor < (segments[0] ?? 0)) return;
      const segment = segments.findLast((start) => start <= cursor);
      if (segment === undefined) throw badCursor(cursor);
      const reached = await this.#withSegment(segment, (file) => walk(file, { from: segment, until: cursor }));
      if (reached === cursor) return;
      if (reached !== undefined) throw badCursor(cursor);
      if (attempt >= attemptsMax) throw vanishing();
    }
  }

  /** What follows the cursor now: at least one record if there is one. */
  async read(cursor: number): Promise<JournalPart> {
    const more = await this.#readOn(cursor);
    if (more !== undefined) return more;
    const begun = this.#readBeginning(cursor);
    if (begun !== undefined) return begun;
    for (let attempt = 0; ; attempt++) {
      const segments = await this.#segments();
      const first = segments[0];
      if (first === undefined) return { removedBytes: 0, records: [], next: cursor, isFull: false };
      const from = Math.max(cursor, first);
      const index = segments.findLastIndex((start) => start <= from);
      const part = await this.#readSegment(segments[index]!, { from, following: segments[index + 1] });
      if (part !== undefined) return { ...part, removedBytes: from - cursor };
      if (attempt >= attemptsMax) throw vanishing();
    }
  }

  /** `undefined` when it is gone. */
  async #readSegment(
    segment: number,
    options: { readonly from: number; readonly following: number | undefined },
  ): Promise<Omit<JournalPart, 'removedBytes'> | undefined> {
    const { from, following } = options;
    this.#letGo();
    const file = this.#open(segment);
    if (file === undefined) return undefined;
    this.#current = { start: segment, file, isNewest: following === undefined };
    const bytes = await readAt(file, { position: from - segment, length: readBytes });
    const { records, next } = recordsIn(bytes, from);
    if (following !== undefined && next > following) throw new MalformedFrame('A segment reaches into the next one.');
    // The list may be older than what was read, so a segment that ends early was not yet complete, or it is broken.
    if (records.length === 0 && following !== undefined) {
      throw new MalformedFrame(`A journal has a gap at ${next}; the next segment begins at ${following}.`);
    }
    return { records, next, isFull: bytes.byteLength === readBytes };
  }

  /** Where reading begins with a segment, as it does for whoever follows a new process, that one need not be looked for. */
  #readBeginning(cursor: number): JournalPart | undefined {
    if (this.#current !== undefined) return undefined;
    const file = this.#open(cursor);
    if (file === undefined) return undefined;
    // Whether another one follows shows when this one has no more.
    this.#current = { start: cursor, file, isNewest: true };
    return partOf(this.#readNow(file, 0), cursor);
  }

  /** More of the segment that was read last; `undefined` when that is nothing. One that init has removed is still there for who holds it. */
  async #readOn(cursor: number): Promise<JournalPart | undefined> {
    if (this.#current === undefined) return undefined;
    const { start, file, isNewest } = this.#current;
    const position = cursor - start;
    if (position < 0 || position >= segmentLimitBytes) return undefined;
    if (isNewest) return partOf(this.#readNow(file, position), cursor);
    return partOf(await readAt(file, { position, length: readBytes }), cursor);
  }

  /** The kernel has what was just written in memory: to hand this to a thread takes many times longer than to do it. */
  #readNow(file: number, position: number): Buffer {
    const room = this.#room ?? Buffer.allocUnsafeSlow(readBytes);
    const bytes = room.subarray(0, readSync(file, room, 0, readBytes, position));
    const isLarge = bytes.byteLength >= largeBytes;
    this.#room = isLarge ? undefined : room;
    return isLarge ? bytes : Buffer.from(bytes);
  }

  #letGo(): void {
    const file = this.#current?.file;
    this.#current = undefined;
    if (file !== undefined) closeSync(file);
  }

  async #segments(): Promise<number[]> {
    const names = await readdir(this.#path()).catch((error: unknown) => {
      if (isCode(error, 'ENOENT')) return [];
      throw error;
    });
    const starts: number[] = [];
    for (const name of names) {
      const start = /^[0-9a-f]{16}$/.test(name) ? Number(`0x${name}`) : Number.NaN;
      if (Number.isSafeInteger(start)) starts.push(start);
      if (starts.length > segmentsMax) throw new MalformedFrame('A journal has too many segments.');
    }
    return starts.sort((a, b) => a - b);
  }

  async #withSegment<Result>(start: number, work: (file: number) => Promise<Result>): Promise<Result | undefined> {
    const file = this.#open(start);
    if (file === undefined) return undefined;
    try {
      return await work(file);
    } finally {
      closeSync(file);
    }
  }

  /** `undefined` when it is gone. The caller closes it. */
  #open(start: number): number | undefined {
    let file: number;
    try {
      // A FIFO of this name must not hold us, and a symlink must not lead us.
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      file = openSync(join(this.#path(), start.toString(16).padStart(16, '0')), flags);
    } catch (error) {
      if (isCode(error, 'ENOENT')) return undefined;
      throw error;
    }
    try {
      const stat = fstatSync(file);
      if (stat.isFile() && stat.size <= segmentLimitBytes) return file;
      throw new MalformedFrame('A segment is no file of a journal.');
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }

  /** Through the descriptor: a directory that is renamed or replaced meanwhile is still the same one. */
  #path(): string {
    return `/proc/self/fd/${this.#directory}`;
  }
}

const readFrom = promisify(read);

async function readAt(
  file: number,
  { position, length }: { readonly position: number; readonly length: number },
): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(length);
  const { bytesRead } = await readFrom(file, bytes, 0, length, position);
  return bytes.subarray(0, bytesRead);
}

/** `undefined` when there is none. */
function partOf(bytes: Buffer, cursor: number): JournalPart | undefined {
  const part = recordsIn(bytes, cursor);
  return part.records.length === 0 ? undefined : { removedBytes: 0, ...part, isFull: bytes.byteLength === readBytes };
}

/** Whole records, the first of which begins at `from`. */
function recordsIn(bytes: Buffer, from: number): { records: JournalRecord[]; next: number } {
  const records: JournalRecord[] = [];
  let next = from;
  for (;;) {
    const record = parseRecord(bytes, { at: next - from, offset: from });
    if (record === undefined) return { records, next };
    records.push(record);
    next = record.end;
  }
}

/**
 * Goes from record to record; answers with the first boundary at or behind `until` (or the last one at or before it), or the end of the last
 * whole record.
 */
async function walk(
  file: number,
  range: { readonly from: number; readonly until: number; readonly stop?: 'before' },
): Promise<number> {
  const { size } = fstatSync(file);
  const bytes = Buffer.allocUnsafe(Math.min(size, segmentLimitBytes));
  const { bytesRead } = await readFrom(file, bytes, 0, bytes.byteLength, 0);
  let at = 0;
  while (range.from + at < range.until && at + recordHeaderBytes <= bytesRead) {
    const length = recordLength(bytes, at);
    if (at + length > bytesRead) break;
    if (range.stop === 'before' && range.from + at + length > range.until) break;
    at += length;
  }
  return range.from + at;
}

function badCursor(cursor: number): PlatformError {
  return new PlatformError('invalid_request', `${cursor} is no place in this output.`, { details: { path: 'cursor' } });
}

function vanishing(): PlatformError {
  return new PlatformError('sandbox_unavailable', 'The output is removed faster than it can be looked at.');
}

function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}
