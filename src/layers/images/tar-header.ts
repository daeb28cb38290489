/**
 * One header block of a tar stream: ustar, GNU's and the older ones. Names are byte strings (one character per byte), for a tar knows no
 * encoding and two names that differ must never become one.
 */
import { refuseImage } from './image-limits.ts';

export const blockBytes = 512;

/** The letters of `TarHeader.type` that mean something here. */
export const tarTypes = {
  file: '0',
  hardLink: '1',
  link: '2',
  character: '3',
  block: '4',
  directory: '5',
  fifo: '6',
  contiguous: '7',
  pax: 'x',
  paxGlobal: 'g',
  longName: 'L',
  longLink: 'K',
  sparse: 'S',
} as const;

export interface TarHeader {
  readonly type: string;
  readonly name: string;
  readonly target: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  /** Whole seconds; before 1970 it is negative. */
  readonly mtime: number;
}

const zeros = Buffer.alloc(blockBytes);

/** A header, or undefined for a block of zeros. */
export function parseTarHeader(block: Buffer): TarHeader | undefined {
  if (block.equals(zeros)) return undefined;
  if (sumOf(block) !== numberAt(block, 148, 8)) refuseImage('A tar of the image has a damaged header.');
  const type = block[156] === 0 ? tarTypes.file : String.fromCharCode(block[156]!);
  const prefix = isUstar(block) ? textAt(block, 345, 155) : '';
  const name = textAt(block, 0, 100);
  return {
    type,
    name: prefix === '' ? name : `${prefix}/${name}`,
    target: textAt(block, 157, 100),
    mode: naturalAt(block, 100, 8) & 0o7777,
    uid: naturalAt(block, 108, 8),
    gid: naturalAt(block, 116, 8),
    size: naturalAt(block, 124, 12),
    mtime: numberAt(block, 136, 12),
  };
}

/** "ustar" and NUL; GNU's older magic has other things where the prefix would be. */
function isUstar(block: Buffer): boolean {
  return block.toString('latin1', 257, 263) === 'ustar\0';
}

function sumOf(block: Buffer): number {
  let sum = 8 * 0x20;
  for (let at = 0; at < blockBytes; at += 1) if (at < 148 || at >= 156) sum += block[at]!;
  return sum;
}

function textAt(block: Buffer, at: number, size: number): string {
  const text = block.toString('latin1', at, at + size);
  const end = text.indexOf('\0');
  return end === -1 ? text : text.slice(0, end);
}

function naturalAt(block: Buffer, at: number, size: number): number {
  const number = numberAt(block, at, size);
  if (number < 0) refuseImage('A tar of the image has a negative number in a header.');
  return number;
}

/** Octal, or with the top bit set GNU's base 256 as a two's complement. */
function numberAt(block: Buffer, at: number, size: number): number {
  if ((block[at]! & 0x80) !== 0) {
    let number = (block[at]! & 0x40) === 0 ? BigInt(block[at]! & 0x3f) : BigInt(block[at]!) - 256n;
    for (let index = at + 1; index < at + size; index += 1) number = number * 256n + BigInt(block[index]!);
    return safe(Number(number));
  }
  const text = textAt(block, at, size).replace(/^[ ]+|[ ]+$/g, '');
  if (!/^[0-7]*$/.test(text)) refuseImage('A tar of the image has a number in a header that is none.');
  return text === '' ? 0 : safe(Number.parseInt(text, 8));
}

function safe(number: number): number {
  if (!Number.isSafeInteger(number)) refuseImage('A tar of the image has a number in a header that is too great.');
  return number;
}
