/** A client of a terminal that is nothing but a WebSocket, for what the SDK hides: messages, close codes, a client that does not read. */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import type { TerminalMessage } from '../../src/protocol/index.ts';
import type { Platform } from './platform.ts';

/** For a machine that does ten other things. */
const limitMs = 30_000;

export class TerminalClient {
  readonly socket: WebSocket;
  readonly messages: TerminalMessage[] = [];
  readonly closed: Promise<number>;
  /** Everything that came as bytes. */
  text = '';
  bytes = 0;
  #isKept = true;
  #wake = () => {};

  constructor(url: string, options: { readonly key?: string; readonly protocols?: string[] } = {}) {
    const headers = options.key === undefined ? {} : { authorization: `Bearer ${options.key}` };
    this.socket = new WebSocket(url.replace(/^http/, 'ws'), options.protocols ?? [], { headers });
    this.socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) this.messages.push(JSON.parse(data.toString()) as TerminalMessage);
      else {
        this.bytes += data.byteLength;
        if (this.#isKept) this.text += data.toString('latin1');
      }
      this.#wake();
    });
    this.socket.on('error', () => {}); // Followed by a close.
    this.closed = new Promise((resolve) => {
      this.socket.on('close', (code) => {
        resolve(code);
        this.#wake();
      });
    });
  }

  /** Counts bytes, and keeps none. */
  keepNothing(): void {
    this.#isKept = false;
  }

  static async attach(platform: Platform, path: string, search = ''): Promise<TerminalClient> {
    const client = new TerminalClient(attachUrl(platform, path, search), { key: platform.key });
    await client.until(() => client.messages.some(({ type }) => type === 'attached'));
    return client;
  }

  type(text: string): void {
    this.socket.send(Buffer.from(text));
  }

  say(message: unknown): void {
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  last<Type extends TerminalMessage['type']>(type: Type): Extract<TerminalMessage, { type: Type }> | undefined {
    return this.messages.findLast((message) => message.type === type) as never;
  }

  async until(isDone: () => boolean): Promise<void> {
    const over = AbortSignal.timeout(limitMs);
    while (!isDone()) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const late = once(over, 'abort').then(() => 'late' as const);
      if (over.aborted || (await Promise.race([woken, late])) === 'late') {
        throw new Error(`It did not come. Messages: ${JSON.stringify(this.messages)} Text: ${this.text.slice(-2_000)}`);
      }
    }
  }

  /** Until the output holds it. */
  async sees(text: string): Promise<void> {
    let from = 0;
    await this.until(() => {
      const isThere = this.text.indexOf(text, from) !== -1;
      // Of much output only the new is looked at again.
      from = Math.max(0, this.text.length - text.length);
      return isThere;
    });
  }

  leave(): void {
    this.socket.terminate();
  }
}

export function attachUrl(platform: Platform, path: string, search = ''): string {
  return `${platform.server.url}/v1/sandboxes/${path}/attach${search}`;
}
