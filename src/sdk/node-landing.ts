/**
 * Connections of Node on which a large answer is read straight to where it is wanted, as much at once as there is. Read the usual way it comes in
 * pieces of 64 KiB, which are then joined: many turns of the event loop, one more copy, and memory for the pieces and for the whole.
 *
 * Node asks for the memory of the next read after every read. It gets a part of the wanted place when everything before it has arrived there, and
 * else new memory, which whoever reads may keep, as always. Node's parser of HTTP still sees every byte, and hands out a copy of each piece, which
 * is only counted: of an answer whose length was told, the bytes of the connection are its content as they are.
 *
 * Invariants:
 *  - A landing has a place from `land` until the answer is there or its connection is over, and hands out only what of it is still empty.
 *  - What belongs to no answer with a place never gets into one: the bytes are counted, and the last read ends with the place.
 */
import type { MessageSource } from './message-reader.ts';

/** As much of Node's `http` and `net` as is used here; their types are not there in a browser. */
export interface NodeAgent {
  readonly options?: object;
  createConnection(options: object, done?: unknown): NodeSocket;
}
export interface NodeHttpAgents {
  readonly Agent: new (options?: object) => NodeAgent;
  readonly globalAgent: NodeAgent;
}
export interface NodeSocket {
  emit(event: 'data', chunk: Uint8Array): unknown;
}
/** An answer as its bytes come. */
export interface LandingMessage extends MessageSource {
  readonly socket: NodeSocket;
  /** Come, and not handed out yet. */
  readonly readableLength: number;
}
/** What Node itself reads at once. */
const usualBytes = 64 * 1024;

interface Place {
  readonly whole: Uint8Array<ArrayBuffer>;
  /** So many bytes were handed out by the message. */
  at: number;
  /** So many bytes are where they belong. */
  landed: number;
  readonly message: LandingMessage;
}

export class Landings {
  /** For requests whose answers are to land, with connections of its own; `undefined` where the user has put an agent in the place of Node's. */
  readonly agent: NodeAgent | undefined;
  readonly #places = new WeakMap<NodeSocket, { place: Place | undefined }>();

  constructor({ Agent, globalAgent }: NodeHttpAgents) {
    if (Object.getPrototypeOf(globalAgent) !== Agent.prototype) return;
    const agent = new Agent({ ...globalAgent.options });
    const connect = agent.createConnection.bind(agent);
    agent.createConnection = (options, done) => this.#connect(connect, options, done);
    this.agent = agent;
  }

  /** All of an answer of `size` bytes. On another agent's connection its pieces are copied to their place. */
  async land(message: LandingMessage, size: number): Promise<Uint8Array<ArrayBuffer>> {
    return await land({ whole: new Uint8Array(size), at: 0, landed: 0, message }, this.#places.get(message.socket));
  }

  #connect(connect: NodeAgent['createConnection'], options: object, done: unknown): NodeSocket {
    const holder: { place: Place | undefined } = { place: undefined };
    const onread = {
      buffer: () => emptyOf(holder.place) ?? new Uint8Array(usualBytes),
      // With `onread` Node hands out nothing by itself; its parser of HTTP listens for this event.
      callback: (count: number, memory: Uint8Array) => {
        const { place } = holder;
        if (place !== undefined && memory.buffer === place.whole.buffer) place.landed = place.at + count;
        socket.emit('data', memory.subarray(0, count));
        return true;
      },
    };
    const socket = connect({ ...options, onread }, done);
    this.#places.set(socket, holder);
    return socket;
  }
}

/** Where the next bytes belong. Bytes that are still on their way to their place come first. */
function emptyOf(place: Place | undefined): Uint8Array | undefined {
  if (place === undefined || place.message.readableLength > 0 || place.at === place.whole.byteLength) return undefined;
  return place.whole.subarray(place.at);
}

function land(place: Place, holder?: { place: Place | undefined }): Promise<Uint8Array<ArrayBuffer>> {
  const { whole, message } = place;
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array<ArrayBuffer>>();
  const leave = () => {
    if (holder !== undefined) holder.place = undefined;
  };
  if (holder !== undefined) holder.place = place;
  message.on('data', (chunk) => {
    if (place.at + chunk.byteLength > place.landed) whole.set(chunk, place.at);
    place.at += chunk.byteLength;
  });
  message.on('error', (error) => {
    leave();
    reject(error);
  });
  message.on('end', () => {
    leave();
    if (place.at === whole.byteLength) resolve(whole);
    else reject(new Error(`The answer has ${place.at} of ${whole.byteLength} bytes.`));
  });
  return promise;
}
