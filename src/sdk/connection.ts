/**
 * Calls declared routes over HTTP, and turns whatever goes wrong into a `PlatformError`.
 *
 *  - A refusal of the server is thrown again with its code, details and request id.
 *  - `server_unreachable`: nothing was sent, or it was only a look.
 *  - `outcome_unknown`: a change was sent and its answer was lost.
 *  - The caller's own signal: its reason is thrown, as fetch does.
 *
 * A request is repeated, a bounded number of times, only where that is harmless: the error promises that nothing was
 * changed, or the request is a look, or it has an idempotency key. A look is repeated after any answer of a server that
 * failed (5xx), and whatever was answered with 429 when the time has come that it names; other refusals are final.
 */
import {
  type AnyRoute,
  type BodyInputOf,
  type Conditions,
  conditionHeaders,
  type ErrorCode,
  isErrorCode,
  isPlatformError,
  type ParamsInputOf,
  PlatformError,
  type QueryInputOf,
  type ResultOf,
  terminalKeyProtocol,
  terminalProtocol,
} from '../protocol/index.ts';
import { isNeverSent } from './never-sent.ts';
import { findNodeSend } from './node-send.ts';
import type { Answer, Send, SentRequest } from './send.ts';

export interface ConnectionOptions {
  /** Of the server: `http://127.0.0.1:7070`. */
  readonly url: string;
  readonly apiKey: string;
  /** What requests are sent through; without it, Node's own `http` where there is one, and the platform's fetch elsewhere. */
  readonly fetch?: typeof fetch;
  /** How long an answer may take. Commands and waits for leases, which take as long as they take, have their own. */
  readonly timeoutMs?: number;
  /** How often a request is repeated at most where that is harmless. */
  readonly retries?: number;
  /** Time, for tests. */
  readonly clock?: ClientClock;
}

export interface ClientClock {
  nowMs(): number;
  /** Resolves after the time, or at once when the signal aborts. */
  wait(ms: number, signal?: AbortSignal): Promise<void>;
}

export interface CallOptions extends Conditions {
  readonly signal?: AbortSignal;
}

export interface CallRequest<Route extends AnyRoute> extends CallOptions {
  readonly params?: ParamsInputOf<Route>;
  readonly query?: QueryInputOf<Route>;
  readonly body?: BodyInputOf<Route>;
  /** In place of a body that is JSON. A stream is sent once: nothing is repeated then. */
  readonly content?: Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
  /** null: as long as it takes. */
  readonly timeoutMs?: number | null;
}

const defaultTimeoutMs = 60_000;
const defaultRetries = 3;
const backoffFirstMs = 100;
const backoffMaxMs = 2_000;
/** Whoever is told to come back later than this hears the refusal instead. */
const retryAfterMaxMs = 30_000;
/** The server does not have it, now or later. */
const notImplemented = 501;

/** Where waiting a moment helps. A lease that is held or a limit that is reached is the caller's to decide about. */
const retriedCodes: ReadonlySet<ErrorCode> = new Set([
  'server_unreachable',
  'shutting_down',
  'node_unavailable',
  'sandbox_unavailable',
]);

/** With what a request was answered, as far as repeating it goes. */
interface Answered {
  readonly status: number;
  /** Absent: it does not say. */
  readonly retryAfterMs: number | undefined;
}

export class Connection {
  readonly url: string;
  readonly clock: ClientClock;
  /** Of the errors that were answers. */
  readonly #answered = new WeakMap<PlatformError, Answered>();
  readonly #apiKey: string;
  readonly #send: Send;
  /** How long an answer may take. */
  readonly timeoutMs: number;
  readonly #retries: number;

  constructor(options: ConnectionOptions) {
    if (!URL.canParse(options.url)) {
      throw new PlatformError('invalid_request', `"${options.url}" is not the URL of a server.`);
    }
    this.url = options.url.replace(/\/+$/, '');
    this.clock = options.clock ?? systemClientClock;
    this.#apiKey = options.apiKey;
    // Called as a plain function: browsers refuse fetch on another object.
    this.#send = options.fetch ?? findNodeSend() ?? ((...call) => fetch(...call));
    this.timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
    this.#retries = options.retries ?? defaultRetries;
  }

