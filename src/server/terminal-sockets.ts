/**
 * The WebSockets of terminals: who may have one, and what becomes of them all when the server closes.
 *
 * Whoever cannot set headers, as a browser, offers the key as a second subprotocol beside ours (`atoll.key.` and the key, best a token of the
 * one sandbox that ends soon): it stands in no URL, and the answer names only ours.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Logger, Timers } from '../base/index.ts';
import type { Caller } from '../control/index.ts';
import {
  isPlatformError,
  newId,
  PlatformError,
  routes,
  terminalKeyProtocol,
  terminalLimits,
  terminalProtocol,
} from '../protocol/index.ts';
import { refuseOnConnection } from './bare-answer.ts';
import { shuttingDown } from './exchange.ts';
import { parseConditions, RequestParser } from './parse-request.ts';
import { type Authenticator, checkSandbox, checkScope, keyTextIn } from './route-binding.ts';
import { TerminalSocket } from './terminal-socket.ts';
import type { TerminalsPort } from './terminals-port.ts';

const route = routes.attachTerminal;
const pattern = new RegExp(`^${route.path.replaceAll(/:(\w+)/g, '(?<$1>[^/]+)')}$`);

export interface TerminalSocketsOptions {
  readonly who: Authenticator;
  readonly terminals: TerminalsPort;
  readonly logger: Logger;
  readonly timers: Timers;
  /** How often a client has to show that it is there. */
  readonly heartbeatMs: number;
}

export class TerminalSockets {
  readonly #options: TerminalSocketsOptions;
  readonly #parser = new RequestParser(route);
  readonly #sockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    maxPayload: terminalLimits.messageBytes,
    perMessageDeflate: false,
    handleProtocols: (offered) => (offered.has(terminalProtocol) ? terminalProtocol : false),
  });
  readonly #open = new Set<TerminalSocket>();
  #isClosing = false;

  constructor(options: TerminalSocketsOptions) {
    this.#options = options;
  }

  /** An upgrade handler: takes what asks for a terminal. */
  readonly take = (request: IncomingMessage, socket: Duplex, head: Buffer): boolean => {
    const [path = '', search] = (request.url ?? '').split('?', 2);
    const found = pattern.exec(path)?.groups;
    if (found === undefined) return false;
    this.#accept({ request, socket, head }, found, search === undefined ? '' : `?${search}`).catch((error: unknown) =>
      refuseOnConnection(socket, this.#asRefusal(error), newId('request')),
    );
    return true;
  };

  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.all([...this.#open].map((socket) => socket.leave()));
  }

  async #accept(
    asked: { readonly request: IncomingMessage; readonly socket: Duplex; readonly head: Buffer },
    found: Readonly<Record<string, string>>,
    search: string,
  ): Promise<void> {
    const { request, socket, head } = asked;
    const params = this.#parser.params(found) as { readonly sandboxId: never; readonly terminal: string };
    const keyText = keyTextOf(request);
    const authenticate = async (): Promise<Caller> => {
      const caller = await this.#options.who.authenticate(keyText);
      checkScope(caller, route);
      checkSandbox(caller, params);
      return caller;
    };
    const caller = await authenticate();
    const query = this.#parser.query(search) as Parameters<TerminalsPort['attach']>[3];
    const conditions = parseConditions(request.headers);
    if (this.#isClosing) throw shuttingDown();
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const { terminals } = this.#options;
      this.#serve(webSocket, {
        stillMay: authenticate,
        attach: (signal) => terminals.attach(caller, params, conditions, query, signal),
      });
    });
  }

  #serve(webSocket: WebSocket, client: Pick<ConstructorParameters<typeof TerminalSocket>[1], 'attach' | 'stillMay'>) {
    const { timers, heartbeatMs } = this.#options;
    const socket: TerminalSocket = new TerminalSocket(webSocket, {
      ...client,
      timers,
      heartbeatMs,
      asRefusal: (error) => this.#asRefusal(error),
      mayJoin: (terminalId) => this.#count(terminalId) < terminalLimits.clients,
    });
    this.#open.add(socket);
    void socket.over.then(() => this.#open.delete(socket));
  }

  #count(terminalId: string): number {
    return [...this.#open].filter((socket) => socket.terminalId === terminalId).length;
  }

  #asRefusal(error: unknown): PlatformError {
    if (isPlatformError(error)) return error;
    this.#options.logger.error('a bug', { error });
    return new PlatformError('internal', 'Something went wrong here. The log of the server tells more.');
  }
}

function keyTextOf({ headers }: IncomingMessage): string {
  const offered = (headers['sec-websocket-protocol'] ?? '').split(',').map((text) => text.trim());
  const key = offered.find((text) => text.startsWith(terminalKeyProtocol));
  return key === undefined ? keyTextIn(headers) : key.slice(terminalKeyProtocol.length);
}
