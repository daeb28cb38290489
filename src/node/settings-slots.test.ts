import fc from 'fast-check';
import { expect, test } from 'vitest';
import { plainSettings } from '../../test/support/node-orders.ts';
import {
  type AppliedSettings,
  encodeSlot,
  findSlot,
  overlaySlots,
  parseSlots,
  slotBytes,
  slotsFileBytes,
} from './settings-slots.ts';

const record: AppliedSettings = { generation: 2, version: 5, settings: plainSettings, deadlineBootMs: 0 };
const applied = (version: number, text = `v${version}`): AppliedSettings => ({
  ...record,
  version,
  settings: { ...plainSettings, metadata: { text }, metadataVersion: version },
  deadlineBootMs: version * 10,
});

function fileOf(first: AppliedSettings | undefined, second: AppliedSettings | undefined): Buffer {
  const slots = [first, second].map((one) => (one === undefined ? Buffer.alloc(slotBytes) : encodeSlot(one)!));
  return Buffer.concat(slots);
}

test('the newest slot of the same life overlays the record, wherever it lies', () => {
  const extra = { ...record, other: 'stays' };
  expect(overlaySlots(extra, fileOf(applied(6), applied(7)))).toEqual({ ...applied(7), other: 'stays' });
  expect(overlaySlots(extra, fileOf(applied(7), applied(6)))).toEqual({ ...applied(7), other: 'stays' });
  expect(overlaySlots(extra, fileOf(undefined, applied(6)))).toEqual({ ...applied(6), other: 'stays' });
});

test('a pause in a slot overlays the record; a slot without a word of it leaves it as it is', () => {
  const running = { ...record, life: { kind: 'running' } as const };
  const paused = { ...applied(6), life: { kind: 'paused', atMs: 7 } as const };
  expect(overlaySlots(running, fileOf(paused, undefined)).life).toEqual({ kind: 'paused', atMs: 7 });
  expect(overlaySlots(running, fileOf(applied(6), undefined)).life).toEqual({ kind: 'running' });
  const ended = { ...record, version: 6, life: { kind: 'ended', reason: 'crashed', atMs: 8 } as const };
  expect(overlaySlots(ended, fileOf(paused, undefined))).toBe(ended);
});

test('zeros, an empty file and one that is too short leave the record as it is', () => {
  for (const file of [Buffer.alloc(slotsFileBytes), Buffer.alloc(0), encodeSlot(applied(6))!.subarray(0, 100)]) {
    expect(overlaySlots(record, file)).toBe(record);
  }
});

test('a slot of another life, or no newer than the record, does not count', () => {
  const earlier = { ...applied(9), generation: 1 };
  const later = { ...applied(9), generation: 3 };
  expect(overlaySlots(record, fileOf(earlier, later))).toBe(record);
  expect(overlaySlots(record, fileOf(applied(5, 'same'), applied(4)))).toBe(record);
  expect(overlaySlots(record, fileOf(earlier, applied(6)))).toEqual(applied(6));
});

test('K10: a write cut short at any byte, from either end, leaves the slot written before it', () => {
  const before = fileOf(applied(6, 'the one before, which is the longer one'), applied(7));
  const next = encodeSlot(applied(8))!;
  const used = usedBytes(next);
  let taken = 0;
  for (let cut = 0; cut <= slotBytes; cut++) {
    const beginning = Buffer.from(before);
    next.copy(beginning, 0, 0, cut);
    const ending = Buffer.from(before);
    next.copy(ending, cut, cut);
    for (const torn of [beginning, ending]) {
      const isWhole = torn.subarray(0, used).equals(next.subarray(0, used));
      expect(overlaySlots(record, torn)).toEqual(applied(isWhole ? 8 : 7));
      if (isWhole) taken++;
    }
  }
  expect(taken).toBeGreaterThan(0);
});

test('one changed bit makes a slot count for nothing; two such slots leave the record', () => {
  const slot = encodeSlot(applied(6))!;
  const bits = fc.nat({ max: usedBytes(slot) * 8 - 1 });
  fc.assert(
    fc.property(bits, bits, (one, other) => {
      const file = fileOf(applied(6), applied(7));
      file[one >> 3]! ^= 1 << (one & 7);
      expect(overlaySlots(record, file)).toEqual(applied(7));
      file[slotBytes + (other >> 3)]! ^= 1 << (other & 7);
      expect(overlaySlots(record, file)).toBe(record);
    }),
  );
});

test('settings are read as they were written, up to the size of a slot; larger ones are refused', () => {
  // The server refuses this one name; every record drops it.
  const keys = fc.string().filter((key) => key !== '__proto__');
  fc.assert(
    fc.property(fc.dictionary(keys, fc.string()), (metadata) => {
      const one = { ...record, settings: { ...plainSettings, metadata: { ...metadata } } };
      const slot = encodeSlot(one);
      if (slot !== undefined) expect(parseSlots(slot)[0]).toEqual(one);
      else expect(JSON.stringify(one).length).toBeGreaterThan(slotBytes / 8);
    }),
  );
  const room = slotBytes - 16 - JSON.stringify(applied(6, '')).length;
  expect(parseSlots(encodeSlot(applied(6, 'x'.repeat(room)))!)[0]).toEqual(applied(6, 'x'.repeat(room)));
  expect(encodeSlot(applied(6, 'x'.repeat(room + 1)))).toBeUndefined();
});

test('the slot that counts is found by life and version', () => {
  const slots = parseSlots(fileOf(applied(6), applied(7)));
  expect(findSlot(slots, applied(6))).toBe(0);
  expect(findSlot(slots, applied(7))).toBe(1);
  expect(findSlot(slots, record)).toBeUndefined();
  expect(findSlot(slots, { ...applied(7), generation: 1 })).toBeUndefined();
});

/** Up to its last byte that is not zero. */
function usedBytes(slot: Buffer): number {
  return slot.findLastIndex((byte) => byte !== 0) + 1;
}
