/**
 * What one client does to a terminal, in the order in which it does it: one call at a time, so that no key overtakes another on the way to a
 * node. What is typed while a call is under way goes with the next one.
 *
 * Invariant: what waits is bounded, in bytes and in steps, however small the pieces it came in; more is refused, and nothing of it is taken.
 */
import type { TerminalSize } from '../protocol/index.ts';

export interface InputTarget {
  write(bytes: Uint8Array): Promise<void>;
  resize(size: TerminalSize): Promise<void>;
}

type Step = { readonly kind: 'write'; readonly typed: Typed } | { readonly kind: 'resize'; size: TerminalSize };

/** Of one call. */
const writeBytesMax = 64 * 1024;
/** Sizes between what is typed, and what is typed between sizes. */
const stepsMax = 1_024;

export class InputLine {
  readonly #limitBytes: number;
  readonly #onError: (error: unknown) => void;
  readonly #steps: Step[] = [];
  #bytes = 0;
  #target: InputTarget | undefined;
  #isBusy = false;

  constructor(options: { readonly limitBytes: number; readonly onError: (error: unknown) => void }) {
    this.#limitBytes = options.limitBytes;
    this.#onError = options.onError;
  }

  /** What came before is done now. */
  open(target: InputTarget): void {
    this.#target = target;
    void this.#drain();
  }

  /** false: too much waits. */
  write(bytes: Uint8Array): boolean {
    if (this.#bytes + bytes.byteLength > this.#limitBytes) return false;
    let last = this.#steps.at(-1);
    if (last?.kind !== 'write') {
      last = { kind: 'write', typed: new Typed() };
      if (!this.#push(last)) return false;
    }
    this.#bytes += bytes.byteLength;
    last.typed.add(bytes);
    void this.#drain();
    return true;
  }

  /** Of sizes that wait behind each other only the last counts. false: too much waits. */
  resize(size: TerminalSize): boolean {
    const last = this.#steps.at(-1);
    if (last?.kind === 'resize') last.size = size;
    else if (!this.#push({ kind: 'resize', size })) return false;
    void this.#drain();
    return true;
  }

  #push(step: Step): boolean {
    return this.#steps.length < stepsMax && this.#steps.push(step) > 0;
  }

  async #drain(): Promise<void> {
    const target = this.#target;
    if (this.#isBusy || target === undefined) return;
    this.#isBusy = true;
    for (let step = this.#steps.shift(); step !== undefined; step = this.#steps.shift()) {
      try {
        if (step.kind === 'resize') await target.resize(step.size);
        else await this.#writeAll(target, step.typed.bytes);
      } catch (error) {
        this.#onError(error);
      }
    }
    this.#isBusy = false;
  }

  async #writeAll(target: InputTarget, bytes: Uint8Array): Promise<void> {
    this.#bytes -= bytes.byteLength;
    for (let at = 0; at < bytes.byteLength; at += writeBytesMax) {
      await target.write(bytes.subarray(at, at + writeBytesMax));
    }
  }
}

/** Copies, because a message of one byte keeps everything alive that arrived with it. */
class Typed {
  #room = Buffer.allocUnsafeSlow(64);
  #length = 0;

  get bytes(): Uint8Array {
    return this.#room.subarray(0, this.#length);
  }

  add(bytes: Uint8Array): void {
    const length = this.#length + bytes.byteLength;
    if (length > this.#room.byteLength) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#room.byteLength));
      larger.set(this.bytes);
      this.#room = larger;
    }
    this.#room.set(bytes, this.#length);
    this.#length = length;
  }
}
