/** Begins a session: a bash that has loaded what a session needs and waits for the first text. */
import { commandEnvironment } from '../command-environment.ts';
import { type Refusal, refusalCodes } from '../init-protocol.ts';
import { runRefusal } from '../run-refusals.ts';
import { absoluteCwd, checkRunOrder } from '../run-request.ts';
import { type StartRunContext, startOnLine } from '../start-run.ts';
import { sessionFrame } from './frames.ts';
import type { OpenSessionOrder } from './orders.ts';

const defaultShell = 'bash';

/** Answers with the pid inside. `session_shell_not_usable`: it is not there, or is no bash that can be one. */
export async function openSession(context: StartRunContext, order: OpenSessionOrder): Promise<number> {
  const { sessionId, generation, user, leaseToken } = order;
  const shell = order.shell ?? defaultShell;
  checkRunOrder({ ...order, runId: sessionId, command: [shell], timeoutMs: null });
  const cwd = absoluteCwd(order.cwd);
  const env = commandEnvironment({ user: user ?? 'root', sandbox: context.sandboxEnv, call: order.env });
  const head = { run: sessionId, generation, token: leaseToken ?? context.token };
  const frame = sessionFrame(head, { shell, env, cwd, user });
  const answer = await startOnLine(context.client, frame);
  if (answer.kind === 'started') return answer.pid;
  throw runRefusal({ runId: sessionId, sessionId, user, leaseToken, cwd }, sessionShellRefusal(shell, answer.refusal));
}

/** A shell that is not there is as unusable as one that is no bash. */
function sessionShellRefusal(shell: string, refusal: Refusal): Refusal {
  const isShell = refusal.code === refusalCodes.program || refusal.code === refusalCodes.sessionShell;
  return isShell ? { ...refusal, code: refusalCodes.sessionShell, text: `${shell}: ${refusal.text}` } : refusal;
}
