/** Connections to ports of a node in another process. Each is a connection of its own to that node. */
import { request as httpRequest, IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { OpenPortOrder } from '../../protocol/index.ts';
import { refusalOf, unreachable } from './call-failures.ts';
import { basePath } from './node-wire.ts';
import { openPortMethod, orderHeader, packOrder, portProtocol } from './port-wire.ts';

/** Opening changes nothing, so a lost answer leaves nothing in doubt. */
const call = { asksOnly: true };

export class PortClient {
  readonly #url: URL;
  readonly #token: string;
  readonly #sockets = new Set<Socket>();

  constructor(options: { readonly url: string; readonly token: string }) {
    this.#url = new URL(options.url);
    this.#token = options.token;
  }

  async openPort(order: OpenPortOrder, signal: AbortSignal): Promise<Socket> {
    const answered = Promise.withResolvers<Socket | IncomingMessage>();
    const outgoing = httpRequest(`${this.#url.origin}${basePath}/${openPortMethod}`, {
      // No agent, not even `false`: with one Node does not use this.
      createConnection: () => this.#connect(),
      headers: {
        authorization: `Bearer ${this.#token}`,
        connection: 'Upgrade',
        upgrade: portProtocol,
        [orderHeader]: packOrder(order),
      },
    });
    const onAbort = () => outgoing.destroy();
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
    outgoing.once('upgrade', (_response, socket: Socket, head) => {
      socket.on('error', () => {});
      if (head.byteLength > 0) socket.unshift(head);
      answered.resolve(socket);
    });
    outgoing.once('response', answered.resolve);
    outgoing.on('error', (error) => answered.reject(unreachable(error)));
    outgoing.end();
    try {
      const answer = await answered.promise;
      if (answer instanceof IncomingMessage) throw await refusalOf(call, answer);
      return answer;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #connect(): Socket {
    const host = this.#url.hostname.replace(/^\[|\]$/g, '');
    const socket = connect({ host, port: Number(this.#url.port || 80), allowHalfOpen: true, noDelay: true });
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    resetWhenCut(socket);
    return socket;
  }
}

/**
 * Whoever destroys a connection is done with it, in both directions. By TCP the other side would see no more than the end of what we send,
 * after which it may go on for ever; so it is reset, unless all has been sent and received.
 */
function resetWhenCut(socket: Socket): void {
  const destroy = socket.destroy;
  let isResetting = false;
  socket.destroy = (error) => {
    const isWhole = socket.readableEnded && socket.writableFinished;
    if (isWhole || isResetting || socket.connecting || error !== undefined) return destroy.call(socket, error);
    isResetting = true;
    return socket.resetAndDestroy();
  };
}
