/**
 * Serves a NodeApi over HTTP to a control plane on another machine, behind one bearer token.
 *
 * A caller whose connection ends detaches: what it ordered goes on. An exec is aborted only by the call `abort`, so that its outcome still
 * has a connection to come back on.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';
import { type Logger, silentLogger } from '../../base/index.ts';
import { type ExecOutcome, idSchema, type NodeApi, PlatformError } from '../../protocol/index.ts';
import {
  applySettingsOrder,
  createOrder,
  execOrder,
  findRunOrder,
  lifeOrder,
  startOrder,
  stopOrder,
} from '../order-schemas.ts';
import { branchCalls } from './branch-server.ts';
import { FileServer, fileMethods } from './file-server.ts';
import {
  basePath,
  bytesType,
  type ExecCall,
  errorBodyOf,
  heartbeatMs,
  jsonType,
  packOutcome,
  parseJson,
  unpackExecCall,
} from './node-wire.ts';
import { PortServer } from './port-server.ts';
import { ProcessServer, processMethods } from './process-server.ts';
import { drained, parseOrder, readBody } from './serve-call.ts';
import { sessionCalls, sessionExecOrder } from './session-server.ts';

const bodyLimitBytes = 128 * 1024 * 1024;
const keepAliveTimeoutMs = 60_000;

export interface NodeServerOptions {
  readonly node: NodeApi;
  readonly token: string;
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  readonly log?: Logger;
}

export class NodeServer {
  readonly #server: Server;
  readonly #node: NodeApi;
  readonly #log: Logger;
  readonly #tokenHash: Buffer;
  readonly #execs = new Map<string, AbortController>();
  readonly #closing = new AbortController();
  readonly #files: FileServer;
  readonly #processes: ProcessServer;

  private constructor(options: NodeServerOptions) {
    this.#node = options.node;
    this.#files = new FileServer({ node: options.node, closing: this.#closing.signal });
    this.#processes = new ProcessServer({
      node: options.node,
      closing: this.#closing.signal,
      asRefusal: (error) => this.#asRefusal(error),
    });
    this.#log = options.log ?? silentLogger;
    this.#tokenHash = sha256(options.token);
    this.#server = createServer((request, response) => void this.#serve(request, response));
    const ports = new PortServer({
      node: options.node,
      closing: this.#closing.signal,
      authenticate: (request) => this.#authenticate(request),
      asRefusal: (error) => this.#asRefusal(error),
    });
    this.#server.on('upgrade', (request, socket, head) => ports.upgrade(request, socket, head) || socket.destroy());
    this.#server.keepAliveTimeout = keepAliveTimeoutMs;
  }

  static async listen(options: NodeServerOptions): Promise<NodeServer> {
    const server = new NodeServer(options);
    const listening = Promise.withResolvers<void>();
    server.#server.once('error', listening.reject);
    server.#server.listen({ host: options.host, port: options.port }, listening.resolve);
    await listening.promise;
    return server;
  }

  get url(): string {
    const { address, family, port } = this.#server.address() as AddressInfo;
    return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
  }

  /** Ends every connection; what was ordered goes on. */
  async close(): Promise<void> {
    this.#closing.abort();
    const closed = Promise.withResolvers<void>();
    this.#server.close(() => closed.resolve());
    this.#server.closeAllConnections();
    await closed.promise;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('error', () => {}); // The caller is gone; there is nobody to tell.
    try {
      this.#authenticate(request);
      const path = request.url ?? '';
      if (!path.startsWith(`${basePath}/`)) throw new PlatformError('route_not_found', `There is no ${path} here.`);
      if (request.method !== 'POST') throw new PlatformError('method_not_allowed', 'Every call is a POST.');
      await this.#call(path.slice(basePath.length + 1), request, response);
    } catch (error) {
      this.#refuse(response, error);
    }
  }

  async #call(method: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (method === 'watch') return await this.#watch(response);
    if (processMethods.has(method)) return await this.#processes.call(method, request, response);
    if (fileMethods.has(method)) return await this.#files.call(method, request, response);
    const body = await readBody(request, bodyLimitBytes);
    if (method === 'exec') return answer(response, 200, bytesType, await this.#exec(body));
    if (method === 'execInSession') return answer(response, 200, bytesType, await this.#execInSession(body));
    const call = this.#calls[method] ?? sessionCalls(this.#node)[method] ?? branchCalls(this.#node)[method];
    if (call === undefined) throw new PlatformError('route_not_found', `A node knows no "${method}".`);
    const result = await call(parseJson(body));
    answer(response, 200, jsonType, JSON.stringify({ result }));
  }

  readonly #calls: Readonly<Record<string, (order: unknown) => Promise<unknown>>> = {
    describe: () => this.#node.describe(),
    inventory: () => this.#node.inventory(),
    findSandbox: (order) =>
      this.#node.findSandbox(parseOrder(z.strictObject({ sandboxId: idSchema('sandbox') }), order).sandboxId),
    createSandbox: (order) => this.#node.createSandbox(parseOrder(createOrder, order)),
    startSandbox: (order) => this.#node.startSandbox(parseOrder(startOrder, order)),
    stopSandbox: (order) => this.#node.stopSandbox(parseOrder(stopOrder, order)),
    deleteSandbox: (order) => this.#node.deleteSandbox(parseOrder(lifeOrder, order)),
    applySettings: (order) => this.#node.applySettings(parseOrder(applySettingsOrder, order)),
    load: (order) => this.#node.load(parseOrder(lifeOrder, order)),
    findRun: (order) => this.#node.findRun(parseOrder(findRunOrder, order)),
    listPorts: (order) => this.#node.listPorts(parseOrder(lifeOrder, order)),
    abort: async (order) => {
      const { callId } = parseOrder(z.strictObject({ callId: z.string() }), order);
      const call = this.#execs.get(callId);
      call?.abort();
      return { found: call !== undefined };
    },
  };

  #exec(body: Buffer): Promise<Buffer> {
    return this.#abortable(body, ({ order, stdin }, signal) =>
      this.#node.exec({ ...parseOrder(execOrder, order), stdin }, signal),
    );
  }

  #execInSession(body: Buffer): Promise<Buffer> {
    return this.#abortable(body, ({ order, stdin }, signal) =>
      this.#node.execInSession({ ...parseOrder(sessionExecOrder, order), stdin }, signal),
    );
  }

  async #abortable(body: Buffer, work: (call: ExecCall, signal: AbortSignal) => Promise<ExecOutcome>): Promise<Buffer> {
    const call = unpackExecCall(body);
    const { callId } = call;
    if (this.#execs.has(callId)) throw new PlatformError('invalid_request', 'This call id is in use.');
    const abort = new AbortController();
    this.#execs.set(callId, abort);
    try {
      return packOutcome(await work(call, abort.signal));
    } finally {
      this.#execs.delete(callId);
    }
  }

  /** One JSON object a line; a watch that fails ends with an error in the same form. */
  async #watch(response: ServerResponse): Promise<void> {
    const over = new AbortController();
    response.on('close', () => over.abort());
    const events = this.#node.watch(AbortSignal.any([over.signal, this.#closing.signal]));
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const heartbeat = setInterval(() => response.write('\n'), heartbeatMs);
    try {
      for await (const event of events) {
        if (!response.write(`${JSON.stringify(event)}\n`)) await drained(response);
      }
    } catch (error) {
      response.write(`${JSON.stringify(errorBodyOf(this.#asRefusal(error)))}\n`);
    } finally {
      clearInterval(heartbeat);
      response.end();
    }
  }

  #authenticate(request: IncomingMessage): void {
    const given = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    if (given !== undefined && timingSafeEqual(sha256(given), this.#tokenHash)) return;
    throw new PlatformError('unauthenticated', 'The node token is missing or wrong.');
  }

  #refuse(response: ServerResponse, error: unknown): void {
    const refusal = this.#asRefusal(error);
    if (response.headersSent) response.destroy();
    else answer(response, refusal.status, jsonType, JSON.stringify(errorBodyOf(refusal)));
  }

  #asRefusal(error: unknown): PlatformError {
    if (error instanceof PlatformError) return error;
    this.#log.error('A call to the node failed.', { error });
    return new PlatformError('internal', 'A bug here; the log of the node tells more.');
  }
}

function answer(response: ServerResponse, status: number, type: string, body: string | Buffer): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
