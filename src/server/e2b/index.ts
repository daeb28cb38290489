/**
 * E2B's API in front of this platform, for its unmodified SDK: sandboxes by REST, their ports by header or host name, and the agent's port by an
 * adapter. It translates and decides nothing; control, node and sandboxes know nothing of it.
 *
 * Invariant: whatever is asked here is answered in E2B's shape, refusals and bugs included.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Logger, Timers } from '../../base/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { type Exchange, shuttingDown } from '../exchange.ts';
import { parseConditions } from '../parse-request.ts';
import type { PreviewAddresses } from '../previews/preview-addresses.ts';
import { readJsonBody } from '../read-body.ts';
import { authenticate, checkSandbox, checkScope } from '../route-binding.ts';
import type { Match } from '../route-table.ts';
import { type ApiRoute, apiRoutes, isE2bPath } from './api-routes.ts';
import { E2bError, e2bErrorOf } from './e2b-error.ts';
import { Edge } from './edge.ts';
import { type EdgeAddress, sandboxIdIn } from './edge-addresses.ts';
import { createEnvd, sandboxOfSignature } from './envd/index.ts';
import { envdPort } from './envd-handler.ts';
import { EnvdTokens } from './envd-tokens.ts';
import { ExpiredSandboxes } from './expired-sandboxes.ts';
import { LifecycleCalls } from './lifecycle-calls.ts';
import { MetricCalls } from './metric-calls.ts';
import { SandboxCalls } from './sandbox-calls.ts';
import { SandboxViews } from './sandbox-views.ts';
import { TemplateCalls } from './template-calls.ts';

export interface E2bOptions {
  readonly control: ControlPort;
  readonly addresses: PreviewAddresses;
  /** Tokens are derived from it. */
  readonly secret: Uint8Array;
  readonly timers: Timers;
  readonly logger: Logger;
}

/** The agent's, which addresses without the name of a sandbox may lead to. */
const filesPath = '/files';
const bodyLimitBytes = 1024 * 1024;
/** Browsers may ask from anywhere: a key is needed whoever asks. */
const crossOrigin = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Allow-Methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
  'Access-Control-Allow-Headers': '*',
  'Access-Control-Expose-Headers': 'X-Next-Token, X-Total-Running, Request-Id',
};

export class E2bApi {
  readonly #options: E2bOptions;
  readonly #edge: Edge;
  readonly #tokens: EnvdTokens;
  readonly #expired: ExpiredSandboxes;
  readonly #routes;

