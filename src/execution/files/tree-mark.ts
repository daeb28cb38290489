/**
 * A mark: what a tree looked like, kept to tell later what has changed in it. Entries stand in the order of a list, each with what its state is
 * told by:
 *
 *   a directory   inode, mode, owner; what is in it is told by its own entries
 *   anything else inode and ctime, which changes with content, mode, owner and name and which nobody inside can set
 *
 * Two changes within one tick of the kernel's clock leave the same ctime. So an entry that had changed just before it was looked at is marked as
 * unsure, and differs from whatever it is compared with: it is told once too often rather than once too seldom.
 */
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import type { FileStat } from './wire.ts';

/** Ticks have at most 10 ms; the rest is for a clock that is being adjusted. */
const unsureMs = 100;
const lengthBytes = 2;
const stateBytes = 17;
const unsure = 0x80;
const slash = 0x2f;
const typeNumbers = { file: 1, directory: 2, symlink: 3, other: 4 } as const;
/** The lowest level: a mark is made anew in every look, and the states in it hardly compress. */
const deflateLevel = 1;
/** Of a mark as it is in memory, so of one look at a tree. */
export const markMaxBytes = 32 * 1024 * 1024;

export interface MarkedEntry {
  /** The path below the tree's own, with NUL for every slash: so its bytes are in the order of a list. */
  readonly key: Buffer;
  readonly state: Buffer;
}

export function keyOf(path: Buffer): Buffer {
  return replaced(path, slash, 0);
}

export function pathOf(key: Buffer): Buffer {
  return replaced(key, 0, slash);
}

/** A copy: what comes from a worker is part of a buffer that is much larger. */
function replaced(bytes: Buffer, one: number, other: number): Buffer {
  const copy = Buffer.from(bytes);
  for (let at = copy.indexOf(one); at !== -1; at = copy.indexOf(one, at + 1)) copy[at] = other;
  return copy;
}

export function stateOf(stat: FileStat, lookedAtMs: number): Buffer {
  const state = Buffer.alloc(stateBytes);
  state.writeBigUInt64LE(stat.inode, 1);
  if (stat.type === 'directory') {
    state.writeUInt8(typeNumbers.directory, 0);
    state.writeUInt16LE(stat.mode, 9);
    state.writeUIntLE(stat.uid & 0xff_ffff, 11, 3);
    state.writeUIntLE(stat.gid & 0xff_ffff, 14, 3);
    return state;
  }
  const isUnsure = stat.changedNs >= BigInt(lookedAtMs - unsureMs) * 1_000_000n;
  state.writeUInt8(typeNumbers[stat.type] | (isUnsure ? unsure : 0), 0);
  state.writeBigInt64LE(stat.changedNs, 9);
  return state;
}

export function isChanged(before: Buffer, now: Buffer): boolean {
  if ((before[0]! & unsure) !== 0) return true;
  // Whether it is unsure now is for the next comparison.
  return (now[0]! & ~unsure) !== before[0] || !before.subarray(1).equals(now.subarray(1));
}

/** Which tree it is, and how far it has been compared. */
export interface MarkHead {
  readonly about: string;
  /** Keys before this one have been compared in this round, which is not finished. Empty: it is. */
  readonly from: Buffer;
}

/** Collects the entries of one look, in order. */
export class MarkWriter {
  readonly #parts: Buffer[] = [];
  #bytes = 0;

  get isTooLarge(): boolean {
    return this.#bytes > markMaxBytes;
  }

  add({ key, state }: MarkedEntry): void {
    this.#parts.push(lengthOf(key), key, state);
    this.#bytes += lengthBytes + key.byteLength + state.byteLength;
  }

  async finish({ about, from }: MarkHead): Promise<Buffer> {
    const texts = [Buffer.from(about), from].flatMap((text) => [lengthOf(text), text]);
    return await promisify(deflateRaw)(Buffer.concat([...texts, ...this.#parts]), { level: deflateLevel });
  }
}

function lengthOf(text: Buffer): Buffer {
  const length = Buffer.allocUnsafe(lengthBytes);
  length.writeUInt16LE(text.byteLength);
  return length;
}

export class Mark implements MarkHead {
  readonly about: string;
  readonly from: Buffer;
  readonly #bytes: Buffer;
  readonly #first: number;

  private constructor(bytes: Buffer) {
    this.#bytes = bytes;
    const about = this.#text(0);
    const from = this.#text(about.end);
    this.about = about.text.toString('utf8');
    this.from = from.text;
    this.#first = from.end;
  }

  static async open(packed: Uint8Array): Promise<Mark> {
    return new Mark(await promisify(inflateRaw)(packed, { maxOutputLength: 2 * markMaxBytes }));
  }

  *entries(): Generator<MarkedEntry, undefined> {
    for (let at = this.#first; at < this.#bytes.byteLength; ) {
      const { text, end } = this.#text(at);
      at = end + stateBytes;
      yield { key: text, state: this.#bytes.subarray(end, at) };
    }
  }

  #text(at: number): { readonly text: Buffer; readonly end: number } {
    const end = at + lengthBytes + this.#bytes.readUInt16LE(at);
    return { text: this.#bytes.subarray(at + lengthBytes, end), end };
  }
}
