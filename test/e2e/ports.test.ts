/** Ports and tunnels through the SDK and the command line, with the node in a process of its own. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { WebSocket } from 'ws';
import type { Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { openVisit, startService, visit } from '../support/preview-rig.ts';
import { goodService } from '../support/preview-services.ts';
import { touch } from '../support/processes.ts';
import { programPath } from '../support/program-path.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('python3'));
/** For tests that start the command line, which takes its time on a busy machine. */
const slow = { timeout: 180_000 };
const cli = programPath('src/cli/main.ts');

let platform: Platform;
let sandbox: Sandbox;
const children: ChildProcessWithoutNullStreams[] = [];

beforeAll(async () => {
  platform = await Platform.start({ node: 'process' });
  sandbox = await platform.client.sandboxes.create({ name: 'served' });
  for (const [port, address] of [
    [3000, '127.0.0.1'],
    [3001, '::1'],
    [3002, '127.0.0.2'],
  ] as const) {
    await startService(sandbox, goodService(port, address));
  }
});
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
});
afterAll(() => platform.close());

test('what listens is listed with its process, and what is exposed beside it', async () => {
  await sandbox.ports.expose(3000);
  await sandbox.ports.expose(4444, { public: true });
  const { listening, exposed } = await sandbox.ports.list();
  expect(listening).toMatchObject([
    { port: 3000, family: 4, address: '127.0.0.1', processName: expect.stringMatching(/^python3/) },
    { port: 3001, family: 6, address: '::1' },
    { port: 3002, family: 4, address: '127.0.0.2' },
  ]);
  const pids = (await sandbox.processes.list()).items.map(({ pid }) => pid);
  expect(listening.every(({ pid }) => pids.includes(pid!))).toBe(true);
  const { host } = new URL(platform.server.url);
  expect(exposed).toEqual([
    {
      ...{ sandboxId: sandbox.id, port: 3000, public: false, createdAt: expect.any(String) },
      url: `http://3000-${sandbox.id}.localhost:${new URL(platform.server.url).port}/`,
      pathUrl: `http://${host}/preview/${sandbox.id}/3000/`,
    },
    expect.objectContaining({ port: 4444, public: true }),
  ]);
  expect(JSON.stringify(exposed)).not.toContain('atoll_prv');
  await sandbox.ports.unexpose(4444);
});

test('E125: services on any address inside are seen, also where the node is another process', async () => {
  for (const port of [3000, 3001, 3002]) {
    const { url, token } = await sandbox.ports.expose(port);
    const seen = await visit(platform.server.url, url, { headers: { 'Atoll-Preview-Token': token } });
    expect(JSON.parse(seen.text)).toMatchObject({
      url: '/',
      address: port === 3001 ? '::1' : expect.stringMatching(/^127/),
    });
  }
});

test('E125: events and WebSockets are carried where the node is another process, and a visitor that leaves is gone inside', async () => {
  await startService(sandbox, goodService(3005));
  const { url, token } = await sandbox.ports.expose(3005);
  const headers = { 'Atoll-Preview-Token': token };
  const go = `/tmp/${randomUUID()}`;
  const [stream] = await openVisit(platform.server.url, `${url}events?until=${go}`, { headers });
  const chunks = stream.setEncoding('utf8')[Symbol.asyncIterator]();
  expect((await chunks.next()).value).toBe('data: first\n\n');
  await touch(sandbox, go);
  expect((await chunks.next()).value).toBe('data: second\n\n');
  // A server that stops waits for whoever still reads.
  stream.destroy();
  const socket = new WebSocket(`${platform.server.url.replace('http:', 'ws:')}/socket`, {
    headers: { ...headers, Host: new URL(url).host },
  });
  expect(String((await once(socket, 'message'))[0])).toBe('hello from inside');
  const established = async () =>
    Number((await sandbox.exec(`awk '$2 ~ /:0BBD$/ && $4 == "01"' /proc/net/tcp | wc -l`)).stdout);
  expect(await established()).toBe(1);
  socket.terminate();
  await expect.poll(established, patience).toBe(0);
});

test('E131: after previews, lists and tunnels there is no session and no shell', async () => {
  const { url, token } = await sandbox.ports.expose(3000);
  expect((await visit(platform.server.url, url, { headers: { 'Atoll-Preview-Token': token } })).status).toBe(200);
  await sandbox.ports.list();
  const running = (await sandbox.processes.list()).items;
  expect(running.map(({ view }) => view.sessionId)).toEqual(running.map(() => null));
  const names = (await sandbox.exec(['cat', '/proc/self/comm'])).stdout;
  expect(names).toBe('cat\n');
  const shells = await sandbox.exec(['pgrep', '-x', '(ba|da|)sh']);
  expect(shells).toMatchObject({ exitCode: 1, stdout: '' });
});

interface TunnelProcess {
  readonly port: number;
  readonly child: ChildProcessWithoutNullStreams;
  readonly stderr: () => string;
}

async function startTunnel(ports: string): Promise<TunnelProcess> {
  const env = { ...process.env, ATOLL_DATA: join(platform.dataDirectory, 'server') };
  const child = spawn(process.execPath, [cli, '--json', 'tunnel', 'served', ports], { env });
  children.push(child);
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { port: (JSON.parse(line) as { port: number }).port, child, stderr: () => said };
}

function dial(port: number): Socket {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  socket.on('error', () => {});
  return socket;
}

