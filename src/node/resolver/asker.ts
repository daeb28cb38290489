/**
 * What one sandbox may ask of the resolver: so many questions a second, and so much waiting at once. What is beyond is dropped, as a
 * busy network would drop it, and the sandbox asks again.
 */
const questionsPerSecond = 200;
const burst = 400;
const pendingMax = 256;
const streamsMax = 8;

export class Asker {
  readonly #nowMs: () => number;
  #credit = burst;
  #atMs: number;
  #pending = 0;
  #streams = 0;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.#atMs = nowMs();
  }

  /** Whether it may ask now; if so, `endQuestion` follows. */
  beginQuestion(): boolean {
    const nowMs = this.#nowMs();
    this.#credit = Math.min(burst, this.#credit + ((nowMs - this.#atMs) * questionsPerSecond) / 1_000);
    this.#atMs = nowMs;
    if (this.#credit < 1 || this.#pending >= pendingMax) return false;
    this.#credit--;
    this.#pending++;
    return true;
  }

  /** How many of its questions wait for an answer. */
  get pending(): number {
    return this.#pending;
  }

  endQuestion(): void {
    this.#pending--;
  }

  beginStream(): boolean {
    if (this.#streams >= streamsMax || !this.beginQuestion()) return false;
    this.endQuestion();
    this.#streams++;
    return true;
  }

  endStream(): void {
    this.#streams--;
  }
}
