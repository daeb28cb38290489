/**
 * One lane per sandbox: whatever changes record and node runs here, one at a time, in the order it arrived.
 *
 * Invariants:
 *  - Between entering and leaving the lane nobody else changes this sandbox's record or orders its node to change.
 *  - A sandbox whose last change has an unknown outcome is in doubt, and is settled before anything else enters.
 *  - Nothing enters before record and node were compared once since the server started: how the last change of an earlier
 *    run ended is not known either.
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

export type Settle = (lane: Lane, options: { readonly isInDoubt: boolean }) => Promise<void>;

export class SandboxLanes {
  /** Guards one sandbox's record and orders. Rank 1. */
  readonly #lane = new KeyedMutex<SandboxId>({ name: 'lane', rank: 1 });
  readonly #inDoubt = new Set<SandboxId>();
  /** Those whose record and node were seen to agree since the start; left by `forget`. */
  readonly #compared = new Set<SandboxId>();
  #settle: Settle = async () => {};

  /** The reconciler says how a sandbox is settled. */
  settleWith(settle: Settle): void {
    this.#settle = settle;
  }

  run<Result>(sandboxId: SandboxId, work: (lane: Lane) => Promise<Result>): Promise<Result> {
    return this.runUnsettled(sandboxId, async (lane) => {
      const isInDoubt = this.#inDoubt.has(sandboxId);
      if (isInDoubt || !this.#compared.has(sandboxId)) {
        await this.#settle(lane, { isInDoubt });
        this.#inDoubt.delete(sandboxId);
        this.#compared.add(sandboxId);
      }
      return await work(lane);
    });
  }

  /** For what is right whatever became of the last change: a deletion. */
  runUnsettled<Result>(sandboxId: SandboxId, work: (lane: Lane) => Promise<Result>): Promise<Result> {
    return this.#lane.run(sandboxId, () => work({ sandboxId } as Lane));
  }

  /** From inside the lane: what the node did is not known. */
  doubt(lane: Lane): void {
    this.#inDoubt.add(lane.sandboxId);
  }

  /** Record and node were seen to agree, by somebody who looked at all of them. */
  markCompared(sandboxId: SandboxId): void {
    this.#compared.add(sandboxId);
  }

  /** The record is gone: there is nothing left to settle. */
  forget(lane: Lane): void {
    this.#inDoubt.delete(lane.sandboxId);
    this.#compared.delete(lane.sandboxId);
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
