/**
 * Whether a sandbox is there: `alive`, `gone`, or an error that is thrown. Only the server's own "there is no such sandbox" and a record that
 * can never run again mean gone; a refusal, a timeout or a server that is away say nothing about it.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Atoll, Sandbox } from '../sdk/index.ts';
import { readClientState, type SetupFailure } from './client-state.ts';

export type Liveness =
  | { readonly kind: 'alive'; readonly sandbox: Sandbox }
  | { readonly kind: 'gone'; readonly reason: string | null }
  /** It is there and will never be ready. */
  | { readonly kind: 'failed'; readonly sandbox: Sandbox; readonly reason: string };

const pauseFirstMs = 50;
const pauseMaxMs = 1_000;

export async function livenessOf(client: Atoll, sandboxId: string, signal?: AbortSignal): Promise<Liveness> {
  let sandbox: Sandbox;
  try {
    sandbox = await client.sandboxes.connect(sandboxId, signal && { signal });
  } catch (error) {
    if (isPlatformError(error, 'sandbox_not_found')) return { kind: 'gone', reason: null };
    throw error;
  }
  const { state, view } = sandbox;
  if (state === 'deleting') return { kind: 'gone', reason: 'it is being deleted' };
  if (state === 'failed') return { kind: 'failed', sandbox, reason: view.reason ?? 'it could not be made' };
  const failure = readClientState(view.metadata)?.failure;
  if (failure) return { kind: 'failed', sandbox, reason: sentenceOf(failure) };
  return { kind: 'alive', sandbox };
}

/** Until commands can run in it. A stopped one is started. */
export async function ensureRunning(
  client: Atoll,
  given: Sandbox,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal; readonly onStart: () => void },
): Promise<Sandbox> {
  const { clock } = client.connection;
  const untilMs = clock.nowMs() + options.timeoutMs;
  let sandbox = given;
  for (let attempt = 0; sandbox.state !== 'running'; attempt++) {
    options.signal?.throwIfAborted();
    if (sandbox.state === 'failed' || sandbox.state === 'deleting') {
      const why = sandbox.view.reason ?? sandbox.state;
      throw new PlatformError('sandbox_wrong_state', `The sandbox ${sandbox.id} did not become ready: ${why}.`);
    }
    if (clock.nowMs() >= untilMs) {
      throw new PlatformError('wait_timeout', `The sandbox ${sandbox.id} was still ${sandbox.state} in the end.`);
    }
    if (sandbox.state === 'stopped') {
      options.onStart();
      // Somebody else may start it at the same time; then what they did is found below.
      await sandbox.start().catch((error: unknown) => {
        if (!isPlatformError(error, 'stale_generation', 'sandbox_wrong_state', 'version_mismatch')) throw error;
      });
    } else {
      await clock.wait(Math.min(pauseMaxMs, pauseFirstMs * 2 ** Math.min(attempt, 10)), options.signal);
    }
    sandbox = await client.sandboxes.connect(sandbox.id, options.signal && { signal: options.signal });
  }
  return sandbox;
}

/** Ends it whatever it does, and answers when it is gone. One that is gone already is no error. */
export async function endSandbox(
  client: Atoll,
  sandboxId: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
): Promise<void> {
  const { clock } = client.connection;
  const untilMs = clock.nowMs() + options.timeoutMs;
  for (let attempt = 0; ; attempt++) {
    try {
      const sandbox = await client.sandboxes.connect(sandboxId, options.signal && { signal: options.signal });
      await sandbox.delete({ force: true });
      return;
    } catch (error) {
      if (isPlatformError(error, 'sandbox_not_found')) return;
      const mayPass = isPlatformError(error, 'outcome_unknown', 'stale_generation', 'sandbox_wrong_state');
      if (!mayPass || clock.nowMs() >= untilMs) throw error;
    }
    await clock.wait(Math.min(pauseMaxMs, pauseFirstMs * 2 ** Math.min(attempt, 10)), options.signal);
    options.signal?.throwIfAborted();
  }
}

export function sentenceOf(failure: SetupFailure): string {
  const { reason, step, exitCode } = failure;
  if (reason === 'timed_out') return `its set-up took too long at "${step}"`;
  if (reason === 'cancelled') return `its set-up was cancelled at "${step}"`;
  return `its set-up step "${step}" ended with ${exitCode ?? 'an unknown status'}`;
}
