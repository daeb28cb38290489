/** Whether something inside a sandbox answers on a port: a connection through init's relay, and an HTTP request if one is wanted. */
import type { Socket } from 'node:net';
import { FrameReader } from '../base/index.ts';
import type { PortReport, ProbePortOrder } from '../protocol/index.ts';
import type { InitClient } from './init-client.ts';
import { connectFrame, connectionKinds, helloFrame, initFrameLimitBytes, parseRelayAnswer } from './init-protocol.ts';

const closed: PortReport = { open: false, status: null };
/** A status line is shorter; what answers more without one does not speak HTTP. */
const headLimitBytes = 16 * 1024;

export async function probePort(client: InitClient, order: ProbePortOrder, signal: AbortSignal): Promise<PortReport> {
  const socket = client.openRun();
  const limit = AbortSignal.any([signal, AbortSignal.timeout(order.timeoutMs)]);
  const settled = Promise.withResolvers<PortReport>();
  const probe = new Probe(socket, order, settled.resolve);
  const onLimit = () => settled.resolve(probe.report);
  socket.on('error', onLimit);
  socket.on('close', onLimit);
  limit.addEventListener('abort', onLimit, { once: true });
  if (limit.aborted) onLimit();
  try {
    return await settled.promise;
  } finally {
    limit.removeEventListener('abort', onLimit);
    socket.destroy();
  }
}

class Probe {
  readonly #socket: Socket;
  readonly #order: ProbePortOrder;
  readonly #settle: (report: PortReport) => void;
  readonly #reader = new FrameReader({ limitBytes: initFrameLimitBytes });
  #head = '';
  report: PortReport = closed;

  constructor(socket: Socket, order: ProbePortOrder, settle: (report: PortReport) => void) {
    this.#socket = socket;
    this.#order = order;
    this.#settle = settle;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    const connect = connectFrame({ port: order.port, family: order.family ?? 0 });
    socket.write(Buffer.concat([helloFrame(connectionKinds.relay), connect]));
  }

  #read(chunk: Buffer): void {
    if (this.report.open) {
      this.#readHead(chunk.toString('latin1'));
      return;
    }
    try {
      for (const frame of this.#reader.push(chunk)) {
        const answer = parseRelayAnswer(frame);
        if (answer.kind === 'connected') this.#connected();
        else if (answer.kind !== 'hello') this.#settle(closed);
        if (answer.kind !== 'hello') return;
      }
    } catch {
      this.#settle(closed);
    }
  }

  /** What the server says by itself before it is asked is not an answer to a request, so the rest of this chunk is of no use. */
  #connected(): void {
    this.report = { open: true, status: null };
    const { httpPath, port } = this.#order;
    if (httpPath === null) {
      this.#settle(this.report);
      return;
    }
    const path = encodeURI(httpPath.startsWith('/') ? httpPath : `/${httpPath}`);
    this.#socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close\r\nAccept: */*\r\n\r\n`);
  }

  #readHead(text: string): void {
    this.#head += text;
    const status = /^HTTP\/1\.[01] (\d{3})[ \r\n]/.exec(this.#head)?.[1];
    if (status !== undefined) this.#settle({ open: true, status: Number(status) });
    else if (this.#head.length > headLimitBytes) this.#settle(this.report);
  }
}
