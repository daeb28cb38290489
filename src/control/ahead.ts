/**
 * A stream whose first item is asked for before anybody takes it, so that whatever it waits for begins meanwhile.
 *
 * Invariant: a failure of the first item is told to whoever takes it, and to nobody else.
 */
export class Ahead<Item> {
  readonly #items: AsyncGenerator<Item, void>;
  readonly #first: Promise<IteratorResult<Item, void>>;

  constructor(items: AsyncGenerator<Item, void>) {
    this.#items = items;
    this.#first = items.next();
    this.#first.catch(() => {});
  }

  async *rest(): AsyncGenerator<Item, void> {
    const { done, value } = await this.#first;
    if (done) return;
    yield value;
    yield* this.#items;
  }

  /** Nobody takes more. What was asked for is waited for: whoever ends it has told its source, which stops. */
  async end(): Promise<void> {
    await this.#items.return();
  }
}
