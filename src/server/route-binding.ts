/** Binds a declared route to what answers it: who asks, whether they may, what they ask, and what goes back. */
import type { IncomingHttpHeaders } from 'node:http';
import type { Caller } from '../control/index.ts';
import {
  type AnyRoute,
  type BodyOf,
  type Conditions,
  type ParamsOf,
  PlatformError,
  type QueryOf,
} from '../protocol/index.ts';
import { dropRest, readByteBody } from './byte-body.ts';
import type { ShownResult } from './control-port.ts';
import type { AnswerOptions, Exchange } from './exchange.ts';
import { parseConditions, parseGeneration, RequestParser } from './parse-request.ts';
import { readJsonBody } from './read-body.ts';

export interface RouteRequest<Route extends AnyRoute> {
  readonly caller: Caller;
  readonly params: ParamsOf<Route>;
  readonly query: QueryOf<Route>;
  readonly body: BodyOf<Route>;
  /** Of a route whose body is bytes; empty otherwise. */
  readonly content: AsyncIterable<Uint8Array>;
  readonly conditions: Conditions;
  /** For what the result does not say: the caller that went away, a stream. */
  readonly exchange: Exchange;
}

/** A result with another status than the declared one. */
export class Answer<Result> {
  readonly result: Result;
  readonly status: number;
  constructor(result: Result, options: { readonly status: number }) {
    this.result = result;
    this.status = options.status;
  }
}

/** Nothing, for a route without a result; `streamed` when the handler answered by itself. */
export const streamed = Symbol('streamed');

export type Handler<Route extends AnyRoute> = (
  request: RouteRequest<Route>,
  // biome-ignore lint/suspicious/noConfusingVoidType: control's methods without a result are Promise<void>.
) => Promise<ShownResult<Route> | Answer<ShownResult<Route>> | typeof streamed | void>;

export interface BindingOptions<Route extends AnyRoute> {
  /** The version that `If-Match` takes. */
  readonly etag?: (result: ShownResult<Route>) => number;
  /** Open to every good key, a sandbox's token included. */
  readonly openToEveryKey?: boolean;
}

export type Handle = <Route extends AnyRoute>(
  route: Route,
  handler: Handler<Route>,
  options?: BindingOptions<Route>,
) => void;

export interface BoundRoute {
  readonly route: AnyRoute;
  answer(exchange: Exchange, found: Readonly<Record<string, string>>): Promise<void>;
}

export interface Authenticator {
  authenticate(keyText: string): Promise<Caller>;
}

export function bindRoute<Route extends AnyRoute>(
  who: Authenticator,
  route: Route,
  handler: Handler<Route>,
  options: BindingOptions<Route> = {},
): BoundRoute {
  const parser = new RequestParser(route);
  return {
    route,
    async answer(exchange, found) {
      const { request } = exchange;
      const caller = await authenticate(who, exchange);
      if (!options.openToEveryKey) checkScope(caller, route);
      const params = parser.params(found);
      if (!options.openToEveryKey) checkSandbox(caller, params);
      const takesBytes = route.bodyKind === 'bytes';
      const result = await handler({
        caller,
        params: params as ParamsOf<Route>,
        query: parser.query(exchange.search) as QueryOf<Route>,
        conditions: route.isMutation ? parseConditions(request.headers, route) : parseGeneration(request.headers),
        body: parser.body(takesBytes ? {} : await readJsonBody(request, route.bodyLimitBytes)) as BodyOf<Route>,
        content: takesBytes ? readByteBody(request, route.bodyLimitBytes) : noBytes,
        exchange,
      }).finally(() => takesBytes && dropRest(request));
      if (result === streamed) return;
      const isAnswer = result instanceof Answer;
      sendResult(exchange, isAnswer ? result.result : (result as ShownResult<Route>), {
        status: isAnswer ? result.status : route.status,
        etag: options.etag,
      });
    },
  };
}

const noBytes: AsyncIterable<Uint8Array> = {
  [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: undefined }) }),
};

function sendResult<Result>(
  exchange: Exchange,
  result: Result,
  options: { readonly status: number; readonly etag: ((result: Result) => number) | undefined },
): void {
  if (options.status === 204) {
    exchange.send(undefined, { status: 204 });
    return;
  }
  const answer: AnswerOptions = options.etag
    ? { status: options.status, headers: { ETag: `"${options.etag(result)}"` } }
    : { status: options.status };
  exchange.send(JSON.stringify(result), answer);
}

export async function authenticate(who: Authenticator, exchange: Exchange): Promise<Caller> {
  const caller = await who.authenticate(keyTextIn(exchange.request.headers));
  exchange.keyId = caller.keyId;
  return caller;
}

export function keyTextIn(headers: IncomingHttpHeaders): string {
  const { authorization } = headers;
  const apiKey = headers['x-api-key'];
  if (authorization === undefined && typeof apiKey === 'string' && apiKey !== '') return apiKey;
  const bearer = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  throw new PlatformError(
    'unauthenticated',
    authorization === undefined
      ? 'There is no key. Send "Authorization: Bearer KEY" or "X-API-Key: KEY".'
      : 'The Authorization header is not "Bearer KEY".',
  );
}

export function checkScope(caller: Caller, route: Pick<AnyRoute, 'scope'>): void {
  if (caller.scopes.includes(route.scope) || caller.scopes.includes('admin')) return;
  throw new PlatformError('forbidden', `This needs a key with the scope ${route.scope}.`, {
    details: { needed: route.scope, scopes: caller.scopes },
  });
}

export function checkSandbox(caller: Caller, params: Readonly<Record<string, unknown>>): void {
  if (caller.sandboxId === null || params['sandboxId'] === caller.sandboxId) return;
  throw new PlatformError('forbidden', `This token reaches the sandbox ${caller.sandboxId} only.`, {
    details: { sandboxId: caller.sandboxId },
  });
}
