import { execFileSync } from 'node:child_process';
import { mkdir, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { journalRecord, segmentName, writeJournal } from '../../test/support/journal-records.ts';
import { MalformedFrame } from '../base/index.ts';
import { isPlatformError } from '../protocol/index.ts';
import { JournalReader } from './journal-reader.ts';

async function withJournal<Result>(
  directory: string,
  work: (reader: JournalReader) => Promise<Result>,
): Promise<Result> {
  const reader = JournalReader.open(directory)!;
  try {
    return await work(reader);
  } finally {
    reader.close();
    await rm(directory, { recursive: true });
  }
}

/** Everything from the cursor on, as one text, and what was removed before it. */
async function readAll(reader: JournalReader, cursor: number) {
  let text = '';
  let removed = 0;
  for (let at = cursor; ; ) {
    const part = await reader.read(at);
    removed += part.removedBytes;
    if (part.records.length === 0) return { text, removed, at };
    for (const record of part.records) if ('bytes' in record) text += record.bytes.toString();
    at = part.next;
  }
}

test('records follow one another over segments, from any boundary', async () => {
  const lines = Array.from({ length: 50 }, (_, i) => journalRecord(1, `line ${i}\n`));
  const segments = [lines.slice(0, 20), lines.slice(20, 45), lines.slice(45)].map((part) => Buffer.concat(part));
  await withJournal(await writeJournal(segments), async (reader) => {
    const all = lines.map((_, i) => `line ${i}\n`);
    let at = 0;
    for (const [i, line] of lines.entries()) {
      await reader.check(at);
      expect((await readAll(reader, at)).text).toBe(all.slice(i).join(''));
      at += line.byteLength;
    }
    expect(await reader.range()).toEqual({ first: 0, end: at });
  });
});

test('what was removed before the cursor is told, by its bytes', async () => {
  const kept = journalRecord(1, 'kept');
  await withJournal(await writeJournal([kept], 1_000), async (reader) => {
    await reader.check(500);
    expect(await readAll(reader, 500)).toEqual({ text: 'kept', removed: 500, at: 1_000 + kept.byteLength });
    expect(await reader.range()).toEqual({ first: 1_000, end: 1_000 + kept.byteLength });
  });
});

test('a cursor within a record or beyond the end is refused', async () => {
  const record = journalRecord(1, 'output');
  await withJournal(await writeJournal([Buffer.concat([record, record])]), async (reader) => {
    for (const cursor of [1, record.byteLength - 1, record.byteLength * 2 + 1, 2 ** 50]) {
      await expect(reader.check(cursor)).rejects.toMatchObject({ code: 'invalid_request' });
    }
    for (const cursor of [0, record.byteLength, record.byteLength * 2]) await reader.check(cursor);
  });
});

test('a record that is being written is not there yet', async () => {
  const record = journalRecord(1, 'output');
  const directory = await writeJournal([Buffer.concat([record, record])]);
  await truncate(join(directory, segmentName(0)), record.byteLength + 15);
  await withJournal(directory, async (reader) => {
    expect(await readAll(reader, 0)).toEqual({ text: 'output', removed: 0, at: record.byteLength });
    expect((await reader.range()).end).toBe(record.byteLength);
  });
});

test('a gap between segments is a violation, never skipped over', async () => {
  const record = journalRecord(1, 'output');
  const directory = await writeJournal([record]);
  await writeFile(join(directory, segmentName(5_000)), record);
  await withJournal(directory, async (reader) => {
    await expect(readAll(reader, 0)).rejects.toThrow(MalformedFrame);
  });
});

test('symlinks, directories, FIFOs and huge files in the place of a segment are refused and hold nobody', async () => {
  const places: ((path: string) => unknown)[] = [
    (path) => symlink('/etc/passwd', path),
    (path) => mkdir(path),
    (path) => execFileSync('mkfifo', [path]),
    async (path) => {
      await writeFile(path, '');
      await truncate(path, 2 ** 33);
    },
  ];
  for (const make of places) {
    const directory = await writeJournal([]);
    await make(join(directory, segmentName(0)));
    await withJournal(directory, async (reader) => {
      await expect(reader.read(0)).rejects.toThrow();
      await expect(reader.range()).rejects.toThrow();
    });
  }
  const real = await writeJournal([journalRecord(1, 'x')]);
  await symlink(real, `${real}-link`);
  expect(JournalReader.open(`${real}-link`)).toBeUndefined();
  await rm(`${real}-link`);
  await rm(real, { recursive: true });
});

test('hostile bytes and names make no reader hang, and never a place outside of what there is', async () => {
  const segment = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc
      .array(fc.tuple(fc.nat(7), fc.uint8Array({ maxLength: 30 })), { maxLength: 8 })
      .map((records) => Buffer.concat(records.map(([kind, payload]) => journalRecord(kind, payload)))),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(segment, { maxLength: 4 }), fc.nat(400), fc.nat(600), async (segments, first, cursor) => {
      const size = segments.reduce((sum, bytes) => sum + bytes.byteLength, 0);
      await withJournal(await writeJournal(segments, first), async (reader) => {
        try {
          await reader.check(cursor);
          const { at } = await readAll(reader, cursor);
          expect(at).toBeLessThanOrEqual(Math.max(cursor, first + size));
        } catch (error) {
          if (!(error instanceof MalformedFrame) && !isPlatformError(error, 'invalid_request')) throw error;
        }
      });
    }),
    { numRuns: 150 },
  );
});
