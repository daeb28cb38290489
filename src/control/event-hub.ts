/**
 * Tells followers in this process that new events are committed. It carries no event: a follower reads the store from its
 * own cursor, so nothing is lost or doubled however late it wakes.
 */
export class EventHub {
  readonly #waiting = new Set<() => void>();

  /** Called after a commit that appended events. */
  notify(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /**
   * Resolves at the next notify or abort. Arm it before reading the store: what is committed between the
   * reading and the waiting would otherwise be missed.
   */
  next(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        signal.removeEventListener('abort', wake);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener('abort', wake);
    });
  }

  get waiting(): number {
    return this.#waiting.size;
  }
}
