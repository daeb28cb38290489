/**
 * Finds Ctrl-P Ctrl-Q in what is typed. A Ctrl-P alone is a key as any other, so it is passed on when something else follows it, or when
 * nothing does for a moment.
 */
const ctrlP = 0x10;
const ctrlQ = 0x11;
const waitMs = 500;

export class DetachKeys {
  readonly #onKeys: (bytes: Uint8Array) => void;
  readonly #onDetach: () => void;
  #held: NodeJS.Timeout | undefined;

  constructor(options: { readonly onKeys: (bytes: Uint8Array) => void; readonly onDetach: () => void }) {
    this.#onKeys = options.onKeys;
    this.#onDetach = options.onDetach;
  }

  type(bytes: Uint8Array): void {
    const keys: number[] = [];
    for (const key of bytes) {
      const isSecond = this.#held !== undefined;
      this.#letGo();
      if (isSecond && key === ctrlQ) {
        this.#pass(keys);
        this.#onDetach();
        return;
      }
      if (isSecond) keys.push(ctrlP);
      if (key === ctrlP) this.#hold();
      else keys.push(key);
    }
    this.#pass(keys);
  }

  close(): void {
    this.#letGo();
  }

  #hold(): void {
    this.#held = setTimeout(() => {
      this.#held = undefined;
      this.#pass([ctrlP]);
    }, waitMs);
  }

  #letGo(): void {
    clearTimeout(this.#held);
    this.#held = undefined;
  }

  #pass(keys: readonly number[]): void {
    if (keys.length > 0) this.#onKeys(Uint8Array.from(keys));
  }
}
