/**
 * Whether a sandbox is there, and its end. It is `alive`, `gone`, or an error that is thrown. Only the server's own "there is no such
 * sandbox" and a record that can never run again mean gone; a refusal, a timeout or a server that is away say nothing about it.
 */
import { type ErrorCode, isPlatformError } from '../protocol/index.ts';
import type { Atoll, CallOptions, Sandbox } from '../sdk/index.ts';
import { readClientState } from './client-state.ts';
import { growingPauseMs } from './growing-pause.ts';
import { sentenceOf } from './readiness.ts';

export type Liveness =
  | { readonly kind: 'alive'; readonly sandbox: Sandbox }
  | { readonly kind: 'gone'; readonly reason: string | null }
  /** It is there and will never be ready. */
  | { readonly kind: 'failed'; readonly sandbox: Sandbox; readonly reason: string };

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
  if (state === 'failed') return { kind: 'failed', sandbox, reason: view.reason ?? sentenceOf(null) };
  const failure = readClientState(view.metadata)?.failure;
  if (failure) return { kind: 'failed', sandbox, reason: sentenceOf(failure) };
  return { kind: 'alive', sandbox };
}

/** Another is at it just now, or nobody knows. */
const endPassing: readonly ErrorCode[] = ['outcome_unknown', 'stale_generation', 'sandbox_wrong_state'];
/** Also: what it takes cannot be reached just now. A later life is not stopped, so its generation is a refusal. */
const stopPassing: readonly ErrorCode[] = [
  'outcome_unknown',
  'sandbox_wrong_state',
  'server_unreachable',
  'shutting_down',
  'node_unavailable',
  'sandbox_unavailable',
];

/**
 * Stops it and answers when the server has confirmed that it has stopped. An answer that is lost, or a node that is away, is no reason to
 * stop waiting; a refusal is. One that has stopped already is not waited for.
 */
export async function stopSandbox(
  client: Atoll,
  sandbox: Sandbox,
  options: CallOptions & { readonly timeoutMs: number; readonly graceMs?: number },
): Promise<Sandbox> {
  const { timeoutMs, ...call } = options;
  const waiting = call.signal === undefined ? {} : { signal: call.signal };
  await repeated(client, { timeoutMs, passing: stopPassing, ...waiting }, async (attempt) => {
    if (attempt > 0) await sandbox.refresh(waiting);
    if (attempt === 0 || sandbox.state !== 'stopped') await sandbox.stop(call);
  });
  return sandbox;
}

/** Ends it whatever it does, and answers when it is gone. One that is gone already is no error. */
export async function endSandbox(
  client: Atoll,
  sandboxId: string,
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
): Promise<void> {
  try {
    await repeated(client, { ...options, passing: endPassing }, async () => {
      const sandbox = await client.sandboxes.connect(sandboxId, options.signal && { signal: options.signal });
      await sandbox.delete({ force: true });
    });
  } catch (error) {
    if (!isPlatformError(error, 'sandbox_not_found')) throw error;
  }
}

/** With growing pauses, while what it fails with may pass, up to a limit. */
async function repeated(
  client: Atoll,
  options: { readonly timeoutMs: number; readonly passing: readonly ErrorCode[]; readonly signal?: AbortSignal },
  work: (attempt: number) => Promise<void>,
): Promise<void> {
  const { clock } = client.connection;
  const untilMs = clock.nowMs() + options.timeoutMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return await work(attempt);
    } catch (error) {
      const leftMs = untilMs - clock.nowMs();
      if (!isPlatformError(error, ...options.passing) || leftMs <= 0) throw error;
      await clock.wait(Math.min(growingPauseMs(attempt), leftMs), options.signal);
    }
    options.signal?.throwIfAborted();
  }
}
