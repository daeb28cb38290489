/**
 * Brings the committed result of a plan into the user's own repositories and directories: everywhere, or nowhere.
 *
 * Everything slow and everything that can be refused comes first and cannot be seen. Then the targets are locked and looked at once more, the
 * decision is written, and from then on any process goes forward (`settleJournal`).
 */
import { realpath } from 'node:fs/promises';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import { recoverApply } from '../sync/apply.ts';
import { limitsOf } from '../sync/limits.ts';
import type { SyncLimits } from '../sync/options.ts';
import { type FoundPlace, findPlace, refuseOverlaps } from './find-place.ts';
import { isAncestor } from './git-locks.ts';
import { type Journal, type JournalTarget, makeFolder, newJournalId } from './journal.ts';
import type { AppliedPlan, ApplyResult, ApplyState, PlanTarget, TargetConflict, TargetPlace } from './plan-target.ts';
import { beginTarget, lockTarget, prepareTarget, refNames, stageTarget, type TargetRequest } from './prepare-target.ts';
import { recover } from './recover.ts';
import { emptyTarget, resultOf, type TargetOutcome } from './result.ts';
import { type ApplyOptions, checkoutFor, type RunContext, saveJournal, withRun, withSyncLocks } from './run-context.ts';
import { asPlatformError, isExpected, notFinished, releaseJournal, settleJournal } from './settle-journal.ts';

export interface PlanApplication extends AppliedPlan {
  readonly targets: readonly { readonly target: PlanTarget; readonly place: TargetPlace }[];
}

export interface ApplyPlanOptions extends ApplyOptions {
  /** Prepares and tells what would be; nothing stays. */
  readonly dryRun?: boolean;
  /** Directories without git are exchanged whole, through a symlink. */
  readonly flip?: boolean;
  readonly limits?: Partial<SyncLimits>;
}

/** How often it is prepared anew because a target moved in the meantime. */
const attempts = 3;

export function applyPlan(application: PlanApplication, options: ApplyPlanOptions): Promise<ApplyResult> {
  return withRun(options, async (run) => {
    const earlier = await recover(run);
    for (let attempt = 1; ; attempt++) {
      const result = await new Application(run, application, options, earlier).run();
      if (result !== 'moved') return result;
      if (attempt === attempts) return await new Application(run, application, options, earlier).giveUp();
    }
  });
}

/** One attempt. The caller holds the runner's lock. */
class Application {
  readonly #run: RunContext;
  readonly #application: PlanApplication;
  readonly #options: ApplyPlanOptions;
  readonly #earlier: readonly Journal[];
  readonly #id: string;
  readonly #startedAtMs: number;
  readonly #warnings: string[] = [];

  constructor(run: RunContext, application: PlanApplication, options: ApplyPlanOptions, earlier: readonly Journal[]) {
    this.#run = run;
    this.#application = application;
    this.#options = options;
    this.#earlier = earlier;
    this.#startedAtMs = run.nowMs();
    this.#id = newJournalId(this.#startedAtMs);
  }

  async run(): Promise<ApplyResult | 'moved'> {
    const { places, outcomes } = await this.#findPlaces();
    if (outcomes.length > 0) return this.#answer(outcomes);
    return await withSyncLocks(
      places.map(({ found }) => found.sync?.directory ?? null),
      this.#run.signal,
      async () => {
        // A pull that was cut off comes first; what it changes is found when the target is looked at again.
        let isStale = false;
        for (const { found } of places) {
          if (found.sync !== null && (await recoverApply(found.sync)) !== undefined) isStale = true;
        }
        return isStale ? 'moved' : await this.#attempt(places);
      },
    );
  }

