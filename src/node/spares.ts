/**
 * Things made ahead, because making one takes as long as everything else that a new sandbox needs.
 *
 * Invariants:
 *  - A thing is in #ready only when it is complete, and leaves it before it is given away.
 *  - At most `limit` are ready, and one is being made.
 *  - A failure here is never a caller's: who finds no spare makes its own.
 */
const defaultLimit = 16;

export interface SparesOptions<Thing> {
  /** Leaves nothing when it fails, or what the next start of the node removes. */
  readonly make: () => Promise<Thing>;
  readonly limit?: number | undefined;
}

export class Spares<Thing> {
  readonly #make: () => Promise<Thing>;
  readonly #limit: number;
  readonly #ready: Thing[] = [];
  #filling: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: SparesOptions<Thing>) {
    this.#make = options.make;
    this.#limit = options.limit ?? defaultLimit;
  }

  /** `undefined` when none is ready. More are made from now on. */
  take(): Thing | undefined {
    const spare = this.#ready.pop();
    if (!this.#isClosed) this.#fill();
    return spare;
  }

  /** Makes no more, and gives back what nobody took. */
  async close(): Promise<Thing[]> {
    this.#isClosed = true;
    await this.#filling;
    return this.#ready.splice(0);
  }

  #fill(): void {
    this.#filling ??= this.#fillUp().finally(() => {
      this.#filling = undefined;
    });
  }

  async #fillUp(): Promise<void> {
    while (!this.#isClosed && this.#ready.length < this.#limit) {
      try {
        this.#ready.push(await this.#make());
      } catch {
        return;
      }
    }
  }
}
