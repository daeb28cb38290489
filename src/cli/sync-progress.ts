/** How far a push or a pull is, on one line of a terminal, and nowhere else. What is over quickly shows nothing. */
import type { SyncProgress } from '../checkout/index.ts';
import type { CliIo } from './cli-io.ts';
import { readableBytes } from './readable.ts';

const everyMs = 200;
const verbs = { snapshot: 'Reading', send: 'Sending', receive: 'Receiving', apply: 'Writing' } as const;

export class SyncProgressLine {
  readonly #io: CliIo;
  readonly #isShown: boolean;
  #lastMs: number;
  #isDrawn = false;

  constructor(io: CliIo, options: { readonly isQuiet: boolean }) {
    this.#io = io;
    this.#isShown = io.stderr.isTerminal && !options.isQuiet;
    this.#lastMs = io.nowMs();
  }

  show({ phase, files, bytes }: SyncProgress): void {
    if (!this.#isShown) return;
    if (phase === 'done') {
      this.#clear();
      return;
    }
    const nowMs = this.#io.nowMs();
    if (nowMs - this.#lastMs < everyMs) return;
    this.#lastMs = nowMs;
    this.#isDrawn = true;
    const counted = files === 0 ? '' : `${files} ${files === 1 ? 'file' : 'files'}, `;
    void this.#io.stderr.write(`\r${verbs[phase]} ${counted}${readableBytes(bytes)}\x1b[K`);
  }

  #clear(): void {
    this.#lastMs = this.#io.nowMs();
    if (!this.#isDrawn) return;
    this.#isDrawn = false;
    void this.#io.stderr.write('\r\x1b[K');
  }
}
