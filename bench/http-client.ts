/** HTTP with as little around it as Node allows: one agent that keeps connections open, headers made once. */
import { Agent, request } from 'node:http';

export interface ServerAddress {
  readonly url: string;
  readonly key: string;
}

export class HttpClient {
  readonly #agent: Agent;
  readonly #host: string;
  readonly #port: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(address: ServerAddress, options: { readonly connections?: number } = {}) {
    const { hostname, port } = new URL(address.url);
    this.#host = hostname;
    this.#port = port;
    this.#headers = { Authorization: `Bearer ${address.key}`, 'Content-Type': 'application/json' };
    this.#agent = new Agent({ keepAlive: true, maxSockets: options.connections ?? 64 });
  }

  /** The text of a successful answer; throws anything else. */
  send(method: string, path: string, body?: string): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const headers =
      body === undefined ? this.#headers : { ...this.#headers, 'Content-Length': Buffer.byteLength(body) };
    const call = request(
      { agent: this.#agent, host: this.#host, port: this.#port, method, path, headers },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('error', reject);
        answer.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const status = answer.statusCode ?? 0;
          if (status >= 200 && status < 300) resolve(text);
          else reject(new Error(`${method} ${path} answered ${status}: ${text}`));
        });
      },
    );
    call.on('error', reject);
    call.end(body);
    return promise;
  }

  async json<Result>(method: string, path: string, body?: unknown): Promise<Result> {
    return JSON.parse(await this.send(method, path, body === undefined ? undefined : JSON.stringify(body))) as Result;
  }

  close(): void {
    this.#agent.destroy();
  }
}
