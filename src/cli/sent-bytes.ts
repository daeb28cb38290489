/** What is sent, and why it broke off where that was here: the server only knows that it did. */
export class SentBytes {
  readonly #source: AsyncIterable<Uint8Array>;
  #failure: unknown;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source;
  }

  async *bytes(): AsyncGenerator<Uint8Array, void> {
    try {
      yield* this.#source;
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  async orWhy<Result>(sending: Promise<Result>): Promise<Result> {
    try {
      return await sending;
    } catch (error) {
      throw this.#failure ?? error;
    }
  }
}
