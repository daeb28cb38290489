/**
 * One build and what it said, kept for readers who come at any time.
 *
 * Invariants:
 *  - Items have growing numbers, the last is `ended`, and nothing follows it.
 *  - At most `logLimitBytes` of text are kept; the oldest goes first, and readers who missed some hear `dropped`.
 */
import type { BuildItem, NodeBuild } from '../../protocol/index.ts';

const logLimitBytes = 2 * 1024 * 1024;
/** One item of the log has no more. */
const pieceMax = 16 * 1024;

type Unnumbered<Item> = Item extends unknown ? Omit<Item, 'sequence'> : never;

export class BuildLog {
  readonly teamId: string;
  /** What is built, in one line: the same asked for again is this build. */
  readonly key: string;
  #build: NodeBuild;
  #items: BuildItem[] = [];
  #bytes = 0;
  #sequence = 0;
  #changed = Promise.withResolvers<void>();

  constructor(options: {
    readonly teamId: string;
    readonly key: string;
    readonly build: NodeBuild;
    readonly items?: readonly BuildItem[];
  }) {
    this.teamId = options.teamId;
    this.key = options.key;
    this.#build = options.build;
    this.#items = [...(options.items ?? [])];
    this.#sequence = this.#items.at(-1)?.sequence ?? 0;
  }

  get build(): NodeBuild {
    return this.#build;
  }

  get items(): readonly BuildItem[] {
    return this.#items;
  }

  say(text: string): void {
    for (let at = 0; at < text.length; at += pieceMax) this.#add({ kind: 'log', text: text.slice(at, at + pieceMax) });
  }

  step(step: { readonly step: number; readonly steps: number; readonly text: string; readonly cached: boolean }): void {
    this.#add({ kind: 'step', ...step, text: step.text.slice(0, pieceMax) });
  }

  end(build: NodeBuild): void {
    this.#build = build;
    this.#add({ kind: 'ended', build });
  }

  async *follow(after: number, signal: AbortSignal): AsyncGenerator<BuildItem, void> {
    let last = after;
    while (!signal.aborted) {
      const changed = this.#changed.promise;
      const first = this.#items[0];
      if (first !== undefined && first.sequence > last + 1) {
        last = first.sequence - 1;
        yield { kind: 'dropped', sequence: last };
      }
      for (const item of this.#items.filter(({ sequence }) => sequence > last)) {
        last = item.sequence;
        yield item;
        if (signal.aborted) return;
      }
      if (this.#items.at(-1)?.kind === 'ended' && (this.#items.at(-1)?.sequence ?? 0) <= last) return;
      await Promise.race([changed, aborted(signal)]);
    }
  }

  #add(item: Unnumbered<BuildItem>): void {
    this.#items.push({ ...item, sequence: ++this.#sequence } as BuildItem);
    if (item.kind === 'log') this.#bytes += item.text.length;
    while (this.#bytes > logLimitBytes) {
      const first = this.#items.shift();
      if (first?.kind === 'log') this.#bytes -= first.text.length;
    }
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
