/**
 * The cycle of one command on a checkout: resolve, lease, push, set up, run, pull, release.
 *
 * Invariants:
 *  - The lease is asked for before anything is changed in the sandbox, and released after everything else, whatever fails.
 *  - `run` is called only when push and set-up have succeeded.
 *  - Pull is tried after `run` also when the command failed; what it fails with never hides how the command ended.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Atoll, Sandbox } from '../sdk/index.ts';
import { admitsWorktree, hasWorktree, metadataKeys, readClientState, worktreesText } from './client-state.ts';
import type { Definition } from './definition.ts';
import type { FoundCheckout } from './find-checkout.ts';
import { type HolderView, holdLease } from './hold-lease.ts';
import { ensureReady } from './readiness.ts';
import type { CheckoutResolver, Resolved } from './resolver.ts';
import { ensureSetUp } from './set-up.ts';
import type { PullSummary, PushSummary, SyncPort, SyncProgress } from './sync-port.ts';

export interface CycleOptions {
  readonly client: Atoll;
  readonly resolver: CheckoutResolver;
  readonly found: FoundCheckout;
  readonly definition: Definition;
  /** Absent: nothing is sent and nothing is brought back. */
  readonly sync: SyncPort | undefined;
  readonly holder: string;
  readonly reason: string;
  readonly waitMs: number;
  readonly readyTimeoutMs: number;
  readonly nowMs: () => number;
  readonly say: (text: string) => void;
  readonly onWait: (holder: HolderView) => void;
  readonly onLeaseStep: (step: 'requested' | 'granted' | 'released') => void;
  readonly onProgress: (progress: SyncProgress) => void;
  readonly onSetUpOutput: (bytes: Uint8Array) => void;
  readonly signal?: AbortSignal;
}

/** What a cycle gives to the command in it. */
export interface Leased {
  readonly sandbox: Sandbox;
  readonly leaseToken: number;
  readonly leaseId: string;
  readonly definition: Definition;
  /** Aborts when the lease is lost, or the caller gives up. */
  readonly signal: AbortSignal;
}

export interface CycleResult<Result> {
  readonly sandboxId: string;
  readonly how: Resolved['how'];
  readonly push: PushSummary | null;
  readonly result: Result;
  readonly pull: PullSummary | null;
  /** What pull failed with. */
  readonly pullError: PlatformError | null;
  readonly timingsMs: { readonly push: number; readonly run: number; readonly pull: number };
}

/** How often another sandbox is looked for when the one found turned out to be another's, or ended. */
const attemptsMax = 4;

export interface CycleSteps<Result> {
  readonly run: (leased: Leased) => Promise<Result>;
  /** Whether changes are brought back after it ended so. */
  readonly mayPull: (result: Result) => boolean;
  readonly isReset?: boolean;
  readonly isPushed?: boolean;
  /** Only these are sent and brought back, from the root of the checkout. */
  readonly paths?: readonly string[];
  /** False for what does not need it: without the files of the checkout a step would fail. */
  readonly isSetUp?: boolean;
}

export async function runCycle<Result>(options: CycleOptions, steps: CycleSteps<Result>): Promise<CycleResult<Result>> {
  const { resolver, definition, say } = options;
  let resolved = steps.isReset ? await resolver.reset() : await resolver.ensure();
  for (let attempt = 1; ; attempt++) {
    if (resolved.how === 'created') say(`Made the sandbox ${resolved.sandbox.id} for this checkout.`);
    const made = resolved.how === 'created' ? null : (readClientState(resolved.sandbox.metadata)?.definition ?? null);
    if (made !== null && made !== definition.hash) {
      say('The definition has changed since the sandbox was made; "atoll reset" makes a new one from it.');
    }
    const outcome = await underLease(options, resolved, steps);
    if (outcome !== 'not ours') return outcome;
    if (attempt >= attemptsMax) throw new PlatformError('checkout_busy', 'Others take the sandboxes of this checkout.');
    await resolver.forget(resolved.sandbox.id);
    resolved = await resolver.ensure();
  }
}

