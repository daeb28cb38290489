/**
 * Stateless commands: one order, one outcome. What a command does is data in the outcome; what keeps it from running is a refusal.
 */
import { constants as osConstants } from 'node:os';
import type { Clock } from '../base/index.ts';
import { type ExecOrder, type ExecOutcome, PlatformError } from '../protocol/index.ts';
import type { InitClient } from './init-client.ts';
import { type Refusal, type RunRequest, refusalCodes, runFrame } from './init-protocol.ts';
import { runRefusal } from './run-refusals.ts';
import { checkRunOrder, defaultCwd, runRequestOf } from './run-request.ts';
import { type EndOfRun, lossOf, runToEnd } from './run-to-end.ts';
import type { Shell } from './shell-command.ts';

const { ENOENT, EACCES, ENOEXEC, ENOTDIR, ELOOP, ENAMETOOLONG, E2BIG, EISDIR, EPERM } = osConstants.errno;

export interface ExecContext {
  readonly client: InitClient;
  readonly clock: Clock;
  readonly sandboxEnv: Readonly<Record<string, string>>;
  /** The fence as the node knows it; init refuses the run if it has another one. */
  readonly token: number;
  /** Hears of output while it comes. */
  readonly onOutput?: (stream: 'stdout' | 'stderr', bytes: Uint8Array) => void;
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
  const end = await runToEnd(context, {
    frame: runFrame(requestOf(context, order, options.shell)),
    runId: order.runId,
    stdin: order.stdin,
    outputLimitBytes: order.outputLimitBytes,
    signal: options.signal,
  });
  if (end.kind !== 'ended') return failedAttempt(context, order, { end, shell: options.shell });
  return { missingShell: false, result: () => end.outcome };
}

function failedAttempt(
  context: ExecContext,
  order: ExecOrder,
  failure: { readonly end: Exclude<EndOfRun, { kind: 'ended' }>; readonly shell: Shell },
): Attempt {
  const { end, shell } = failure;
  if (end.kind === 'lost') return { missingShell: false, result: () => fail(lossOf(end)) };
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
export function outcomeWithout(
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
