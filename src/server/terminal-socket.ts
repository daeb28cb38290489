/**
 * One client of one terminal: bytes both ways as binary messages, control as JSON in text messages.
 *
 * Invariants:
 *  - What waits to be sent to the client is bounded. A client that does not read stops only its own reading of the terminal; when what it
 *    has not read is no longer kept, it goes on further ahead and is told.
 *  - What a client says wrong is answered with an error, and the connection stays.
 *  - A client that shows nothing of itself for two heartbeats, or whose key is no longer good, is closed.
 */
import type { RawData, WebSocket } from 'ws';
import type { Timers } from '../base/index.ts';
import type { Attachment } from '../control/index.ts';
import { PlatformError, type TerminalMessage, terminalLimits, terminalRequest } from '../protocol/index.ts';
import { InputLine } from './input-line.ts';
import { parsePart } from './invalid-request.ts';

/** Beyond this, what was sent must have left before more is read. */
const sendAheadBytes = 256 * 1024;
/** How much output goes between two messages that tell the place. */
const cursorEveryBytes = 64 * 1024;

const closeCodes = { done: 1000, serverStops: 1001, refused: 1008, broken: 1011, tryLater: 1013 } as const;

export interface TerminalSocketOptions {
  readonly attach: (signal: AbortSignal) => Promise<Attachment>;
  /** Refuses when the key is no longer good. */
  readonly stillMay: () => Promise<unknown>;
  readonly mayJoin: (terminalId: string) => boolean;
  readonly asRefusal: (error: unknown) => PlatformError;
  readonly timers: Timers;
  readonly heartbeatMs: number;
}

export class TerminalSocket {
  readonly #socket: WebSocket;
  readonly #options: TerminalSocketOptions;
  readonly #left = new AbortController();
  readonly #over = Promise.withResolvers<void>();
  readonly #input: InputLine;
  #attachment: Attachment | undefined;
  #sinceCursorBytes = 0;
  #isAlive = true;
  #cancelHeartbeat = () => {};

  constructor(socket: WebSocket, options: TerminalSocketOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#input = new InputLine({ limitBytes: terminalLimits.inputBytes, onError: (error) => this.#tell(error) });
    socket.on('message', (data, isBinary) => this.#take(data, isBinary));
    socket.on('pong', () => (this.#isAlive = true));
    socket.on('error', () => {}); // A message that breaks the protocol: ws has closed the connection with the code for it.
    socket.on('close', () => {
      this.#left.abort();
      this.#cancelHeartbeat();
      this.#over.resolve();
    });
    this.#beat();
    this.#run().catch((error: unknown) => this.#refuse(error));
  }

  /** Resolves when the connection is closed. */
  get over(): Promise<void> {
    return this.#over.promise;
  }

  /** Once it is attached. */
  get terminalId(): string | undefined {
    return this.#attachment?.view.id;
  }

  /** The server stops. */
  async leave(limitMs: number): Promise<void> {
    this.#socket.close(closeCodes.serverStops, 'The server is stopping.');
    const cancel = this.#options.timers.after(limitMs, () => this.#socket.terminate());
    await this.over;
    cancel();
  }

  async #run(): Promise<void> {
    const attachment = await this.#options.attach(this.#left.signal);
    if (!this.#options.mayJoin(attachment.view.id)) {
      throw new PlatformError('limit_exceeded', `A terminal has at most ${terminalLimits.clients} clients.`);
    }
    this.#attachment = attachment;
    this.#input.open(attachment);
    if (attachment.cursor !== null) this.#welcome(attachment, attachment.cursor);
    for await (const item of attachment.items) {
      if (item.kind === 'output') await this.#sendOutput(item.bytes, item.cursor);
      else if (item.kind === 'begun') this.#welcome(attachment, item.cursor);
      else if (item.kind === 'dropped') {
        this.#sinceCursorBytes = 0;
        this.#send({ type: 'dropped', bytes: item.bytes, cursor: item.cursor });
      } else {
        this.#send({ type: 'exit', exit: item.exit });
        this.#socket.close(closeCodes.done, 'The program has ended.');
        return;
      }
    }
    if (!this.#left.signal.aborted) throw new PlatformError('sandbox_unavailable', 'The terminal cannot be read now.');
  }

  #welcome({ view }: Attachment, cursor: string): void {
    this.#send({ type: 'attached', terminal: view, cursor });
  }

  async #sendOutput(bytes: Uint8Array, cursor: string): Promise<void> {
    const left = Promise.withResolvers<void>();
    this.#socket.send(bytes, { binary: true }, () => {
      this.#isAlive = true;
      left.resolve();
    });
    this.#sinceCursorBytes += bytes.byteLength;
    if (this.#sinceCursorBytes >= cursorEveryBytes) {
      this.#sinceCursorBytes = 0;
      this.#send({ type: 'cursor', cursor });
    }
    if (this.#socket.bufferedAmount > sendAheadBytes) await left.promise;
  }

  #take(data: RawData, isBinary: boolean): void {
    this.#isAlive = true;
    try {
      // ws hands out one buffer a message, unless it is told otherwise.
      if (isBinary) this.#type(data as Buffer);
      else this.#obey(data as Buffer);
    } catch (error) {
      this.#tell(error);
    }
  }

  #type(bytes: Buffer): void {
    if (bytes.byteLength === 0 || this.#input.write(bytes)) return;
    const message = 'The terminal does not take what is typed, and no more of it is held.';
    throw new PlatformError('limit_exceeded', message, { details: { limitBytes: terminalLimits.inputBytes } });
  }

  #obey(text: Buffer): void {
    const request = parsePart(terminalRequest, 'body', parseJson(text));
    if (request.type === 'resize') {
      this.#input.resize({ columns: request.columns, rows: request.rows });
      return;
    }
    if (request.type === 'ping') {
      this.#send({ type: 'pong' });
      return;
    }
    const wanted = request.type === 'interrupt' ? ({ signal: 'INT', target: 'foreground' } as const) : request;
    if (this.#attachment === undefined) throw new PlatformError('sandbox_unavailable', 'It is not attached yet.');
    // Not behind what is typed: an interrupt is for what does not read.
    this.#attachment.signal(wanted).catch((error: unknown) => this.#tell(error));
  }

  /** The client hears why, and stays. */
  #tell(error: unknown): void {
    const { code, message, details } = this.#options.asRefusal(error);
    this.#send({ type: 'error', error: { code, message, details } });
  }

  #refuse(error: unknown): void {
    if (this.#left.signal.aborted) return;
    this.#tell(error);
    const { retry, code } = this.#options.asRefusal(error);
    const refused = code === 'internal' ? closeCodes.broken : closeCodes.refused;
    this.#socket.close(retry === 'never' ? refused : closeCodes.tryLater, code);
  }

  #send(message: TerminalMessage): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #beat(): void {
    const { timers, heartbeatMs, stillMay } = this.#options;
    this.#cancelHeartbeat = timers.after(heartbeatMs, () => {
      if (!this.#isAlive) {
        this.#socket.terminate();
        return;
      }
      this.#isAlive = false;
      this.#socket.ping();
      stillMay().catch((error: unknown) => this.#refuse(error));
      this.#beat();
    });
  }
}

function parseJson(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString('utf8'));
  } catch {
    throw new PlatformError('invalid_request', 'A text message is one JSON object; bytes go in binary messages.');
  }
}
