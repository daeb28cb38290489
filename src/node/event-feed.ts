/**
 * Hands events to everybody who watches.
 *
 * Invariants:
 *  - A watcher gets `watching` and then every event published after the call of `watch`, in order.
 *  - A watcher holds at most `queueLimit` events; one that is too slow is ended with `output_dropped`, never skipped over.
 */
import { type NodeEvent, PlatformError } from '../protocol/index.ts';

const queueLimit = 10_000;

interface Watcher {
  readonly queue: NodeEvent[];
  wake: () => void;
  over: boolean;
  failure: PlatformError | undefined;
}

export class EventFeed {
  readonly #watchers = new Set<Watcher>();
  #closed = false;

  publish(event: NodeEvent): void {
    for (const watcher of this.#watchers) {
      if (watcher.queue.length >= queueLimit) {
        watcher.failure = new PlatformError('output_dropped', `More than ${queueLimit} events were not read.`);
        this.#end(watcher);
        continue;
      }
      watcher.queue.push(event);
      watcher.wake();
    }
  }

  watch(signal: AbortSignal): AsyncIterable<NodeEvent> {
    const watcher: Watcher = { queue: [{ kind: 'watching' }], wake: () => {}, over: this.#closed, failure: undefined };
    const onAbort = () => this.#end(watcher);
    if (signal.aborted) onAbort();
    if (!watcher.over) this.#watchers.add(watcher);
    signal.addEventListener('abort', onAbort, { once: true });
    return this.#read(watcher, () => signal.removeEventListener('abort', onAbort));
  }

  /** Ends every watch, after what is queued. */
  close(): void {
    this.#closed = true;
    for (const watcher of this.#watchers) this.#end(watcher);
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  async *#read(watcher: Watcher, release: () => void): AsyncGenerator<NodeEvent, void> {
    try {
      for (;;) {
        const event = watcher.queue.shift();
        if (event !== undefined) yield event;
        else if (watcher.failure !== undefined) throw watcher.failure;
        else if (watcher.over) return;
        else {
          const { promise, resolve } = Promise.withResolvers<void>();
          watcher.wake = resolve;
          await promise;
        }
      }
    } finally {
      this.#end(watcher);
      release();
    }
  }

  #end(watcher: Watcher): void {
    watcher.over = true;
    this.#watchers.delete(watcher);
    watcher.wake();
  }
}
