/** Random bytes for ids, drawn from the system in larger pieces: asking it anew for each id costs more than the id. */
import { type RandomSource, systemRandom } from './ids.ts';

const poolBytes = 4_096;

export class RandomPool {
  readonly #pool = new Uint8Array(poolBytes);
  readonly #source: RandomSource;
  /** Bytes before it were given out, are never given out again, and are kept nowhere here: some become secrets. */
  #at = poolBytes;

  constructor(source: RandomSource = systemRandom) {
    this.#source = source;
  }

  readonly fill: RandomSource = (bytes) => {
    if (bytes.byteLength > poolBytes) return this.#source(bytes);
    if (this.#at + bytes.byteLength > poolBytes) {
      this.#source(this.#pool);
      this.#at = 0;
    }
    const given = this.#pool.subarray(this.#at, this.#at + bytes.byteLength);
    bytes.set(given);
    given.fill(0);
    this.#at += bytes.byteLength;
    return bytes;
  };
}