  giveUp(): ApplyResult {
    const error = new PlatformError(
      'plan_target_busy',
      'A target moved each time that it was prepared for. Ask again.',
    );
    const outcomes = this.#application.targets.map(({ target, place }) => ({
      target: emptyTarget(target, place),
      state: 'notApplied' as const,
      error,
    }));
    return this.#answer(outcomes, 'aborted');
  }

  async #findPlaces() {
    const { env, stateDirectory, flip = false } = this.#options;
    const places: { target: PlanTarget; found: FoundPlace }[] = [];
    const refusals = new Map<PlanTarget, PlatformError>();
    for (const { target, place } of this.#application.targets) {
      try {
        places.push({ target, found: await findPlace(place, { env, stateDirectory, flip }) });
      } catch (error) {
        // A lock that is our own says nothing to whoever would look for another git.
        const path = await realpath(place.path).catch(() => place.path);
        const unfinished = this.#unfinished((known) => known.place.path === path);
        refusals.set(target, unfinished ?? asPlatformError(error));
      }
    }
    for (const { target, found } of places) {
      const { root, ref, commonDirectory } = found;
      const unfinished = this.#unfinished(({ place, checkout, move }) =>
        move === null ? place.root === root : move.ref === ref && checkout.commonDirectory === commonDirectory,
      );
      if (unfinished !== undefined) refusals.set(target, unfinished);
    }
    const overlaps = await refuseOverlaps(places.map(({ found }) => found));
    for (const { target, found } of places) {
      const overlap = overlaps.get(found);
      if (overlap !== undefined) refusals.set(target, overlap);
    }
    places.sort((a, b) => (a.found.key < b.found.key ? -1 : 1));
    if (refusals.size === 0) return { places, outcomes: [] };
    const outcomes = this.#application.targets.map(({ target, place }) =>
      refusal(emptyTarget(target, place), refusals.get(target)),
    );
    return { places, outcomes };
  }

  /** What an earlier apply or undo has decided for such a target and could not do yet. */
  #unfinished(isSame: (known: JournalTarget) => boolean): PlatformError | undefined {
    for (const { planName, targets } of this.#earlier) {
      const pending = targets.filter((known) => known.state.kind === 'pending' && isSame(known));
      if (pending.length > 0) return notFinished(planName, pending);
    }
    return undefined;
  }

  async #attempt(
    places: readonly { readonly target: PlanTarget; readonly found: FoundPlace }[],
  ): Promise<ApplyResult | 'moved'> {
    const run = this.#run;
    const { targets: _, ...plan } = this.#application;
    const folder = await makeFolder(run.journals, this.#id);
    const requests = places.map(
      ({ target, found }, number): TargetRequest => ({
        target,
        found,
        plan,
        id: this.#id,
        number,
        folder,
        env: run.env,
      }),
    );
    const begun: JournalTarget[] = [];
    for (const request of requests) begun.push(await beginTarget(request));
    let journal = await saveJournal(run, {
      id: this.#id,
      kind: 'apply',
      of: null,
      phase: 'preparing',
      fence: run.runner.fence,
      owner: run.runner.owner,
      startedAtMs: this.#startedAtMs,
      finishedAtMs: null,
      targets: begun,
      ...plan,
    });
    try {
      await run.faults.hit('plan-begun');
      const prepared = await this.#prepare(requests, begun);
      const refused = prepared.some(
        ({ state }) => state === 'conflict' || state === 'refused' || state === 'busy' || state === 'notApplied',
      );
      const isNothing = prepared.every(({ state }) => state === 'unchanged');
      if (refused || isNothing || this.#options.dryRun === true) {
        await releaseJournal(run, journal);
        const isKept = (outcome: TargetOutcome) => !refused || outcome.state !== 'wouldApply';
        const told = prepared.map((outcome) =>
          isKept(outcome) ? outcome : { ...outcome, state: 'notApplied' as const },
        );
        return this.#answer(told, stateOf(prepared));
      }
      const staged: JournalTarget[] = [];
      for (const [number, { target }] of prepared.entries()) {
        await run.faults.hit('plan-stage');
        staged.push(
          target.state.kind === 'unchanged'
            ? target
            : await stageTarget(checkoutFor(target, run), target, refNames(this.#id, number)),
        );
      }
      this.#run.signal?.throwIfAborted();
      for (const target of staged.filter(({ state }) => state.kind === 'pending')) {
        await run.faults.hit('plan-lock');
        if (await lockTarget(checkoutFor(target, run), target)) continue;
        await releaseJournal(run, journal);
        return 'moved';
      }
      await run.faults.hit('plan-before-decision');
      journal = await saveJournal(run, { ...journal, phase: 'decided', targets: staged });
    } catch (error) {
      if (isPlatformError(error, 'plan_apply_superseded')) throw error;
      await releaseJournal(run, journal);
      return this.#failure(error, journal.targets);
    }
    await run.faults.hit('plan-decided');
    const settled = await settleJournal(run, journal);
    return resultOf(settled.journal, { errors: settled.errors, finishedAtMs: run.nowMs(), warnings: this.#warnings });
  }

  /** Every target, whatever the others say: all conflicts are told at once. */
  async #prepare(requests: readonly TargetRequest[], begun: readonly JournalTarget[]): Promise<TargetOutcome[]> {
    const outcomes: TargetOutcome[] = [];
    for (const [number, request] of requests.entries()) {
      const target = begun[number]!;
      this.#run.signal?.throwIfAborted();
      await this.#run.faults.hit('plan-prepare');
      try {
        if (await this.#hasEarlier(target)) {
          outcomes.push({ target: { ...target, state: { kind: 'unchanged' } }, state: 'unchanged' });
          continue;
        }
        const prepared = await prepareTarget(request, target, limitsOf(this.#options.limits));
        this.#warnings.push(...prepared.warnings);
        outcomes.push(outcomeOf(prepared.target, prepared.conflicts));
      } catch (error) {
        if (!isExpected(error)) throw error;
        outcomes.push(refusal(target, asPlatformError(error)));
      }
    }
    return outcomes;
  }

  /** Where the content does not tell that this very result is in it, the record of an earlier apply does. */
  async #hasEarlier(present: JournalTarget): Promise<boolean> {
    const { commitId } = this.#application;
    const { place, workspaceId, move } = present;
    const earlier = this.#earlier
      .filter((journal) => journal.commitId === commitId)
      .flatMap(({ targets }) => targets)
      .filter((target) => target.workspaceId === workspaceId && target.state.kind === 'applied')
      .filter((target) => target.place.path === place.path && target.move?.ref === move?.ref);
    if (move === null) return earlier.length > 0;
    for (const { move: made } of earlier) {
      if (
        made?.to != null &&
        move.from !== null &&
        (await isAncestor(checkoutFor(present, this.#run), made.to, move.from))
      )
        return true;
    }
    return false;
  }

  #failure(error: unknown, targets: readonly JournalTarget[]): ApplyResult {
    if (!isExpected(error)) throw error;
    const known = asPlatformError(error);
    return this.#answer(targets.map((target) => refusal(target, known)));
  }

  #answer(outcomes: readonly TargetOutcome[], state: ApplyState = stateOf(outcomes)): ApplyResult {
    const { targets: _, ...plan } = this.#application;
    return resultOf(
      { ...plan, id: this.#id, kind: 'apply', startedAtMs: this.#startedAtMs },
      {
        outcomes,
        state,
        dryRun: this.#options.dryRun === true,
        finishedAtMs: this.#run.nowMs(),
        warnings: this.#warnings,
      },
    );
  }
}

function outcomeOf(target: JournalTarget, conflicts: readonly TargetConflict[]): TargetOutcome {
  if (conflicts.length > 0) return { target, state: 'conflict', conflicts };
  return { target, state: target.state.kind === 'unchanged' ? 'unchanged' : 'wouldApply' };
}

function refusal(target: JournalTarget, error: PlatformError | undefined): TargetOutcome {
  if (error === undefined) return { target, state: 'notApplied' };
  const mayPass = isPlatformError(error, 'insufficient_storage', 'sync_failed');
  const isBusy = isPlatformError(error, 'plan_target_busy');
  return { target, state: isBusy ? 'busy' : mayPass ? 'notApplied' : 'refused', error };
}

/** Of an attempt that changed nothing. */
function stateOf(outcomes: readonly TargetOutcome[]): ApplyState {
  const has = (state: TargetOutcome['state']) => outcomes.some((outcome) => outcome.state === state);
  if (has('refused')) return 'refused';
  if (has('conflict')) return 'conflict';
  if (has('busy')) return 'busy';
  if (has('notApplied')) return 'aborted';
  return has('wouldApply') ? 'applied' : 'nothing';
}
