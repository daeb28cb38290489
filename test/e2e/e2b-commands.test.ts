/** Commands through the official E2B SDK: what they print, how they end, who runs them, and who hears of it. */
import { CommandExitError, Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { envelope } from '../../src/server/e2b/envd/envelopes.ts';
import { decodeMessage, encodeMessage } from '../../src/server/e2b/envd/messages.ts';
import { agentHeaders, type E2bRig, openE2b } from '../support/e2b-rig.ts';

let rig: E2bRig;
let sandbox: Sandbox;
const limitMs = 120_000;
const patience = { timeout: 30_000, interval: 50 };

beforeAll(async () => {
  rig = await openE2b({ envs: { FROM_CREATE: 'create', BOTH: 'create' } });
  sandbox = rig.sandbox;
}, limitMs);
afterAll(() => rig?.close(), limitMs);

const stdinOf = (text: string) => ({ data: { input: { stdin: Buffer.from(text).toString('base64') } } });
const isAlive = async (pid: number) => (await sandbox.commands.run(`kill -0 ${pid} 2>&1 || true`)).stdout === '';

test(
  'a command runs as the user of the template, in its home, with what it prints on both streams',
  async () => {
    const result = await sandbox.commands.run('whoami; pwd; echo "$HOME $USER $E2B_SANDBOX" >&2');
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'user\n/home/user\n',
      stderr: '/home/user user true\n',
    });
    const heard: string[] = [];
    await sandbox.commands.run('echo one; echo two', {
      onStdout: (text) => {
        heard.push(text);
      },
    });
    expect(heard.join('')).toBe('one\ntwo\n');
    const large = await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x');
    expect(large.stdout).toBe('x'.repeat(3_000_000));
  },
  limitMs,
);

test(
  'user, directory and environment are as asked for, and what cannot be is refused',
  async () => {
    const asRoot = await sandbox.commands.run('whoami; pwd', { user: 'root', cwd: '/tmp' });
    expect(asRoot.stdout).toBe('root\n/tmp\n');
    const inHome = await sandbox.commands.run('mkdir -p below && cd below && pwd');
    expect(inHome.stdout).toBe('/home/user/below\n');
    expect((await sandbox.commands.run('pwd', { cwd: 'below' })).stdout).toBe('/home/user/below\n');
    expect((await sandbox.commands.run('pwd', { cwd: '~/below' })).stdout).toBe('/home/user/below\n');

    const envs = { BOTH: 'call', MINE: 'ä "b" $c' };
    const printed = await sandbox.commands.run('echo "$FROM_CREATE|$BOTH|$MINE"', { envs });
    expect(printed.stdout).toBe('create|call|ä "b" $c\n');
    expect((await sandbox.commands.run('echo "$BOTH|$MINE"')).stdout).toBe('create|\n');

    await expect(sandbox.commands.run('true', { user: 'nobody-here' })).rejects.toMatchObject({
      name: 'AuthenticationError',
    });
    await expect(sandbox.commands.run('true', { cwd: '/not/there' })).rejects.toMatchObject({
      name: 'InvalidArgumentError',
      message: expect.stringContaining("cwd '/not/there' does not exist"),
    });
  },
  limitMs,
);

test(
  'a command that fails or is killed says how',
  async () => {
    const failed = await sandbox.commands.run('echo out; echo err >&2; exit 7').catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(CommandExitError);
    expect(failed).toMatchObject({ exitCode: 7, stdout: 'out\n', stderr: 'err\n', error: 'exit status 7' });

    const handle = await sandbox.commands.run('sleep 1000 & sleep 1000', { background: true });
    expect(await isAlive(handle.pid)).toBe(true);
    const ended = handle.wait().catch((error: unknown) => error);
    expect(await handle.kill()).toBe(true);
    expect(await ended).toMatchObject({ exitCode: -1, error: 'signal: killed' });
    // With everything it started, and reaped.
    await expect.poll(() => isAlive(handle.pid), patience).toBe(false);
    await expect.poll(async () => (await sandbox.commands.run('pgrep -x sleep || true')).stdout, patience).toBe('');
    expect(await sandbox.commands.kill(handle.pid)).toBe(false);
  },
  limitMs,
);

