/** A git server on loopback: `git http-backend` behind Node's own HTTP, with or without a password, honest or not. */
import { execFile, spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface GitHttp {
  /** `http://127.0.0.1:port` */
  readonly url: string;
  /** Requests so far, as `METHOD path`. */
  readonly requests: readonly string[];
  close(): Promise<void>;
}

export interface GitHttpOptions {
  /** Bare repositories are in it. */
  readonly root: string;
  readonly credentials?: { readonly username: string; readonly password: string };
  /** Called before a request is served; true: it has answered itself. */
  readonly intercept?: (request: IncomingMessage, response: ServerResponse) => boolean | Promise<boolean>;
}

export async function openGitHttp(options: GitHttpOptions): Promise<GitHttp> {
  const requests: string[] = [];
  const backend = join((await promisify(execFile)('git', ['--exec-path'])).stdout.trim(), 'git-http-backend');
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    void serve(request, response, { ...options, backend }).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  options: GitHttpOptions & { readonly backend: string },
): Promise<void> {
  if (await options.intercept?.(request, response)) return;
  const { credentials } = options;
  if (credentials !== undefined) {
    const wanted = Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64');
    if (request.headers.authorization !== `Basic ${wanted}`) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
      return;
    }
  }
  const url = new URL(request.url ?? '/', 'http://x');
  const child = spawn(options.backend, {
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: options.root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      ...{ GIT_CONFIG_COUNT: '2', GIT_CONFIG_KEY_0: 'http.receivepack', GIT_CONFIG_VALUE_0: 'true' },
      ...{ GIT_CONFIG_KEY_1: 'safe.directory', GIT_CONFIG_VALUE_1: '*' },
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: String(request.headers['content-encoding'] ?? ''),
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
      REMOTE_USER: 'someone',
      REMOTE_ADDR: '127.0.0.1',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  child.stdin.on('error', () => {});
  request.pipe(child.stdin);
  const chunks: Buffer[] = [];
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) chunks.push(chunk);
  const answer = Buffer.concat(chunks);
  const end = answer.indexOf('\r\n\r\n');
  const headers = Object.fromEntries(
    answer
      .toString('latin1', 0, end)
      .split('\r\n')
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]),
  );
  const { Status = '200', ...rest } = headers;
  response.writeHead(Number.parseInt(Status, 10), rest).end(answer.subarray(end + 4));
}
