/**
 * Pulls exact numbers of bytes from a stream of chunks.
 *
 * Invariants:
 *  - What was not handed out yet is `#chunk` from `#at` on, then what the stream still gives; at most one chunk is held.
 *  - A stream that ends early is refused; it never gives fewer bytes than asked for.
 */
import { refuseImage } from './image-limits.ts';

const empty = Buffer.alloc(0);

/** Chunks whose source can pass over bytes without reading them. */
export interface SkippingIterator extends AsyncIterator<Buffer> {
  skip?(count: number): void;
}

export class ByteReader {
  readonly #source: SkippingIterator;
  #chunk: Buffer = empty;
  #at = 0;
  #passed = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Bytes handed out or passed over so far. */
  get position(): number {
    return this.#passed + this.#at;
  }

  /** The next `count` bytes if they are at hand, without waiting. */
  takeNow(count: number): Buffer | undefined {
    if (this.#chunk.byteLength - this.#at < count) return undefined;
    const bytes = this.#chunk.subarray(this.#at, this.#at + count);
    this.#at += count;
    return bytes;
  }

  async take(count: number): Promise<Buffer> {
    const now = this.takeNow(count);
    if (now !== undefined) return now;
    const parts: Buffer[] = [];
    for await (const part of this.parts(count)) parts.push(part);
    return Buffer.concat(parts, count);
  }

  /** The next `count` bytes in the pieces in which they come. */
  async *parts(count: number): AsyncGenerator<Buffer, void> {
    for (let left = count; left > 0; ) {
      if (this.#at === this.#chunk.byteLength && !(await this.#fill()))
        refuseImage('A tar of the image ends in the middle of an entry.');
      const part = this.takeNow(Math.min(left, this.#chunk.byteLength - this.#at))!;
      left -= part.byteLength;
      yield part;
    }
  }

  async skip(count: number): Promise<void> {
    const held = Math.min(count, this.#chunk.byteLength - this.#at);
    this.#at += held;
    if (this.#source.skip === undefined) {
      for await (const part of this.parts(count - held)) void part;
    } else if (count > held) {
      this.#source.skip(count - held);
      this.#passed += count - held;
    }
  }

  /** Passes over `count` bytes, or what there is of them before the end. */
  async skipPresent(count: number): Promise<void> {
    let left = count;
    while (left > 0 && !(await this.atEnd())) {
      const held = Math.min(left, this.#chunk.byteLength - this.#at);
      this.#at += held;
      left -= held;
    }
  }

  /** Whether nothing comes any more. */
  async atEnd(): Promise<boolean> {
    return this.#at === this.#chunk.byteLength && !(await this.#fill());
  }

  /** Everything that is left, in pieces. */
  async *rest(): AsyncGenerator<Buffer, void> {
    while (!(await this.atEnd())) yield this.takeNow(this.#chunk.byteLength - this.#at)!;
  }

  /** Lets go of the stream. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async #fill(): Promise<boolean> {
    do {
      const next = await this.#source.next();
      if (next.done === true) return false;
      this.#passed += this.#chunk.byteLength;
      this.#chunk = next.value;
      this.#at = 0;
    } while (this.#chunk.byteLength === 0);
    return true;
  }
}
