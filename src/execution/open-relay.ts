/**
 * A connection to a port inside, through init's relay: two frames are exchanged, and from then on the socket carries the service's own bytes,
 * with half-close both ways. Exactly the frames are read here; what the service says by itself is left in the socket.
 */

import type { Socket } from 'node:net';
import { isIPv4 } from 'node:net';
import { PlatformError } from '../protocol/index.ts';
import type { InitClient } from './init-client.ts';
import { connectFrame, connectionKinds, helloFrame, parseRelayAnswer } from './init-protocol.ts';

export interface RelayTarget {
  readonly port: number;
  /** Absent: loopback, IPv4 or IPv6. */
  readonly address?: string;
  /** The life that must answer. */
  readonly generation: number;
}

/** How long the sandbox may take to answer; connecting inside it takes no time. */
const connectLimitMs = 10_000;
const headerBytes = 4;
const answerMaxBytes = 64 * 1024;

export async function openRelay(client: InitClient, target: RelayTarget, signal: AbortSignal): Promise<Socket> {
  const socket = client.openRelay();
  const limit = AbortSignal.any([signal, AbortSignal.timeout(connectLimitMs)]);
  const answered = Promise.withResolvers<void>();
  const answer = new RelayAnswer(socket, target, answered);
  const onReadable = () => answer.read();
  const onEnd = (cause?: unknown) => answered.reject(notOpen(target, cause));
  const onLimit = () => onEnd(limit.reason);
  // Stays: whoever gets the socket may be told of an error before it listens.
  socket.on('error', onEnd);
  socket.on('close', onEnd);
  socket.on('readable', onReadable);
  limit.addEventListener('abort', onLimit, { once: true });
  if (limit.aborted) onLimit();
  socket.write(Buffer.concat([helloFrame(connectionKinds.relay), connectFrame(connectOf(target))]));
  try {
    await answered.promise;
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    limit.removeEventListener('abort', onLimit);
    socket.off('readable', onReadable);
    socket.off('close', onEnd);
  }
}

class RelayAnswer {
  readonly #socket: Socket;
  readonly #target: RelayTarget;
  readonly #answered: PromiseWithResolvers<void>;
  #length: number | undefined;
  #isOver = false;

  constructor(socket: Socket, target: RelayTarget, answered: PromiseWithResolvers<void>) {
    this.#socket = socket;
    this.#target = target;
    this.#answered = answered;
  }

  read(): void {
    try {
      while (!this.#isOver && this.#readPart());
    } catch (cause) {
      this.#answered.reject(new PlatformError('sandbox_unavailable', 'The sandbox answers without sense.', { cause }));
    }
  }

  /** False: more bytes are needed first. */
  #readPart(): boolean {
    const wanted = this.#length ?? headerBytes;
    const bytes = this.#socket.read(wanted) as Buffer | null;
    if (bytes === null || bytes.byteLength < wanted) return false;
    if (this.#length === undefined) {
      const length = bytes.readUInt32LE(0);
      if (length < 1 || length > answerMaxBytes) throw new Error(`A frame of ${length} bytes was announced.`);
      this.#length = length;
      return true;
    }
    this.#length = undefined;
    this.#take(bytes);
    return true;
  }

  #take(frame: Buffer): void {
    const answer = parseRelayAnswer({ type: frame.readUInt8(0), body: frame.subarray(1) });
    if (answer.kind === 'hello' && answer.generation === this.#target.generation) return;
    this.#isOver = true;
    if (answer.kind === 'connected') this.#answered.resolve();
    else if (answer.kind === 'refused') this.#answered.reject(notOpen(this.#target));
    else throw new Error('Another life of the sandbox answers.');
  }
}

function connectOf({ port, address }: RelayTarget) {
  if (address === undefined) return { port, family: 0 } as const;
  return isIPv4(address)
    ? ({ port, family: 4, address: Uint8Array.from(address.split('.'), Number) } as const)
    : ({ port, family: 6, address: bytesOfV6(address) } as const);
}

/** Of an address in its shortest form, without an IPv4 address in it. */
function bytesOfV6(address: string): Uint8Array {
  const [front = '', back = ''] = address.split('::');
  const groupsOf = (part: string) => part.split(':').filter(Boolean);
  const [head, tail] = [groupsOf(front), groupsOf(back)];
  const groups = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail];
  return Buffer.from(groups.map((group) => group.padStart(4, '0')).join(''), 'hex');
}

function notOpen({ port, address }: RelayTarget, cause?: unknown): PlatformError {
  const place = address === undefined ? '' : ` of ${address}`;
  return new PlatformError('port_not_open', `Nothing in the sandbox answers at port ${port}${place}.`, {
    details: { port },
    ...(cause !== undefined && { cause }),
  });
}
