/** Previews as their visitors see them: plain HTTP requests with any Host header, and real servers inside sandboxes. */
import { type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import type { Process, Sandbox } from '../../src/sdk/index.ts';

/** In milliseconds; for a machine that does ten other things. */
export const visitLimitMs = 30_000;

export interface Visit {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

export interface VisitOptions {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

/** The head of the answer; its body is read by the caller. `url` of a host preview is sent to `server`, as DNS would have it. */
export function openVisit(
  server: string,
  url: string,
  options: VisitOptions = {},
): Promise<[IncomingMessage, ClientRequest]> {
  const { hostname, port } = new URL(server);
  const wanted = new URL(url, server);
  const answered = Promise.withResolvers<[IncomingMessage, ClientRequest]>();
  const outgoing = request({
    ...{
      host: hostname,
      port,
      method: options.method ?? 'GET',
      path: `${wanted.pathname}${wanted.search}`,
      agent: false,
    },
    headers: { Host: wanted.host, ...options.headers },
    timeout: visitLimitMs,
  });
  outgoing.once('response', (incoming) => answered.resolve([incoming, outgoing]));
  outgoing.on('error', answered.reject);
  outgoing.once('timeout', () => outgoing.destroy(new Error('No answer in time.')));
  outgoing.end(options.body);
  return answered.promise;
}

export async function visit(server: string, url: string, options: VisitOptions = {}): Promise<Visit> {
  const [incoming] = await openVisit(server, url, options);
  const chunks: Buffer[] = [];
  for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
  return { status: incoming.statusCode!, headers: incoming.headers, text: Buffer.concat(chunks).toString() };
}

/** Runs a Python program inside that says `ready` when it listens. */
export async function startService(sandbox: Sandbox, program: string): Promise<Process> {
  const process = await sandbox.processes.start(['python3', '-uc', program]);
  await process.waitForLog('ready', { timeoutMs: visitLimitMs });
  return process;
}
