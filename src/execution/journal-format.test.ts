import fc from 'fast-check';
import { expect, test } from 'vitest';
import { journalRecord } from '../../test/support/journal-records.ts';
import { MalformedFrame } from '../base/index.ts';
import { parseRecord, payloadLimitBytes } from './journal-format.ts';

test('each kind of record is read back, with the place behind it', () => {
  const bytes = Buffer.concat([
    journalRecord(1, 'out', 5),
    journalRecord(2, 'err', 6),
    journalRecord(3, Buffer.from([0, 3, 0, 0, 1]), 7),
    journalRecord(4, '', 8),
    journalRecord(5, Buffer.from([9, 0, 0, 0, 0, 0, 0, 0]), 9),
  ]);
  const records = [];
  for (let at = 0; at < bytes.byteLength; ) {
    const record = parseRecord(bytes, { at, offset: 100 })!;
    records.push(record);
    at = record.end - 100;
  }
  expect(records).toEqual([
    { kind: 'stdout', bytes: Buffer.from('out'), bootMs: 5, end: 116 },
    { kind: 'stderr', bytes: Buffer.from('err'), bootMs: 6, end: 132 },
    { kind: 'leader ended', waitStatus: 0x300, cause: 'timeout', bootMs: 7, end: 150 },
    { kind: 'tree ended', bootMs: 8, end: 163 },
    { kind: 'dropped', lostBytes: 9, bootMs: 9, end: 184 },
  ]);
});

test('a record that is cut short anywhere is not there yet', () => {
  const whole = journalRecord(1, 'some output', 5);
  for (let length = 0; length < whole.byteLength; length++) {
    expect(parseRecord(whole.subarray(0, length), { at: 0, offset: 0 })).toBeUndefined();
  }
});

test('a record that does not fit is a violation', () => {
  const broken = [
    journalRecord(0, '', 1),
    journalRecord(6, '', 1),
    journalRecord(3, 'four', 1),
    journalRecord(3, Buffer.from([0, 0, 0, 0, 99]), 1),
    journalRecord(4, 'x', 1),
    journalRecord(5, Buffer.alloc(8, 0xff), 1),
    journalRecord(1, Buffer.alloc(payloadLimitBytes + 1), 1),
  ];
  for (const bytes of broken) expect(() => parseRecord(bytes, { at: 0, offset: 0 })).toThrow(MalformedFrame);
});

test('whatever the bytes are, a record lies within them or they are refused', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(20), fc.nat(2 ** 40), (bytes, at, offset) => {
      try {
        const record = parseRecord(Buffer.from(bytes), { at, offset });
        if (record === undefined) return;
        expect(record.end).toBeGreaterThan(offset + at);
        expect(record.end).toBeLessThanOrEqual(offset + bytes.byteLength);
      } catch (error) {
        expect(error).toBeInstanceOf(MalformedFrame);
      }
    }),
    { numRuns: 5_000 },
  );
});
