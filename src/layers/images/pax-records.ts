/**
 * The records of a pax header, `length key=value\n`, which stand for what does not fit a tar header or has no place in it. Keys and values
 * are byte strings. What changes how the stream is read and is not understood here is refused by name; what only describes is passed over.
 */
import { refuseImage } from './image-limits.ts';
import { readable } from './layer-names.ts';

export interface PaxTime {
  readonly seconds: number;
  readonly nanoseconds: number;
}

export interface PaxValues {
  path?: string;
  linkpath?: string;
  size?: number;
  uid?: number;
  gid?: number;
  mtime?: PaxTime;
  readonly attributes: Map<string, Buffer>;
}

const attributePrefix = 'SCHILY.xattr.';
const sparsePrefixes = ['GNU.sparse.', 'SCHILY.realsize'];

export function parsePax(bytes: Buffer): PaxValues {
  const values: PaxValues = { attributes: new Map() };
  for (const [key, value] of recordsOf(bytes)) {
    if (key.startsWith(attributePrefix)) values.attributes.set(key.slice(attributePrefix.length), Buffer.from(value));
    else take(values, key, value.toString('latin1'));
  }
  return values;
}

/** A header for everything that follows may hold nothing but a comment, as `git archive` writes it. */
export function checkGlobalPax(bytes: Buffer): void {
  for (const [key] of recordsOf(bytes)) {
    if (key !== 'comment')
      refuseImage(`A tar of the image has a global pax header with "${readable(key)}", which is not supported.`);
  }
}

function take(values: PaxValues, key: string, value: string): void {
  if (sparsePrefixes.some((prefix) => key.startsWith(prefix))) {
    refuseImage('A layer holds a sparse file, which is not supported.');
  }
  // An empty value says that the header's own counts.
  if (value === '') return;
  if (key === 'path' || key === 'linkpath') {
    if (value.includes('\0')) refuseImage('A name in a layer has a NUL in it.');
    values[key] = value;
  } else if (key === 'size' || key === 'uid' || key === 'gid') {
    if (!/^[0-9]{1,15}$/.test(value)) refuseImage(`A layer has a pax record "${key}" that is no number.`);
    values[key] = Number(value);
  } else if (key === 'mtime') {
    values.mtime = parseTime(value);
  }
}

function parseTime(text: string): PaxTime {
  const match = /^(-?)([0-9]{1,12})(?:\.([0-9]*))?$/.exec(text);
  if (match === null) refuseImage('A layer has a time that is none.');
  const seconds = Number(match[2]);
  const nanoseconds = Number((match[3] ?? '').slice(0, 9).padEnd(9, '0'));
  if (match[1] === '') return { seconds, nanoseconds };
  // Nanoseconds count forward also before 1970.
  return nanoseconds === 0
    ? { seconds: -seconds, nanoseconds: 0 }
    : { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds };
}

function* recordsOf(bytes: Buffer): Generator<readonly [key: string, value: Buffer], void> {
  for (let at = 0; at < bytes.byteLength; ) {
    const space = bytes.indexOf(0x20, at);
    const digits = space === -1 || space - at > 9 ? '' : bytes.toString('latin1', at, space);
    const end = at + Number(digits);
    const equals = bytes.indexOf(0x3d, at);
    const isWhole =
      /^[0-9]+$/.test(digits) &&
      end <= bytes.byteLength &&
      equals > space + 1 &&
      equals < end - 1 &&
      bytes[end - 1] === 0x0a;
    if (!isWhole) refuseImage('A tar of the image has a malformed pax header.');
    yield [bytes.toString('latin1', space + 1, equals), bytes.subarray(equals + 1, end - 1)];
    at = end;
  }
}
