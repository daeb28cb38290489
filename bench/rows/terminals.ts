/** From a key to its echo: over the WebSocket, beside a plain WebSocket that echoes, in the same process. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { againstLimit, againstPeer, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';
import { startPlatform } from '../start.ts';

const rounds = 500;
/** What design asks for on one machine. */
const echoMs = 1;

export const terminalsRow: Row = {
  name: 'terminals',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const sandbox = await platform.client.sandboxes.create();
    const terminal = await sandbox.terminals.open({ command: ['sh', '-c', 'stty raw -echo; echo ready; exec cat'] });
    terminal.close(); // Only to have it made: what is measured is a WebSocket of its own.
    const path = `/v1/sandboxes/${sandbox.id}/terminals/${terminal.id}/attach`;
    const headers = { authorization: `Bearer ${platform.key}` };
    const ours = await connect(scope, `${platform.server.url}${path}`, headers);
    await ours.until((text) => text.includes('ready'));
    const plain = await connect(scope, await startEcho(scope), {});
    const variants = { ours: () => ours.key(), plain: () => plain.key() };
    const samples = await interleave(variants, { rounds, warmups: 50 });
    const echo = figure('key → echo in a terminal', samples.ours);
    return [
      againstLimit(echo, { atMost: echoMs }),
      againstPeer(echo, figure('a WebSocket that echoes', samples.plain)),
    ];
  },
};

interface Line {
  until(isDone: (text: string) => boolean): Promise<void>;
  /** How long the echo of one key takes. */
  key(): Promise<number>;
}

async function connect(scope: Scope, url: string, headers: Readonly<Record<string, string>>): Promise<Line> {
  const socket = new WebSocket(url.replace(/^http/, 'ws'), { headers });
  scope.stack.defer(() => socket.terminate());
  let text = '';
  let wake = () => {};
  socket.on('message', (data: Buffer, isBinary) => {
    if (isBinary) text += data.toString('latin1');
    wake();
  });
  const until = async (isDone: (text: string) => boolean) => {
    while (!isDone(text)) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  await once(socket, 'open');
  return {
    until,
    key: async () => {
      text = '';
      const startedAt = performance.now();
      socket.send(Buffer.from('x'));
      await until((seen) => seen.includes('x'));
      return performance.now() - startedAt;
    },
  };
}

async function startEcho(scope: Scope): Promise<string> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  scope.stack.defer(() => server.close());
  server.on('connection', (socket) => socket.on('message', (data, binary) => socket.send(data, { binary })));
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
