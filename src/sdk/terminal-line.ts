/**
 * The connection to one terminal. One that breaks is opened again behind the last byte that came, so that nothing is missed and nothing comes
 * twice; what the server no longer keeps by then is told as dropped.
 *
 *   connecting ──attached──► open ──broken──► connecting
 *       │                      │
 *       └── refused, exit, close ──► over
 */
import {
  isErrorCode,
  isPlatformError,
  PlatformError,
  routes,
  type TerminalMessage,
  type TerminalRequest,
  type TerminalView,
} from '../protocol/index.ts';
import type { Connection } from './connection.ts';

const reconnectFirstMs = 100;
const reconnectMaxMs = 5_000;
/** How often in a row it is tried in vain. */
const failuresMax = 60;
/** How often it is asked whether somebody is there, and how long nothing may come. */
const pingMs = 20_000;
const silenceMs = 50_000;
/** What is typed before the connection is there. */
const waitingBytesMax = 64 * 1024;
const closedByUs = 1000;

export interface LineEvents {
  readonly onData: (bytes: Uint8Array) => void;
  readonly onDropped: (bytes: number) => void;
  /** A request of this client was refused; the connection stays. */
  readonly onRefusal: (error: PlatformError) => void;
  /** Once, last: how its program ended, `undefined` when this client left, or why the line is lost. */
  readonly onOver: (exit: NonNullable<TerminalView['exit']> | undefined, error?: unknown) => void;
}

export interface LineStart {
  readonly sandboxId: string;
  readonly terminal: string;
  readonly cursor?: string | undefined;
  readonly replayBytes?: number | undefined;
  readonly leaseToken?: number | undefined;
}

export interface Attached {
  readonly view: TerminalView;
  /** Where it began. */
  readonly cursor: string;
}

export class TerminalLine {
  readonly #connection: Connection;
  readonly #start: LineStart;
  readonly #events: LineEvents;
  readonly #attached = Promise.withResolvers<Attached>();
  readonly #left = new AbortController();
  #socket: WebSocket | undefined;
  #isOpen = false;
  #isOver = false;
  #cursor: string | undefined;
  #sinceCursor = 0;
  #failures = 0;
  #heardAt = 0;
  #refusal: PlatformError | undefined;
  #waiting: (string | Uint8Array<ArrayBuffer>)[] = [];
  #waitingBytes = 0;
  #pingTimer: ReturnType<typeof setInterval> | undefined;

  constructor(connection: Connection, start: LineStart, events: LineEvents) {
    this.#connection = connection;
    this.#start = start;
    this.#events = events;
    this.#cursor = start.cursor;
    this.#attached.promise.catch(() => {}); // Whoever waits for it hears of it.
    this.#connect();
  }

  /** Resolves when it is attached for the first time. */
  get attached(): Promise<Attached> {
    return this.#attached.promise;
  }

  /** Behind the last byte that came; `undefined` before it is attached. */
  get cursor(): string | undefined {
    if (this.#cursor === undefined || this.#sinceCursor === 0) return this.#cursor;
    const dot = this.#cursor.lastIndexOf('.') + 1;
    return this.#cursor.slice(0, dot) + String(Number(this.#cursor.slice(dot)) + this.#sinceCursor);
  }

  /** What is sent while there is no connection waits for the next one. */
  send(message: TerminalRequest | Uint8Array<ArrayBuffer>): void {
    if (this.#isOver) throw new PlatformError('stdin_closed', 'The terminal is closed.');
    const data = message instanceof Uint8Array ? message : JSON.stringify(message);
    if (this.#isOpen) {
      this.#socket?.send(data);
      return;
    }
    if (this.#waitingBytes + data.length > waitingBytesMax) {
      throw new PlatformError('limit_exceeded', 'There is no connection, and no more of what is typed is held.');
    }
    this.#waitingBytes += data.length;
    this.#waiting.push(data);
  }

  /** Leaves; the terminal goes on. */
  close(): void {
    this.#end(undefined);
  }

  /** Breaks the connection until `resume`: what comes meanwhile waits at the server. */
  pause(): void {
    this.#drop();
  }

  resume(): void {
    if (!this.#isOver && this.#socket === undefined) this.#connect();
  }

  #connect(): void {
    const { sandboxId, terminal, replayBytes, leaseToken } = this.#start;
    const { cursor } = this;
    this.#cursor = cursor;
    this.#sinceCursor = 0;
    this.#refusal = undefined;
    let socket: WebSocket;
    try {
      socket = this.#connection.openSocket(routes.attachTerminal, {
        params: { sandboxId, terminal },
        query: {
          ...(cursor !== undefined && { cursor }),
          ...(replayBytes !== undefined && { replayBytes }),
          ...(leaseToken !== undefined && { leaseToken }),
        },
      });
    } catch (error) {
      this.#end(undefined, error);
      return;
    }
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    this.#heardAt = this.#connection.clock.nowMs();
    socket.onmessage = ({ data }: { data: unknown }) => {
      this.#heardAt = this.#connection.clock.nowMs();
      if (typeof data === 'string') this.#take(JSON.parse(data) as TerminalMessage);
      else this.#takeBytes(new Uint8Array(data as ArrayBuffer));
    };
    socket.onerror = () => {}; // Followed by a close, which tells more.
    socket.onclose = ({ code }: { code: number }) => void this.#closed(socket, code);
    this.#pingTimer = setInterval(() => this.#ping(), pingMs);
  }

