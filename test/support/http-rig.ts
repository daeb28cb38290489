/** A real HTTP server on a free port before a fake control, for tests of the server, the SDK and the command line. */
import { createLogger } from '../../src/base/index.ts';
import { Atoll, type ConnectionOptions } from '../../src/sdk/index.ts';
import { createHttpServer, type HttpServer, type HttpServerOptions } from '../../src/server/index.ts';
import { FakeControl, goodKey } from './fake-control.ts';

export interface HttpRig extends AsyncDisposable {
  readonly control: FakeControl;
  readonly server: HttpServer;
  readonly url: string;
  /** What was logged, a line each. */
  readonly log: string[];
  client(options?: Partial<ConnectionOptions>): Atoll;
  /** With the good key, unless the headers say otherwise. */
  request(path: string, init?: RequestInit): Promise<Response>;
}

export async function openHttpRig(options: Partial<HttpServerOptions> = {}): Promise<HttpRig> {
  const control = new FakeControl();
  const log: string[] = [];
  const logger = createLogger({ stream: { write: (line) => log.push(line) }, level: 'debug' });
  const server = createHttpServer({ control, logger, version: '0.0.0-test', ...options });
  const { url } = await server.listen('127.0.0.1', 0);
  return {
    control,
    server,
    url,
    log,
    client: (changes = {}) => new Atoll({ url, apiKey: goodKey, ...changes }),
    request: (path, init = {}) =>
      fetch(`${url}${path}`, { ...init, headers: { authorization: `Bearer ${goodKey}`, ...init.headers } }),
    [Symbol.asyncDispose]: () => server.close({ graceMs: 0 }),
  };
}

export async function errorOf(response: Response) {
  const body = (await response.json()) as {
    error: {
      code: string;
      message: string;
      requestId: string;
      details: { issues?: { in: string; path: string; message: string }[]; [name: string]: unknown };
    };
  };
  return { status: response.status, requestIdHeader: response.headers.get('request-id'), ...body.error };
}
