/**
 * The records of a journal, as native/PROTOCOL.md has them. Init writes them, and init's bytes are hostile: whatever does not fit throws
 * `MalformedFrame`. A record that is not whole yet is no violation: it may be being written.
 *
 *   u32 length of the payload, u8 kind, u64 boot time in ms, payload
 */
import { MalformedFrame } from '../base/index.ts';
import { type EndCause, endCauseOf } from './init-protocol.ts';

export const recordHeaderBytes = 13;
export const payloadLimitBytes = 64 * 1024;

const kinds = { stdout: 1, stderr: 2, leaderEnded: 3, treeEnded: 4, dropped: 5 } as const;

/** `end` is the offset of the next record. */
export type JournalRecord = { readonly end: number; readonly bootMs: number } & (
  | { readonly kind: 'stdout' | 'stderr'; readonly bytes: Buffer }
  | { readonly kind: 'leader ended'; readonly waitStatus: number; readonly cause: EndCause }
  | { readonly kind: 'tree ended' }
  | { readonly kind: 'dropped'; readonly lostBytes: number }
);

/** The record at `at` of these bytes, which begin at `offset` of the journal; `undefined` when it is not whole. */
export function parseRecord(
  bytes: Buffer,
  options: { readonly at: number; readonly offset: number },
): JournalRecord | undefined {
  const { at, offset } = options;
  if (bytes.byteLength - at < recordHeaderBytes) return undefined;
  const length = recordLength(bytes, at);
  const end = at + length;
  if (end > bytes.byteLength) return undefined;
  const payload = bytes.subarray(at + recordHeaderBytes, end);
  const place = { end: offset + end, bootMs: safeNumber(bytes.readBigUInt64LE(at + 5)) };
  switch (bytes.readUInt8(at + 4)) {
    case kinds.stdout:
      return { ...place, kind: 'stdout', bytes: payload };
    case kinds.stderr:
      return { ...place, kind: 'stderr', bytes: payload };
    case kinds.leaderEnded:
      expectLength(payload, 5);
      return {
        ...place,
        kind: 'leader ended',
        waitStatus: payload.readUInt32LE(0),
        cause: endCauseOf(payload.readUInt8(4)),
      };
    case kinds.treeEnded:
      expectLength(payload, 0);
      return { ...place, kind: 'tree ended' };
    case kinds.dropped:
      expectLength(payload, 8);
      return { ...place, kind: 'dropped', lostBytes: safeNumber(payload.readBigUInt64LE(0)) };
    default:
      throw new MalformedFrame(`A journal has a record of kind ${bytes.readUInt8(at + 4)}.`);
  }
}

/** Of the whole record whose header begins at `at`. */
export function recordLength(bytes: Buffer, at: number): number {
  const payload = bytes.readUInt32LE(at);
  if (payload > payloadLimitBytes) throw new MalformedFrame(`A journal has a record of ${payload} bytes.`);
  return recordHeaderBytes + payload;
}

function expectLength(payload: Buffer, length: number): void {
  if (payload.byteLength === length) return;
  throw new MalformedFrame(`A journal has a record of ${payload.byteLength} bytes where ${length} belong.`);
}

function safeNumber(value: bigint): number {
  if (value <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(value);
  throw new MalformedFrame(`The number ${value} is beyond what is used.`);
}
