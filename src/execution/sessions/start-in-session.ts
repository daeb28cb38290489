/** A process from a session: a copy of its shell as it is now, with a journal; nothing is written back. */
import { type StartRunContext, startOnLine } from '../start-run.ts';
import { checkInSession, refusalInSession } from './checks.ts';
import { processFrame } from './frames.ts';
import type { StartInSessionOrder } from './orders.ts';

/** Answers with the pid inside. `operation_in_doubt`: this process was started before. */
export async function startInSession(context: StartRunContext, order: StartInSessionOrder): Promise<number> {
  const run = { ...order, runId: order.processId };
  checkInSession(run);
  const head = { run: order.processId, generation: order.generation, token: order.leaseToken ?? context.token };
  const frame = processFrame(head, { ...order, session: order.sessionId, text: order.command });
  const answer = await startOnLine(context.client, frame);
  if (answer.kind === 'started') return answer.pid;
  throw refusalInSession(run, answer.refusal);
}
