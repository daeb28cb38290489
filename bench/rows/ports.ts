/** Requests through a preview, by host name and by path, against a plain proxy in Node before the same service. */
import { previewToken } from '../../src/protocol/index.ts';
import { againstPeer, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlatform } from '../start.ts';
import { Worker } from '../worker.ts';

const clients = 16;
const spellMs = 2_000;
const rounds = 5;
/** Inside the sandbox; the peer's takes any free one. */
const port = 8080;
/** A preview gets at least 0.4 times as many requests done. */
const timesAtMost = 2.5;

interface Spell {
  readonly done: number;
  readonly seconds: number;
}

/** Answers every request with the same few bytes, as fast as Python does, and prints its port. */
const service = (wanted: number) => `
import asyncio
answer = b'HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: 12\\r\\n\\r\\nhello world\\n'
class Service(asyncio.Protocol):
    def connection_made(self, transport): self.transport, self.held = transport, b''
    def data_received(self, data):
        *whole, self.held = (self.held + data).split(b'\\r\\n\\r\\n')
        self.transport.write(answer * len(whole))
async def main():
    server = await asyncio.get_running_loop().create_server(Service, '127.0.0.1', ${wanted})
    print(server.sockets[0].getsockname()[1])
    await server.serve_forever()
asyncio.run(main())`;

export const portsRow: Row = {
  name: 'ports',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const sandbox = await platform.client.sandboxes.create();
    const process = await sandbox.processes.start(['python3', '-uc', service(port)]);
    await process.waitForPort(port, { timeoutMs: 30_000 });
    const exposure = await sandbox.ports.expose(port);
    const peer = Worker.start(scope, 'plain-proxy.ts');
    const peerUrl = await peer.run<string>('open', { program: service(0) });
    const load = Worker.start(scope, 'get-load.ts');
    const spell = (target: { url: string; path: string; headers: Record<string, string> }) => () =>
      load.run<Spell>('many', { target, clients, ms: spellMs });
    const { url } = platform.server;
    const headers = { [previewToken.header]: exposure.token };
    const spells = await interleave<'host' | 'path' | 'peer', Spell>(
      {
        host: spell({ url, path: '/', headers: { ...headers, Host: new URL(exposure.url).host } }),
        path: spell({ url, path: new URL(exposure.pathUrl).pathname, headers }),
        peer: spell({ url: peerUrl, path: '/', headers: {} }),
      },
      { rounds, warmups: 1 },
    );
    // The time between two answers: its ratio is that of the requests a second, turned over.
    const each = (list: readonly Spell[]) => list.map(({ done, seconds }) => (seconds * 1_000) / done);
    const proxy = figure('a plain proxy in Node', each(spells.peer));
    const notes = [`${clients} clients; "≤ ${timesAtMost}×" is at least ${1 / timesAtMost} times as many a second.`];
    return [
      againstPeer(figure('a request through a preview, by host name', each(spells.host)), proxy, {
        atMost: timesAtMost,
        notes,
      }),
      againstPeer(figure('a request through a preview, by path', each(spells.path)), proxy, { atMost: timesAtMost }),
    ];
  },
};
