/**
 * Frames over a byte stream: `u32 length, u8 type, body`, little-endian, and bodies made of fields `u8 tag, u32 length, bytes`.
 * Whatever is read here may come from a hostile peer: a violation throws `MalformedFrame`, and the reader is then of no use.
 */
export class MalformedFrame extends Error {
  override readonly name = 'MalformedFrame';
}

export interface Frame {
  readonly type: number;
  readonly body: Buffer;
}

/** What the protocol allows to be sent in one frame: type and body. */
export const frameLimitBytes = 8 * 1024 * 1024;
const headerBytes = 4;
/** Tag and length. */
const fieldHeadBytes = 5;

export function encodeFrame(type: number, ...parts: readonly Uint8Array[]): Buffer {
  let length = 1;
  for (const part of parts) length += part.byteLength;
  if (length > frameLimitBytes) throw new RangeError(`A frame of ${length} bytes is beyond ${frameLimitBytes}.`);
  const header = Buffer.allocUnsafe(headerBytes + 1);
  header.writeUInt32LE(length, 0);
  header.writeUInt8(type, headerBytes);
  return Buffer.concat([header, ...parts], headerBytes + length);
}

/**
 * Cuts a stream into frames.
 *
 * Invariants:
 *  - The chunks, laid end to end, are the bytes after the last frame handed out; together they are shorter than one frame.
 *  - A length outside 1..limit throws before anything of that frame is kept, so a peer cannot make us hold more than `limit`.
 */
export class FrameReader {
  readonly #limitBytes: number;
  #chunks: Buffer[] = [];
  #held = 0;

  constructor(options: { limitBytes: number }) {
    this.#limitBytes = options.limitBytes;
  }

  /** The frames completed by this chunk. Their bodies share memory with the chunks given. */
  push(chunk: Buffer): Frame[] {
    this.#chunks.push(chunk);
    this.#held += chunk.byteLength;
    const frames: Frame[] = [];
    for (let frame = this.#take(); frame !== undefined; frame = this.#take()) frames.push(frame);
    return frames;
  }

  /** Bytes of a frame that is not complete. */
  get heldBytes(): number {
    return this.#held;
  }

  #take(): Frame | undefined {
    if (this.#held < headerBytes) return undefined;
    const length = this.#peekLength();
    if (length < 1 || length > this.#limitBytes) throw new MalformedFrame(`A frame of ${length} bytes was announced.`);
    const end = headerBytes + length;
    if (this.#held < end) return undefined;
    const all = this.#joined();
    this.#chunks = this.#held > end ? [all.subarray(end)] : [];
    this.#held -= end;
    return { type: all.readUInt8(headerBytes), body: all.subarray(headerBytes + 1, end) };
  }

  #peekLength(): number {
    const first = this.#chunks[0]!;
    return first.byteLength >= headerBytes ? first.readUInt32LE(0) : this.#joined().readUInt32LE(0);
  }

  #joined(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks, this.#held)];
    return this.#chunks[0]!;
  }
}

export function u8(value: number): Buffer {
  return Buffer.of(value);
}

export function u16(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(2);
  bytes.writeUInt16LE(value);
  return bytes;
}

export function u32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

export function u64(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  // In halves: a big integer costs more than the rest of a frame.
  bytes.writeUInt32LE(value % 2 ** 32, 0);
  bytes.writeUInt32LE(Math.floor(value / 2 ** 32), 4);
  return bytes;
}

export function field(tag: number, value: Uint8Array): Buffer {
  const bytes = fieldOf(tag, value.byteLength);
  bytes.set(value, fieldHeadBytes);
  return bytes;
}

export function textField(tag: number, text: string): Buffer {
  const bytes = fieldOf(tag, Buffer.byteLength(text));
  bytes.write(text, fieldHeadBytes);
  return bytes;
}

/** Its value is still to be written. */
function fieldOf(tag: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(fieldHeadBytes + length);
  bytes.writeUInt8(tag, 0);
  bytes.writeUInt32LE(length, 1);
  return bytes;
}

/** Reads a body from front to back; every step is checked against its end. */
export class BodyReader {
  readonly #body: Buffer;
  #at = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  get left(): number {
    return this.#body.byteLength - this.#at;
  }

  bytes(length: number): Buffer {
    if (length > this.left) throw new MalformedFrame(`${length} bytes were expected and ${this.left} are left.`);
    this.#at += length;
    return this.#body.subarray(this.#at - length, this.#at);
  }

  u8(): number {
    return this.bytes(1).readUInt8(0);
  }

  u16(): number {
    return this.bytes(2).readUInt16LE(0);
  }

  u32(): number {
    return this.bytes(4).readUInt32LE(0);
  }

  i32(): number {
    return this.bytes(4).readInt32LE(0);
  }

  /** Refuses what a JavaScript number cannot hold exactly. */
  u64(): number {
    const bytes = this.bytes(8);
    const value = bytes.readUInt32LE(0) + bytes.readUInt32LE(4) * 2 ** 32;
    if (Number.isSafeInteger(value)) return value;
    throw new MalformedFrame(`The number ${bytes.readBigUInt64LE(0)} is beyond what is used.`);
  }

  text(length: number): string {
    return this.bytes(length).toString('utf8');
  }

  rest(): Buffer {
    return this.bytes(this.left);
  }

  end(): void {
    if (this.left !== 0) throw new MalformedFrame(`${this.left} bytes are left over.`);
  }
}

/** The fields of a body, each at most once. */
export function readFields(body: Buffer, knownTags: ReadonlySet<number>): Map<number, BodyReader> {
  const reader = new BodyReader(body);
  const fields = new Map<number, BodyReader>();
  while (reader.left > 0) {
    const tag = reader.u8();
    const value = reader.bytes(reader.u32());
    if (!knownTags.has(tag)) throw new MalformedFrame(`Field ${tag} is unknown here.`);
    if (fields.has(tag)) throw new MalformedFrame(`Field ${tag} appears twice.`);
    fields.set(tag, new BodyReader(value));
  }
  return fields;
}
