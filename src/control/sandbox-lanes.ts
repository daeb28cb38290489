/**
 * One lane per sandbox: whatever changes record and node runs here, one at a time, in the order it arrived.
 *
 * Invariants:
 *  - Between entering and leaving the lane nobody else changes this sandbox's record or orders its node to change.
 *  - A sandbox whose last change has an unknown outcome is in doubt, and is settled before anything else enters.
 *
 * A function that needs the lane takes a `Lane` as a parameter: it cannot be called without holding it.
 */
import { KeyedMutex } from '../base/index.ts';
import type { SandboxId } from '../protocol/index.ts';

declare const held: unique symbol;
/** Proof that the lane of this sandbox is held. */
export interface Lane {
  readonly sandboxId: SandboxId;
  readonly [held]: true;
}

export type Settle = (lane: Lane) => Promise<void>;

export class SandboxLanes {
  /** Guards one sandbox's record and orders. Rank 1. */
  readonly #lane = new KeyedMutex<SandboxId>();
  readonly #inDoubt = new Set<SandboxId>();
  #settle: Settle | undefined;

  /** The reconciler says how a sandbox in doubt is settled. */
  settleWith(settle: Settle): void {
    this.#settle = settle;
  }

  run<Result>(sandboxId: SandboxId, work: (lane: Lane) => Promise<Result>): Promise<Result> {
    return this.#lane.run(sandboxId, async () => {
      const lane = { sandboxId } as Lane;
      if (this.#inDoubt.has(sandboxId)) {
        await this.#settle?.(lane);
        this.#inDoubt.delete(sandboxId);
      }
      return await work(lane);
    });
  }

  /** From inside the lane: what the node did is not known. */
  doubt(lane: Lane): void {
    this.#inDoubt.add(lane.sandboxId);
  }

  isInDoubt(sandboxId: SandboxId): boolean {
    return this.#inDoubt.has(sandboxId);
  }

  get doubtful(): readonly SandboxId[] {
    return [...this.#inDoubt];
  }

  /** Sandboxes whose lane is held or waited for. */
  get busy(): number {
    return this.#lane.size;
  }
}