test(
  'a tunnel carries many connections at once, each to its own end, and Ctrl-C ends it',
  async () => {
    const tunnel = await startTunnel('0:3000');
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => visit(`http://127.0.0.1:${tunnel.port}`, `/${i}`)),
    );
    expect(answers.map(({ text }) => (JSON.parse(text) as { url: string }).url)).toEqual(
      Array.from({ length: 20 }, (_, i) => `/${i}`),
    );
    const body = randomBytes(8 * 1024 * 1024);
    const sent = await visit(`http://127.0.0.1:${tunnel.port}`, '/hash', { method: 'POST', body });
    expect(JSON.parse(sent.text)).toMatchObject({ sha256: createHash('sha256').update(body).digest('hex') });
    const open = dial(tunnel.port);
    await once(open, 'connect');
    const cut = new Promise((resolve) => open.resume().once('close', resolve));
    tunnel.child.kill('SIGINT');
    const [code] = (await once(tunnel.child, 'exit')) as [number];
    expect(code).toBe(0);
    await cut;
    expect(tunnel.stderr()).toBe('');
  },
  slow,
);

test(
  'each direction of a tunnel ends on its own',
  async () => {
    await startService(
      sandbox,
      `import socket
server = socket.create_server(('127.0.0.1', 3010))
print('ready')
while True:
    peer = server.accept()[0]
    text = b''
    while data := peer.recv(1000): text += data
    peer.sendall(text.upper())
    peer.close()`,
    );
    const tunnel = await startTunnel('0:3010');
    const socket = dial(tunnel.port);
    let heard = '';
    socket.on('data', (chunk) => {
      heard += chunk;
    });
    socket.end('all of it');
    await once(socket, 'end');
    expect(heard).toBe('ALL OF IT');
  },
  slow,
);

test(
  'a tunnel to a port where nothing listens says so and cuts the connection; the tunnel goes on',
  async () => {
    const tunnel = await startTunnel('0:3999');
    await new Promise((resolve) => dial(tunnel.port).once('close', resolve));
    await expect.poll(tunnel.stderr, patience).toContain('Nothing in the sandbox answers at port 3999');
    await startService(sandbox, goodService(3999));
    expect((await visit(`http://127.0.0.1:${tunnel.port}`, '/x')).status).toBe(200);
  },
  slow,
);

test(
  'a local port that is taken, and a sandbox that is not there, are said before anything is opened',
  async () => {
    const first = await startTunnel('0:3000');
    const taken = await platform.cli('tunnel', 'served', `${first.port}:3000`);
    expect(taken).toMatchObject({ code: 75, stdout: '' });
    expect(taken.stderr).toContain(`Port ${first.port} of this machine is taken`);
    expect((await platform.cli('tunnel', 'nobody', '0:3000')).code).toBe(66);
    expect((await platform.cli('tunnel', 'served', '0:0')).code).toBe(64);
  },
  slow,
);

test('a tunnel needs a key that may run commands in this sandbox', async () => {
  const request = sandbox.ports.connectRequest(3000);
  const tryWith = (key: string) =>
    visit(platform.server.url, request.url, { headers: { ...request.headers, Authorization: `Bearer ${key}` } });
  const { keys, sandboxes } = platform.client;
  const reader = await keys.create({ name: 'reader', scopes: ['sandboxes:read'] });
  expect((await tryWith(reader.key)).status).toBe(403);
  expect((await tryWith(`atoll_${'0'.repeat(40)}`)).status).toBe(401);
  const other = await sandboxes.create();
  const { connection } = platform.client;
  const token = await fetch(`${connection.url}/v1/sandboxes/${other.id}/tokens`, {
    method: 'POST',
    headers: { ...connection.authorization(), 'Content-Type': 'application/json' },
    body: JSON.stringify({ name: 't', scopes: ['sandboxes:exec'], expiresInMs: 60_000 }),
  });
  const { key } = (await token.json()) as { key: string };
  expect((await tryWith(key)).status).toBe(403);
  await other.delete();
});

test(
  'the command line lists, exposes, opens, rotates and unexposes',
  async () => {
    const run = async (...words: string[]) => {
      const { code, stdout, stderr } = await platform.cli(...words);
      expect(stderr).toBe('');
      expect(code).toBe(0);
      return stdout;
    };
    const exposed = JSON.parse(await run('--json', 'ports', 'expose', 'served', '3000'));
    expect(exposed).toMatchObject({ port: 3000, public: false });
    expect(await run('ports', 'served')).toMatch(/3000 +127\.0\.0\.1 +\d+ python3\S* +http:\/\/3000-sbx/);
    const url = (await run('open', 'served', '3000')).trim();
    expect(url).toBe(`${exposed.url}?atoll_preview_token=${exposed.token}`);
    expect((await visit(platform.server.url, url)).status).toBe(200);
    const rotated = JSON.parse(await run('--json', 'ports', 'rotate', 'served', '3000'));
    expect(rotated.token).not.toBe(exposed.token);
    expect((await visit(platform.server.url, url)).status).toBe(401);
    expect(await run('ports', 'expose', 'served', '3000', '--public')).toMatch(/\npublic\n$/);
    expect((await run('open', 'served', '3000')).trim()).toBe(exposed.url);
    await run('ports', 'unexpose', 'served', '3000');
    await run('ports', 'unexpose', 'served', '3000');
    expect((await platform.cli('ports', 'rotate', 'served', '3000')).code).toBe(66);
    expect((await platform.cli('ports', 'expose', 'served', '70000')).code).toBe(64);
  },
  slow,
);