test(
  'what is written to its input arrives, and its end too',
  async () => {
    const handle = await sandbox.commands.run('cat; echo done', { background: true, stdin: true });
    await sandbox.commands.sendStdin(handle.pid, 'first ');
    await sandbox.commands.sendStdin(handle.pid, 'ä\n');
    await sandbox.commands.closeStdin(handle.pid);
    expect((await handle.wait()).stdout).toBe('first ä\ndone\n');
    // Many writes in one call, as other clients make them.
    const other = await sandbox.commands.run('cat', { background: true, stdin: true });
    const messages = [{ start: { process: { pid: other.pid } } }, ...['a', 'b'].map(stdinOf), { keepalive: {} }];
    const streamed = await fetch(`${rig.platform.server.url}/process.Process/StreamInput`, {
      method: 'POST',
      headers: { ...agentHeaders(sandbox), 'Content-Type': 'application/connect+json' },
      body: new Uint8Array(Buffer.concat(messages.map((one) => envelope(0, Buffer.from(JSON.stringify(one)))))),
    });
    expect(await streamed.text()).not.toContain('error');
    await sandbox.commands.closeStdin(other.pid);
    expect((await other.wait()).stdout).toBe('ab');
    // Without an input there is nothing to read.
    expect((await sandbox.commands.run('cat; echo "end $?"')).stdout).toBe('end 0\n');
    await expect(sandbox.commands.sendStdin(999_999, 'x')).rejects.toMatchObject({ name: 'NotFoundError' });
  },
  limitMs,
);

test(
  'a process goes on without its reader; whoever connects hears what comes from then on, and late ones its end',
  async () => {
    const handle = await sandbox.commands.run('echo before; read line; echo "after $line"; exit 3', {
      background: true,
      stdin: true,
      envs: { SHOWN: 'yes' },
    });
    await expect.poll(() => handle.stdout, patience).toBe('before\n');
    await handle.disconnect();

    const listed = await sandbox.commands.list();
    expect(listed.find(({ pid }) => pid === handle.pid)).toMatchObject({
      cmd: '/bin/bash',
      args: ['-l', '-c', 'echo before; read line; echo "after $line"; exit 3'],
      envs: { SHOWN: 'yes' },
    });
    // It is an ordinary process of the platform.
    const own = await rig.platform.cli('ps', sandbox.sandboxId, '--json');
    expect(own.stdout).toContain(`"pid":${handle.pid}`);

    const again = await sandbox.commands.connect(handle.pid);
    await sandbox.commands.sendStdin(handle.pid, 'x\n');
    expect(await again.wait().catch((error: unknown) => error)).toMatchObject({ exitCode: 3, stdout: 'after x\n' });
    expect((await sandbox.commands.list()).map(({ pid }) => pid)).not.toContain(handle.pid);
    const late = await sandbox.commands.connect(handle.pid);
    expect(await late.wait().catch((error: unknown) => error)).toMatchObject({ exitCode: 3, stdout: '' });
    await expect(sandbox.commands.connect(999_999)).rejects.toMatchObject({ name: 'NotFoundError' });
  },
  limitMs,
);

test(
  'the time of a command ends the command too',
  async () => {
    const started = sandbox.commands.run('echo $$ > /tmp/pid; sleep 1000', { timeoutMs: 2_000 });
    await expect(started).rejects.toMatchObject({ name: 'TimeoutError' });
    const pid = Number(await sandbox.files.read('/tmp/pid'));
    expect(pid).toBeGreaterThan(0);
    await expect.poll(() => isAlive(pid), patience).toBe(false);
  },
  limitMs,
);

