/**
 * What one client does to a terminal, in the order in which it does it: one call at a time, so that no key overtakes another on the way to a
 * node. What is typed while a call is under way goes with the next one.
 *
 * Invariant: what waits is bounded; more is refused, and nothing of it is taken.
 */
import type { TerminalSize } from '../protocol/index.ts';

export interface InputTarget {
  write(bytes: Uint8Array): Promise<void>;
  resize(size: TerminalSize): Promise<void>;
}

type Step = { readonly kind: 'write'; readonly parts: Uint8Array[] } | { readonly kind: 'resize'; size: TerminalSize };

/** Of one call. */
const writeBytesMax = 64 * 1024;

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
    this.#bytes += bytes.byteLength;
    const last = this.#steps.at(-1);
    if (last?.kind === 'write') last.parts.push(bytes);
    else this.#steps.push({ kind: 'write', parts: [bytes] });
    void this.#drain();
    return true;
  }

  /** Of sizes that wait behind each other only the last counts. */
  resize(size: TerminalSize): void {
    const last = this.#steps.at(-1);
    if (last?.kind === 'resize') last.size = size;
    else this.#steps.push({ kind: 'resize', size });
    void this.#drain();
  }

  async #drain(): Promise<void> {
    const target = this.#target;
    if (this.#isBusy || target === undefined) return;
    this.#isBusy = true;
    for (let step = this.#steps.shift(); step !== undefined; step = this.#steps.shift()) {
      try {
        if (step.kind === 'resize') await target.resize(step.size);
        else await this.#writeAll(target, step.parts);
      } catch (error) {
        this.#onError(error);
      }
    }
    this.#isBusy = false;
  }

  async #writeAll(target: InputTarget, parts: readonly Uint8Array[]): Promise<void> {
    const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
    this.#bytes -= bytes.byteLength;
    for (let at = 0; at < bytes.byteLength; at += writeBytesMax) {
      await target.write(bytes.subarray(at, at + writeBytesMax));
    }
  }
}
