/**
 * The content of an answer as Node hands it out, without a stream of the web between the two, which makes a dozen promises for each piece.
 *
 * Invariants:
 *  - Pieces come in order, then the end or what went wrong, once and for ever after.
 *  - No more than `readAheadBytes` and one piece wait for whoever reads.
 */
import type { ContentReader } from './send.ts';

type Piece = Uint8Array<ArrayBuffer>;
type Read = Awaited<ReturnType<ContentReader['read']>>;

/** As much of Node's `IncomingMessage` as is used here. */
export interface MessageSource {
  on(event: 'data', listener: (chunk: Piece) => void): unknown;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  on(event: 'end' | 'close', listener: () => void): unknown;
  pause(): unknown;
  resume(): unknown;
  destroy(error?: unknown): unknown;
}

export class MessageReader implements ContentReader {
  readonly #message: MessageSource;
  readonly #readAheadBytes: number;
  readonly #waiting: Piece[] = [];
  #size = 0;
  #end: { readonly failure?: { readonly error: unknown } } | undefined;
  #asked: PromiseWithResolvers<Read> | undefined;

  constructor(message: MessageSource, options: { readonly readAheadBytes: number }) {
    this.#message = message;
    this.#readAheadBytes = options.readAheadBytes;
    message.on('data', (piece) => this.#take(piece));
    message.on('end', () => this.#finish({}));
    message.on('error', (error) => this.#finish({ failure: { error } }));
    message.on('close', () => this.#finish({ failure: { error: new Error('The connection was closed.') } }));
  }

  /** One at a time. */
  async read(): Promise<Read> {
    const piece = this.#waiting.shift();
    if (piece !== undefined) {
      this.#size -= piece.byteLength;
      if (this.#size === 0) this.#message.resume();
      return { done: false, value: piece };
    }
    if (this.#end?.failure !== undefined) throw this.#end.failure.error;
    if (this.#end !== undefined) return { done: true };
    this.#asked = Promise.withResolvers();
    return await this.#asked.promise;
  }

  async cancel(): Promise<void> {
    this.#message.destroy();
  }

  #take(piece: Piece): void {
    const asked = this.#asked;
    if (asked !== undefined) {
      this.#asked = undefined;
      asked.resolve({ done: false, value: piece });
      return;
    }
    this.#waiting.push(piece);
    this.#size += piece.byteLength;
    if (this.#size >= this.#readAheadBytes) this.#message.pause();
  }

  #finish(end: { readonly failure?: { readonly error: unknown } }): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    const asked = this.#asked;
    this.#asked = undefined;
    if (end.failure === undefined) asked?.resolve({ done: true });
    else asked?.reject(end.failure.error);
  }
}