  #takeBytes(bytes: Uint8Array): void {
    this.#sinceCursor += bytes.byteLength;
    this.#events.onData(bytes);
  }

  #take(message: TerminalMessage): void {
    switch (message.type) {
      case 'attached':
        this.#place(message.cursor);
        this.#failures = 0;
        this.#isOpen = true;
        this.#attached.resolve({ view: message.terminal, cursor: message.cursor });
        for (const data of this.#waiting) this.#socket?.send(data);
        this.#waiting = [];
        this.#waitingBytes = 0;
        break;
      case 'cursor':
        this.#place(message.cursor);
        break;
      case 'dropped':
        this.#place(message.cursor);
        this.#events.onDropped(message.bytes);
        break;
      case 'exit':
        this.#end(message.exit);
        break;
      case 'error':
        this.#refusal = refusalIn(message.error);
        if (this.#isOpen) this.#events.onRefusal(this.#refusal);
        break;
      case 'pong':
        break;
    }
  }

  #place(cursor: string): void {
    this.#cursor = cursor;
    this.#sinceCursor = 0;
  }

  async #closed(socket: WebSocket, code: number): Promise<void> {
    if (this.#isOver || this.#socket !== socket) return;
    this.#drop();
    const { clock } = this.#connection;
    try {
      if (code === 1008) throw this.#refusal ?? new PlatformError('forbidden', 'The server closed the terminal.');
      const pauseMs = Math.min(reconnectMaxMs, reconnectFirstMs * 2 ** Math.min(this.#failures++, 10));
      if (this.#failures > failuresMax) throw this.#refusal ?? unreachable(this.#connection.url);
      await clock.wait(pauseMs * (0.5 + Math.random() / 2), this.#left.signal);
      // A WebSocket does not say why it was refused; a plain request does.
      const { sandboxId, terminal } = this.#start;
      const request = { params: { sandboxId, terminal }, signal: this.#left.signal };
      await this.#connection.call(routes.getTerminal, request).catch((error: unknown) => {
        if (!isPlatformError(error) || error.retry === 'never') throw error;
      });
    } catch (error) {
      this.#end(undefined, error);
      return;
    }
    if (!this.#isOver && this.#socket === undefined) this.#connect();
  }

  #ping(): void {
    if (this.#connection.clock.nowMs() - this.#heardAt > silenceMs) {
      const socket = this.#socket;
      // Its close may take as long as the silence: it is not waited for.
      if (socket !== undefined) void this.#closed(socket, 1006);
    } else if (this.#isOpen) {
      this.#socket?.send(JSON.stringify({ type: 'ping' } satisfies TerminalRequest));
    }
  }

  /** Lets go of the connection, and hears nothing more from it. */
  #drop(): void {
    clearInterval(this.#pingTimer);
    const socket = this.#socket;
    this.#socket = undefined;
    this.#isOpen = false;
    if (socket === undefined) return;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close(closedByUs);
  }

  #end(exit: NonNullable<TerminalView['exit']> | undefined, error?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#left.abort();
    this.#drop();
    this.#attached.reject(error ?? new PlatformError('stdin_closed', 'The terminal is closed.'));
    this.#events.onOver(exit, error);
  }
}

function refusalIn(error: { readonly code: string; readonly message: string; readonly details: object }) {
  const code = isErrorCode(error.code) ? error.code : 'internal';
  return new PlatformError(code, error.message, { details: error.details as Readonly<Record<string, unknown>> });
}

function unreachable(url: string): PlatformError {
  return new PlatformError('server_unreachable', `The connection to ${url} was lost and does not come back.`);
}
