/** Connections to ports, served over HTTP to a control plane on another machine. They end with the server; the services go on. */
import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { assert, joinStreams } from '../../base/index.ts';
import { type NodeApi, PlatformError } from '../../protocol/index.ts';
import { basePath, errorBodyOf, jsonType } from './node-wire.ts';
import { openPortMethod, openPortOrder, orderHeader, portProtocol, unpackOrder } from './port-wire.ts';

export class PortServer {
  readonly #node: NodeApi;
  readonly #closing: AbortSignal;
  readonly #authenticate: (request: IncomingMessage) => void;
  readonly #asRefusal: (error: unknown) => PlatformError;

  constructor(options: {
    readonly node: NodeApi;
    readonly closing: AbortSignal;
    readonly authenticate: (request: IncomingMessage) => void;
    readonly asRefusal: (error: unknown) => PlatformError;
  }) {
    this.#node = options.node;
    this.#closing = options.closing;
    this.#authenticate = options.authenticate;
    this.#asRefusal = options.asRefusal;
  }

  /** False: this upgrade is not about ports. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    if (request.url !== `${basePath}/${openPortMethod}`) return false;
    socket.on('error', () => {}); // The caller is gone; there is nobody to tell.
    void this.#serve(request, socket, head).catch((error: unknown) => refuse(socket, this.#asRefusal(error)));
    return true;
  }

  async #serve(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    this.#authenticate(request);
    if (request.headers.upgrade !== portProtocol) {
      throw new PlatformError('invalid_request', `This is upgraded to ${portProtocol} only.`);
    }
    const order = unpackOrder(openPortOrder, request.headers[orderHeader]);
    const gone = new AbortController();
    socket.on('close', () => gone.abort());
    const inside = await this.#node.openPort(order, AbortSignal.any([gone.signal, this.#closing]));
    assert(inside instanceof Duplex, 'A connection is a Duplex.');
    if (socket.destroyed || this.#closing.aborted) {
      inside.destroy();
      socket.destroy();
      return;
    }
    const onClosing = () => socket.destroy();
    this.#closing.addEventListener('abort', onClosing, { once: true });
    socket.on('close', () => this.#closing.removeEventListener('abort', onClosing));
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${portProtocol}\r\n\r\n`);
    if (head.byteLength > 0) socket.unshift(head);
    joinStreams(socket, inside);
  }
}

function refuse(socket: Duplex, refusal: PlatformError): void {
  const body = JSON.stringify(errorBodyOf(refusal));
  socket.end(
    `HTTP/1.1 ${refusal.status} Refused\r\nConnection: close\r\nContent-Type: ${jsonType}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