  constructor(options: E2bOptions) {
    const { control, addresses, secret, timers, logger } = options;
    this.#options = options;
    const tokens = new EnvdTokens(secret);
    this.#tokens = tokens;
    const views = new SandboxViews({ tokens, secret });
    const envd = createEnvd({ control, tokens, timers, logger });
    this.#edge = new Edge({
      control,
      addresses,
      views,
      tokens,
      envd,
      fail: (exchange, error) => this.#fail(exchange, error),
    });
    this.#expired = new ExpiredSandboxes({ control, logger, timers });
    const sandboxes = new SandboxCalls(control, views);
    const lifecycle = new LifecycleCalls(control, views, sandboxes);
    const metrics = new MetricCalls(control, sandboxes, timers);
    this.#routes = apiRoutes({ sandboxes, lifecycle, metrics, templates: new TemplateCalls(control, lifecycle) });
  }

  /** False: it is not E2B's. */
  async answer(exchange: Exchange, options: { readonly isClosing: boolean }): Promise<boolean> {
    try {
      const address = this.#edge.find(exchange.request) ?? this.#signedAddress(exchange);
      if (address === undefined && !isE2bPath(exchange.path) && exchange.path !== filesPath) return false;
      if (options.isClosing) throw shuttingDown();
      return address === undefined ? await this.#answerApi(exchange) : await this.#answerEdge(exchange, address);
    } catch (error) {
      this.#fail(exchange, error);
      return true;
    }
  }

  /** Whether `answer` has anything to look at: most requests are spared it. */
  mayBeMeant({ path, request }: Exchange): boolean {
    return (
      isE2bPath(path) ||
      path === filesPath ||
      this.#options.addresses.find(request)?.mode === 'host' ||
      request.headers['e2b-sandbox-id'] !== undefined
    );
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, otherwise: () => void): boolean {
    return this.#edge.upgrade(request, socket, head, otherwise);
  }

  async close(): Promise<void> {
    this.#edge.close();
    await this.#expired.close();
  }

  /** Of a signed address that does not say whose it is: the sandbox whose token it was signed with. */
  #signedAddress({ method, path, search, request }: Exchange): EdgeAddress | undefined {
    if (path !== filesPath || method === 'OPTIONS') return undefined;
    const sandboxId = sandboxOfSignature({ method, query: new URLSearchParams(search) }, this.#tokens);
    if (sandboxId === undefined) throw new E2bError(401, 'invalid signature, and no sandbox is named');
    return { sandboxId, port: envdPort, mode: 'host', prefix: '', target: request.url ?? '/', isByHeaders: true };
  }

  async #answerEdge(exchange: Exchange, address: EdgeAddress): Promise<boolean> {
    exchange.routeName = 'e2bEdge';
    exchange.routePath = 'e2bEdge';
    return await this.#edge.answer(exchange, address);
  }

  async #answerApi(exchange: Exchange): Promise<boolean> {
    const { method, path } = exchange;
    if (method === 'OPTIONS') {
      exchange.send(undefined, { status: 204, headers: crossOrigin });
      return true;
    }
    if (path === '/health') {
      exchange.send(undefined, { status: 204, headers: crossOrigin });
      return true;
    }
    const match = this.#routes.find(path);
    const route = match?.methods.get(method);
    exchange.routeName = 'e2bApi';
    exchange.routePath = route?.path ?? 'e2bApi';
    if (match === undefined || route === undefined) {
      await authenticate(this.#options.control.who, exchange);
      throw new E2bError(
        match === undefined ? 404 : 405,
        `${method} ${path.slice(0, 200)} is not supported by this server.`,
      );
    }
    await this.#run(exchange, route, match);
    return true;
  }

  async #run(exchange: Exchange, route: ApiRoute, { params }: Match<ApiRoute>): Promise<void> {
    const { request } = exchange;
    const caller = await authenticate(this.#options.control.who, exchange);
    checkScope(caller, route);
    if (route.scope === 'sandboxes:write') this.#expired.seen(caller);
    const decoded = decodedParams(params);
    checkSandbox(caller, { sandboxId: decoded['sandboxID'] });
    const told = await route.answer({
      caller,
      conditions: route.method === 'GET' ? {} : parseConditions(request.headers),
      body: route.method === 'GET' ? {} : await readJsonBody(request, bodyLimitBytes),
      search: exchange.search,
      params: decoded,
    });
    const text = told.body === undefined ? undefined : JSON.stringify(told.body);
    exchange.send(text, { status: told.status, headers: { ...crossOrigin, ...told.headers } });
  }

  #fail(exchange: Exchange, error: unknown): void {
    const { requestId } = exchange;
    const { logger } = this.#options;
    const refusal = exchange.isAbort(error) ? e2bErrorOf(shuttingDown()) : e2bErrorOf(error);
    if (refusal === undefined) logger.error('a bug', { requestId, error });
    else if (refusal.status >= 500 && isPlatformError(refusal.cause))
      logger.warn('refused', { requestId, error: refusal.cause });
    const told = refusal ?? new E2bError(500, 'Something went wrong here. The request id finds it in the log.');
    exchange.errorCode = String(told.fields['error_code'] ?? told.status);
    const headers = told.status === 503 ? { ...crossOrigin, 'Retry-After': '1' } : crossOrigin;
    exchange.send(told.body, { status: told.status, contentType: 'application/json; charset=utf-8', headers });
  }
}

function decodedParams(params: Readonly<Record<string, string>>): Record<string, string> {
  const decoded: Record<string, string> = {};
  for (const name in params) {
    try {
      decoded[name] = decodeURIComponent(params[name]!);
    } catch {
      throw new E2bError(400, `The ${name} in the path is not percent-encoded.`);
    }
    if (name === 'sandboxID') decoded[name] = sandboxIdIn(decoded[name]!);
  }
  return decoded;
}
