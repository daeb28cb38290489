/**
 * A listener on this machine's loopback address, each connection of which goes through the server to a port in a sandbox. Each direction of
 * a connection ends on its own, and one that fails inside is cut here.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { joinStreams } from '../base/index.ts';
import { CliError } from './cli-error.ts';
import { exitCodes } from './exit-codes.ts';

export interface TunnelOptions {
  /** 0: any free one. */
  readonly localPort: number;
  /** What to send to have one connection to the port inside. */
  readonly request: () => { readonly url: string; readonly headers: Readonly<Record<string, string>> };
  /** Of one connection; the others go on. */
  readonly onFailure: (message: string) => void;
}

export interface Tunnel {
  readonly host: string;
  readonly port: number;
  close(): Promise<void>;
}

const host = '127.0.0.1';
const connectionsMax = 1_000;
const refusalMaxBytes = 64 * 1024;

export async function openTunnel(options: TunnelOptions): Promise<Tunnel> {
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (local) => {
    open.add(local);
    local.on('error', () => {});
    local.once('close', () => open.delete(local));
    carry(local, options).catch((error: unknown) => {
      if (!local.destroyed) options.onFailure(error instanceof Error ? error.message : String(error));
      local.resetAndDestroy();
    });
  });
  server.maxConnections = connectionsMax;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(notListening(error, options.localPort)));
    server.listen({ host, port: options.localPort }, resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    host,
    port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        // Cut, not ended: what has not come through must not look whole.
        for (const local of open) local.resetAndDestroy();
      }),
  };
}

async function carry(local: Socket, options: TunnelOptions): Promise<void> {
  const { url, headers } = options.request();
  const answered = Promise.withResolvers<Duplex>();
  const send = url.startsWith('https:') ? httpsRequest : httpRequest;
  const outgoing = send(url, { agent: false, headers });
  local.once('close', () => outgoing.destroy());
  outgoing.once('socket', (socket) => {
    // The end of what comes from inside leaves what goes there open.
    socket.allowHalfOpen = true;
  });
  outgoing.once('upgrade', (_response, remote, head) => {
    if (head.byteLength > 0) remote.unshift(head);
    answered.resolve(remote);
  });
  outgoing.once('response', (response) => void readRefusal(response).then(answered.reject, answered.reject));
  outgoing.on('error', answered.reject);
  outgoing.end();
  const remote = await answered.promise;
  joinStreams(local, remote);
}

async function readRefusal(response: IncomingMessage): Promise<Error> {
  let text = '';
  for await (const chunk of response as AsyncIterable<Buffer>) {
    text += chunk;
    if (text.length > refusalMaxBytes) break;
  }
  try {
    return new Error((JSON.parse(text) as { error: { message: string } }).error.message);
  } catch {
    return new Error(`The server answered with status ${response.statusCode}, which no Atoll server does here.`);
  }
}

function notListening(error: NodeJS.ErrnoException, port: number): CliError {
  const isTaken = error.code === 'EADDRINUSE';
  const message = isTaken ? `Port ${port} of this machine is taken.` : `Cannot listen here: ${error.message}.`;
  const hint = 'Choose another one, or 0 for any that is free: atoll tunnel SANDBOX 0:PORT';
  return new CliError(message, { exitCode: exitCodes.notNow, code: isTaken ? 'port_taken' : 'cannot_listen', hint });
}
