/**
 * Requests that ask to become something else: a WebSocket, raw bytes. Handlers are asked in the order they were added; the first that takes a
 * request answers it, on the bare connection. What nobody takes is refused there.
 *
 * Invariant: a connection that came here, taken or refused, is in #open until it is closed, because the HTTP server forgets it when it hands it
 * over.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { newId, PlatformError } from '../protocol/index.ts';
import { refuseOnConnection } from './bare-answer.ts';

/** True: it took it. */
export type UpgradeHandler = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

/** Other protocols are offers (`h2c`), which a server may pass over: such a request is answered as if it had made none. */
const protocols = /^(websocket|atoll-[a-z]+)$/i;

export class Upgrades {
  readonly #handlers: UpgradeHandler[] = [];
  readonly #open = new Set<Duplex>();
  #stopped = false;

  /** Whether a request goes this way at all. */
  static isMeant(request: IncomingMessage): boolean {
    return protocols.test(request.headers.upgrade ?? '');
  }

  add(handler: UpgradeHandler): void {
    this.#handlers.push(handler);
  }

  take(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // The peer may be gone at any time; whoever takes the connection hears of it by its close.
    socket.on('error', () => {});
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    if (this.#stopped) {
      refuseOnConnection(socket, new PlatformError('shutting_down', 'The server is stopping.'), newId('request'));
      return;
    }
    if (this.#handlers.some((handler) => handler(request, socket, head))) return;
    const path = (request.url ?? '').split('?')[0]!.slice(0, 200);
    const refusal = new PlatformError('route_not_found', `There is nothing at ${path} that can be upgraded.`);
    refuseOnConnection(socket, refusal, newId('request'));
  }

  /** Takes no more. */
  stop(): void {
    this.#stopped = true;
  }

  /** Cuts every connection that came. */
  cut(): void {
    for (const socket of this.#open) socket.destroy();
  }
}
