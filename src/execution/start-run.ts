/**
 * Starts a run that goes on by itself: its output goes to a journal, and the connection is only for the answer.
 *
 * Invariant: it settles with what init said, or throws `sandbox_unavailable` (init was not reached: nothing ran) or `outcome_unknown`.
 */
import { constants } from 'node:os';
import { FrameReader } from '../base/index.ts';
import { type Command, PlatformError, type TerminalSize } from '../protocol/index.ts';
import type { InitClient } from './init-client.ts';
import {
  connectionKinds,
  helloFrame,
  initFrameLimitBytes,
  parseRunAnswer,
  type Refusal,
  type RunRequest,
  refusalCodes,
  runFrame,
} from './init-protocol.ts';
import type { RunLine } from './run-connection.ts';
import { runRefusal } from './run-refusals.ts';
import { absoluteCwd, checkRunOrder, type RunOrder, runRequestOf } from './run-request.ts';
import type { Shell } from './shell-command.ts';

const startTimeoutMs = 30_000;
const prepareAfterMs = 5;

export interface StartRunContext {
  readonly client: InitClient;
  readonly sandboxEnv: Readonly<Record<string, string>>;
  /** The fence as the node knows it. */
  readonly token: number;
}

export interface StartRunOrder extends Omit<RunOrder, 'command'> {
  /** null: a shell, and nothing for it to run. */
  readonly command: Command | null;
  readonly leaseToken: number | null;
  readonly stdinOpen: boolean;
  readonly graceMs: number;
  readonly keepBytes: number;
  /** Its streams are a terminal. */
  readonly terminal?: TerminalSize;
}

/** Answers with the pid inside. `operation_in_doubt`: this run was started before. */
export async function startRun(context: StartRunContext, order: StartRunOrder): Promise<number> {
  const runWith = (shell: Shell) => ({ ...order, command: order.command ?? [`/bin/${shell}`] });
  checkRunOrder(runWith('bash'));
  const attempt = (shell: Shell) => {
    const { sandboxEnv } = context;
    const token = order.leaseToken ?? context.token;
    const request: RunRequest = {
      ...runRequestOf({ order: runWith(shell), shell, sandboxEnv, token, stdinOpen: order.stdinOpen }),
      graceMs: order.graceMs,
      journal: { name: order.runId, limitBytes: order.keepBytes },
      terminal: order.terminal,
    };
    return startOnLine(context.client, runFrame(request));
  };
  let answer = await attempt('bash');
  // Refused before anything ran, so the same run may be tried again with the other shell.
  if (answer.kind === 'refused' && !Array.isArray(order.command) && isMissing(answer.refusal)) {
    answer = await attempt('sh');
  }
  if (answer.kind === 'started') return answer.pid;
  const { user, leaseToken } = order;
  throw runRefusal({ runId: order.runId, user, leaseToken, cwd: absoluteCwd(order.cwd) }, answer.refusal);
}

export type StartAnswer =
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'refused'; readonly refusal: Refusal };

/** The answer to a RUN that is left to itself then; it uses a connection up. */
export async function startOnLine({ runs }: Pick<InitClient, 'runs'>, frame: Buffer): Promise<StartAnswer> {
  try {
    return await startOnConnection(runs.take(), frame);
  } finally {
    // When the answer has left: to connect takes time of whoever waits for it.
    setTimeout(() => runs.prepare(), prepareAfterMs).unref();
  }
}

async function startOnConnection({ socket, isGreeted }: RunLine, frame: Buffer): Promise<StartAnswer> {
  const answered = Promise.withResolvers<StartAnswer>();
  const reader = new FrameReader({ limitBytes: initFrameLimitBytes });
  let isConnected = isGreeted;
  const lose = (error: Error) =>
    answered.reject(
      isConnected
        ? new PlatformError('outcome_unknown', 'The sandbox was lost while the process was started.', { cause: error })
        : new PlatformError('sandbox_unavailable', 'The sandbox does not answer; nothing ran.', { cause: error }),
    );
  const timer = setTimeout(() => lose(new Error('Init did not answer in time.')), startTimeoutMs);
  socket.on('connect', () => (isConnected = true));
  socket.on('error', lose);
  socket.on('close', () => lose(new Error('Init closed the connection.')));
  socket.on('data', (chunk: Buffer) => {
    try {
      for (const frame of reader.push(chunk)) {
        const answer = parseRunAnswer(frame);
        if (answer.kind === 'started' || answer.kind === 'refused') answered.resolve(answer);
        else if (answer.kind !== 'hello') throw new Error(`Init answered a start with "${answer.kind}".`);
      }
    } catch (error) {
      lose(error as Error);
    }
  });
  socket.write(isGreeted ? frame : Buffer.concat([helloFrame(connectionKinds.run), frame]));
  try {
    return await answered.promise;
  } finally {
    clearTimeout(timer);
    // When whoever waits for the answer has it: to close takes the kernel as long as to answer.
    setImmediate(() => socket.destroy());
  }
}

function isMissing(refusal: Refusal): boolean {
  return refusal.code === refusalCodes.program && refusal.errno === constants.errno.ENOENT;
}
