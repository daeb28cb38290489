/** One text in the shell of a session, or variables for it: one order, one outcome. What ended the text is data in the outcome. */
import { type ExecContext, outcomeWithout } from '../exec.ts';
import type { EndOfRun } from '../run-to-end.ts';
import { lossOf, runToEnd } from '../run-to-end.ts';
import { checkInSession, refusalInSession } from './checks.ts';
import { keepVariablesFrame, textFrame } from './frames.ts';
import type { ExecInSessionOrder, SessionOutcome, SetSessionEnvOrder } from './orders.ts';

/** An abort, like the timeout, ends the session: a shell that was left in the middle of something is of no use to the next command. */
export async function execInSession(
  context: ExecContext,
  order: ExecInSessionOrder,
  signal?: AbortSignal,
): Promise<SessionOutcome> {
  checkInSession(order);
  if (signal?.aborted) {
    const outcome = outcomeWithout(context.clock, { exitCode: 137, signal: 'SIGKILL', killed: true });
    return { ...outcome, sessionEnded: null };
  }
  const head = { run: order.runId, generation: order.generation, token: order.leaseToken ?? context.token };
  const { sessionId: session, command: text, cwd, env, timeoutMs } = order;
  const stdinOpen = order.stdin !== null;
  const end = await runToEnd(context, {
    frame: textFrame(head, { session, text, cwd, env, timeoutMs, stdinOpen }),
    runId: order.runId,
    stdin: order.stdin,
    outputLimitBytes: order.outputLimitBytes,
    signal,
  });
  const { outcome, cause, isEndOfSession } = endedOf(order, end);
  const { exitCode, signal: endSignal } = outcome;
  return { ...outcome, sessionEnded: isEndOfSession ? { exitCode, signal: endSignal, cause } : null };
}

export async function setSessionEnv(context: ExecContext, order: SetSessionEnvOrder): Promise<void> {
  const asRun = { ...order, command: '', cwd: null };
  checkInSession(asRun);
  const head = { run: order.runId, generation: order.generation, token: order.leaseToken ?? context.token };
  const end = await runToEnd(context, {
    frame: keepVariablesFrame(head, { session: order.sessionId, env: order.env }),
    runId: order.runId,
    stdin: null,
    outputLimitBytes: 0,
    signal: undefined,
  });
  endedOf(asRun, end);
}

function endedOf(
  order: Parameters<typeof refusalInSession>[0],
  end: EndOfRun,
): Extract<EndOfRun, { readonly kind: 'ended' }> {
  if (end.kind === 'lost') throw lossOf(end);
  if (end.kind === 'refused') throw refusalInSession(order, end.refusal);
  return end;
}
