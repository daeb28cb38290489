/** The calls about processes, served over HTTP. A caller whose connection ends stops waiting or reading; no process hears of it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import type { NodeApi, PlatformError } from '../../protocol/index.ts';
import { heartbeatMs, parseJson } from './node-wire.ts';
import * as wire from './process-wire.ts';
import { drained, parseOrder, readBody, sendResult } from './serve-call.ts';

/** Of a start, or of one write of input in base64. */
const bodyLimitBytes = 16 * 1024 * 1024;

type Call = (node: NodeApi, order: unknown, over: AbortSignal) => Promise<unknown>;

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
    const order = parseJson(await readBody(request, bodyLimitBytes));
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const over = AbortSignal.any([gone.signal, this.#closing]);
    if (method === 'followProcess')
      return await this.#follow(parseOrder(wire.followProcessOrder, order), response, over);
    sendResult(response, await calls[method]!(this.#node, order, over));
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
        if (!response.write(wire.itemFrame(item))) await drained(response);
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
