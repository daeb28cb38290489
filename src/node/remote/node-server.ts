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
import { idSchema, type NodeApi, PlatformError } from '../../protocol/index.ts';
import {
  applySettingsOrder,
  createOrder,
  execOrder,
  findRunOrder,
  lifeOrder,
  startOrder,
  stopOrder,
} from '../order-schemas.ts';
import { FileServer, fileMethods } from './file-server.ts';
import {
  basePath,
  bytesType,
  errorBodyOf,
  heartbeatMs,
  jsonType,
  packOutcome,
  parseOrder as parse,
  parseJson,
  unpackExecCall,
} from './node-wire.ts';
import { ProcessServer, processMethods } from './process-server.ts';

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
    const body = await readBody(request);
    if (method === 'exec') return answer(response, 200, bytesType, await this.#exec(body));
    const call = this.#calls[method];
    if (call === undefined) throw new PlatformError('route_not_found', `A node knows no "${method}".`);
    const result = await call(parseJson(body));
    answer(response, 200, jsonType, JSON.stringify({ result }));
  }

  readonly #calls: Readonly<Record<string, (order: unknown) => Promise<unknown>>> = {
    describe: () => this.#node.describe(),
    inventory: () => this.#node.inventory(),
    findSandbox: (order) =>
      this.#node.findSandbox(parse(z.strictObject({ sandboxId: idSchema('sandbox') }), order).sandboxId),
    createSandbox: (order) => this.#node.createSandbox(parse(createOrder, order)),
    startSandbox: (order) => this.#node.startSandbox(parse(startOrder, order)),
    stopSandbox: (order) => this.#node.stopSandbox(parse(stopOrder, order)),
    deleteSandbox: (order) => this.#node.deleteSandbox(parse(lifeOrder, order)),
    applySettings: (order) => this.#node.applySettings(parse(applySettingsOrder, order)),
    findRun: (order) => this.#node.findRun(parse(findRunOrder, order)),
    abort: async (order) => {
      const { callId } = parse(z.strictObject({ callId: z.string() }), order);
      const call = this.#execs.get(callId);
      call?.abort();
      return { found: call !== undefined };
    },
  };

  async #exec(body: Buffer): Promise<Buffer> {
    const { callId, order, stdin } = unpackExecCall(body);
    const parsed = parse(execOrder, order);
    if (this.#execs.has(callId)) throw new PlatformError('invalid_request', 'This call id is in use.');
    const abort = new AbortController();
    this.#execs.set(callId, abort);
    try {
      return packOutcome(await this.#node.exec({ ...parsed, stdin }, abort.signal));
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
        if (!response.write(`${JSON.stringify(event)}\n`)) await drained(response, over.signal);
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

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.byteLength;
    if (length > bodyLimitBytes) {
      throw new PlatformError('payload_too_large', `A call to a node has at most ${bodyLimitBytes} bytes.`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

async function drained(response: ServerResponse, over: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const onOver = () => resolve();
  response.once('drain', resolve);
  over.addEventListener('abort', onOver, { once: true });
  await promise;
  response.off('drain', resolve);
  over.removeEventListener('abort', onOver);
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
