/**
 * The calls about processes and terminals, served over HTTP. A caller whose connection ends stops waiting or reading; no process hears of
 * it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type NodeApi, PlatformError } from '../../protocol/index.ts';
import { sendItems } from './item-stream.ts';
import { jsonType, parseOrder as parse, parseJson } from './node-wire.ts';
import * as wire from './process-wire.ts';
import { terminalCalls, terminalStreams } from './terminal-server.ts';

/** Of a start, or of one write of input in base64. */
const bodyLimitBytes = 16 * 1024 * 1024;

export type Call = (node: NodeApi, order: unknown, over: AbortSignal) => Promise<unknown>;
export type Stream = (node: NodeApi, order: unknown, over: AbortSignal) => Parameters<typeof sendItems>[1];

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
  ...terminalCalls,
};

const streams: Readonly<Record<string, Stream>> = {
  followProcess: (node, order, over) => node.followProcess(parse(wire.followProcessOrder, order), over),
  ...terminalStreams,
};

export const processMethods: ReadonlySet<string> = new Set([...Object.keys(calls), ...Object.keys(streams)]);

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
    const stream = streams[method]?.(this.#node, order, over);
    if (stream !== undefined) return await sendItems(response, stream, { over, asRefusal: this.#asRefusal });
    const result = await calls[method]!(this.#node, order, over);
    const body = JSON.stringify({ result });
    response.writeHead(200, { 'content-type': jsonType, 'content-length': Buffer.byteLength(body) });
    response.end(body);
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
