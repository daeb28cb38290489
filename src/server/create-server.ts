/**
 * The HTTP server: Node's own, with a table of routes and nothing between them.
 *
 *   open ──close()──► closing ──running ones answered, or grace over──► closed
 *
 *   open      Requests are answered.
 *   closing   New ones are refused with `shutting_down`, streams and waits end, running ones finish.
 *   closed    No connection is left; nobody listens.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Logger, systemTimers, type Timers } from '../base/index.ts';
import { isPlatformError, newId, PlatformError, RandomPool } from '../protocol/index.ts';
import { refuseOnConnection } from './bare-answer.ts';
import { bindRoutes } from './bind-routes.ts';
import type { ControlPort } from './control-port.ts';
import { E2bApi } from './e2b/index.ts';
import { EventStreams } from './event-stream.ts';
import { callerLeftStatus, Exchange, shuttingDown } from './exchange.ts';
import { formatMetrics, HttpMetrics, metricsContentType } from './http-metrics.ts';
import { openApiDocument } from './open-api.ts';
import { PreviewAddresses, type PreviewDomain } from './previews/preview-addresses.ts';
import { Previews, previewRouteName } from './previews/previews.ts';
import { RequestSpans } from './request-spans.ts';
import { authenticate, type BoundRoute, bindRoute, checkScope } from './route-binding.ts';
import { RouteTable } from './route-table.ts';
import { TerminalSockets } from './terminal-sockets.ts';
import { Tunnels } from './tunnels.ts';
import { Upgrades } from './upgrades.ts';

export interface HttpServerOptions {
  readonly control: ControlPort;
  readonly logger: Logger;
  readonly version: string;
  readonly timers?: Timers;
  /** How often a silent stream shows that it lives. */
  readonly heartbeatMs?: number;
  /** How often a caller who asked for it hears `102 Processing` while it waits for an answer. */
  readonly progressMs?: number;
  /** Below which host name previews are; absent: `localhost`. */
  readonly previewDomain?: PreviewDomain;
  /** What E2B's tokens are derived from; absent: its API is not served. */
  readonly e2bSecret?: Uint8Array;
  /** In PEM. Present: the server speaks TLS, and nothing else. */
  readonly tls?: { readonly cert: string; readonly key: string };
}

export interface HttpServer {
  listen(host: string, port: number): Promise<{ readonly url: string }>;
  /** A second close joins the first. */
  close(options?: { readonly graceMs?: number }): Promise<void>;
}

const defaultHeartbeatMs = 15_000;
const defaultProgressMs = 30_000;
const defaultGraceMs = 10_000;
/** Longer than clients keep an idle connection, so that it is they who close it, not we while they send. */
const keepAliveMs = 75_000;
const headersMs = 30_000;
const headersMaxBytes = 16 * 1024;
const defaultPreviewDomain: PreviewDomain = { scheme: 'http', name: 'localhost', port: null };

export function createHttpServer(options: HttpServerOptions): HttpServer {
  return new TableServer(options);
}

/** What is there without a key, or beside the declared routes. */
type PlainPage = (exchange: Exchange) => void | Promise<void>;

class TableServer implements HttpServer {
  readonly #control: ControlPort;
  readonly #logger: Logger;
  readonly #timers: Timers;
  readonly #progressMs: number;
  readonly #server: Server;
  readonly #table = new RouteTable<BoundRoute>();
  readonly #pages: ReadonlyMap<string, PlainPage>;
  readonly #metrics = new HttpMetrics();
  readonly #spans = new RequestSpans();
  readonly #random = new RandomPool();
  readonly #upgrades = new Upgrades();
  readonly #previews: Previews;
  readonly #e2b: E2bApi | undefined;
  readonly #scheme: 'http' | 'https';
  readonly #terminals: TerminalSockets;
  /** Not answered yet. */
  readonly #running = new Set<Exchange>();
  #closing: Promise<void> | undefined;
  #drained: (() => void) | undefined;

