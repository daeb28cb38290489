/**
 * The file part of NodeApi, served. Other than a command, a transfer ends with its connection: a write whose sender is gone is undone, a read
 * that nobody takes is stopped.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Pieces, sendPieces } from '../../base/index.ts';
import { type NodeApi, PlatformError } from '../../protocol/index.ts';
import {
  factsHeader,
  fileActionOrder,
  fileChangesOrder,
  packFacts,
  readFileOrder,
  treeOrder,
  unpackOrder,
  watchFilesOrder,
  writeFileOrder,
} from './file-wire.ts';
import { bytesType, errorBodyOf, heartbeatMs } from './node-wire.ts';
import { drained, parseOrder, sendResult } from './serve-call.ts';
import { answersWithBytes, workspaceCalls } from './workspace-server.ts';

export const fileMethods: ReadonlySet<string> = new Set([
  ...Object.keys(workspaceCalls),
  'fileAction',
  'fileChanges',
  'readFile',
  'writeFile',
  'readTree',
  'writeTree',
  'watchFiles',
]);

export interface FileServerOptions {
  readonly node: NodeApi;
  /** Aborts when the server closes. */
  readonly closing: AbortSignal;
}

export class FileServer {
  readonly #node: NodeApi;
  readonly #closing: AbortSignal;

  constructor(options: FileServerOptions) {
    this.#node = options.node;
    this.#closing = options.closing;
  }

  async call(method: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { order, rest } = await unpackOrder(request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>);
    const signal = this.#callSignal(response);
    try {
      await this.#answer(method, { order, rest, signal, response });
    } finally {
      request.resume();
    }
  }

  async #answer(
    method: string,
    call: { order: unknown; rest: AsyncIterable<Uint8Array>; signal: AbortSignal; response: ServerResponse },
  ): Promise<void> {
    const { order, rest, signal, response } = call;
    switch (method) {
      case 'fileAction':
        return sendResult(response, await this.#node.fileAction(parseOrder(fileActionOrder, order)));
      case 'fileChanges':
        return sendResult(response, await this.#node.fileChanges(parseOrder(fileChangesOrder, order)));
      case 'readFile': {
        const { bytes, ...facts } = await this.#node.readFile(parseOrder(readFileOrder, order), signal);
        return await sendBytes(response, bytes, facts);
      }
      case 'readTree': {
        const { bytes } = await this.#node.readTree(parseOrder(treeOrder, order), signal);
        return await sendBytes(response, bytes, {});
      }
      case 'writeFile':
        return sendResult(response, await this.#node.writeFile(parseOrder(writeFileOrder, order), rest, signal));
      case 'writeTree':
        return sendResult(response, await this.#node.writeTree(parseOrder(treeOrder, order), rest, signal));
      case 'watchFiles':
        return await this.#watch(this.#node.watchFiles(parseOrder(watchFilesOrder, order), signal), response);
      default: {
        const result = await workspaceCalls[method]?.(this.#node.workspaces, call);
        if (answersWithBytes(method, result)) return await sendBytes(response, result.bytes, {});
        return sendResult(response, result);
      }
    }
  }

  /** The head goes out with the first event, so that a refusal is still a status. */
  async #watch(events: AsyncIterable<unknown>, response: ServerResponse): Promise<void> {
    const iterator = events[Symbol.asyncIterator]();
    const first = await iterator.next();
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const heartbeat = setInterval(() => response.write('\n'), heartbeatMs);
    try {
      for (let item = first; !item.done; item = await iterator.next()) {
        if (!response.write(`${JSON.stringify(item.value)}\n`)) await drained(response);
      }
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error;
      response.write(`${JSON.stringify(errorBodyOf(error))}\n`);
    } finally {
      clearInterval(heartbeat);
      response.end();
      await iterator.return?.();
    }
  }

  #callSignal(response: ServerResponse): AbortSignal {
    const over = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) over.abort();
    });
    return AbortSignal.any([over.signal, this.#closing]);
  }
}

async function sendBytes(response: ServerResponse, bytes: Pieces, facts: unknown): Promise<void> {
  response.writeHead(200, { 'content-type': bytesType, [factsHeader]: packFacts(facts) });
  // The caller looks at the facts before the first byte is there.
  response.flushHeaders();
  if (await sendPieces(response, bytes)) response.end();
}
