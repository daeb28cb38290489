/**
 * The calls about processes and terminals, served over HTTP. A caller whose connection ends stops waiting or reading; no process hears of
 * it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { NodeApi, PlatformError } from '../../protocol/index.ts';
import { sendItems } from './item-stream.ts';
import { parseJson } from './node-wire.ts';
import * as wire from './process-wire.ts';
import { parseOrder, readBody, sendResult } from './serve-call.ts';
import { templateCalls, templateStreams } from './template-server.ts';
import { terminalCalls, terminalStreams } from './terminal-server.ts';

/** Of a start, or of one write of input in base64. */
const bodyLimitBytes = 16 * 1024 * 1024;

export type Call = (node: NodeApi, order: unknown, over: AbortSignal) => Promise<unknown>;
export type Stream = (node: NodeApi, order: unknown, over: AbortSignal) => Parameters<typeof sendItems>[1];

const calls: Readonly<Record<string, Call>> = {
  startProcess: (node, order) => node.startProcess(parseOrder(wire.startProcessOrder, order)),
  getProcess: (node, order) => node.getProcess(parseOrder(wire.processOrder, order)),
  listProcesses: (node, order) => node.listProcesses(parseOrder(wire.listProcessesOrder, order)),
  writeStdin: (node, order) => node.writeStdin(parseOrder(wire.writeStdinOrder, order)),
  signalProcess: (node, order) => node.signalProcess(parseOrder(wire.signalProcessOrder, order)),
  killProcesses: (node, order) => node.killProcesses(parseOrder(wire.killProcessesOrder, order)),
  waitProcess: (node, order, over) => node.waitProcess(parseOrder(wire.waitProcessOrder, order), over),
  removeProcess: (node, order) => node.removeProcess(parseOrder(wire.removeProcessOrder, order)),
  probePort: (node, order, over) => node.probePort(parseOrder(wire.probePortOrder, order), over),
  ...terminalCalls,
  ...templateCalls,
};

const streams: Readonly<Record<string, Stream>> = {
  followProcess: (node, order, over) => node.followProcess(parseOrder(wire.followProcessOrder, order), over),
  ...terminalStreams,
  ...templateStreams,
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
    const order = parseJson(await readBody(request, bodyLimitBytes));
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const over = AbortSignal.any([gone.signal, this.#closing]);
    const stream = streams[method]?.(this.#node, order, over);
    if (stream !== undefined) return await sendItems(response, stream, { over, asRefusal: this.#asRefusal });
    sendResult(response, await calls[method]!(this.#node, order, over));
  }
}
