/** What of an order in a session can be seen to be impossible before init is asked, and what a refusal of init means. */
import { frameLimitBytes } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { type Refusal, refusalCodes } from '../init-protocol.ts';
import { runRefusal } from '../run-refusals.ts';
import { checkRunOrder } from '../run-request.ts';
import { type InSessionOrder, SessionBusy } from './orders.ts';

/** Of one command, or of one change of the session's own. */
const variablesMax = 256;
/** Tag and length of a field. */
const fieldHeadBytes = 5;
/** Room for everything in a RUN frame that is not counted here. */
const frameReserveBytes = 4096;

interface RunInSession extends InSessionOrder {
  readonly runId: string;
  readonly env: Readonly<Record<string, string | null>>;
  readonly cwd: string | null;
}

/** A text may be empty: it does nothing and succeeds. */
export function checkInSession(order: RunInSession & { readonly command: string }): void {
  if (order.command.includes('\0')) throw new PlatformError('invalid_command', 'A command cannot hold a NUL byte.');
  checkRunOrder({ ...order, command: ':', user: null, timeoutMs: null });
  const names = Object.keys(order.env);
  if (names.length > variablesMax) {
    throw new PlatformError('invalid_request', `A command takes at most ${variablesMax} variables of its own.`);
  }
  for (const name of names) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new PlatformError('invalid_request', `"${name}" cannot be a variable of a shell.`);
    }
  }
  const texts = [
    order.command,
    order.cwd ?? '',
    ...Object.entries(order.env).map(([name, value]) => `${name}=${value}`),
  ];
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text) + fieldHeadBytes, 0);
  if (bytes <= frameLimitBytes - frameReserveBytes) return;
  throw new PlatformError('invalid_command', `The command and its variables are ${bytes} bytes; 8 MiB is the limit.`);
}

export function refusalInSession(order: RunInSession, refusal: Refusal): Error {
  if (refusal.code === refusalCodes.sessionBusy) return new SessionBusy('Something else runs in the session.');
  if (refusal.code === refusalCodes.readOnlyVariable) {
    const name = Object.keys(order.env)[refusal.errno];
    return new PlatformError('invalid_request', `The variable ${name} is read-only in the session; nothing was set.`);
  }
  const { runId, sessionId, leaseToken } = order;
  return runRefusal({ runId, sessionId, leaseToken, user: null, cwd: order.cwd ?? '.' }, refusal);
}
