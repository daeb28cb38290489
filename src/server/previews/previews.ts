/**
 * Previews: services inside sandboxes, served to whoever may see them. A visitor is let in by control, its request goes inward and the answer
 * outward as streams, each at the pace of its reader, and nothing of either is held whole.
 *
 * Invariant: a visitor that was let in leaves exactly once, when its connection or its answer is over; taking the exposure back, or the end of the
 * server, ends it before that.
 */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { joinStreams } from '../../base/index.ts';
import type { PreviewAdmission } from '../../control/index.ts';
import { newId, PlatformError } from '../../protocol/index.ts';
import { endConnection } from '../bare-answer.ts';
import { Exchange } from '../exchange.ts';
import type { PortsPort } from '../ports-port.ts';
import { type InwardAnswer, InwardRequests } from './inward-requests.ts';
import type { PreviewAddress, PreviewAddresses } from './preview-addresses.ts';
import { type HeaderList, headersInward, headersOutward } from './preview-headers.ts';
import { cookieRedirect, isNavigation, visitorOf } from './preview-visitor.ts';

export interface PreviewsOptions {
  readonly ports: Pick<PortsPort, 'admit'>;
  readonly addresses: PreviewAddresses;
  /** Where else a visitor's token stands than where previews have it. */
  readonly tokenIn?: (request: IncomingMessage) => string | undefined;
  /** Answers with what went wrong, where nothing was answered yet. */
  readonly fail: (exchange: Exchange, error: unknown) => void;
}

/** For metrics and spans, which do not tell one preview from another. */
export const previewRouteName = 'preview';

export class Previews {
  readonly #options: PreviewsOptions;
  readonly #inward = new InwardRequests();

  constructor(options: PreviewsOptions) {
    this.#options = options;
  }

  find(request: IncomingMessage): PreviewAddress | undefined {
    return this.#options.addresses.find(request);
  }

  async answer(exchange: Exchange, address: PreviewAddress): Promise<void> {
    exchange.routeName = previewRouteName;
    exchange.routePath = previewRouteName;
    await this.#serve(exchange, address);
  }

  /** For `Upgrades`. */
  readonly upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): boolean => {
    const address = this.find(request);
    if (address === undefined) return false;
    this.carry(address, request, { socket, head });
    return true;
  };

  /** A request that asks for another protocol, to where its address leads. */
  carry(address: PreviewAddress, request: IncomingMessage, upgrade: Upgrade): void {
    const { socket } = upgrade;
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Socket);
    response.once('finish', () => endConnection(socket));
    const exchange = new Exchange(request, response, newId('request'));
    socket.once('close', () => exchange.callerLeft());
    this.#serve(exchange, address, upgrade).catch((error: unknown) => this.#options.fail(exchange, error));
  }

  close(): void {
    this.#inward.close();
  }

  async #serve(exchange: Exchange, address: PreviewAddress, upgrade?: Upgrade): Promise<void> {
    const { request, method } = exchange;
    if (address.mode === 'path' && !address.target.startsWith('/') && isNavigation(method, request.headers)) {
      // Relative links of a page need the slash.
      exchange.send(undefined, { status: 308, headers: { Location: `${address.prefix}/${address.target}` } });
      return;
    }
    const visitor = visitorOf(address.target, request.headers);
    const admission = await this.#options.ports.admit(address, this.#options.tokenIn?.(request) ?? visitor.token);
    const visit = new Visit(exchange, address, admission, upgrade);
    try {
      if (visitor.isFromQuery && upgrade === undefined && isNavigation(method, request.headers)) {
        const isSecure = this.#options.addresses.domain.scheme === 'https';
        exchange.send(undefined, { status: 303, headers: cookieRedirect(visitor, address, { isSecure }) });
        return;
      }
      await this.#pass(visit, visitor.target);
    } catch (error) {
      throw admission.revoked.aborted ? takenBack() : error;
    } finally {
      visit.leave();
    }
  }

  async #pass(visit: Visit, target: string): Promise<void> {
    const { exchange, address, admission, upgrade, over } = visit;
    const { request } = exchange;
    const path = target.startsWith('/') ? target : `/${target}`;
    if (/[^\x21-\x7e]/.test(path)) throw new PlatformError('invalid_request', 'The path is not percent-encoded.');
    const { scheme } = this.#options.addresses.domain;
    const answer = await this.#inward.send(
      {
        ...{ admission, port: address.port, method: exchange.method, path, isUpgrade: upgrade !== undefined },
        headers: [...headersInward(request, address, { scheme }), ...bodyHeaders(request, upgrade)],
        ...(upgrade === undefined && hasBody(request) && { body: request }),
      },
      over,
    );
    if (answer.kind === 'upgraded') await visit.carry(answer, upgrade!);
    else await visit.answer(answer);
  }
}

