/**
 * Connect's calls over HTTP: one message and its answer, or a stream of them.
 *
 *  - Every stream ends with an envelope that says how, unless its sandbox ended: then the connection breaks, as it would with a machine that is gone.
 *  - A stream that has nothing to say for the interval its reader asked for says that it lives.
 *  - A caller that leaves ends the reading of its stream and nothing else.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger, Timers } from '../../../base/index.ts';
import { breakOff } from '../break-off.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { EnvdError, refusalOf, SandboxGone } from './envd-error.ts';
import { endFlag, envelope, readEnvelopes } from './envelopes.ts';
import { readWhole, writeSome } from './flow.ts';
import { decodeMessage, type Encoding, encodeMessage, type Message } from './messages.ts';

/** Of one message, whatever it carries: an input of 8 MiB in base64 fits. */
const messageMaxBytes = 16 * 1024 * 1024;
const keepaliveDefaultMs = 90_000;
const keepaliveMinMs = 1_000;
const timeoutMaxMs = 2 ** 31 - 1;

export interface Call extends EnvdSandbox {
  /** That the request names; absent: the default. */
  readonly user: string | undefined;
  /** After which it is over; for a start, its process too. */
  readonly timeoutMs: number | undefined;
  /** Aborts when the caller is gone or the time is over. */
  readonly signal: AbortSignal;
}

interface Shape {
  readonly input: string;
  readonly output: string;
}

export type Method = Shape &
  (
    | { readonly kind: 'unary'; readonly run: (call: Call, input: Message) => Promise<Message> }
    | {
        readonly kind: 'server stream';
        readonly keepalive: Message;
        readonly run: (call: Call, input: Message) => AsyncIterable<Message>;
      }
    | { readonly kind: 'client stream'; readonly run: (call: Call, inputs: AsyncIterable<Message>) => Promise<Message> }
  );

export interface RpcContext {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly sandbox: EnvdSandbox;
  readonly user: string | undefined;
  readonly timers: Timers;
  readonly logger: Logger;
}

export async function answerCall(method: Method, context: RpcContext): Promise<void> {
  const { request, response, timers } = context;
  const encoding = encodingOf(method, request);
  if (encoding === undefined) {
    response.writeHead(415, { 'Accept-Post': 'application/json, application/proto' }).end();
    return;
  }
  const over = new AbortController();
  const timeoutMs = timeoutOf(request);
  const late = () => over.abort(new EnvdError('deadline_exceeded', 'The time of the call is over.'));
  const cancel = timeoutMs === undefined ? () => {} : timers.after(timeoutMs, late);
  const { ending } = context.sandbox;
  const stop = () => over.abort(new EnvdError('unavailable', 'The server is stopping.'));
  ending.addEventListener('abort', stop, { once: true });
  response.once('close', () => {
    cancel();
    ending.removeEventListener('abort', stop);
    over.abort();
  });
  const call = { ...context.sandbox, user: context.user, timeoutMs, signal: over.signal };
  if (method.kind === 'unary') await answerUnary(method, call, { ...context, encoding });
  else await answerStream(method, call, { ...context, encoding });
}

type Encoded = RpcContext & { readonly encoding: Encoding };

async function answerUnary(method: Method & { kind: 'unary' }, call: Call, context: Encoded): Promise<void> {
  const { response, encoding } = context;
  try {
    refuseCompressed(context.request, 'content-encoding');
    const bytes = await readWhole(context.request, messageMaxBytes);
    const input = decodeMessage(method.input, bytes, encoding);
    const output = await inTime(method.run(call, input), call.signal);
    const body = encodeMessage(method.output, output, encoding);
    response.writeHead(200, { 'Content-Type': `application/${encoding}`, 'Content-Length': String(body.byteLength) });
    response.end(body);
  } catch (error) {
    const refusal = told(error, context);
    if (refusal instanceof SandboxGone) throw refusal;
    const body = JSON.stringify({ code: refusal.code, message: refusal.message });
    if (response.headersSent || response.destroyed) return;
    response.writeHead(refusal.status, { 'Content-Type': 'application/json' }).end(body);
  }
}

