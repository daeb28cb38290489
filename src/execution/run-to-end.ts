/**
 * One run whose caller waits for its end: what it wrote, up to a limit, and what became of it.
 *
 * Invariant: an abort kills the run's tree (in a session: the session); the answer still tells how it ended.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '../base/index.ts';
import { type ExecOutcome, PlatformError } from '../protocol/index.ts';
import { InitRefusal } from './control-connection.ts';
import type { InitClient } from './init-client.ts';
import { type EndCause, refusalCodes } from './init-protocol.ts';
import { KeptOutput } from './kept-output.ts';
import { type RunEnd, runOnConnection } from './run-connection.ts';
import { parseWaitStatus } from './wait-status.ts';

/** How long before a kill is tried again for a run that init has not begun. */
const killPauseMs = 20;

export type EndOfRun =
  | {
      readonly kind: 'ended';
      readonly outcome: ExecOutcome;
      readonly cause: EndCause;
      readonly isEndOfSession: boolean;
    }
  | Exclude<RunEnd, { readonly kind: 'exited' }>;

export async function runToEnd(
  context: {
    readonly client: InitClient;
    readonly clock: Clock;
    readonly onOutput?: (stream: 'stdout' | 'stderr', bytes: Uint8Array) => void;
  },
  run: {
    readonly frame: Buffer;
    readonly runId: string;
    readonly stdin: Uint8Array | null;
    readonly outputLimitBytes: number;
    readonly signal: AbortSignal | undefined;
  },
): Promise<EndOfRun> {
  const stdout = new KeptOutput({ limitBytes: run.outputLimitBytes });
  const stderr = new KeptOutput({ limitBytes: run.outputLimitBytes });
  const startedAtMs = context.clock.nowMs();
  const askedAt = performance.now();
  const running = runOnConnection(context.client.runs.take(), {
    frame: run.frame,
    stdin: run.stdin,
    onOutput: (stream, bytes) => {
      (stream === 'stdout' ? stdout : stderr).append(bytes);
      context.onOutput?.(stream, bytes);
    },
  });
  const end = await killOnAbort(running, { client: context.client, runId: run.runId, signal: run.signal });
  if (end.kind !== 'exited') return end;
  const outcome: ExecOutcome = {
    ...parseWaitStatus(end.waitStatus),
    timedOut: end.cause === 'timeout',
    killed: end.cause === 'asked' || end.cause === 'sandbox ending',
    outOfMemory: end.cause === 'out of memory',
    stdout: stdout.bytes(),
    stderr: stderr.bytes(),
    stdoutTruncated: stdout.truncated,
    stderrTruncated: stderr.truncated,
    startedAtMs,
    // Init's clock is the finer measure of the command alone, but no more than we waited ourselves.
    durationMs: Math.min(end.durationMs, Math.ceil(performance.now() - askedAt)),
  };
  return { kind: 'ended', outcome, cause: end.cause, isEndOfSession: end.isEndOfSession };
}

/** What it means to the caller that nobody said how the run ended. */
export function lossOf(end: Extract<RunEnd, { readonly kind: 'lost' }>): PlatformError {
  return end.admitted
    ? new PlatformError('outcome_unknown', 'The sandbox was lost while the command ran.', { cause: end.error })
    : new PlatformError('sandbox_unavailable', 'The sandbox does not answer; nothing ran.', { cause: end.error });
}

/**
 * Kills the run's tree when the signal aborts. The order goes over the control connection: on the run's own it would wait behind stdin
 * that the command does not read.
 */
async function killOnAbort(
  running: Promise<RunEnd>,
  options: { readonly client: InitClient; readonly runId: string; readonly signal: AbortSignal | undefined },
): Promise<RunEnd> {
  const { client, runId, signal } = options;
  if (signal === undefined) return await running;
  // Made when there is a kill to end: an abort that nobody listens to costs an error with its stack, for every command.
  let over: AbortController | undefined;
  const onAbort = () => {
    over = new AbortController();
    void killTree(client, { runId, over: over.signal });
  };
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await running;
  } finally {
    over?.abort();
    signal.removeEventListener('abort', onAbort);
  }
}

async function killTree(
  client: InitClient,
  options: { readonly runId: string; readonly over: AbortSignal },
): Promise<void> {
  while (!options.over.aborted) {
    try {
      await client.control((connection) => connection.killTree(options.runId));
      return;
    } catch (error) {
      // The run's own connection tells what became of it; here only a run that has not begun is waited for.
      if (!(error instanceof InitRefusal) || error.refusal.code !== refusalCodes.noSuchRun) return;
    }
    await delay(killPauseMs, undefined, { signal: options.over }).catch(() => {});
  }
}
