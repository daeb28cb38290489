/** One call to a node over HTTP, up to the head of its answer; and the answers that are lines without an end. */
import { type Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { PlatformError } from '../../protocol/index.ts';
import { type AskedCall, lost, unreachable } from './call-failures.ts';
import { basePath, parseErrorBody, parseJson, watchSilenceMs } from './node-wire.ts';

const lineLimitBytes = 1024 * 1024;

/** Which node, and how it is reached. */
export interface NodeTarget {
  readonly url: string;
  readonly token: string;
  readonly agent: Agent;
}

export interface OpenedCall extends AskedCall {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | number>>;
  readonly signal?: AbortSignal | undefined;
  /** Why it failed, where the caller knows better: it broke it off itself. */
  readonly ownFailure?: () => unknown;
}

/** The body is the caller's to send. A failure is told by how far the call got: out of reach, or lost midway. */
export function openCall(
  { url, token, agent }: NodeTarget,
  call: OpenedCall,
): { readonly outgoing: ClientRequest; readonly answered: Promise<IncomingMessage> } {
  const answered = Promise.withResolvers<IncomingMessage>();
  const outgoing = httpRequest(`${url}${basePath}/${call.method}`, {
    method: 'POST',
    agent,
    headers: { authorization: `Bearer ${token}`, ...call.headers },
    ...(call.signal !== undefined && { signal: call.signal }),
  });
  let connected = false;
  outgoing.once('socket', (socket) => {
    if (!socket.connecting) connected = true;
    else socket.once('connect', () => (connected = true));
  });
  outgoing.once('response', answered.resolve);
  outgoing.on('error', (error) => {
    answered.reject(call.ownFailure?.() ?? (connected ? lost(call, error) : unreachable(error)));
  });
  return { outgoing, answered: answered.promise };
}

/** One JSON object a line, until the signal aborts; a refusal in the same form ends it, and so does a node that falls silent. */
export async function* readLines<Value>(
  opening: Promise<IncomingMessage>,
  signal: AbortSignal,
): AsyncGenerator<Value, void> {
  let response: IncomingMessage | undefined;
  try {
    response = await opening;
    response.setTimeout(watchSilenceMs, () => response?.destroy(new Error('The node is silent.')));
    response.setEncoding('utf8');
    let held = '';
    for await (const chunk of response as AsyncIterable<string>) {
      const lines = (held + chunk).split('\n');
      held = lines.pop()!;
      if (held.length > lineLimitBytes) throw new Error('The node sent a line without end.');
      for (const line of lines) if (line !== '') yield parseLine(line) as Value;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error instanceof PlatformError ? error : unreachable(error);
  } finally {
    response?.destroy();
  }
}

function parseLine(line: string): unknown {
  const value = parseJson(Buffer.from(line));
  const refusal = parseErrorBody(value);
  if (refusal !== undefined) throw refusal;
  return value;
}
