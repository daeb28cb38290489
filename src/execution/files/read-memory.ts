/**
 * The memory that a worker's bytes are read to. Large reads cost fewer turns, and memory that serves again is neither cleared nor collected; but
 * pieces of it are handed out, so it serves again only when all of them were given back.
 *
 * Invariants:
 *  - What is free, or being read to, is part of no piece that somebody has.
 *  - A piece that is never given back keeps its memory from serving again, and nothing else.
 */
const firstBytes = 16 * 1024;
/** As much as a frame of data; the kernel holds less than that between the two. */
const mostBytes = 256 * 1024;
const freeMax = 4;

export class ReadMemory {
  #bytes = firstBytes;
  #now: Buffer;
  readonly #free: Buffer[] = [];
  /** Of each memory that pieces were handed out of: how many of them are out. */
  readonly #out = new WeakMap<ArrayBufferLike, number>();

  constructor() {
    this.#now = Buffer.allocUnsafeSlow(this.#bytes);
  }

  /** Where the next read goes. */
  get now(): Buffer {
    return this.#now;
  }

  /** `count` bytes were read, of which `pieces` were handed out; `isKept`: more than pieces refers to it. */
  filled(count: number, { pieces, isKept }: { readonly pieces: number; readonly isKept: boolean }): void {
    if (count === this.#now.byteLength) this.#bytes = Math.min(this.#bytes * 2, mostBytes);
    if (pieces === 0 && !isKept && this.#now.byteLength === this.#bytes) return;
    if (pieces > 0 && !isKept) this.#out.set(this.#now.buffer, pieces);
    this.#now = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#bytes);
  }

  /** Nothing large is expected any more. Where the next read goes is settled already. */
  shrink(): void {
    this.#bytes = firstBytes;
    this.#free.length = 0;
  }

  giveBack(piece: Uint8Array): void {
    const out = this.#out.get(piece.buffer);
    if (out === undefined) return;
    this.#out.set(piece.buffer, out - 1);
    if (out > 1) return;
    this.#out.delete(piece.buffer);
    if (this.#free.length < freeMax && piece.buffer.byteLength === this.#bytes && this.#bytes === mostBytes)
      this.#free.push(Buffer.from(piece.buffer));
  }
}
