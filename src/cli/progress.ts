/** How much of a long copy is done, on one line of a terminal, and nowhere else. */
import type { CliIo } from './cli-io.ts';
import { readableBytes } from './readable.ts';

const everyMs = 200;

export class Progress {
  readonly #io: CliIo;
  readonly #isShown: boolean;
  readonly #totalBytes: number | null;
  #bytes = 0;
  #lastMs: number;

  constructor(io: CliIo, options: { readonly totalBytes: number | null; readonly isQuiet: boolean }) {
    this.#io = io;
    this.#isShown = io.stderr.isTerminal && !options.isQuiet;
    this.#totalBytes = options.totalBytes;
    this.#lastMs = io.nowMs();
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The same chunks, counted. */
  async *count(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
    for await (const chunk of chunks) {
      yield chunk;
      this.#bytes += chunk.byteLength;
      const nowMs = this.#io.nowMs();
      if (!this.#isShown || nowMs - this.#lastMs < everyMs) continue;
      this.#lastMs = nowMs;
      await this.#io.stderr.write(`\r${this.#line()}\x1b[K`);
    }
    if (this.#isShown) await this.#io.stderr.write('\r\x1b[K');
  }

  #line(): string {
    const done = readableBytes(this.#bytes);
    if (this.#totalBytes === null || this.#totalBytes === 0) return done;
    return `${Math.min(100, Math.floor((this.#bytes / this.#totalBytes) * 100))}% of ${readableBytes(this.#totalBytes)}`;
  }
}
