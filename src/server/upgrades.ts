/**
 * Requests that ask for another protocol on their connection. Each handler looks at the request and takes the connection, or leaves it; what
 * nobody takes is refused on the bare connection.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { PlatformError } from '../protocol/index.ts';
import { refuseBare } from './bare-refusal.ts';

/** true: it took it, and answers it whatever happens. */
export type UpgradeHandler = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

export class Upgrades {
  readonly #handlers: UpgradeHandler[] = [];

  add(handler: UpgradeHandler): void {
    this.#handlers.push(handler);
  }

  take(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Nobody else listens yet, and a connection that breaks must not end the server.
    socket.on('error', () => {});
    if (this.#handlers.some((handler) => handler(request, socket, head))) return;
    refuseBare(socket, new PlatformError('route_not_found', 'There is no WebSocket at this path.'));
  }
}
