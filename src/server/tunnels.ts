/**
 * Tunnels: a caller of the API asks for a connection to a port inside, `GET /v1/sandboxes/{id}/ports/{port}/connect` with
 * `Upgrade: atoll-tcp`, and has the service's own bytes from then on, with half-close both ways. The port need not be exposed.
 *
 * Invariant: a tunnel whose key is no longer good is cut within a heartbeat.
 */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { assert, joinStreams, type Timers } from '../base/index.ts';
import type { Caller } from '../control/index.ts';
import { isId, newId, PlatformError, type SandboxId } from '../protocol/index.ts';
import { endConnection } from './bare-answer.ts';
import { Exchange } from './exchange.ts';
import { parseGeneration } from './parse-request.ts';
import type { PortAddress, PortsPort } from './ports-port.ts';
import { type Authenticator, authenticate, checkSandbox, checkScope } from './route-binding.ts';

const protocol = 'atoll-tcp';
const pathPattern = /^\/v1\/sandboxes\/([a-z0-9]{23})\/ports\/([1-9]\d{0,4})\/connect$/;

export interface TunnelsOptions {
  readonly who: Authenticator;
  readonly ports: Pick<PortsPort, 'open'>;
  /** Answers with what went wrong. */
  readonly fail: (exchange: Exchange, error: unknown) => void;
  readonly timers: Timers;
  /** How often the key of a tunnel is looked at again. */
  readonly heartbeatMs: number;
}

export class Tunnels {
  readonly #options: TunnelsOptions;

  constructor(options: TunnelsOptions) {
    this.#options = options;
  }

  /** For `Upgrades`. */
  readonly upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): boolean => {
    const address = addressOf(request.url ?? '');
    if (address === undefined) return false;
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Socket);
    response.once('finish', () => endConnection(socket));
    const exchange = new Exchange(request, response, newId('request'));
    socket.once('close', () => exchange.callerLeft());
    this.#open(exchange, address).then(
      (inside) => {
        response.detachSocket(socket as Socket);
        socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`);
        if (head.byteLength > 0) socket.unshift(head);
        joinStreams(socket, inside);
        this.#guard(exchange, address, inside);
      },
      (error: unknown) => this.#options.fail(exchange, error),
    );
    return true;
  };

  async #open(exchange: Exchange, address: PortAddress): Promise<Duplex> {
    const { request } = exchange;
    if (request.headers.upgrade?.toLowerCase() !== protocol) {
      throw new PlatformError('invalid_request', `A connection is asked for with "Upgrade: ${protocol}".`);
    }
    const caller = await this.#admit(exchange, address);
    const conditions = parseGeneration(request.headers);
    const inside = await this.#options.ports.open(caller, address, conditions, exchange.disconnected);
    assert(inside instanceof Duplex, 'A connection is a Duplex.');
    return inside;
  }

  async #admit(exchange: Exchange, { sandboxId }: PortAddress): Promise<Caller> {
    const caller = await authenticate(this.#options.who, exchange);
    checkScope(caller, { scope: 'sandboxes:exec' });
    checkSandbox(caller, { sandboxId });
    return caller;
  }

  /** To be cut inside is to be cut on both sides. */
  #guard(exchange: Exchange, address: PortAddress, inside: Duplex): void {
    const { timers, heartbeatMs } = this.#options;
    const look = () =>
      this.#admit(exchange, address).then(
        () => beat(),
        () => inside.destroy(),
      );
    let cancel = () => {};
    const beat = () => {
      if (!inside.closed) cancel = timers.after(heartbeatMs, look);
    };
    inside.once('close', () => cancel());
    beat();
  }
}

function addressOf(url: string): PortAddress | undefined {
  const [, sandboxId, port] = pathPattern.exec(url) ?? [];
  if (sandboxId === undefined || !isId('sandbox', sandboxId) || Number(port) > 65_535) return undefined;
  return { sandboxId: sandboxId as SandboxId, port: Number(port) };
}
