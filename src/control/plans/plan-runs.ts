/**
 * What this process does on plans now: at most one thing on each. The store decides who may begin; this tells those who come later whom they
 * wait for, and gives them what came of it.
 *
 * Invariants:
 *  - A plan is in #runs exactly while something is done on it here, so the map cannot leak.
 *  - Every wait has a limit, and who gives up is told whom they waited for.
 */
import { askFor, type LockPlace, type Timers, whileHeld } from '../../base/index.ts';
import { type KeyId, type PlanCommitId, type PlanId, PlatformError } from '../../protocol/index.ts';

const planLock: LockPlace = { name: 'plan', rank: 0 };

export interface RunDescription {
  readonly kind: 'commit' | 'revert' | 'rollback' | 'restore' | 'checkpoint' | 'recovery';
  /** Of a commit or revert. */
  readonly commitId?: PlanCommitId;
  readonly by: KeyId;
  readonly startedAtMs: number;
}

export interface Run extends RunDescription {
  readonly planId: PlanId;
  /** Settles when it is over, and never fails: what came of it is in the store. */
  readonly over: Promise<void>;
  /** Given to what is done: aborts when the run is to end. */
  readonly stop: AbortController;
}

export class PlanRuns {
  readonly #timers: Timers;
  readonly #runs = new Map<PlanId, Run>();

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  find(planId: PlanId): Run | undefined {
    return this.#runs.get(planId);
  }

  get size(): number {
    return this.#runs.size;
  }

  /** Does something on a plan on which nothing is done here; refused at once otherwise. */
  async begin<Result>(planId: PlanId, what: RunDescription, work: (run: Run) => Promise<Result>): Promise<Result> {
    const present = this.#runs.get(planId);
    if (present !== undefined) throw busy(present);
    const over = Promise.withResolvers<void>();
    const run: Run = { ...what, planId, over: over.promise, stop: new AbortController() };
    // In the map before the first await: nobody else may begin meanwhile.
    this.#runs.set(planId, run);
    try {
      return await whileHeld(askFor(planLock, planId), () => work(run));
    } finally {
      this.#runs.delete(planId);
      over.resolve();
    }
  }

  /** Waits until it is over, or refuses after this long. */
  async waitFor(run: Run, options: { readonly waitMs: number; readonly signal: AbortSignal }): Promise<void> {
    if (options.waitMs <= 0) throw busy(run);
    const late = Promise.withResolvers<'late'>();
    const giveUp = () => late.resolve('late');
    const cancel = this.#timers.after(options.waitMs, giveUp);
    options.signal.addEventListener('abort', giveUp);
    if (options.signal.aborted) giveUp();
    try {
      if ((await Promise.race([run.over, late.promise])) === 'late') throw busy(run);
    } finally {
      cancel();
      options.signal.removeEventListener('abort', giveUp);
    }
  }

  /** Everything that runs is told to end, and waited for. */
  async close(): Promise<void> {
    for (const run of this.#runs.values()) run.stop.abort();
    await Promise.all([...this.#runs.values()].map(({ over }) => over));
  }
}

export function busy(run: RunDescription & { readonly planId: PlanId }): PlatformError {
  const { kind, planId, by, startedAtMs, commitId } = run;
  const details = { planId, kind, by, since: new Date(startedAtMs).toISOString(), ...(commitId && { commitId }) };
  return new PlatformError('plan_busy', `A ${kind} of plan ${planId} by ${by} is under way.`, { details });
}
