/**
 * One request and its answer. Whatever happens, it is answered at most once, every answer carries the request id, and
 * when it is over, `whenOver` is told once, with the status that went out.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { errorCatalog, PlatformError, type RequestId } from '../protocol/index.ts';

export interface AnswerOptions {
  readonly status: number;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** What the log says for a caller who was gone before the answer; never sent. */
export const callerLeftStatus = 499;

/** A text from this length on is made bytes once and sent as they are; a shorter one goes out in one piece with the headers. */
const largeTextLength = 16 * 1024;

export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly requestId: RequestId;
  readonly startedAt = performance.now();
  readonly method: string;
  readonly path: string;
  /** With the question mark, or empty. */
  readonly search: string;
  /** The path as declared, once it is known. */
  routePath = '';
  routeName = '';
  keyId: string | undefined;
  errorCode: string | undefined;
  #disconnected: AbortController | undefined;
  #ending: AbortController | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, requestId: RequestId) {
    this.request = request;
    this.response = response;
    this.requestId = requestId;
    this.method = request.method ?? 'GET';
    const url = request.url ?? '/';
    const queryAt = url.indexOf('?');
    this.path = queryAt === -1 ? url : url.slice(0, queryAt);
    this.search = queryAt === -1 ? '' : url.slice(queryAt);
  }

  /** Aborts when the caller is gone before the answer. */
  get disconnected(): AbortSignal {
    this.#disconnected ??= new AbortController();
    return this.#disconnected.signal;
  }

  /** Aborts when the caller is gone or the server stops: for waiting that is not worth finishing. */
  get ending(): AbortSignal {
    this.#ending ??= new AbortController();
    return this.#ending.signal;
  }

  callerLeft(): void {
    this.#disconnected?.abort();
    this.#ending?.abort();
  }

  serverStops(): void {
    this.#ending?.abort(shuttingDown());
  }

  get isEnding(): boolean {
    return this.#ending?.signal.aborted === true;
  }

  /** Whether this is only the echo of a signal of ours. */
  isAbort(error: unknown): boolean {
    const isAborted = this.isEnding || this.#disconnected?.signal.aborted === true;
    return isAborted && error instanceof Error && error.name === 'AbortError';
  }

  send(text: string | undefined, options: AnswerOptions): void {
    if (this.response.headersSent || this.response.destroyed) return;
    const headers: string[] = ['Request-Id', this.requestId, 'Cache-Control', 'no-store'];
    const body = text !== undefined && text.length >= largeTextLength ? Buffer.from(text) : text;
    if (body !== undefined) {
      headers.push('Content-Type', options.contentType ?? 'application/json');
      headers.push('Content-Length', String(Buffer.byteLength(body)));
    }
    for (const name in options.headers) headers.push(name, options.headers[name]!);
    this.response.writeHead(options.status, headers);
    this.response.end(body);
  }

  sendError(error: PlatformError, headers: Readonly<Record<string, string>> = {}): void {
    this.errorCode = error.code;
    const { code, message, details } = error;
    this.send(JSON.stringify({ error: { code, message, details, requestId: this.requestId } }), {
      status: error.status,
      headers: { ...headersOf(error), ...headers },
    });
  }
}

export function shuttingDown(): PlatformError {
  return new PlatformError('shutting_down', 'The server is stopping. Try again when it is back.');
}

function headersOf(error: PlatformError): Record<string, string> {
  if (error.code === 'unauthenticated') return { 'WWW-Authenticate': 'Bearer' };
  return errorCatalog[error.code].status === 503 ? { 'Retry-After': '1' } : {};
}
