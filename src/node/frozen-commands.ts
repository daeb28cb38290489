/**
 * Makes the commands of a sandbox stand still, and lets them go on: everything that init has started, shells of sessions, terminals and
 * file workers too. Init goes on; it writes journals and nothing in the sandbox's own files.
 *
 * Invariant: what `freeze` could not freeze goes on.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { FaultPoints } from '../base/index.ts';
import type { Cgroups } from '../isolation/index.ts';
import { PlatformError, type SandboxId } from '../protocol/index.ts';

/** A task that waits for a slow disk stands still only after that. */
const freezeTimeoutMs = 10_000;
const pollMaxMs = 20;

export class FrozenCommands {
  readonly #cgroups: Cgroups;
  readonly #faults: FaultPoints;

  constructor(options: { readonly cgroups: Cgroups; readonly faults: FaultPoints }) {
    this.#cgroups = options.cgroups;
    this.#faults = options.faults;
  }

  /** Resolves when nothing moves any more. */
  async freeze(sandboxId: SandboxId): Promise<void> {
    try {
      await this.#cgroups.freeze(sandboxId, true);
      await this.#faults.hit('node-freeze-asked');
      await this.#waitUntilFrozen(sandboxId);
    } catch (error) {
      await this.thaw(sandboxId);
      throw error;
    }
  }

  async thaw(sandboxId: SandboxId): Promise<void> {
    await this.#cgroups.freeze(sandboxId, false);
  }

  /** Whatever becomes of the work, the commands go on after it. */
  async whileFrozen<Result>(
    sandboxId: SandboxId,
    work: () => Promise<Result>,
  ): Promise<{ readonly result: Result; readonly frozenMs: number }> {
    const begunAt = performance.now();
    await this.freeze(sandboxId);
    let result: Result;
    try {
      result = await work();
    } finally {
      await this.thaw(sandboxId);
    }
    return { result, frozenMs: Math.ceil(performance.now() - begunAt) };
  }

  async #waitUntilFrozen(sandboxId: SandboxId): Promise<void> {
    const until = performance.now() + freezeTimeoutMs;
    for (let pauseMs = 1; !(await this.#cgroups.isFrozen(sandboxId)); pauseMs = Math.min(pauseMs * 2, pollMaxMs)) {
      if (performance.now() > until) {
        throw new PlatformError(
          'freeze_failed',
          `A command of ${sandboxId} did not stand still within ${freezeTimeoutMs / 1_000} s; all of them go on.`,
        );
      }
      await delay(pauseMs);
    }
  }
}
