/**
 * A body that is not JSON, as a stream: read at the pace of whoever takes it, up to a limit. One that breaks off, falls silent or is longer
 * than allowed throws, so that what is made of it is undone.
 */
import type { IncomingMessage } from 'node:http';
import { PlatformError } from '../protocol/index.ts';

/** After a refusal, how much of a body is still read and dropped, so that a caller who is sending gets to read the answer. */
const droppedMaxBytes = 64 * 1024 * 1024;
/** Without a byte for so long, the caller is gone. */
const silenceMs = 120_000;
/** Come and not yet taken: above it the connection is not read. */
const readAheadBytes = 256 * 1024;

export function readByteBody(request: IncomingMessage, limitBytes: number): AsyncIterable<Uint8Array> {
  return new ByteBody(request, limitBytes);
}

type Taken = IteratorResult<Uint8Array, undefined>;

/**
 * Plain events and one promise a piece: through Node's own iterator of a stream, and a generator around it, a piece takes longer than its copy.
 *
 *   unread ──next()──► open ──the end, a failure or return()──► over
 *
 * Invariant: the request is listened to exactly while it is open, and is not destroyed here: the answer goes out on the same connection.
 */
class ByteBody implements AsyncIterableIterator<Uint8Array, undefined> {
  readonly #request: IncomingMessage;
  readonly #limitBytes: number;
  readonly #pieces: Uint8Array[] = [];
  #state: 'unread' | 'open' | 'over' = 'unread';
  #size = 0;
  #heldBytes = 0;
  #failure: unknown;
  #waiting: PromiseWithResolvers<Taken> | undefined;

  constructor(request: IncomingMessage, limitBytes: number) {
    this.#request = request;
    this.#limitBytes = limitBytes;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Taken> {
    if (this.#state === 'unread') this.#open();
    const value = this.#pieces.shift();
    if (value !== undefined) {
      this.#heldBytes -= value.byteLength;
      if (this.#state === 'open' && this.#heldBytes < readAheadBytes && this.#request.isPaused())
        this.#request.resume();
      return Promise.resolve({ done: false, value });
    }
    if (this.#state === 'over') {
      const failure = this.#failure;
      this.#failure = undefined;
      return failure === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(failure);
    }
    this.#waiting = Promise.withResolvers<Taken>();
    return this.#waiting.promise;
  }

  return(): Promise<Taken> {
    this.#pieces.length = 0;
    this.#finish();
    return Promise.resolve({ done: true, value: undefined });
  }

  #open(): void {
    const refusal = this.#refusal();
    if (refusal !== undefined || !hasBody(this.#request)) {
      this.#finish(refusal);
      return;
    }
    this.#state = 'open';
    this.#request.setTimeout(silenceMs, () => this.#request.destroy(new Error('No byte came for too long.')));
    this.#request.on('error', this.#onError).on('close', this.#onClose).on('end', this.#onEnd).on('data', this.#onData);
    this.#request.resume();
  }

  #refusal(): PlatformError | undefined {
    const { headers, destroyed, errored } = this.#request;
    const encoding = headers['content-encoding'];
    if (!hasBody(this.#request)) return undefined;
    if (encoding !== undefined && encoding !== 'identity') {
      const message = `Content-Encoding ${encoding.slice(0, 50)} is not understood here.`;
      return new PlatformError('invalid_request', message);
    }
    if (Number(headers['content-length'] ?? 0) > this.#limitBytes) return tooLarge(this.#limitBytes);
    return destroyed ? brokeOff(errored) : undefined;
  }

  readonly #onData = (piece: Buffer) => {
    this.#size += piece.byteLength;
    if (this.#size > this.#limitBytes) {
      this.#finish(tooLarge(this.#limitBytes));
    } else if (this.#waiting !== undefined) {
      this.#waiting.resolve({ done: false, value: piece });
      this.#waiting = undefined;
    } else {
      this.#pieces.push(piece);
      this.#heldBytes += piece.byteLength;
      if (this.#heldBytes >= readAheadBytes) this.#request.pause();
    }
  };

  readonly #onEnd = () => this.#finish();
  readonly #onError = (error: unknown) => this.#finish(brokeOff(error));
  readonly #onClose = () => this.#finish(brokeOff(undefined));

  #finish(failure?: PlatformError): void {
    if (this.#state === 'over') return;
    const wasOpen = this.#state === 'open';
    this.#state = 'over';
    if (wasOpen) {
      this.#request.setTimeout(0);
      this.#request.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
      this.#request.off('error', this.#onError).on('error', () => {});
      if (!this.#request.readableEnded) this.#request.pause();
    }
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting === undefined) this.#failure = failure;
    else if (failure === undefined) waiting.resolve({ done: true, value: undefined });
    else waiting.reject(failure);
  }
}

/** Takes what is left of a body that nobody wants any more, up to a bound; beyond it the connection ends. */
export function dropRest(request: IncomingMessage): void {
  if (request.readableEnded || request.destroyed) return;
  let dropped = 0;
  request.on('error', () => {});
  request.on('data', (chunk: Buffer) => {
    dropped += chunk.byteLength;
    if (dropped > droppedMaxBytes) request.destroy();
  });
  request.resume();
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

function brokeOff(cause: unknown): PlatformError {
  return new PlatformError('invalid_request', 'The body broke off.', { cause });
}

function tooLarge(limitBytes: number): PlatformError {
  return new PlatformError('payload_too_large', `This route takes at most ${limitBytes} bytes in its body.`, {
    details: { limitBytes },
  });
}