export interface Upgrade {
  readonly socket: Duplex;
  readonly head: Buffer;
}

/** One request of one visitor, from being let in to leaving. */
class Visit {
  readonly exchange: Exchange;
  readonly address: PreviewAddress;
  readonly admission: PreviewAdmission;
  readonly upgrade: Upgrade | undefined;
  readonly #over = new AbortController();
  readonly #onRevoked = () => this.#cut();
  readonly #onStop = () => this.#stop();
  /** Something of the answer may have been sent. */
  #isPassing = false;
  #isEventStream = false;

  constructor(exchange: Exchange, address: PreviewAddress, admission: PreviewAdmission, upgrade: Upgrade | undefined) {
    this.exchange = exchange;
    this.address = address;
    this.admission = admission;
    this.upgrade = upgrade;
    admission.revoked.addEventListener('abort', this.#onRevoked, { once: true });
    exchange.ending.addEventListener('abort', this.#onStop, { once: true });
  }

  /** Aborts when it ends before its answer is through. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  leave(): void {
    this.admission.revoked.removeEventListener('abort', this.#onRevoked);
    this.exchange.ending.removeEventListener('abort', this.#onStop);
    this.admission.leave();
  }

  async answer({ incoming }: Extract<InwardAnswer, { kind: 'answer' }>): Promise<void> {
    const { response } = this.exchange;
    try {
      writeHead(response, incoming.statusCode ?? 0, headersOutward(incoming, this.address));
    } catch (error) {
      incoming.on('error', () => {}); // The end of what is not passed on.
      this.#over.abort();
      throw error;
    }
    incoming.on('error', () => response.destroy());
    incoming.on('close', () => {
      // Cut short inside: the visitor must not take it for the whole.
      if (!incoming.complete) response.destroy();
    });
    this.#isPassing = true;
    this.#isEventStream = incoming.headers['content-type']?.startsWith('text/event-stream') ?? false;
    flushWhenSilent(incoming, response);
    incoming.pipe(response);
    if (!response.closed) await new Promise((resolve) => response.once('close', resolve));
    if (!incoming.complete) this.#over.abort();
  }

  async carry(answer: Extract<InwardAnswer, { kind: 'upgraded' }>, { socket, head }: Upgrade): Promise<void> {
    const { response } = this.exchange;
    this.#isPassing = true;
    response.detachSocket(socket as Socket);
    socket.write(upgradeHead(answer.incoming, headersOutward(answer.incoming, this.address)));
    answer.socket.on('error', () => {});
    if (answer.head.byteLength > 0) answer.socket.unshift(answer.head);
    if (head.byteLength > 0) socket.unshift(head);
    joinStreams(socket, answer.socket);
    if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  }

  #cut(): void {
    this.#over.abort();
    if (!this.#isPassing) return;
    this.exchange.response.destroy();
    this.upgrade?.socket.destroy();
  }

  /** A visitor that left ends the request. Of a server that stops, answers are finished, but streams of events would never be. */
  #stop(): void {
    if (!this.exchange.response.destroyed && !this.#isEventStream) return;
    this.#over.abort();
    this.exchange.response.destroy();
  }
}

/** A head whose body is yet to come, such as that of a stream of events, goes out at once; one with its body goes together with it. */
function flushWhenSilent(incoming: IncomingMessage, response: ServerResponse): void {
  let hasBegun = false;
  incoming.once('data', () => {
    hasBegun = true;
  });
  setImmediate(() => {
    if (!hasBegun && !response.writableEnded && !response.destroyed) response.flushHeaders();
  });
}

function takenBack(): PlatformError {
  return new PlatformError('preview_token_invalid', 'This preview was taken back, or its token was.');
}

/** What the service says may be no head at all: a status out of range, a letter that no header has. */
function writeHead(response: ServerResponse, status: number, headers: HeaderList): void {
  try {
    response.writeHead(status, headers);
  } catch (cause) {
    throw new PlatformError('preview_failed', 'What the service in the sandbox answered is not HTTP.', { cause });
  }
}

function upgradeHead(incoming: IncomingMessage, headers: HeaderList): string {
  const lines = [`HTTP/1.1 101 Switching Protocols`, 'Connection: Upgrade'];
  const protocol = incoming.headers.upgrade;
  if (protocol !== undefined) lines.push(`Upgrade: ${protocol}`);
  for (let i = 0; i < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** How long the body is, or that it ends by itself; and the other protocol that is asked for. */
function bodyHeaders({ headers, method }: IncomingMessage, upgrade: Upgrade | undefined): HeaderList {
  if (upgrade !== undefined) return ['Connection', 'Upgrade', 'Upgrade', headers.upgrade ?? ''];
  const length = headers['content-length'];
  if (length !== undefined) return ['Content-Length', length];
  if (headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked'];
  return method === 'GET' || method === 'HEAD' ? [] : ['Content-Length', '0'];
}