  async call<Route extends AnyRoute>(route: Route, request: CallRequest<Route> = {}): Promise<ResultOf<Route>> {
    return await this.repeat(route, request, async () => readResult(route, await this.open(route, request), request));
  }

  /** As `open`, repeated where that is harmless. */
  async openAgain<Route extends AnyRoute>(
    route: Route,
    request: CallRequest<Route>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    return await this.repeat(route, request, () => this.open(route, request, headers));
  }

  /** Tries again, a bounded number of times, where that is harmless. */
  async repeat<Result>(
    route: AnyRoute,
    request: Pick<CallRequest<AnyRoute>, 'idempotencyKey' | 'content' | 'signal'>,
    attemptOnce: () => Promise<Result>,
  ): Promise<Result> {
    const isRepeatable = !route.isMutation || request.idempotencyKey !== undefined;
    const retries = request.content instanceof ReadableStream ? 0 : this.#retries;
    let lost: PlatformError | undefined;
    for (let attempt = 0; ; attempt++) {
      try {
        return await attemptOnce();
      } catch (error) {
        if (!isPlatformError(error)) throw error;
        const isLost = error.code === 'outcome_unknown' && error.requestId === undefined;
        if (isLost) lost = error;
        const answered = this.#answered.get(error);
        const mayHelp = answered === undefined ? retriedCodes.has(error.code) : mayChange(route, error, answered);
        const isRepeated = mayHelp || (isLost && isRepeatable);
        // Once an answer was lost, "nothing was changed" is true of the repeat only.
        if (!isRepeated || attempt >= retries) throw lost !== undefined && isRepeated ? lost : error;
        await this.clock.wait(Math.max(backoffMs(attempt), answered?.retryAfterMs ?? 0), request.signal);
        request.signal?.throwIfAborted();
      }
    }
  }

  /** Sends once; the answer is a success whose body is not read yet. */
  async open<Route extends AnyRoute>(
    route: Route,
    request: CallRequest<Route>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const timeoutMs = request.timeoutMs === undefined ? this.timeoutMs : request.timeoutMs;
    const signals = [request.signal, timeoutMs === null ? undefined : AbortSignal.timeout(timeoutMs)].filter(
      (signal) => signal !== undefined,
    );
    let response: Answer;
    try {
      response = await this.#send(this.#urlOf(route, request), {
        method: route.method,
        headers: { ...this.#headersOf(request, timeoutMs), ...request.headers, ...headers },
        ...bodyOf(request),
        ...(signals.length > 0 && { signal: signals.length === 1 ? signals[0]! : AbortSignal.any(signals) }),
      });
    } catch (error) {
      throw failure(route, request, error, this.url);
    }
    if (response.ok) return response;
    const refusal = await refusalOf(route, response);
    this.#answered.set(refusal, { status: response.status, retryAfterMs: retryAfterOf(response) });
    throw refusal;
  }

  /** For a request that fetch cannot make: one that becomes another protocol. */
  authorization(): { readonly Authorization: string } {
    return { Authorization: `Bearer ${this.#apiKey}` };
  }

  /** A WebSocket of the platform's own, which browsers and Node have: it cannot set headers, so the key is offered as a subprotocol. */
  openSocket<Route extends AnyRoute>(route: Route, request: CallRequest<Route>): WebSocket {
    if (typeof WebSocket === 'undefined') {
      throw new PlatformError('invalid_request', 'Terminals need a global WebSocket: a browser, or Node 22 or newer.');
    }
    const url = this.#urlOf(route, request).replace(/^http/, 'ws');
    return new WebSocket(url, [terminalProtocol, `${terminalKeyProtocol}${this.#apiKey}`]);
  }

  #urlOf<Route extends AnyRoute>(route: Route, request: CallRequest<Route>): string {
    const params = (request.params ?? {}) as Readonly<Record<string, string>>;
    const path = route.path.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''));
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries((request.query ?? {}) as Record<string, unknown>)) {
      if (value === undefined) continue;
      for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one));
    }
    return `${this.url}${path}${search.size === 0 ? '' : `?${search}`}`;
  }

  #headersOf(request: CallRequest<AnyRoute>, timeoutMs: number | null): Record<string, string> {
    const headers: Record<string, string> = { ...this.authorization(), Accept: 'application/json' };
    if (request.body !== undefined) headers['Content-Type'] = 'application/json';
    if (request.content !== undefined) headers['Content-Type'] = 'application/octet-stream';
    // The server then shows now and then that it is at it, and Node's fetch does not give up after five minutes.
    if (timeoutMs === null) headers['Prefer'] = 'processing';
    for (const condition of ['idempotencyKey', 'leaseToken', 'generation'] as const) {
      if (request[condition] !== undefined) headers[conditionHeaders[condition]] = String(request[condition]);
    }
    if (request.expectedVersion !== undefined) {
      headers[conditionHeaders.expectedVersion] = `"${request.expectedVersion}"`;
    }
    return headers;
  }
}

