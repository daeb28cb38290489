/**
 * HTTP on one connection of its own, written and read by hand: for limits in milliseconds, which are about the server. Node's own client takes
 * about a third of such a time.
 */
import { connect, type Socket } from 'node:net';
import type { ServerAddress } from './http-client.ts';

const headEnd = '\r\n\r\n';

export class BareHttp {
  readonly #socket: Socket;
  readonly #headers: string;
  #answer: PromiseWithResolvers<string> | undefined;
  #text = '';

  constructor(address: ServerAddress) {
    const { hostname, port, host } = new URL(address.url);
    this.#headers = `Host: ${host}\r\nAuthorization: Bearer ${address.key}\r\nContent-Type: application/json`;
    this.#socket = connect(Number(port), hostname);
    this.#socket.setNoDelay(true);
    this.#socket.setEncoding('latin1');
    this.#socket.on('data', (piece: string) => this.#take(piece));
    this.#socket.on('close', () => this.#answer?.reject(new Error('The server closed the connection.')));
    this.#socket.on('error', (error) => this.#answer?.reject(error));
  }

  /** One at a time. The text, which is ASCII, of a successful answer with a length. */
  post(path: string, body: string): Promise<string> {
    this.#answer = Promise.withResolvers();
    this.#socket.write(
      `POST ${path} HTTP/1.1\r\n${this.#headers}\r\nContent-Length: ${Buffer.byteLength(body)}${headEnd}${body}`,
    );
    return this.#answer.promise;
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(piece: string): void {
    this.#text += piece;
    const headLength = this.#text.indexOf(headEnd);
    if (headLength === -1) return;
    const head = this.#text.slice(0, headLength);
    const content = this.#text.slice(headLength + headEnd.length);
    if (content.length < Number(/^content-length: (\d+)$/im.exec(head)?.[1])) return;
    this.#text = '';
    if (head.startsWith('HTTP/1.1 200 ')) this.#answer?.resolve(content);
    else this.#answer?.reject(new Error(`The answer is ${head}\n${content}`));
  }
}
