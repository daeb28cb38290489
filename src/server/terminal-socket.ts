/**
 * One client of one terminal: bytes both ways as binary messages, control as JSON in text messages.
 *
 * Invariants:
 *  - What waits to be sent to the client is bounded. A client that does not read stops only its own reading of the terminal; when what it
 *    has not read is no longer kept, it goes on further ahead and is told. One that asks and does not read the answers is not heard until it
 *    has read them.
 *  - What a client says wrong is answered with an error, and the connection stays.
 *  - A client that shows nothing of itself for two heartbeats, or whose key is no longer good, is closed. From then on nothing that it says
 *    counts.
 */
import type { RawData, WebSocket } from 'ws';
import type { Timers } from '../base/index.ts';
import type { Attachment } from '../control/index.ts';
import { PlatformError, type TerminalMessage, terminalLimits, terminalRequest } from '../protocol/index.ts';
import { InputLine } from './input-line.ts';
import { parsePart } from './invalid-request.ts';

/** Beyond this, what was sent must have left before more is read. */
const sendAheadBytes = 256 * 1024;
/** Beyond this, nothing more is heard until it has left. Well above the other, so that an interrupt passes output that nobody reads. */
const hearAheadBytes = 1024 * 1024;
/** Signals that wait for the one that is being sent. */
const signalsMax = 16;
/** How much output goes between two messages that tell the place. */
const cursorEveryBytes = 64 * 1024;

/** How long a client that is closed may take to answer. */
const closeMs = 2_000;

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
  #isHeldBack = false;
  #lastSignal: Promise<unknown> = Promise.resolve();
  #signals = 0;
  #cancelHeartbeat = () => {};

  constructor(socket: WebSocket, options: TerminalSocketOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#input = new InputLine({ limitBytes: terminalLimits.inputBytes, onError: (error) => this.#tell(error) });
    socket.on('message', (data, isBinary) => this.#take(data, isBinary));
    socket.on('ping', () => this.#holdBack()); // Which ws has answered.
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
  async leave(): Promise<void> {
    this.#close(closeCodes.serverStops, 'The server is stopping.');
    await this.over;
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
        this.#close(closeCodes.done, 'The program has ended.');
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
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#isAlive = true;
    try {
      // ws hands out one buffer a message, unless it is told otherwise.
      if (isBinary) this.#type(data as Buffer);
      else this.#obey(data as Buffer);
    } catch (error) {
      this.#tell(error);
    }
    this.#holdBack();
  }

  /** Whoever does not read what it asked for asks no more meanwhile. */
  #holdBack(): void {
    if (this.#isHeldBack || this.#socket.bufferedAmount <= hearAheadBytes) return;
    this.#isHeldBack = true;
    this.#socket.pause();
    // What is sent leaves in order: with this, everything before it has left.
    this.#socket.ping(undefined, false, () => {
      this.#isHeldBack = false;
      this.#isAlive = true;
      this.#socket.resume();
    });
  }

  #type(bytes: Buffer): void {
    if (bytes.byteLength > 0 && !this.#input.write(bytes)) throw tooMuchTyped();
  }

  #obey(text: Buffer): void {
    const request = parsePart(terminalRequest, 'body', parseJson(text));
    if (request.type === 'resize') {
      if (!this.#input.resize({ columns: request.columns, rows: request.rows })) throw tooMuchTyped();
      return;
    }
    if (request.type === 'ping') {
      this.#send({ type: 'pong' });
      return;
    }
    const wanted = request.type === 'interrupt' ? ({ signal: 'INT', target: 'foreground' } as const) : request;
    this.#signal(wanted);
  }

  /** Not behind what is typed: an interrupt is for what does not read. One at a time, in order. */
  #signal(wanted: Parameters<Attachment['signal']>[0]): void {
    const attachment = this.#attachment;
    if (attachment === undefined) throw new PlatformError('sandbox_unavailable', 'It is not attached yet.');
    if (this.#signals >= signalsMax) {
      throw new PlatformError('limit_exceeded', `${signalsMax} signals are on their way; no more are taken.`);
    }
    this.#signals++;
    this.#lastSignal = this.#lastSignal
      .then(() => attachment.signal(wanted))
      .catch((error: unknown) => this.#tell(error))
      .finally(() => this.#signals--);
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
    this.#close(retry === 'never' ? refused : closeCodes.tryLater, code);
  }

  #close(code: number, reason: string): void {
    this.#socket.close(code, reason);
    const cancel = this.#options.timers.after(closeMs, () => this.#socket.terminate());
    void this.over.then(cancel);
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

function tooMuchTyped(): PlatformError {
  const message = 'The terminal does not take what is typed, and no more of it is held.';
  return new PlatformError('limit_exceeded', message, { details: { limitBytes: terminalLimits.inputBytes } });
}

function parseJson(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString('utf8'));
  } catch {
    throw new PlatformError('invalid_request', 'A text message is one JSON object; bytes go in binary messages.');
  }
}
