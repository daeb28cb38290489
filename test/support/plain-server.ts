/** A server of Node on loopback that answers as a test says; gone at the end of the test's scope. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface PlainServer extends AsyncDisposable {
  readonly url: string;
  /** Every connection that was made to it. */
  readonly sockets: readonly Socket[];
}

export async function openPlainServer(listener: RequestListener): Promise<PlainServer> {
  const sockets: Socket[] = [];
  const server = createServer(listener);
  server.on('connection', (socket) => sockets.push(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    sockets,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
