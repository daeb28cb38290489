export interface OutputPiece {
  readonly bytes: Uint8Array;
  /** Behind it. */
  readonly cursor: string | undefined;
}

/** Output that waits for whoever reads it, as pieces in order. One reader at a time. */
export class OutputQueue {
  readonly #pieces: OutputPiece[] = [];
  #size = 0;
  #isEnded = false;
  #failure: { readonly error: unknown } | undefined;
  #wake = () => {};

  /** Bytes that wait. */
  get size(): number {
    return this.#size;
  }

  push(piece: OutputPiece): void {
    this.#pieces.push(piece);
    this.#size += piece.bytes.byteLength;
    this.#wake();
  }

  /** What waits is still read. */
  end(failure?: { readonly error: unknown }): void {
    this.#isEnded = true;
    this.#failure ??= failure;
    this.#wake();
  }

  take(): OutputPiece | undefined {
    const piece = this.#pieces.shift();
    this.#size -= piece?.bytes.byteLength ?? 0;
    return piece;
  }

  /** `undefined` at the end. */
  async next(): Promise<OutputPiece | undefined> {
    for (;;) {
      const piece = this.take();
      if (piece !== undefined) return piece;
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#isEnded) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