async function underLease<Result>(
  options: CycleOptions,
  resolved: Resolved,
  steps: CycleSteps<Result>,
): Promise<CycleResult<Result> | 'not ours'> {
  const { client, say, signal } = options;
  const ready = await ensureReady(client, resolved.sandbox, {
    timeoutMs: options.readyTimeoutMs,
    onStart: (was) => say(`Starting ${resolved.sandbox.id}, which was ${was}.`),
    ...(signal && { signal }),
  });
  const hold = {
    sandboxId: ready.id,
    holder: options.holder,
    reason: options.reason,
    waitMs: options.waitMs,
    nowMs: options.nowMs,
    onWait: options.onWait,
    onStep: options.onLeaseStep,
    ...(signal && { signal }),
  };
  return await holdLease(client, hold, async (held) => {
    // What was read before the lease was granted is history.
    const now = await client.sandboxes.connect(ready.id, { signal: held.signal });
    const leaseToken = held.lease.grants[0]!.token;
    const sandbox = now.withLeaseToken(leaseToken);
    if (!(await claim(options, sandbox))) return 'not ours';
    const leased = { sandbox, leaseToken, leaseId: held.lease.id, definition: options.definition, signal: held.signal };
    return await cycleInside(options, { resolved, leased, steps });
  });
}

/** Enters this worktree into the record; says no when another one of this machine is there already. */
async function claim(options: CycleOptions, sandbox: Sandbox): Promise<boolean> {
  const { identity, machineId } = options.found;
  const state = readClientState(sandbox.metadata);
  // A sandbox that somebody chose by hand need not have a record.
  if (state === undefined) return true;
  if (!admitsWorktree(state, machineId, identity.worktree)) return false;
  const patch: Record<string, string> = {};
  if (!hasWorktree(state, identity.worktree)) {
    patch[metadataKeys.worktrees] = worktreesText([...state.worktrees, [machineId, identity.worktree]]);
  }
  if (state.repository === identity.repository && state.ref !== identity.ref) patch[metadataKeys.ref] = identity.ref;
  if (Object.keys(patch).length > 0) await sandbox.patchMetadata(patch);
  return true;
}

async function cycleInside<Result>(
  options: CycleOptions,
  given: { readonly resolved: Resolved; readonly leased: Leased; readonly steps: CycleSteps<Result> },
): Promise<CycleResult<Result>> {
  const { sync, resolver, definition } = options;
  const { resolved, leased, steps } = given;
  const { sandbox, leaseToken, signal } = leased;
  const call = { leaseToken, signal, onProgress: options.onProgress, ...(steps.paths && { paths: steps.paths }) };
  const pushStart = performance.now();
  const push = sync === undefined || steps.isPushed === false ? null : await sync.push(sandbox, call);
  if (sync === undefined) await ensureDirectory(sandbox, definition.directory);
  if (steps.isSetUp !== false) {
    await ensureSetUp(sandbox, {
      definition,
      onStep: (step) => options.say(`Set-up: ${step}`),
      onOutput: options.onSetUpOutput,
      signal,
    });
  }
  if (await resolver.countExec()) {
    options.say(`Using ${sandbox.id} again, which keeps what earlier commands left. "atoll reset" makes a new one.`);
  }
  const runStart = performance.now();
  const result = await steps.run(leased);
  const pullStart = performance.now();
  let pull: PullSummary | null = null;
  let pullError: PlatformError | null = null;
  if (sync !== undefined && steps.mayPull(result)) {
    try {
      pull = await sync.pull(sandbox, call);
    } catch (error) {
      if (signal.aborted) throw error;
      pullError = error instanceof PlatformError ? error : unexpected(error);
    }
  }
  const timingsMs = {
    push: Math.round(runStart - pushStart),
    run: Math.round(pullStart - runStart),
    pull: Math.round(performance.now() - pullStart),
  };
  return {
    sandboxId: sandbox.id,
    how: resolved.how,
    push,
    result,
    pull,
    pullError,
    timingsMs,
  };
}

/** A full disk, say: how the command ended is told all the same. */
function unexpected(cause: unknown): PlatformError {
  const message = `Changes could not be brought back: ${cause instanceof Error ? cause.message : String(cause)}`;
  return new PlatformError('sync_failed', message, { cause });
}

/** Without a sync engine nobody else makes it. */
async function ensureDirectory(sandbox: Sandbox, path: string): Promise<void> {
  try {
    await sandbox.files.makeDirectory(path, { parents: true });
  } catch (error) {
    if (!isPlatformError(error, 'file_exists')) throw error;
  }
}