export const systemClientClock: ClientClock = {
  nowMs: () => performance.now(),
  wait: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal?.addEventListener('abort', done, { once: true });
    }),
};

function bodyOf(request: CallRequest<AnyRoute>): Pick<SentRequest, 'body' | 'duplex'> {
  const { content, body } = request;
  if (content instanceof ReadableStream) return { body: content, duplex: 'half' };
  if (content !== undefined) return { body: content };
  return body === undefined ? {} : { body: JSON.stringify(body) };
}

/** Whether the same request may be answered otherwise in a moment. */
function mayChange(route: AnyRoute, error: PlatformError, { status, retryAfterMs }: Answered): boolean {
  if (status === 429) return retryAfterMs !== undefined && retryAfterMs <= retryAfterMaxMs;
  if (status >= 500 && status !== notImplemented && !route.isMutation) return true;
  return status >= 500 && retriedCodes.has(error.code);
}

/** Of a 429 only: our own 503 says a second, and a backoff from less is kinder to whoever waits. */
function retryAfterOf(response: Answer): number | undefined {
  const text = response.headers.get('Retry-After');
  if (response.status !== 429 || text === null) return undefined;
  if (/^\d+$/.test(text)) return Number(text) * 1_000;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now());
}

/** Doubles, and differs between callers, so that they do not come back all at once. */
function backoffMs(attempt: number): number {
  return Math.min(backoffMaxMs, backoffFirstMs * 2 ** attempt) * (0.5 + Math.random() / 2);
}

async function readResult<Route extends AnyRoute>(
  route: Route,
  response: Answer,
  request: CallOptions,
): Promise<ResultOf<Route>> {
  if (response.status === 204) return {} as ResultOf<Route>;
  try {
    return (await response.json()) as ResultOf<Route>;
  } catch (error) {
    throw failure(route, request, error, response.url);
  }
}

async function refusalOf(route: AnyRoute, response: Answer): Promise<PlatformError> {
  const body: unknown = await response.json().catch(() => undefined);
  const error = (body as { error?: { code?: unknown; message?: unknown; details?: unknown; requestId?: unknown } })
    ?.error;
  if (typeof error?.code === 'string' && isErrorCode(error.code)) {
    return new PlatformError(error.code, String(error.message), {
      details: (error.details ?? {}) as Readonly<Record<string, unknown>>,
      ...(typeof error.requestId === 'string' && { requestId: error.requestId }),
    });
  }
  return lostOrUnreachable(
    route,
    `The answer has status ${response.status} and is not one of an Atoll server. Is something else at ${response.url}?`,
    typeof error?.code === 'string' ? { code: error.code } : undefined,
  );
}

function failure(route: AnyRoute, request: CallOptions, error: unknown, url: string): unknown {
  if (request.signal?.aborted) return request.signal.reason;
  if (error instanceof Error && error.name === 'TimeoutError') {
    return lostOrUnreachable(route, `No answer from ${url} in time.`, error);
  }
  if (isNeverSent(error)) {
    return new PlatformError('server_unreachable', `No server answers at ${url}. Is it running?`, { cause: error });
  }
  return lostOrUnreachable(route, `The connection to ${url} was lost before the answer.`, error);
}

function lostOrUnreachable(route: AnyRoute, message: string, cause: unknown): PlatformError {
  return route.isMutation
    ? new PlatformError('outcome_unknown', `${message} It may or may not have taken effect.`, { cause })
    : new PlatformError('server_unreachable', message, { cause });
}
