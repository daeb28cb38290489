/**
 * Connections to init for runs. Most commands end with everything they started; init then takes another run on the same connection, which
 * saves a connect and an accept for each.
 *
 * Invariants:
 *  - An idle connection serves nobody: whatever comes on it, or its end, removes it.
 *  - After `close` none is idle and none becomes so.
 *  - At most one is being prepared.
 */
import type { Socket } from 'node:net';
import { FrameReader } from '../base/index.ts';
import { connectionKinds, helloFrame, initFrameLimitBytes, parseRunAnswer } from './init-protocol.ts';
import type { RunLine } from './run-connection.ts';

/** More are closed: they would only be of use to another burst of the same size. */
const idleMax = 32;

export class RunLines {
  readonly #connect: () => Socket;
  readonly #idle: Socket[] = [];
  #preparing: Socket | undefined;
  #isClosed = false;

  constructor(connect: () => Socket) {
    this.#connect = connect;
  }

  take(): RunLine {
    const socket = this.#idle.pop();
    if (socket === undefined) return this.#lineOf(this.#connect(), false);
    socket.off('data', destroy);
    socket.off('error', destroy);
    socket.off('close', this.#forget);
    return this.#lineOf(socket, true);
  }

  /** Has one ready for the next who asks, if none is idle: for after a run that uses its connection up. */
  prepare(): void {
    if (this.#isClosed || this.#idle.length > 0 || this.#preparing !== undefined) return;
    const socket = this.#connect();
    this.#preparing = socket;
    const reader = new FrameReader({ limitBytes: initFrameLimitBytes });
    const onData = (chunk: Buffer) => {
      if (!isGreeting(reader, chunk)) return socket.destroy();
      socket.off('data', onData);
      socket.off('error', destroy);
      socket.off('close', onClose);
      onClose();
      this.#keep(socket);
    };
    const onClose = () => {
      this.#preparing = undefined;
    };
    socket.on('data', onData);
    socket.on('error', destroy);
    socket.on('close', onClose);
    socket.write(helloFrame(connectionKinds.run));
  }

  close(): void {
    this.#isClosed = true;
    this.#preparing?.destroy();
    for (const socket of [...this.#idle]) socket.destroy();
  }

  get idle(): number {
    return this.#idle.length;
  }

  #lineOf(socket: Socket, isGreeted: boolean): RunLine {
    return { socket, isGreeted, giveBack: () => this.#keep(socket) };
  }

  #keep(socket: Socket): void {
    if (this.#isClosed || socket.destroyed || this.#idle.length >= idleMax) {
      socket.on('error', destroy);
      socket.destroy();
      return;
    }
    socket.on('data', destroy);
    socket.on('error', destroy);
    socket.on('close', this.#forget);
    this.#idle.push(socket);
  }

  readonly #forget = () => {
    const open = this.#idle.filter((socket) => !socket.destroyed);
    this.#idle.splice(0, this.#idle.length, ...open);
  };
}

/** Init greets with one frame, which comes in one piece. */
function isGreeting(reader: FrameReader, chunk: Buffer): boolean {
  try {
    const [frame, another] = reader.push(chunk);
    return frame !== undefined && another === undefined && parseRunAnswer(frame).kind === 'hello';
  } catch {
    return false;
  }
}

function destroy(this: Socket): void {
  this.destroy();
}