async function answerStream(
  method: Method & { kind: 'server stream' | 'client stream' },
  call: Call,
  context: Encoded,
): Promise<void> {
  const { request, response, encoding } = context;
  let hasBegun = false;
  const send = async (flags: number, payload: Uint8Array) => {
    if (!hasBegun) response.writeHead(200, { 'Content-Type': `application/connect+${encoding}` });
    hasBegun = true;
    await writeSome(response, envelope(flags, payload));
  };
  try {
    const inputs = messagesOf(request, method.input, encoding);
    const outputs = method.kind === 'client stream' ? one(method.run(call, inputs)) : fromOne(method, call, inputs);
    const keepalive = method.kind === 'server stream' ? method.keepalive : undefined;
    for await (const output of withKeepalive(outputs, keepalive, call, context)) {
      if (response.destroyed) return;
      await send(0, encodeMessage(method.output, output, encoding));
    }
    if (response.destroyed) return;
    await send(endFlag, Buffer.from('{}'));
    response.end();
  } catch (error) {
    if (response.destroyed) return;
    const refusal = told(error, context);
    if (refusal instanceof SandboxGone) {
      if (!hasBegun) throw refusal;
      breakOff(response);
      return;
    }
    const { code, message } = refusal;
    await send(endFlag, Buffer.from(JSON.stringify({ error: { code, message } })));
    response.end();
  }
}

async function* fromOne(
  method: Method & { kind: 'server stream' },
  call: Call,
  inputs: AsyncIterable<Message>,
): AsyncGenerator<Message, void> {
  let input: Message | undefined;
  for await (const message of inputs) {
    if (input !== undefined) throw new EnvdError('invalid_argument', 'This call takes one message.');
    input = message;
  }
  if (input === undefined) throw new EnvdError('invalid_argument', 'This call takes one message, and none came.');
  yield* method.run(call, input);
}

async function* one(output: Promise<Message>): AsyncGenerator<Message, void> {
  yield await output;
}

/** Ends with the call's own time or caller, whatever the source does. */
async function* withKeepalive(
  source: AsyncGenerator<Message, void>,
  keepalive: Message | undefined,
  call: Call,
  { request, timers }: Encoded,
): AsyncGenerator<Message, void> {
  const intervalMs = keepaliveOf(request);
  let next = source.next();
  try {
    for (;;) {
      const silent = Promise.withResolvers<'silent'>();
      const cancel = keepalive === undefined ? () => {} : timers.after(intervalMs, () => silent.resolve('silent'));
      const result = await inTime(Promise.race([next, silent.promise]), call.signal).finally(cancel);
      if (result === 'silent') yield keepalive!;
      else if (result.done) return;
      else {
        yield result.value;
        next = source.next();
      }
    }
  } finally {
    next.catch(() => {}); // Nobody waits for it any more.
    void source.return().catch(() => {});
  }
}

async function* messagesOf(request: IncomingMessage, type: string, encoding: Encoding): AsyncGenerator<Message, void> {
  refuseCompressed(request, 'connect-content-encoding');
  for await (const payload of readEnvelopes(request, messageMaxBytes)) yield decodeMessage(type, payload, encoding);
}

function refuseCompressed({ headers }: IncomingMessage, name: string): void {
  const coding = headers[name] ?? 'identity';
  if (coding !== 'identity') throw new EnvdError('unimplemented', `The coding ${coding} is not understood.`);
}

function told(error: unknown, { logger, sandbox }: RpcContext): EnvdError | SandboxGone {
  const refusal = refusalOf(error);
  if (refusal !== undefined) return refusal;
  logger.error('a bug', { sandboxId: sandbox.sandboxId, error });
  return new EnvdError('internal', 'Something went wrong here.');
}

async function inTime<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  const over = Promise.withResolvers<never>();
  const onAbort = () => over.reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, over.promise]);
  } catch (error) {
    if (!signal.aborted) throw error;
    throw signal.reason instanceof EnvdError ? signal.reason : new EnvdError('canceled', 'The caller has left.');
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function encodingOf(method: Method, request: IncomingMessage): Encoding | undefined {
  const type = (request.headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
  const prefix = method.kind === 'unary' ? 'application/' : 'application/connect+';
  if (type === `${prefix}json`) return 'json';
  return type === `${prefix}proto` ? 'proto' : undefined;
}

function timeoutOf(request: IncomingMessage): number | undefined {
  const text = request.headers['connect-timeout-ms'];
  if (typeof text !== 'string' || !/^\d{1,10}$/.test(text)) return undefined;
  return Math.min(Number(text), timeoutMaxMs);
}

function keepaliveOf(request: IncomingMessage): number {
  const seconds = Number(request.headers['keepalive-ping-interval']);
  if (!Number.isFinite(seconds) || seconds <= 0) return keepaliveDefaultMs;
  return Math.min(Math.max(seconds * 1_000, keepaliveMinMs), timeoutMaxMs);
}
