/**
 * Waits until the sandbox of a checkout can be used: it runs, and nobody else is at its set-up. What is ready costs nothing but the look
 * that said so. What is not is waited for by its events; where the server does not tell them, it is looked at with growing pauses. A
 * failure that is recorded ends the wait at once.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Atoll, Sandbox } from '../sdk/index.ts';
import { readClientState, type SetupFailure } from './client-state.ts';
import { growingPauseMs } from './growing-pause.ts';

export interface ReadyOptions {
  /** Of everything together. */
  readonly timeoutMs: number;
  /** What its set-up should be, for those who do not do it themselves. Absent: it does not matter whether somebody is at it. */
  readonly setupHash?: string;
  readonly onStart: (was: 'stopped' | 'paused') => void;
  /** Called once, when there is something to wait for. */
  readonly onWait?: (what: string) => void;
  readonly signal?: AbortSignal;
}

/** Where events are told: they wake us, and this is for one that got lost. */
const lookEveryMs = 10_000;

/** A stopped or paused one is woken. */
export async function ensureReady(client: Atoll, given: Sandbox, options: ReadyOptions): Promise<Sandbox> {
  const { clock } = client.connection;
  const { timeoutMs, signal } = options;
  const untilMs = clock.nowMs() + timeoutMs;
  const look = () => client.sandboxes.connect(given.id, signal && { signal });
  const changes = new Changes(client, given.id, signal);
  try {
    let isTold = false;
    for (let sandbox = given; ; sandbox = await look()) {
      signal?.throwIfAborted();
      const lack = lackOf(sandbox, options);
      if (lack === undefined) return sandbox;
      const leftMs = untilMs - clock.nowMs();
      if (leftMs <= 0) throw new PlatformError('wait_timeout', `The sandbox ${sandbox.id} is not ready yet: ${lack}.`);
      if (sandbox.state === 'stopped' || sandbox.state === 'paused') {
        options.onStart(sandbox.state);
        await wake(sandbox, signal);
        continue;
      }
      if (!isTold) options.onWait?.(lack);
      isTold = true;
      // Whoever begins to listen looks once more: what happened before is not told.
      if (!(await changes.beginListening())) await changes.next(leftMs);
    }
  } finally {
    changes.close();
  }
}

/** Four ways not to become ready, each with a sentence of its own; null: nobody has recorded why. */
export function sentenceOf(failure: SetupFailure | null): string {
  if (failure === null) return 'it ended without becoming ready, and no reason is recorded';
  const { reason, step, exitCode } = failure;
  if (reason === 'timed_out') return `its set-up took too long at "${step}"`;
  if (reason === 'cancelled') return `its set-up was cancelled at "${step}"`;
  return `its set-up step "${step}" ended with ${exitCode ?? 'an unknown status'}`;
}

export function setupFailed(failure: SetupFailure): PlatformError {
  const tail = failure.tail.trimEnd();
  const message = `The sandbox cannot be used: ${sentenceOf(failure)}.${tail === '' ? '' : `\n${tail}`}`;
  return new PlatformError('setup_failed', message, { details: { ...failure } });
}

/** Why it cannot be used yet; nothing: it can. Throws when it never will. */
function lackOf(sandbox: Sandbox, { setupHash }: ReadyOptions): string | undefined {
  const { id, state, view } = sandbox;
  const client = readClientState(view.metadata);
  if (client?.failure) throw setupFailed(client.failure);
  if (state === 'failed' || state === 'deleting') {
    const why = state === 'deleting' ? 'it is being deleted' : (view.reason ?? sentenceOf(null));
    throw new PlatformError('sandbox_wrong_state', `The sandbox ${id} cannot be used: ${why}.`);
  }
  if (state !== 'running') return `it is ${state}`;
  // Whoever holds the lease of a sandbox without its set-up is about to do it, or does it now.
  if (setupHash === undefined || view.lease === null || client?.setup === setupHash) return undefined;
  return `it is being set up by ${view.lease.holder}: ${view.lease.reason}`;
}

async function wake(sandbox: Sandbox, signal: AbortSignal | undefined): Promise<void> {
  const call = signal === undefined ? {} : { signal };
  try {
    if (sandbox.state === 'paused') await sandbox.resume(call);
    else await sandbox.start(call);
  } catch (error) {
    // Somebody else may wake it at the same time; then what they did is found by the next look.
    if (!isPlatformError(error, 'stale_generation', 'sandbox_wrong_state', 'version_mismatch')) throw error;
  }
}

/** What happens to one sandbox, as far as it is told. */
class Changes {
  readonly #client: Atoll;
  readonly #sandboxId: string;
  readonly #over = new AbortController();
  readonly #signal: AbortSignal;
  #listening: 'not yet' | 'yes' | 'no' = 'not yet';
  #attempt = 0;
  /** Whether something happened since the last look. */
  #hasHappened = false;
  #pause = new AbortController();

  constructor(client: Atoll, sandboxId: string, signal: AbortSignal | undefined) {
    this.#client = client;
    this.#sandboxId = sandboxId;
    this.#signal = signal === undefined ? this.#over.signal : AbortSignal.any([this.#over.signal, signal]);
  }

  /** Answers whether it began just now. */
  async beginListening(): Promise<boolean> {
    if (this.#listening !== 'not yet') return false;
    const { events } = this.#client;
    try {
      const { last } = await events.list({ limit: 1, signal: this.#signal });
      this.#listening = 'yes';
      void this.#listen(last);
    } catch (error) {
      if (!isPlatformError(error)) throw error;
      this.#listening = 'no';
    }
    return this.#listening === 'yes';
  }

  /** Until something happens, or it is time to look all the same. */
  async next(limitMs: number): Promise<void> {
    const pauseMs = this.#listening === 'yes' ? lookEveryMs : growingPauseMs(this.#attempt++);
    this.#pause = new AbortController();
    const wakeUp = AbortSignal.any([this.#pause.signal, this.#signal]);
    if (!this.#hasHappened) await this.#client.connection.clock.wait(Math.min(limitMs, pauseMs), wakeUp);
    this.#hasHappened = false;
  }

  close(): void {
    this.#over.abort();
  }

  async #listen(after: number): Promise<void> {
    const from = { after, sandboxId: this.#sandboxId, signal: this.#signal };
    try {
      for await (const _ of this.#client.events.follow(from)) this.#happen();
    } catch (error) {
      if (!isPlatformError(error)) throw error;
    }
    this.#listening = 'no';
    this.#happen();
  }

  #happen(): void {
    this.#hasHappened = true;
    this.#pause.abort();
  }
}
