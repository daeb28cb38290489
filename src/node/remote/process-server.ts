/** The calls about processes, served over HTTP. A caller whose connection ends stops waiting or reading; no process hears of it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { z } from 'zod';
import { type NodeApi, PlatformError } from '../../protocol/index.ts';
import { heartbeatMs, jsonType, parseJson } from './node-wire.ts';
import * as wire from './process-wire.ts';

/** Of a start, or of one write of input in base64. */
const bodyLimitBytes = 16 * 1024 * 1024;

type Call = (node: NodeApi, order: unknown, over: AbortSignal) => Promise<unknown>;

const calls: Readonly<Record<string, Call>> = {
  startProcess: (node, order) => node.startProcess(parse(wire.startProcessOrder, order)),
  getProcess: (node, order) => node.getProcess(parse(wire.processOrder, order)),
  listProcesses: (node, order) => node.listProcesses(parse(wire.listProcessesOrder, order)),
  writeStdin: (node, order) => node.writeStdin(parse(wire.writeStdinOrder, order)),
  signalProcess: (node, order) => node.signalProcess(parse(wire.signalProcessOrder, order)),
  killProcesses: (node, order) => node.killProcesses(parse(wire.killProcessesOrder, order)),
  waitProcess: (node, order, over) => node.waitProcess(parse(wire.waitProcessOrder, order), over),
  removeProcess: (node, order) => node.removeProcess(parse(wire.removeProcessOrder, order)),
  probePort: (node, order, over) => node.probePort(parse(wire.probePortOrder, order), over),
};

export const processMethods: ReadonlySet<string> = new Set([...Object.keys(calls), 'followProcess']);

export class ProcessServer {
  readonly #node: NodeApi;
  readonly #closing: AbortSignal;
  readonly #asRefusal: (error: unknown) => PlatformError;

  constructor(options: {
    readonly node: NodeApi;
    readonly closing: AbortSignal;
    readonly asRefusal: (error: unknown) => PlatformError;
  }) {
    this.#node = options.node;
    this.#closing = options.closing;
    this.#asRefusal = options.asRefusal;
  }

  async call(method: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const order = parseJson(await readBody(request));
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const over = AbortSignal.any([gone.signal, this.#closing]);
    if (method === 'followProcess') return await this.#follow(parse(wire.followProcessOrder, order), response, over);
    const result = await calls[method]!(this.#node, order, over);
    const body = JSON.stringify({ result });
    response.writeHead(200, { 'content-type': jsonType, 'content-length': Buffer.byteLength(body) });
    response.end(body);
  }

  async #follow(
    order: z.output<typeof wire.followProcessOrder>,
    response: ServerResponse,
    over: AbortSignal,
  ): Promise<void> {
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    response.flushHeaders();
    const heartbeat = setInterval(() => {
      if (!response.writableNeedDrain) response.write(wire.heartbeatFrame);
    }, heartbeatMs);
    try {
      for await (const item of this.#node.followProcess(order, over)) {
        if (!response.write(wire.itemFrame(item))) await drained(response, over);
      }
      // A node that closes has not read to the end: the caller must come back, not believe that this was all.
      if (!over.aborted) response.write(wire.endFrame);
    } catch (error) {
      response.write(wire.errorFrame(this.#asRefusal(error)));
    } finally {
      clearInterval(heartbeat);
      response.end();
    }
  }
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.byteLength;
    if (length > bodyLimitBytes)
      throw new PlatformError('payload_too_large', `It has at most ${bodyLimitBytes} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

async function drained(response: ServerResponse, over: AbortSignal): Promise<void> {
  if (over.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const onOver = () => resolve();
  response.once('drain', resolve);
  over.addEventListener('abort', onOver, { once: true });
  await promise;
  response.off('drain', resolve);
  over.removeEventListener('abort', onOver);
}

export function parse<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new PlatformError('invalid_request', z.prettifyError(parsed.error));
}
