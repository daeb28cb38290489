/**
 * Reads the journal of one process: segment files, each named by the offset of its first byte, written by init and removed by it from
 * the oldest on. Init is not trusted: no symlink is followed, nothing but regular files is read, and everything is bounded.
 *
 * Invariants:
 *  - What `read` hands out for a cursor follows it without gap or duplicate; what init has removed is one item `removed`.
 *  - A cursor is a record boundary: `check` refuses any other, and `next` is always one.
 */
import { constants, type FileHandle, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { MalformedFrame } from '../base/index.ts';
import { PlatformError } from '../protocol/index.ts';
import { type JournalRecord, parseRecord, recordHeaderBytes, recordLength } from './journal-format.ts';

/** Read at once: whole records of at most this much. */
const readBytes = 256 * 1024;
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
}

export class JournalReader {
  readonly #directory: FileHandle;
  /** The segment that was read last, while there is more in it: the next read needs neither to look for it nor to open it. */
  #current: { readonly start: number; readonly file: FileHandle } | undefined;

  private constructor(directory: FileHandle) {
    this.#directory = directory;
  }

  /** `undefined` when there is no such journal. */
  static async open(path: string): Promise<JournalReader | undefined> {
    try {
      return new JournalReader(
        await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK),
      );
    } catch (error) {
      if (isCode(error, 'ENOENT', 'ELOOP', 'ENOTDIR')) return undefined;
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#letGo();
    await this.#directory.close();
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
    for (let attempt = 0; ; attempt++) {
      const segments = await this.#segments();
      const first = segments[0];
      if (first === undefined) return { removedBytes: 0, records: [], next: cursor };
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
  ): Promise<{ records: JournalRecord[]; next: number } | undefined> {
    const { from, following } = options;
    const file = await this.#openSegment(segment);
    if (file === undefined) return undefined;
    this.#current = { start: segment, file };
    const { records, next } = recordsIn(await readAt(file, from - segment), from);
    if (records.length === 0) await this.#letGo();
    if (following !== undefined && next > following) throw new MalformedFrame('A segment reaches into the next one.');
    // The list may be older than what was read, so a segment that ends early was not yet complete, or it is broken.
    if (records.length === 0 && following !== undefined) {
      throw new MalformedFrame(`A journal has a gap at ${next}; the next segment begins at ${following}.`);
    }
    return { records, next };
  }

  /** More of the segment that was read last. One that init has removed meanwhile is still there for who holds it. */
  async #readOn(cursor: number): Promise<JournalPart | undefined> {
    const current = this.#current;
    if (current === undefined) return undefined;
    const position = cursor - current.start;
    if (position >= 0 && position < segmentLimitBytes) {
      const { records, next } = recordsIn(await readAt(current.file, position), cursor);
      if (records.length > 0) return { removedBytes: 0, records, next };
    }
    await this.#letGo();
    return undefined;
  }

  async #letGo(): Promise<void> {
    const file = this.#current?.file;
    this.#current = undefined;
    await file?.close();
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

  async #withSegment<Result>(start: number, work: (file: FileHandle) => Promise<Result>): Promise<Result | undefined> {
    const file = await this.#openSegment(start);
    if (file === undefined) return undefined;
    try {
      return await work(file);
    } finally {
      await file.close();
    }
  }

  /** `undefined` when it is gone. */
  async #openSegment(start: number): Promise<FileHandle | undefined> {
    let file: FileHandle;
    try {
      // A FIFO of this name must not hold us, and a symlink must not lead us.
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      file = await open(join(this.#path(), start.toString(16).padStart(16, '0')), flags);
    } catch (error) {
      if (isCode(error, 'ENOENT')) return undefined;
      throw error;
    }
    const isSegment = await file.stat().then(
      (stat) => stat.isFile() && stat.size <= segmentLimitBytes,
      () => false,
    );
    if (isSegment) return file;
    await file.close();
    throw new MalformedFrame('A segment is no file of a journal.');
  }

  /** Through the descriptor: a directory that is renamed or replaced meanwhile is still the same one. */
  #path(): string {
    return `/proc/self/fd/${this.#directory.fd}`;
  }
}

/** The whole records in these bytes, which begin at `from`. */
function recordsIn(bytes: Buffer, from: number): { readonly records: JournalRecord[]; readonly next: number } {
  const records: JournalRecord[] = [];
  let next = from;
  for (;;) {
    const record = parseRecord(bytes, { at: next - from, offset: from });
    if (record === undefined) return { records, next };
    records.push(record);
    next = record.end;
  }
}

async function readAt(file: FileHandle, position: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(readBytes);
  const { bytesRead } = await file.read(bytes, 0, readBytes, position);
  return bytes.subarray(0, bytesRead);
}

/** Goes from record to record; answers with the first boundary at or behind `until`, or the end of the last whole record. */
async function walk(file: FileHandle, range: { readonly from: number; readonly until: number }): Promise<number> {
  const { size } = await file.stat();
  const bytes = Buffer.allocUnsafe(Math.min(size, segmentLimitBytes));
  const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, 0);
  let at = 0;
  while (range.from + at < range.until && at + recordHeaderBytes <= bytesRead) {
    const length = recordLength(bytes, at);
    if (at + length > bytesRead) break;
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
