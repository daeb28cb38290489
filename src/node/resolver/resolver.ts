/**
 * The resolver of the node's sandboxes: passes questions on to the machine's own resolvers, and their answers back. It reads nothing of a
 * question but its length and number, keeps no answers, and knows no names of its own.
 *
 * Invariants:
 *  - Only sandboxes that were admitted are answered; each has its own bounds (asker.ts).
 *  - A question goes out under a number and from a port that are random and its own; only the server it went to can answer it.
 *  - What is waited for ends: by an answer, by the time limit, by a newer question that needs its room, or with `close`.
 */
import { randomInt } from 'node:crypto';
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket as Stream } from 'node:net';
import type { Logger } from '../../base/index.ts';
import { Asker } from './asker.ts';
import { relayStream } from './relay-stream.ts';
import { type Upstream, Upstreams } from './upstreams.ts';

/** Longer questions are dropped: there are none. */
const questionLimitBytes = 4_096;
const headerBytes = 12;
/** For one server; then the next is asked. */
const answerTimeoutMs = 3_000;
const attempts = 2;
/** Over all sandboxes. Beyond it, the sandbox that waits for most loses its oldest question. */
const pendingMaxDefault = 2_048;

/** A question that waits for its answer. */
interface Pending {
  readonly asker: Asker;
  socket: Socket | undefined;
  isGivenUp: boolean;
}

export interface ResolverOptions {
  /** Addresses with or without a port. Default: those of /etc/resolv.conf on the machine, read anew when it changes. */
  readonly servers?: readonly string[];
}

export class Resolver {
  readonly #upstreams: Upstreams;
  readonly #log: Logger;
  readonly #askers = new Map<string, Asker>();
  /** The oldest first. */
  readonly #pending = new Set<Pending>();
  readonly #pendingMax: number;
  readonly #streams = new Set<Stream>();
  #socket: Socket | undefined;
  #server: Server | undefined;

  constructor(options: ResolverOptions & { readonly log: Logger; readonly pendingMax?: number }) {
    this.#upstreams = new Upstreams(options.servers);
    this.#log = options.log;
    this.#pendingMax = options.pendingMax ?? pendingMaxDefault;
  }

  /** The port, the same for UDP and TCP. */
  async listen(address: string): Promise<number> {
    const server = createServer({ pauseOnConnect: true }, (stream) => this.#onStream(stream));
    server.listen({ host: address, port: 0 });
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const socket = createSocket('udp4');
    try {
      socket.bind({ address, port, exclusive: true });
      await once(socket, 'listening');
    } catch (error) {
      server.close();
      throw error;
    }
    socket.on('message', (question, from) => void this.#onQuestion(socket, question, from));
    socket.on('error', (error) => this.#log.error('The resolver cannot receive.', { error }));
    server.on('error', (error) => this.#log.error('The resolver cannot accept.', { error }));
    this.#socket = socket;
    this.#server = server;
    return port;
  }

  admit(address: string): void {
    this.#askers.set(address, new Asker());
  }

  forget(address: string): void {
    this.#askers.delete(address);
    for (const stream of this.#streams) if (stream.remoteAddress === address) stream.destroy();
  }

  async close(): Promise<void> {
    this.#askers.clear();
    for (const stream of this.#streams) stream.destroy();
    for (const pending of this.#pending) this.#giveUp(pending);
    if (this.#socket !== undefined) closeQuietly(this.#socket);
    this.#server?.close();
  }

  async #onQuestion(socket: Socket, question: Buffer, from: RemoteInfo): Promise<void> {
    const asker = this.#askers.get(from.address);
    const isSane = question.length >= headerBytes && question.length <= questionLimitBytes;
    if (asker === undefined || !isSane || !asker.beginQuestion()) return;
    if (this.#pending.size >= this.#pendingMax) this.#makeRoom();
    const pending: Pending = { asker, socket: undefined, isGivenUp: false };
    this.#pending.add(pending);
    try {
      const answer = await this.#ask(question, pending);
      // A sandbox that was cut off meanwhile hears nothing more.
      if (answer !== undefined && this.#askers.get(from.address) === asker)
        socket.send(answer, from.port, from.address);
    } catch (error) {
      this.#log.debug('A question could not be passed on.', { error });
    } finally {
      this.#pending.delete(pending);
      asker.endQuestion();
    }
  }

  #makeRoom(): void {
    let chosen: Pending | undefined;
    for (const one of this.#pending) {
      if (chosen === undefined || one.asker.pending > chosen.asker.pending) chosen = one;
    }
    if (chosen !== undefined) this.#giveUp(chosen);
  }

  #giveUp(pending: Pending): void {
    this.#pending.delete(pending);
    pending.isGivenUp = true;
    if (pending.socket !== undefined) closeQuietly(pending.socket);
  }

  async #ask(question: Buffer, pending: Pending): Promise<Buffer | undefined> {
    const servers = await this.#upstreams.list();
    for (let attempt = 0; attempt < attempts; attempt++) {
      const server = servers[attempt % Math.max(servers.length, 1)];
      if (server === undefined || pending.isGivenUp) return undefined;
      const answer = await this.#askOne(server, question, pending);
      if (answer !== undefined) return answer;
    }
    return undefined;
  }

  #askOne(server: Upstream, question: Buffer, pending: Pending): Promise<Buffer | undefined> {
    const number = randomInt(0x1_0000);
    const asked = Buffer.from(question);
    asked.writeUInt16BE(number, 0);
    const socket = createSocket(server.family === 6 ? 'udp6' : 'udp4');
    pending.socket = socket;
    const { promise, resolve } = Promise.withResolvers<Buffer | undefined>();
    const timer = setTimeout(() => resolve(undefined), answerTimeoutMs);
    socket.on('message', (answer) => {
      if (answer.length < headerBytes || answer.readUInt16BE(0) !== number) return;
      answer.writeUInt16BE(question.readUInt16BE(0), 0);
      resolve(answer);
    });
    socket.on('error', () => resolve(undefined));
    socket.on('close', () => resolve(undefined));
    // Connected: the kernel drops what comes from anybody else.
    socket.connect(server.port, server.address, (error?: Error) => {
      try {
        if (error !== undefined) throw error;
        socket.send(asked);
      } catch {
        resolve(undefined); // There is no way to it, or `close` came between.
      }
    });
    return promise.finally(() => {
      clearTimeout(timer);
      closeQuietly(socket);
    });
  }

  #onStream(stream: Stream): void {
    const address = stream.remoteAddress ?? '';
    const asker = this.#askers.get(address);
    if (asker === undefined || !asker.beginStream()) {
      stream.destroy();
      return;
    }
    this.#streams.add(stream);
    stream.once('close', () => {
      this.#streams.delete(stream);
      asker.endStream();
    });
    void this.#upstreams.list().then(
      ([server]) => (server === undefined ? stream.destroy() : relayStream(stream, server)),
      () => stream.destroy(),
    );
  }
}

function closeQuietly(socket: Socket): void {
  try {
    socket.close();
  } catch {
    // It is closed already.
  }
}
