/** What every NodeApi keeps about ports, called directly or over HTTP. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import {
  type NodeApi,
  type NodeProcess,
  type NodeSandbox,
  newId,
  type OpenPortOrder,
  portLimits,
} from '../../src/protocol/index.ts';
import { patience } from '../support/crashes.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder } from '../support/node-orders.ts';

/** Says who it is, then gives back what it is sent, and ends when that ends. */
const greeter = (port: number, address: string) => `
import socket, threading
def serve(peer):
    peer.sendall(b'hello from ${address} ')
    while True:
        data = peer.recv(65536)
        if not data: break
        peer.sendall(data)
    peer.sendall(b' goodbye')
    peer.close()
family = socket.AF_INET6 if ':' in '${address}' else socket.AF_INET
server = socket.socket(family, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if family == socket.AF_INET6: server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, ${address.includes('::ffff:') ? 0 : 1})
server.bind(('${address}', ${port}))
server.listen(2000)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()`;

export function nodePortsContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let sandbox: NodeSandbox;
  const node = (): NodeApi => harness.node;
  const never = new AbortController().signal;
  const addresses = ['127.0.0.1', '0.0.0.0', '::1', '::', '127.0.0.2', '::ffff:127.0.0.3'];
  const portOf = (address: string) => 4_000 + addresses.indexOf(address);

  const life = () => ({ sandboxId: sandbox.mark.sandboxId, generation: sandbox.generation });
  const connect = async (order: Partial<OpenPortOrder>, signal = never) =>
    (await node().openPort({ ...life(), port: 4_000, ...order }, signal)) as unknown as Duplex;

  /** Starts a program, and waits until it listens on the port. */
  async function serve(port: number, program: string): Promise<NodeProcess> {
    const process = await node().startProcess({
      ...life(),
      ...{ processId: newId('process'), name: null, leaseToken: null, command: ['python3', '-c', program], cwd: null },
      ...{ env: {}, user: null, stdinOpen: false, timeoutMs: null, graceMs: 0, keepBytes: 65_536, autoCleanup: false },
    });
    await vi.waitFor(async () => expect(await portsListed()).toContain(port), patience);
    return process;
  }
  const portsListed = async () => (await node().listPorts(life())).map(({ port }) => port);
  const kill = ({ processId }: NodeProcess) =>
    node().signalProcess({ ...life(), process: processId, leaseToken: null, signal: 9, target: 'tree', graceMs: null });

  beforeAll(async () => {
    harness = await open();
    sandbox = await node().createSandbox(createOrder());
    for (const address of addresses) await serve(portOf(address), greeter(portOf(address), address));
  });
  afterAll(() => harness?.close());

  test('what listens is listed, with address and process, and nothing else is', async () => {
    const listed = await node().listPorts(life());
    const names = { '::ffff:127.0.0.3': '::ffff:7f00:3' } as Record<string, string>;
    expect(listed).toEqual(
      addresses.map((address) => ({
        port: portOf(address),
        family: address.includes(':') ? 6 : 4,
        address: names[address] ?? address,
        pid: expect.any(Number),
        processName: expect.stringMatching(/^python3/),
      })),
    );
  });

  test('a process may call itself anything, and is listed with letters only', async () => {
    const process = await serve(
      4100,
      `import socket, time
open('/proc/self/comm', 'w').write('a\\x1b\\nb')
s = socket.create_server(('127.0.0.1', 4100))
time.sleep(10000)`,
    );
    const listed = await node().listPorts(life());
    expect(listed.find(({ port }) => port === 4100)).toMatchObject({ pid: process.pid, processName: 'a??b' });
    await kill(process);
    await expect.poll(portsListed, patience).not.toContain(4100);
  });

  for (const address of addresses) {
    test(`a service on ${address} is reached, and each direction ends on its own`, async () => {
      const connection = await connect({ port: portOf(address) });
      let text = '';
      connection.on('data', (chunk) => {
        text += chunk;
      });
      connection.end('back and forth');
      await once(connection, 'end');
      expect(text).toBe(`hello from ${address} back and forth goodbye`);
    });
  }

  test('a service that has ended what it says still hears', async () => {
    await serve(
      4170,
      `import socket
server = socket.create_server(('127.0.0.1', 4170))
peer = server.accept()[0]
peer.sendall(b'that is all')
peer.shutdown(socket.SHUT_WR)
heard = b''
while data := peer.recv(100): heard += data
if heard == b'late words': socket.create_server(('127.0.0.1', 4171)).accept()`,
    );
    const connection = await connect({ port: 4170 });
    expect(Buffer.concat(await once(connection, 'data')).toString()).toBe('that is all');
    await once(connection.resume(), 'end');
    connection.end('late words');
    await expect.poll(portsListed, patience).toContain(4171);
  });

  test('where nothing listens the connection is refused, on a port of any kind', async () => {
    // A port from which connections are made could be connected with itself.
    for (const port of [1, 9, 40_000, 65_535]) {
      await expect(connect({ port })).rejects.toMatchObject({ code: 'port_not_open', details: { port } });
    }
  });

  test('an order for another life, or for none, is refused', async () => {
    await expect(connect({ generation: 2 })).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    await expect(connect({ sandboxId: newId('sandbox') })).rejects.toMatchObject({ code: 'sandbox_not_found' });
    await expect(node().listPorts({ ...life(), generation: 2 })).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  });

  test('a connection that is cut inside ends here', async () => {
    const process = await serve(4150, greeter(4150, '127.0.0.1'));
    const connection = await connect({ port: 4150 });
    await once(connection, 'data');
    connection.resume();
    const over = Promise.race([once(connection, 'end'), once(connection, 'close')]);
    await kill(process);
    await over;
    connection.destroy();
  });

  test('the answer of a service that breaks off while it is sent to arrives', async () => {
    await serve(
      4180,
      `import socket
server = socket.create_server(('127.0.0.1', 4180))
while True:
    peer = server.accept()[0]
    peer.recv(1)
    peer.sendall(b'a' * 32768)
    peer.close()`,
    );
    for (let i = 0; i < 20; i++) {
      const connection = await connect({ port: 4180 });
      connection.on('error', () => {});
      let received = 0;
      connection.on('data', (chunk: Buffer) => {
        received += chunk.byteLength;
      });
      const over = new Promise((resolve) => connection.once('end', resolve).once('close', resolve));
      connection.write(Buffer.alloc(16 * 1024 * 1024));
      await over;
      expect(received).toBe(32_768);
      connection.destroy();
    }
  });

  test('whoever talks on to a service that is gone is cut', async () => {
    const process = await serve(4190, greeter(4190, '127.0.0.1'));
    const connection = await connect({ port: 4190 });
    await once(connection, 'data');
    let isCut = false;
    connection.resume().on('error', () => {});
    connection.once('close', () => {
      isCut = true;
    });
    await kill(process);
    const talk = () => {
      if (connection.writable) connection.write('more');
      return isCut;
    };
    await expect.poll(talk, patience).toBe(true);
  });

  test('a connection that is cut here ends inside', async () => {
    await serve(
      4160,
      `import socket
server = socket.create_server(('127.0.0.1', 4160))
peer = server.accept()[0]
peer.sendall(b'x')
try: peer.recv(1)
except OSError: pass
socket.create_server(('127.0.0.1', 4161)).accept()`,
    );
    const connection = await connect({ port: 4160 });
    await once(connection, 'data');
    connection.destroy();
    await expect.poll(portsListed, patience).toContain(4161);
  });

  test('a slow reader holds the writer back, and gets everything', async () => {
    await serve(
      4200,
      `import socket
server = socket.create_server(('127.0.0.1', 4200))
while True:
    peer = server.accept()[0]
    for i in range(64): peer.sendall(bytes([i]) * (1 << 20))
    peer.close()`,
    );
    const connection = await connect({ port: 4200 });
    let received = 0;
    for await (const chunk of connection as AsyncIterable<Buffer>) {
      // Every byte tells which mebibyte it belongs to.
      expect(chunk.at(0)).toBe(received >> 20);
      received += chunk.byteLength;
      expect(chunk.at(-1)).toBe((received - 1) >> 20);
    }
    expect(received).toBe(64 << 20);
  });

  test('an attempt that is given up, or that is beyond the limit, leaves nothing behind', async () => {
    await expect(connect({}, AbortSignal.abort())).rejects.toMatchObject({ code: expect.any(String) });
    // Never looks at who comes: the kernel takes them in.
    const waiting =
      "import socket, time\ns = socket.create_server(('127.0.0.1', 4300), backlog=2000)\ntime.sleep(10000)";
    await serve(4300, waiting);
    const one = () => connect({ port: 4300 });
    const all: Duplex[] = [];
    while (all.length < portLimits.connections) all.push(await one());
    await expect(one()).rejects.toMatchObject({ code: 'limit_exceeded' });
    for (const connection of all) connection.destroy();
    const isOpened = () =>
      one().then(
        (connection) => connection.destroy().destroyed,
        () => false,
      );
    await expect.poll(isOpened, patience).toBe(true);
  });

  test('the end of the sandbox ends its connections', async () => {
    const connection = await connect({});
    connection.resume();
    const over = Promise.race([once(connection, 'end'), once(connection, 'close')]);
    await node().stopSandbox({ ...life(), graceMs: 0 });
    await over;
    await expect(connect({})).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  });
}
