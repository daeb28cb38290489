/**
 * Lets an effect wait for a lease that somebody else holds, where its caller asked for that. Waiting gives no right: when the
 * resource is free again, the effect is checked anew, and may be refused once more.
 */
import type { Clock, Timers } from '../base/index.ts';
import { type Conditions, isPlatformError, type PlatformError, type SandboxId } from '../protocol/index.ts';

export class LeaseGate {
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(time: { clock: Clock; timers: Timers }) {
    this.#clock = time.clock;
    this.#timers = time.timers;
  }

  /** Called when a lease on the resource has ended. */
  opened(resource: string): void {
    const waiting = this.#waiting.get(resource);
    this.#waiting.delete(resource);
    for (const wake of waiting ?? []) wake();
  }

  async pass<Result>(sandboxId: SandboxId, conditions: Conditions, effect: () => Promise<Result>): Promise<Result> {
    // Most callers do not wait: for them there is nothing to arm.
    if (conditions.leaseWaitMs === undefined) return await effect();
    const untilMs = this.#clock.bootMs() + conditions.leaseWaitMs;
    for (;;) {
      // Armed before the attempt: a lease that ends between refusal and waiting must still wake us.
      const wait = this.#arm(sandboxId);
      try {
        return await effect();
      } catch (error) {
        const leftMs = untilMs - this.#clock.bootMs();
        if (!isPlatformError(error, 'lease_held') || leftMs <= 0) throw error;
        await wait.opened(leftMs, error);
      } finally {
        wait.cancel();
      }
    }
  }

  #arm(resource: string) {
    const { promise, resolve } = Promise.withResolvers<void>();
    let waiting = this.#waiting.get(resource);
    if (waiting === undefined) {
      waiting = new Set();
      this.#waiting.set(resource, waiting);
    }
    const queue = waiting;
    queue.add(resolve);
    return {
      opened: async (limitMs: number, refusal: PlatformError) => {
        const late = Promise.withResolvers<never>();
        const cancel = this.#timers.after(limitMs, () => late.reject(refusal));
        try {
          await Promise.race([promise, late.promise]);
        } finally {
          cancel();
        }
      },
      cancel: () => {
        queue.delete(resolve);
        if (queue.size === 0 && this.#waiting.get(resource) === queue) this.#waiting.delete(resource);
      },
    };
  }
}
