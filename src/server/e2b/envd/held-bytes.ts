/**
 * Bytes that have come and are not taken yet, in one piece. However small the chunks are, adding costs what they bring and holds no more than twice
 * that. What was given out stays as it is.
 */
export class HeldBytes {
  #bytes = Buffer.alloc(0);
  #start = 0;
  #end = 0;

  get length(): number {
    return this.#end - this.#start;
  }

  add(chunk: Uint8Array): void {
    if (this.#end + chunk.byteLength > this.#bytes.byteLength) this.#grow(chunk.byteLength);
    this.#bytes.set(chunk, this.#end);
    this.#end += chunk.byteLength;
  }

  /** All of it, as it is now. */
  look(): Buffer {
    return this.#bytes.subarray(this.#start, this.#end);
  }

  take(count: number): Buffer {
    const taken = this.look().subarray(0, count);
    this.#start += taken.byteLength;
    return taken;
  }

  /** Into a new place, because what was given out lies in the old one. */
  #grow(byBytes: number): void {
    const held = this.look();
    this.#bytes = Buffer.allocUnsafeSlow(Math.max(held.byteLength * 2, held.byteLength + byBytes));
    this.#bytes.set(held);
    this.#start = 0;
    this.#end = held.byteLength;
  }
}
