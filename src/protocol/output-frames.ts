/**
 * Output as bytes: what an answer of the type `application/vnd.atoll.output` is made of, frame after frame. It says the same as the items
 * of `text/event-stream`, without making text of the bytes.
 *
 *   u32 length of the payload, u8 kind, u64 position behind it, payload      little-endian
 *
 * The position of an item with the id of its process is its cursor.
 */
export const outputFramesType = 'application/vnd.atoll.output';

export const outputFrameKinds = {
  /** Shows that the connection lives; says nothing. */
  heartbeat: 0,
  stdout: 1,
  stderr: 2,
  /** JSON: any other item. */
  item: 3,
  /** JSON: the process, first of all, where its start is what was asked for. */
  process: 4,
  /** JSON: why there is no more. */
  error: 5,
} as const;
export type OutputFrameKind = (typeof outputFrameKinds)[keyof typeof outputFrameKinds];

export const outputFrameHeadBytes = 13;
/** Of one payload: a record of a journal has at most 64 KiB, and what is JSON is small. */
export const outputPayloadLimitBytes = 8 * 1024 * 1024;

/** Writes a head to the beginning of these bytes. */
export function writeOutputFrameHead(
  bytes: Uint8Array,
  head: { readonly kind: OutputFrameKind; readonly length: number; readonly position: number },
): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, outputFrameHeadBytes);
  view.setUint32(0, head.length, true);
  view.setUint8(4, head.kind);
  view.setUint32(5, head.position % 2 ** 32, true);
  view.setUint32(9, Math.floor(head.position / 2 ** 32), true);
}

export interface OutputFrame {
  readonly kind: number;
  readonly position: number;
  /** Shares memory with what was read. */
  readonly payload: Uint8Array<ArrayBuffer>;
}

/**
 * Cuts a stream into frames. What comes whole is handed out where it is; a frame that comes in pieces is put together once.
 *
 * Invariants:
 *  - #payload is there exactly while a head is complete and its payload is not.
 *  - A length beyond the limit throws before anything of that payload is kept.
 */
export class OutputFrameReader {
  readonly #head = new Uint8Array(outputFrameHeadBytes);
  #headFilled = 0;
  #payload: Uint8Array<ArrayBuffer> | undefined;
  #filled = 0;

  /** Whether a frame has begun and is not complete. */
  get isWithin(): boolean {
    return this.#headFilled > 0;
  }

  *push(chunk: Uint8Array<ArrayBuffer>): Generator<OutputFrame, void> {
    for (let rest = chunk; rest.byteLength > 0; ) {
      if (this.#headFilled < outputFrameHeadBytes) {
        const part = rest.subarray(0, outputFrameHeadBytes - this.#headFilled);
        this.#head.set(part, this.#headFilled);
        this.#headFilled += part.byteLength;
        rest = rest.subarray(part.byteLength);
        if (this.#headFilled < outputFrameHeadBytes) return;
      }
      const { kind, length, position } = readHead(this.#head);
      if (this.#payload === undefined && rest.byteLength >= length) {
        this.#headFilled = 0;
        yield { kind, position, payload: rest.subarray(0, length) };
        rest = rest.subarray(length);
        continue;
      }
      this.#payload ??= new Uint8Array(length);
      const part = rest.subarray(0, length - this.#filled);
      this.#payload.set(part, this.#filled);
      this.#filled += part.byteLength;
      rest = rest.subarray(part.byteLength);
      if (this.#filled < length) return;
      const payload = this.#payload;
      this.#headFilled = 0;
      this.#payload = undefined;
      this.#filled = 0;
      yield { kind, position, payload };
    }
  }
}

function readHead(head: Uint8Array): { kind: number; length: number; position: number } {
  const view = new DataView(head.buffer, head.byteOffset, outputFrameHeadBytes);
  const length = view.getUint32(0, true);
  if (length > outputPayloadLimitBytes) throw new RangeError(`A frame of ${length} bytes was announced.`);
  return { kind: view.getUint8(4), length, position: view.getUint32(5, true) + view.getUint32(9, true) * 2 ** 32 };
}
