/**
 * Who gets which resources next. Pure bookkeeping: no time, no store, no node.
 *
 * Invariants:
 *  - A waiter is granted only when every resource it wants is free and nobody before it wants one of them: fair, all or
 *    nothing, and free of deadlock whatever order the resources are named in.
 *  - A resource is busy from the moment a grant begins until its lease has ended; at most one waiter or lease has it.
 */
export interface Waiter {
  /** Each once. */
  readonly places: readonly string[];
}

export class LeaseQueue<Item extends Waiter> {
  readonly #waiting = new Set<Item>();
  readonly #busy = new Set<string>();

  add(waiter: Item): void {
    this.#waiting.add(waiter);
  }

  /** False if it was not waiting: it is being granted, or never was here. */
  remove(waiter: Item): boolean {
    return this.#waiting.delete(waiter);
  }

  removeAll(): Item[] {
    const all = [...this.#waiting];
    this.#waiting.clear();
    return all;
  }

  occupy(places: readonly string[]): void {
    for (const place of places) this.#busy.add(place);
  }

  free(place: string): void {
    this.#busy.delete(place);
  }

  /** Takes everybody who can be granted now out of the queue, in order, and makes their resources busy. */
  takeReady(): Item[] {
    const ready: Item[] = [];
    const wanted = new Set<string>();
    for (const waiter of this.#waiting) {
      const isReady = waiter.places.every((place) => !this.#busy.has(place) && !wanted.has(place));
      if (isReady) {
        this.#waiting.delete(waiter);
        this.occupy(waiter.places);
        ready.push(waiter);
      }
      for (const place of waiter.places) wanted.add(place);
    }
    return ready;
  }

  /** Takes the waiter that this place goes to next, if it wants nothing else. The place stays busy. */
  takeSuccessor(place: string): Item | undefined {
    for (const waiter of this.#waiting) {
      if (!waiter.places.includes(place)) continue;
      if (waiter.places.length > 1) return undefined;
      this.#waiting.delete(waiter);
      return waiter;
    }
    return undefined;
  }

  isBusy(place: string): boolean {
    return this.#busy.has(place);
  }

  /** Whether a newcomer would be granted at once. */
  isFree(places: readonly string[]): boolean {
    return places.every((place) => !this.#busy.has(place) && this.countWaiting(place) === 0);
  }

  countWaiting(place: string): number {
    let count = 0;
    for (const waiter of this.#waiting) if (waiter.places.includes(place)) count++;
    return count;
  }
}
