/**
 * Tells when a sandbox reaches its deadline that is to be paused then, not ended. Init holds a later deadline for it, in case nobody is there.
 *
 * Invariant: a sandbox has a timer exactly while it runs, has a deadline and is to be paused at it.
 */
import type { Clock, Timers } from '../base/index.ts';
import type { SandboxId } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';

/** The longest that a timer can wait; it is set again then. */
const timerMaxMs = 2 ** 31 - 1;

export class ExpiryPauses {
  readonly #timers = new Map<SandboxId, () => void>();
  readonly #options: {
    readonly clock: Clock;
    readonly timers: Timers;
    /** May come early; whoever is called looks at the record. */
    readonly onDue: (sandboxId: SandboxId) => void;
  };

  constructor(options: {
    readonly clock: Clock;
    readonly timers: Timers;
    readonly onDue: (sandboxId: SandboxId) => void;
  }) {
    this.#options = options;
  }

  /** To be called whenever a record has changed. */
  follow(record: NodeRecord): void {
    const { sandboxId } = record.mark;
    const { clock, timers, onDue } = this.#options;
    this.forget(sandboxId);
    if (!isToBePaused(record)) return;
    const leftMs = Math.max(0, record.deadlineBootMs - clock.bootMs());
    const cancel = timers.after(Math.min(leftMs, timerMaxMs), () => {
      this.#timers.delete(sandboxId);
      onDue(sandboxId);
    });
    this.#timers.set(sandboxId, cancel);
  }

  forget(sandboxId: SandboxId): void {
    this.#timers.get(sandboxId)?.();
    this.#timers.delete(sandboxId);
  }

  close(): void {
    for (const sandboxId of [...this.#timers.keys()]) this.forget(sandboxId);
  }
}

export function isToBePaused({ life, settings, deadlineBootMs }: NodeRecord): boolean {
  return life.kind === 'running' && settings.onExpiry === 'pause' && deadlineBootMs !== 0;
}