test(
  'the same calls in binary protobuf, and what is no call',
  async () => {
    const headers = agentHeaders(sandbox);
    const url = rig.platform.server.url;
    const config = { cmd: '/bin/sh', args: ['-c', 'printf hello; exit 2'], envs: {}, cwd: '/tmp' };
    const start = encodeMessage('process.StartRequest', { process: config, stdin: false, tag: 'tagged' }, 'proto');
    const answer = await fetch(`${url}/process.Process/Start`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/connect+proto' },
      body: new Uint8Array(envelope(0, start)),
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    const events: unknown[] = [];
    let end = '';
    for (let at = 0; at < bytes.length; ) {
      const length = bytes.readUInt32BE(at + 1);
      const payload = bytes.subarray(at + 5, at + 5 + length);
      if (bytes[at] === 2) end = payload.toString();
      else events.push(decodeMessage('process.EventResponse', payload, 'proto')['event']);
      at += 5 + length;
    }
    expect(events).toEqual([
      { start: { pid: expect.any(Number) } },
      { data: { stdout: Buffer.from('hello').toString('base64') } },
      { end: { exitCode: 2, exited: true, status: 'exit status 2', error: 'exit status 2' } },
    ]);
    expect(end).toBe('{}');

    const list = await fetch(`${url}/process.Process/List`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/proto' },
    });
    expect(list.status).toBe(200);
    const unary = (path: string, body: string, more: Record<string, string> = {}) =>
      fetch(url + path, { method: 'POST', body, headers: { ...headers, 'Content-Type': 'application/json', ...more } });
    expect((await unary('/process.Process/List', '{}', { 'Content-Type': 'text/plain' })).status).toBe(415);
    const unknown = await unary('/process.Process/SendSignal', '{"process":{"pid":1},"signal":"SIGNAL_UNSPECIFIED"}');
    expect([unknown.status, ((await unknown.json()) as { code: string }).code]).toEqual([501, 'unimplemented']);
    const broken = await unary('/process.Process/Update', '{"process":');
    expect([broken.status, ((await broken.json()) as { code: string }).code]).toEqual([400, 'invalid_argument']);
    // The token is what opens it.
    expect((await unary('/process.Process/List', '{}')).status).toBe(200);
    expect((await unary('/process.Process/List', '{}', { 'X-Access-Token': 'wrong' })).status).toBe(401);
  },
  limitMs,
);

test(
  'what the sandbox uses and sets is told, and whether it lives without a token',
  async () => {
    const { 'X-Access-Token': token, ...headers } = agentHeaders(sandbox);
    const get = (path: string, more: Record<string, string> = {}) =>
      fetch(rig.platform.server.url + path, { headers: { ...headers, ...more } });
    expect((await get('/health')).status).toBe(204);
    expect([(await get('/metrics')).status, (await get('/envs')).status]).toEqual([401, 401]);
    const opened = { 'X-Access-Token': token! };
    expect(await (await get('/envs', opened)).json()).toMatchObject({ E2B_SANDBOX: 'true', FROM_CREATE: 'create' });
    const metrics = (await (await get('/metrics', opened)).json()) as Record<string, number>;
    expect(metrics['mem_used']).toBeGreaterThan(0);
    expect(metrics['mem_total']).toBeGreaterThan(metrics['mem_used']!);
    expect(metrics['cpu_count']).toBeGreaterThanOrEqual(1);
  },
  limitMs,
);

test(
  'git works through its helpers',
  async () => {
    const { git } = sandbox;
    const path = '/home/user/repository';
    await git.init(path, { initialBranch: 'main' });
    await sandbox.files.write(`${path}/file.txt`, 'one');
    expect((await git.status(path)).hasUntracked).toBe(true);
    await git.add(path);
    await git.commit(path, 'first', { authorName: 'A', authorEmail: 'a@example.com' });
    await git.createBranch(path, 'side');
    expect((await git.branches(path)).branches.sort()).toEqual(['main', 'side']);
    expect(await git.status(path)).toMatchObject({ isClean: true, currentBranch: 'side' });
  },
  limitMs,
);

test(
  'killing the sandbox breaks what runs, and then it is not there',
  async () => {
    const other = await Sandbox.create('base', rig.options);
    const handle = await other.commands.run('sleep 1000', { background: true });
    const ended = handle.wait().catch((error: unknown) => error);
    expect(await other.isRunning()).toBe(true);
    await other.kill();
    expect(await ended).toMatchObject({ message: expect.stringContaining('was killed or reached its end of life') });
    expect(await other.isRunning()).toBe(false);
    const health = await fetch(`${rig.platform.server.url}/health`, { headers: agentHeaders(other) });
    expect(health.status).toBe(502);
    expect(await health.json()).toMatchObject({ code: 502, sandboxId: other.sandboxId });
  },
  limitMs,
);
