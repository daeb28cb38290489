/**
 * A clock that moves only when told. Timers due within a step run in the order they are due, each at its own time, so
 * that what a timer reads and starts is what it would be with a real clock.
 */
import type { Clock, Timers } from '../../src/base/clock.ts';

interface Timer {
  readonly dueBootMs: number;
  readonly run: () => void;
}

export class FakeClock implements Clock, Timers {
  #nowMs: number;
  #bootMs = 1_000_000;
  #boots = 1;
  readonly #timers = new Set<Timer>();

  constructor(options: { readonly nowMs?: number } = {}) {
    this.#nowMs = options.nowMs ?? Date.UTC(2030, 0, 1);
  }

  nowMs(): number {
    return this.#nowMs;
  }

  bootMs(): number {
    return this.#bootMs;
  }

  get bootId(): string {
    return `boot-${this.#boots}`;
  }

  /** Timers that wait; zero when nothing was left behind. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  after(delayMs: number, run: () => void): () => void {
    const timer = { dueBootMs: this.#bootMs + Math.max(0, delayMs), run };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Both times advance. */
  step(ms: number): void {
    const endBootMs = this.#bootMs + ms;
    for (let timer = this.#firstDue(endBootMs); timer; timer = this.#firstDue(endBootMs)) {
      this.#timers.delete(timer);
      this.#advanceTo(Math.max(this.#bootMs, timer.dueBootMs));
      timer.run();
    }
    this.#advanceTo(endBootMs);
  }

  /** Somebody sets the time of day, forwards or back; boot time does not notice. */
  jump(ms: number): void {
    this.#nowMs += ms;
  }

  /** The machine boots: a new boot id, boot time from zero. Timers die with the processes that held them. */
  reboot(): void {
    this.#boots++;
    this.#bootMs = 0;
    this.#timers.clear();
  }

  #firstDue(endBootMs: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.dueBootMs <= endBootMs && (!first || timer.dueBootMs < first.dueBootMs)) first = timer;
    }
    return first;
  }

  #advanceTo(bootMs: number): void {
    this.#nowMs += bootMs - this.#bootMs;
    this.#bootMs = bootMs;
  }
}
