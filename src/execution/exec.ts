/**
 * Stateless commands: one order, one outcome. What a command does is data in the outcome; what keeps it from running is a refusal.
 */
import { constants as osConstants } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '../base/index.ts';
import { type ExecOrder, type ExecOutcome, PlatformError } from '../protocol/index.ts';
import { InitRefusal } from './control-connection.ts';
import type { InitClient } from './init-client.ts';
import { type Refusal, type RunRequest, refusalCodes } from './init-protocol.ts';
import { KeptOutput } from './kept-output.ts';
import { type RunEnd, runOnConnection } from './run-connection.ts';
import { runRefusal } from './run-refusals.ts';
import { checkRunOrder, defaultCwd, runRequestOf } from './run-request.ts';
import type { Shell } from './shell-command.ts';
import { parseWaitStatus } from './wait-status.ts';

/** How long before a kill is tried again for a run that init has not begun. */
const killPauseMs = 20;
const { ENOENT, EACCES, ENOEXEC, ENOTDIR, ELOOP, ENAMETOOLONG, E2BIG, EISDIR, EPERM } = osConstants.errno;

export interface ExecContext {
  readonly client: InitClient;
  readonly clock: Clock;
  readonly sandboxEnv: Readonly<Record<string, string>>;
  /** The fence as the node knows it; init refuses the run if it has another one. */
  readonly token: number;
}

export async function exec(context: ExecContext, order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome> {
  checkRunOrder(order);
  if (signal?.aborted) return outcomeWithout(context.clock, { exitCode: 137, signal: 'SIGKILL', killed: true });
  const first = await attempt(context, order, { shell: 'bash', signal });
  // Refused before anything ran, so the same run may be tried again with the other shell.
  const outcome = first.missingShell ? await attempt(context, order, { shell: 'sh', signal }) : first;
  return outcome.result();
}

interface Attempt {
  readonly missingShell: boolean;
  /** Throws when the command was refused or its fate is not known. */
  readonly result: () => ExecOutcome;
}

async function attempt(
  context: ExecContext,
  order: ExecOrder,
  options: { readonly shell: Shell; readonly signal: AbortSignal | undefined },
): Promise<Attempt> {
  const request = requestOf(context, order, options.shell);
  const stdout = new KeptOutput({ limitBytes: order.outputLimitBytes });
  const stderr = new KeptOutput({ limitBytes: order.outputLimitBytes });
  let startedAtMs = context.clock.nowMs();
  const askedAt = performance.now();
  const running = runOnConnection(context.client.runs.take(), {
    request,
    stdin: order.stdin,
    hooks: {
      onStarted: () => {
        startedAtMs = context.clock.nowMs();
      },
      onOutput: (stream, bytes) => (stream === 'stdout' ? stdout : stderr).append(bytes),
    },
  });
  const end = await killOnAbort(running, { client: context.client, runId: order.runId, signal: options.signal });
  if (end.kind !== 'exited') return failedAttempt(context, order, { end, shell: options.shell });
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
  return { missingShell: false, result: () => outcome };
}

/**
 * Kills the run's tree when the signal aborts. The order goes over the control connection: on the run's own it would wait behind stdin
 * that the command does not read.
 */
async function killOnAbort(
  running: Promise<RunEnd>,
  options: { readonly client: InitClient; readonly runId: string; readonly signal: AbortSignal | undefined },
): Promise<RunEnd> {
  const over = new AbortController();
  const onAbort = () => void killTree(options.client, { runId: options.runId, over: over.signal });
  options.signal?.addEventListener('abort', onAbort, { once: true });
  if (options.signal?.aborted) onAbort();
  try {
    return await running;
  } finally {
    over.abort();
    options.signal?.removeEventListener('abort', onAbort);
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

function failedAttempt(
  context: ExecContext,
  order: ExecOrder,
  failure: { readonly end: Exclude<RunEnd, { kind: 'exited' }>; readonly shell: Shell },
): Attempt {
  const { end, shell } = failure;
  if (end.kind === 'lost') {
    const error = end.admitted
      ? new PlatformError('outcome_unknown', 'The sandbox was lost while the command ran.', { cause: end.error })
      : new PlatformError('sandbox_unavailable', 'The sandbox does not answer; nothing ran.', { cause: end.error });
    return { missingShell: false, result: () => fail(error) };
  }
  const { refusal } = end;
  const missingShell =
    typeof order.command === 'string' &&
    shell === 'bash' &&
    refusal.code === refusalCodes.program &&
    refusal.errno === ENOENT;
  return { missingShell, result: () => refusedOutcome(context.clock, order, refusal) };
}

function refusedOutcome(clock: Clock, order: ExecOrder, refusal: Refusal): ExecOutcome {
  if (refusal.code === refusalCodes.program) return programOutcome(clock, refusal);
  const { runId, user, leaseToken } = order;
  throw runRefusal({ runId, user, leaseToken, cwd: order.cwd ?? defaultCwd }, refusal);
}

/** A program that cannot be started is a result, as in a shell. */
function programOutcome(clock: Clock, refusal: Refusal): ExecOutcome {
  switch (refusal.errno) {
    case E2BIG:
      throw new PlatformError('invalid_command', 'The arguments and the environment are too long; nothing ran.');
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return outcomeWithout(clock, { exitCode: 127, signal: null, killed: false });
    case EACCES:
    case EPERM:
    case ENOEXEC:
    case EISDIR:
      return outcomeWithout(clock, { exitCode: 126, signal: null, killed: false });
    default:
      return outcomeWithout(clock, { exitCode: 126, signal: null, killed: false });
  }
}

/** The outcome of a command that never ran. */
function outcomeWithout(
  clock: Clock,
  end: { readonly exitCode: number; readonly signal: string | null; readonly killed: boolean },
): ExecOutcome {
  return {
    ...end,
    timedOut: false,
    outOfMemory: false,
    stdout: new Uint8Array(),
    stderr: new Uint8Array(),
    stdoutTruncated: false,
    stderrTruncated: false,
    startedAtMs: clock.nowMs(),
    durationMs: 0,
  };
}

function requestOf(context: ExecContext, order: ExecOrder, shell: Shell): RunRequest {
  return runRequestOf({
    order,
    shell,
    sandboxEnv: context.sandboxEnv,
    token: order.leaseToken ?? context.token,
    stdinOpen: order.stdin !== null,
  });
}

function fail(error: Error): never {
  throw error;
}