  constructor(options: HttpServerOptions) {
    const { control, logger, version, timers = systemTimers, heartbeatMs = defaultHeartbeatMs } = options;
    this.#control = control;
    this.#logger = logger;
    this.#timers = timers;
    this.#progressMs = options.progressMs ?? defaultProgressMs;
    this.#pages = this.#plainPages(version);
    const streams = new EventStreams({ events: control.events, timers, heartbeatMs });
    const addresses = new PreviewAddresses(options.previewDomain ?? defaultPreviewDomain);
    const fail = (exchange: Exchange, error: unknown) => this.#fail(exchange, error);
    this.#previews = new Previews({ ports: control.ports, addresses, fail });
    const { e2bSecret, tls } = options;
    this.#e2b = e2bSecret && new E2bApi({ control, addresses, secret: e2bSecret, timers, logger });
    this.#upgrades.add((...asked) => this.#e2b?.upgrade(...asked, () => this.#previews.upgrade(...asked)) === true);
    this.#upgrades.add(this.#previews.upgrade);
    this.#upgrades.add(new Tunnels({ who: control.who, ports: control.ports, fail, timers, heartbeatMs }).upgrade);
    this.#terminals = new TerminalSockets({
      who: control.who,
      terminals: control.terminals,
      logger,
      timers,
      heartbeatMs,
    });
    this.#upgrades.add(this.#terminals.take);
    bindRoutes(
      (route, handler, bindingOptions) =>
        this.#table.add(route, bindRoute(control.who, route, handler, bindingOptions)),
      control,
      streams,
      addresses,
    );
    const serverOptions = {
      keepAliveTimeout: keepAliveMs,
      headersTimeout: headersMs,
      // How long a body may take depends on what it is: read-body.ts, byte-body.ts.
      requestTimeout: 0,
      maxHeaderSize: headersMaxBytes,
      shouldUpgradeCallback: Upgrades.isMeant,
    };
    this.#scheme = tls === undefined ? 'http' : 'https';
    this.#server = tls === undefined ? createServer(serverOptions) : createTlsServer({ ...serverOptions, ...tls });
    this.#server.on('request', (request, response) => this.#take(request, response));
    this.#server.on('upgrade', (request, socket, head) => this.#upgrades.take(request, socket, head));
    this.#server.on('clientError', refuseBrokenRequest);
  }

  async listen(host: string, port: number): Promise<{ readonly url: string }> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    const { address, port: given, family } = this.#server.address() as AddressInfo;
    return { url: `${this.#scheme}://${family === 'IPv6' ? `[${address}]` : address}:${given}` };
  }

  close(options: { readonly graceMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.graceMs ?? defaultGraceMs);
    return this.#closing;
  }

  async #close(graceMs: number): Promise<void> {
    for (const exchange of this.#running) exchange.serverStops();
    this.#upgrades.stop();
    const terminalsLeft = this.#terminals.close();
    if (this.#running.size > 0) {
      // Still listening, so that a new caller hears why it is refused.
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#drained = resolve;
      const cancel = this.#timers.after(graceMs, resolve);
      await promise;
      cancel();
    }
    await terminalsLeft;
    this.#upgrades.cut();
    if (this.#running.size > 0) this.#logger.warn('requests cut off by the stop', { requests: this.#running.size });
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
    this.#previews.close();
    await this.#e2b?.close();
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const exchange = new Exchange(request, response, newId('request', this.#random.fill));
    this.#running.add(exchange);
    response.on('close', () => this.#over(exchange));
    this.#spans.run(exchange, () => this.#answer(exchange)).catch((error: unknown) => this.#fail(exchange, error));
  }

  async #answer(exchange: Exchange): Promise<void> {
    const { method, path } = exchange;
    const isClosing = this.#closing !== undefined;
    if (this.#e2b?.mayBeMeant(exchange) && (await this.#e2b.answer(exchange, { isClosing }))) return;
    const preview = this.#previews.find(exchange.request);
    if (preview !== undefined) {
      if (this.#closing !== undefined) throw shuttingDown();
      return await this.#previews.answer(exchange, preview);
    }
    const page = this.#pages.get(path);
    if (page !== undefined) {
      exchange.routePath = path;
      exchange.routeName = path;
      if (method === 'GET' || method === 'HEAD') return await page(exchange);
      return refuseMethod(exchange, ['GET']);
    }
    const match = this.#table.find(path);
    if (match === undefined) throw this.#notFound(exchange);
    const bound = match.methods.get(method === 'HEAD' ? 'GET' : method);
    if (bound === undefined) return refuseMethod(exchange, [...match.methods.keys()]);
    exchange.routePath = bound.route.path;
    exchange.routeName = bound.route.name;
    if (this.#closing !== undefined) throw shuttingDown();
    const stopProgress = this.#startProgress(exchange);
    try {
      await bound.answer(exchange, match.params);
    } finally {
      stopProgress?.();
    }
  }

  #notFound({ method, path }: Exchange): PlatformError {
    const nearby = this.#table.nearby({ method, path });
    return new PlatformError(
      'route_not_found',
      `There is no ${method} ${shown(path)}. Near it: ${nearby.join(', ')}.`,
      {
        details: { nearby },
      },
    );
  }

  /**
   * Clients give up on an answer that does not begin for minutes (Node's fetch after five). One that says that it
   * understands it hears `102 Processing` meanwhile; some that do not take it for the answer.
   */
  #startProgress({ request, response }: Exchange): (() => void) | undefined {
    if (request.headers['prefer'] !== 'processing' || request.httpVersion !== '1.1') return undefined;
    let cancel: () => void;
    const tell = () => {
      if (!response.headersSent && !response.destroyed) response.writeProcessing();
      cancel = this.#timers.after(this.#progressMs, tell);
    };
    cancel = this.#timers.after(this.#progressMs, tell);
    return () => cancel();
  }

  #fail(exchange: Exchange, error: unknown): void {
    const { requestId } = exchange;
    if (isPlatformError(error)) {
      if (error.cause !== undefined || error.status >= 500) this.#logger.warn('refused', { requestId, error });
      exchange.sendError(error);
    } else if (exchange.isAbort(error)) {
      // The caller left or the server stops, and the wait ended with it: nothing is wrong.
      exchange.sendError(shuttingDown());
    } else {
      this.#logger.error('a bug', { requestId, error });
      exchange.sendError(
        new PlatformError('internal', 'Something went wrong here. The request id finds it in the log.'),
      );
    }
  }

  #over(exchange: Exchange): void {
    const { response, requestId, method, path, keyId, errorCode: code } = exchange;
    const wasSent = response.writableFinished;
    // A server that stops cuts connections; that is not the caller's wish to stop its command.
    const isCutByUs = this.#closing !== undefined;
    if (!wasSent && !isCutByUs) exchange.callerLeft();
    this.#running.delete(exchange);
    const status = wasSent ? response.statusCode : callerLeftStatus;
    const ms = Math.round((performance.now() - exchange.startedAt) * 100) / 100;
    this.#metrics.count({ route: exchange.routeName || 'unknown', status, ms });
    // A page of a preview makes a hundred requests, which are its visitor's and not ours to keep.
    const level = exchange.routeName === previewRouteName ? 'debug' : 'info';
    this.#logger[level]('request', { requestId, method, path: shown(path), status, ms, keyId, code });
    if (this.#running.size === 0) this.#drained?.();
  }

  #plainPages(version: string): ReadonlyMap<string, PlainPage> {
    const document = openApiText(version);
    return new Map<string, PlainPage>([
      ['/healthz', (exchange) => exchange.send(JSON.stringify({ ok: true, version }), { status: 200 })],
      ['/readyz', (exchange) => this.#sendReadiness(exchange)],
      ['/metrics', (exchange) => this.#sendMetrics(exchange)],
      ['/openapi.json', (exchange) => exchange.send(document(), { status: 200 })],
    ]);
  }

  #sendReadiness(exchange: Exchange): void {
    const { ready, reasons } = this.#control.readiness();
    const isReady = ready && this.#closing === undefined;
    const shownReasons = this.#closing === undefined ? reasons : [...reasons, 'The server is stopping.'];
    exchange.send(JSON.stringify({ ready: isReady, reasons: shownReasons }), { status: isReady ? 200 : 503 });
  }

  /** Numbers of every team: for `admin` only. */
  async #sendMetrics(exchange: Exchange): Promise<void> {
    checkScope(await authenticate(this.#control.who, exchange), { scope: 'admin' });
    const metrics = [...(await this.#control.metrics()), ...this.#metrics.metrics(this.#running.size)];
    exchange.send(formatMetrics(metrics), { status: 200, contentType: metricsContentType });
  }
}

function refuseMethod(exchange: Exchange, methods: readonly string[]): void {
  const allowed = [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'];
  const headers = { Allow: allowed.join(', ') };
  if (exchange.method === 'OPTIONS') {
    exchange.send(undefined, { status: 204, headers });
    return;
  }
  const message = `${exchange.method} is not possible here; ${allowed.join(', ')} are.`;
  exchange.sendError(new PlatformError('method_not_allowed', message, { details: { allowed } }), headers);
}

/** What is not HTTP never becomes a request: it is answered on the bare connection, which then ends. */
function refuseBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const isTooLarge = error.code === 'HPE_HEADER_OVERFLOW';
  const refusal = isTooLarge
    ? new PlatformError('payload_too_large', `The headers are larger than ${headersMaxBytes} bytes.`)
    : new PlatformError('invalid_request', 'This is not a whole HTTP/1.1 request.');
  refuseOnConnection(socket, refusal, newId('request'));
}

function openApiText(version: string): () => string {
  let text: string | undefined;
  return () => {
    text ??= JSON.stringify(openApiDocument({ version }));
    return text;
  };
}

function shown(path: string): string {
  return path.slice(0, 200);
}
