/** The first bytes of one output stream, up to a limit; the rest is counted and dropped. */
export class KeptOutput {
  readonly #limitBytes: number;
  readonly #chunks: Uint8Array[] = [];
  #kept = 0;
  #truncated = false;

  constructor(options: { readonly limitBytes: number }) {
    this.#limitBytes = options.limitBytes;
  }

  append(chunk: Uint8Array): void {
    const room = this.#limitBytes - this.#kept;
    if (chunk.byteLength > room) this.#truncated = true;
    const taken = chunk.subarray(0, room);
    if (taken.byteLength === 0) return;
    this.#chunks.push(taken);
    this.#kept += taken.byteLength;
  }

  get truncated(): boolean {
    return this.#truncated;
  }

  /** A copy: the chunks may be views of much larger receive buffers. */
  bytes(): Uint8Array {
    return Buffer.concat(this.#chunks, this.#kept);
  }
}
