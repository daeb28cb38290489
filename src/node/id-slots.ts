/**
 * Numbered places, handed out one by one and as late as possible a second time. First of all, user ids on the host. Each sandbox has 65,536 of its own, so that a process of one is nobody to the files and limits of another.
 *
 * Invariants:
 *  - No two sandboxes of a node hold the same slot.
 *  - Every range lies between 2^29 and 2^31: above what distributions give to people and containers, below what some programs take
 *    for negative.
 */
import { assert } from '../base/index.ts';
import { PlatformError } from '../protocol/index.ts';

const idsPerSlot = 65_536;
const firstId = 2 ** 29;
export const slotCount = (2 ** 31 - firstId) / idsPerSlot;

export class IdSlots {
  readonly #taken = new Set<number>();
  readonly #count: number;
  readonly #what: string;
  #next: number;

  /** Nodes of one machine start at different places, so that they rarely use the same ids. */
  constructor(options: { readonly startAt: number; readonly count?: number; readonly what?: string }) {
    this.#count = options.count ?? slotCount;
    this.#what = options.what ?? 'user ids';
    this.#next = options.startAt % this.#count;
  }

  take(): number {
    if (this.#taken.size >= this.#count) {
      throw new PlatformError('limit_exceeded', `The node has no ${this.#what} left.`);
    }
    while (this.#taken.has(this.#next)) this.#advance();
    const slot = this.#next;
    this.#taken.add(slot);
    this.#advance();
    return slot;
  }

  /** For a sandbox found on disk. */
  takeExactly(slot: number): boolean {
    if (slot >= this.#count || this.#taken.has(slot)) return false;
    this.#taken.add(slot);
    return true;
  }

  release(slot: number): void {
    assert(this.#taken.delete(slot), `Slot ${slot} was not taken.`);
  }

  #advance(): void {
    this.#next = (this.#next + 1) % this.#count;
  }
}

export function uidBaseOf(slot: number): number {
  assert(slot >= 0 && slot < slotCount);
  return firstId + slot * idsPerSlot;
}
