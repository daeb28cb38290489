/** The command line, from its words to what it prints and exits with, over real HTTP. */
import { describe, expect, test } from 'vitest';
import type { AppPort } from '../src/cli/cli-io.ts';
import { exitCodeOf } from '../src/cli/exit-codes.ts';
import { buildProgram } from '../src/cli/program.ts';
import { type ErrorCode, PlatformError } from '../src/protocol/index.ts';
import { openCliRig } from './support/cli-rig.ts';
import { goodKey, testExecResult, testId, testSandboxView } from './support/fake-control.ts';

const sandboxId = testId('sandbox', 'a');
const base64 = (text: string) => Buffer.from(text).toString('base64');

describe('exec', () => {
  test('passes output bytes and the exit code through exactly', async () => {
    await using rig = await openCliRig();
    const bytes = Uint8Array.from([0, 255, 10, 13]);
    rig.http.control.onExec = async () =>
      testExecResult({ exitCode: 42, stdout: Buffer.from(bytes).toString('base64'), stderr: base64('no newline') });
    const run = await rig.run('exec', sandboxId, '--', 'cmd', '--json', '-x');

    expect(run).toMatchObject({ exitCode: 42, stderr: 'no newline' });
    expect([...run.stdoutBytes]).toEqual([...bytes]);
    expect(rig.http.control.last('exec').args[3]).toMatchObject({ command: ['cmd', '--json', '-x'] });
  });

  test('takes a sandbox by name, and every option', async () => {
    await using rig = await openCliRig({ readStdin: async () => Buffer.from('in') });
    rig.http.control.views.set(sandboxId, testSandboxView({ name: 'web' }));
    const options = ['--cwd', '/tmp', '-e', 'A=1=2', '--env', 'B=', '--user', 'me', '--timeout', '1.5s', '-i'];
    const conditions = ['--lease-token', '4', '--idempotency-key', 'k', '--generation', '9', '--if-match', '3'];
    const run = await rig.run('exec', 'web', ...options, ...conditions, '--', 'a');

    // The generation given is not the sandbox's: refused by control, so it was sent.
    expect(run.exitCode).toBe(73);
    expect(rig.http.control.last('exec').args[2]).toEqual({
      leaseToken: 4,
      idempotencyKey: 'k',
      generation: 9,
      expectedVersion: 3,
    });
    expect(rig.http.control.last('exec').args[3]).toMatchObject({
      cwd: '/tmp',
      env: { A: '1=2', B: '' },
      user: 'me',
      timeoutMs: 1_500,
      stdin: { base64: base64('in') },
    });
  });

  test('with --json prints one document, and the exit code is still of the command', async () => {
    await using rig = await openCliRig();
    rig.http.control.onExec = async () => testExecResult({ exitCode: 1, stdout: base64('hi') });
    const run = await rig.run('exec', sandboxId, '--json', '-c', 'echo hi');
    expect(run.exitCode).toBe(1);
    expect(JSON.parse(run.stdout)).toMatchObject({ exitCode: 1, stdout: 'hi', encoding: 'utf8' });
    expect(rig.http.control.last('exec').args[3]).toMatchObject({ command: 'echo hi' });

    rig.http.control.onExec = async () => testExecResult({ stdout: '/w==' });
    expect(JSON.parse((await rig.run('exec', sandboxId, '--json', '--', 'a')).stdout)).toMatchObject({
      stdout: '/w==',
      encoding: 'base64',
    });
  });

  test('says on stderr when output was cut', async () => {
    await using rig = await openCliRig();
    rig.http.control.onExec = async () => testExecResult({ stdout: base64('abc'), stdoutTruncated: true });
    expect((await rig.run('exec', sandboxId, '--', 'a')).stderr).toBe('atoll: stdout was cut after 3 bytes.\n');
  });

  test('stops the command on an interrupt and exits with 130', async () => {
    await using rig = await openCliRig();
    const started = Promise.withResolvers<void>();
    const stopped = Promise.withResolvers<void>();
    rig.http.control.onExec = async ({ signal }) => {
      started.resolve();
      await new Promise((resolve) => signal?.addEventListener('abort', resolve));
      stopped.resolve();
      return testExecResult();
    };
    const running = rig.run('exec', sandboxId, '--', 'sleep');
    await started.promise;
    rig.interrupt();
    expect(await running).toMatchObject({ exitCode: 130, stdout: '', stderr: '' });
    await stopped.promise;
  });

  test('without a command, or with two, it is usage', async () => {
    await using rig = await openCliRig();
    expect(await rig.run('exec', sandboxId)).toMatchObject({
      exitCode: 64,
      stderr: expect.stringContaining('no command'),
    });
    expect(await rig.run('exec', sandboxId, '-c', 'a', '--', 'b')).toMatchObject({ exitCode: 64 });
    expect(rig.http.control.asked).toEqual([]);
  });
});

describe('sandboxes', () => {
  test('create prints the id and nothing else', async () => {
    await using rig = await openCliRig();
    const run = await rig.run(
      ...['create', 'web', '-m', 'a=b', '-e', 'X=1', '--memory', '512m', '--cpus', '0.5', '--processes', '50'],
      ...['--expires-in', '2h', '--no-new-privileges', '--idempotency-key', 'k'],
    );
    expect(run).toMatchObject({ exitCode: 0, stderr: '' });
    expect(run.stdout).toMatch(/^sbx[a-z0-9]{20}\n$/);
    expect(rig.http.control.last('create').args.slice(1)).toEqual([
      { idempotencyKey: 'k' },
      {
        name: 'web',
        ifExists: 'refuse',
        metadata: { a: 'b' },
        env: { X: '1' },
        limits: { memoryBytes: 512 * 1024 ** 2, cpuMillis: 500, processes: 50 },
        expiresInMs: 7_200_000,
        onExpiry: 'stop',
        autoResume: false,
        keepCheckpoints: null,
        noNewPrivileges: true,
        workspaces: [],
      },
    ]);
    expect((await rig.run('create', 'web')).exitCode).toBe(73);
    expect((await rig.run('create', 'web', '--get')).stdout).toBe(run.stdout);
    await rig.run('create', '--expires-in', 'never');
    expect(rig.http.control.last('create').args[2]).toMatchObject({ expiresInMs: null });
    expect(rig.http.control.last('create').args[2]).not.toHaveProperty('noNewPrivileges');
  });

  test('ls is a table with readable times; with --json the page as the API has it; with -q ids', async () => {
    await using rig = await openCliRig();
    const expiresAt = '2030-01-01T02:05:30.000Z';
    rig.http.control.views.set(sandboxId, testSandboxView({ name: 'web', expiresAt, metadata: { a: '\x1b[31m' } }));

    const { stdout } = await rig.run('ls', '--state', 'running', '-m', 'a=b', '--mine');
    expect(stdout).toMatch(/^ID +NAME +STATE +CREATED +EXPIRES/);
    expect(stdout).toMatch(/web +running +5m ago +in 2h +host/);
    expect(stdout).not.toContain('\x1b');
    expect(rig.http.control.last('list').args[1]).toMatchObject({
      state: ['running'],
      metadata: ['a=b'],
      mine: 'true',
    });
    expect(JSON.parse((await rig.run('ls', '--json')).stdout)).toMatchObject({ items: [{ id: sandboxId }] });
    expect((await rig.run('ls', '-q')).stdout).toBe(`${sandboxId}\n`);
    rig.http.control.views.clear();
    expect((await rig.run('ls')).stdout).toContain('atoll create');
  });

  test('ls says how to see the rest', async () => {
    await using rig = await openCliRig();
    await rig.run('create');
    expect((await rig.run('ls', '--limit', '1')).stderr).toBe('There are more: --cursor 1\n');
    expect(JSON.parse((await rig.run('ls', '--limit', '1', '--json')).stdout)).toMatchObject({ nextCursor: '1' });
  });

  test('info, stop, start, extend and rm take it by name', async () => {
    await using rig = await openCliRig();
    rig.http.control.views.set(sandboxId, testSandboxView({ name: 'web' }));
    expect((await rig.run('info', 'web')).stdout).toMatch(/State: +running\n/);
    expect((await rig.run('stop', 'web', '--grace', '5s')).stdout).toBe(`${sandboxId} stopped\n`);
    expect(rig.http.control.last('stop').args[3]).toEqual({ graceMs: 5_000 });
    expect((await rig.run('start', 'web')).stdout).toBe(`${sandboxId} running, generation 2\n`);
    expect((await rig.run('extend', 'web', '30m')).stdout).toContain('expires');
    expect(rig.http.control.last('update').args[3]).toEqual({ expiresInMs: 1_800_000 });
    expect((await rig.run('rm', 'web', '--force')).stdout).toBe(`${sandboxId}\n`);
    expect(rig.http.control.last('delete').args[3]).toEqual({ force: true });
    const gone = await rig.run('rm', 'web');
    expect(gone).toMatchObject({ exitCode: 66, stdout: '' });
    expect(gone.stderr).toBe(
      'atoll: There is no sandbox with the id or name "web".\n' +
        '  "atoll ls" shows the sandboxes of this team.\n  (sandbox_not_found)\n',
    );
  });

  test('a name that another one begins with is not taken for it', async () => {
    await using rig = await openCliRig();
    rig.http.control.views.set(sandboxId, testSandboxView({ name: 'web2' }));
    expect((await rig.run('info', 'web')).exitCode).toBe(66);
  });

  test('metadata shows, sets and removes', async () => {
    await using rig = await openCliRig();
    expect((await rig.run('metadata', sandboxId, 'a=1', 'b=')).stdout).toMatch(/KEY +VALUE\na +1\n/);
    expect(rig.http.control.last('patch').args[3]).toEqual({ a: '1', b: null });
    expect(JSON.parse((await rig.run('metadata', sandboxId, '--json')).stdout)).toEqual({
      metadata: { a: '1' },
      version: 4,
    });
    expect((await rig.run('metadata', sandboxId, '--history')).stdout).toContain('VERSION');
  });
});

describe('leases', () => {
  test('acquire, renew, release and ls', async () => {
    await using rig = await openCliRig();
    const acquired = await rig.run(
      ...['lease', 'acquire', sandboxId, '--also', 'name:db', '--ttl', '10s', '--wait', '1m', '--holder', 'me'],
    );
    expect(acquired.stdout).toContain(`${sandboxId} token 1, name:db token 1`);
    expect(rig.http.control.last('acquire').args[2]).toMatchObject({
      resources: [sandboxId, 'name:db'],
      ttlMs: 10_000,
      waitMs: 60_000,
      holder: 'me',
    });
    const leaseId = testId('lease', 'a');
    expect((await rig.run('lease', 'renew', leaseId, '--ttl', '20s')).exitCode).toBe(0);
    expect(rig.http.control.last('renew').args[3]).toEqual({ ttlMs: 20_000 });
    expect((await rig.run('lease', 'ls')).stdout).toContain('someone');
    expect((await rig.run('lease', 'release', leaseId)).stdout).toBe(`${leaseId}\n`);
  });

  test('run holds the lease while a program runs here, hands it the token, and exits as it does', async () => {
    let given: Record<string, string> = {};
    await using rig = await openCliRig({
      runHere: async (command, { env }) => {
        expect(command).toEqual(['make', '-j2']);
        given = { ...env };
        return 7;
      },
    });
    const run = await rig.run('lease', 'run', sandboxId, '--', 'make', '-j2');
    expect(run).toMatchObject({ exitCode: 7, stderr: '' });
    expect(given).toMatchObject({ ATOLL_LEASE_RESOURCE: sandboxId, ATOLL_LEASE_TOKEN: '1' });
    expect(rig.http.control.asked.map(({ method }) => method)).toEqual(['acquire', 'release']);

    await rig.runBare(['--url', rig.http.url, '--key', goodKey, 'exec', sandboxId, '--', 'a'], { env: given });
    expect(rig.http.control.last('exec').args[2]).toEqual({ generation: 1, leaseToken: 1 });
  });
});

describe('the rest', () => {
  test('keys, tokens, users, teams, webhooks, operations, events, reconcile', async () => {
    await using rig = await openCliRig();
    const made = await rig.run('keys', 'create', 'ci', '--scope', 'sandboxes:read', '--expires-in', '30d');
    expect(made).toMatchObject({ exitCode: 0, stdout: `${goodKey}\n` });
    expect(rig.http.control.last('createKey').args[2]).toEqual({
      name: 'ci',
      scopes: ['sandboxes:read'],
      expiresInMs: 30 * 86_400_000,
    });
    expect((await rig.run('keys', 'ls')).stdout).toMatch(/made +sandboxes:read/);
    expect((await rig.run('keys', 'rm', testId('key', 'b'))).exitCode).toBe(0);
    expect((await rig.run('tokens', sandboxId, '--expires-in', '1h')).stdout).toBe(`${goodKey}\n`);
    expect((await rig.run('users', 'create', 'ann')).stdout).toBe(`${testId('user', 'a')}\n`);
    expect((await rig.run('users', 'ls')).exitCode).toBe(0);
    expect((await rig.run('teams', 'create', 'x')).stdout).toBe(`${testId('team', 'b')}\n`);
    expect((await rig.run('teams', 'ls')).stdout).toContain('first');
    expect((await rig.run('webhooks', 'create', 'https://example.test', '--kind', 'a')).stdout).toContain('shh');
    expect((await rig.run('webhooks', 'ls')).stdout).toContain('https://example.test/');
    expect((await rig.run('webhooks', 'rm', testId('webhook', 'a'))).exitCode).toBe(0);
    expect((await rig.run('operations', 'key:k')).stdout).toContain('finished');
    expect((await rig.run('reconcile', '--dry-run')).stdout).toBe('Records and nodes agree.\n');
    rig.http.control.addEvent('sandbox.created');
    expect((await rig.run('events')).stdout).toMatch(/^1 .* sandbox.created/);
    expect(JSON.parse((await rig.run('events', '--json')).stdout)).toMatchObject({ sequence: 1 });
  });

  test('events --follow goes on until it is interrupted', async () => {
    await using rig = await openCliRig();
    rig.http.control.addEvent('past');
    const lines: string[] = [];
    const following = rig.runBare(['--url', rig.http.url, '--key', goodKey, 'events', '-f', '--json'], {
      stdout: {
        isTerminal: false,
        write: async (data) => {
          lines.push(String(data));
          rig.interrupt();
        },
      },
    });
    await expect.poll(() => rig.http.control.asked.length).toBe(1);
    rig.http.control.addEvent('now');
    expect((await following).exitCode).toBe(0);
    expect(lines.map((line) => JSON.parse(line).kind)).toEqual(['now']);
  });
});

describe('failures', () => {
  test('each has its exit code, what, why and what to do', async () => {
    await using rig = await openCliRig();
    rig.http.control.onExec = async () => {
      throw new PlatformError('lease_held', 'Ann holds the lease.', { details: { holder: 'Ann' } });
    };
    const run = await rig.run('exec', sandboxId, '--', 'a');
    expect(run).toMatchObject({ exitCode: 75, stdout: '' });
    expect(run.stderr).toMatch(/^atoll: Ann holds the lease.\n {2}"atoll lease ls" .*\n {2}\(lease_held, req\w+\)\n$/);
    const asJson = await rig.run('exec', sandboxId, '--json', '--', 'a');
    expect(JSON.parse(asJson.stdout)).toMatchObject({ error: { code: 'lease_held', details: { holder: 'Ann' } } });
  });

  test('exit codes of our own are apart from 0 and usage', () => {
    for (const code of Object.keys(exitCodeOf) as ErrorCode[]) expect(exitCodeOf[code]).toBeGreaterThanOrEqual(64);
  });

  test('a typo suggests the nearest command, with exit code 64', async () => {
    await using rig = await openCliRig();
    const run = await rig.run('crate');
    expect(run).toMatchObject({ exitCode: 64, stdout: '' });
    expect(run.stderr).toContain("unknown command 'crate'");
    expect(run.stderr).toContain('Did you mean create?');
    expect(JSON.parse((await rig.run('--json', 'crate')).stdout)).toMatchObject({ error: { code: 'usage' } });
  });

  test.each([
    [['ls', '--state', 'walking'], 'one of creating'],
    [['ls', '--limit', 'ten'], 'whole number'],
    [['create', '--expires-in', '30'], '500ms, 30s'],
    [['create', '--memory', '1'], '512m'],
    [['create', '-e', 'A'], 'NAME=VALUE'],
    [['rm'], 'missing required argument'],
    [['exec', sandboxId, 'ls', '-l'], "unknown option '-l'"],
    [['serve', '--port', '70000'], '0 to 65535'],
  ])('%j is usage', async (words, message) => {
    await using rig = await openCliRig();
    const run = await rig.run(...words);
    expect([run.exitCode, run.stdout]).toEqual([64, '']);
    expect(run.stderr).toContain(message);
  });

  test('no server known, a server that is away, and a wrong key are told apart', async () => {
    const rig = await openCliRig({ loadApp: async () => appOf({ findLocalServer: async () => undefined }) });
    expect(await rig.runBare(['ls'])).toMatchObject({ exitCode: 78 });
    const wrong = await rig.runBare(['ls', '--url', rig.http.url, '--key', 'wrong']);
    expect(wrong.exitCode).toBe(77);
    await rig.http.server.close();
    const away = await rig.run('ls');
    expect(away.exitCode).toBe(69);
    expect(away.stderr).toContain('atoll serve');
  });

  test("the key of this machine's server is found, and not sent to another one", async () => {
    await using rig = await openCliRig();
    const local = { url: rig.http.url, apiKey: goodKey };
    const loadApp = async () => appOf({ findLocalServer: async () => local });
    expect((await rig.runBare(['ls'], { loadApp })).exitCode).toBe(0);
    expect((await rig.runBare(['ls', '--url', `${rig.http.url}/`], { loadApp })).exitCode).toBe(0);
    const other = await rig.runBare(['ls', '--url', 'http://elsewhere.test'], { loadApp });
    expect(other).toMatchObject({ exitCode: 78 });
    expect(other.stderr).toContain('No key for http://elsewhere.test');
  });
});

describe('serve, node and doctor', () => {
  test('serve prints the address, where the key is and a line to paste, and closes on an interrupt', async () => {
    await using rig = await openCliRig();
    let isClosed = false;
    let asked: unknown;
    const app = appOf({
      serve: async (options) => {
        asked = options;
        return {
          url: 'http://127.0.0.1:1234',
          keyFile: '/data/key',
          close: async () => {
            isClosed = true;
          },
        };
      },
    });
    const printed = Promise.withResolvers<string>();
    const stdout = { isTerminal: false, write: async (text: unknown) => printed.resolve(String(text)) };
    const running = rig.runBare(['serve', '--port', '0', '--data', '/my data', '--log-level', 'warn'], {
      loadApp: async () => app,
      stdout,
    });
    const text = await printed.promise;
    expect(text).toContain('serves at http://127.0.0.1:1234\n');
    expect(text).toContain('The key is in /data/key');
    expect(text).toContain(`atoll exec --data '/my data' "$(atoll create --data '/my data')" -- uname -a`);
    expect(asked).toEqual({
      ...{ dataDirectory: '/my data', host: '127.0.0.1', port: 0, logLevel: 'warn' },
      storage: 'auto',
    });
    expect(isClosed).toBe(false);
    rig.interrupt();
    expect((await running).exitCode).toBe(0);
    expect(isClosed).toBe(true);
  });

  test('a server that cannot start says why in one line', async () => {
    await using rig = await openCliRig();
    const error = Object.assign(new Error('Port 7070 is in use. Choose another with --port.'), {
      name: 'StartError',
      code: 'port_in_use',
    });
    const loadApp = async () => appOf({ serve: () => Promise.reject(error) });
    expect(await rig.runBare(['serve'], { loadApp })).toMatchObject({
      exitCode: 78,
      stdout: '',
      stderr: 'atoll: Port 7070 is in use. Choose another with --port.\n',
    });
    expect(JSON.parse((await rig.runBare(['serve', '--json'], { loadApp })).stdout)).toMatchObject({
      error: { code: 'port_in_use' },
    });
  });

  test('node prints how to serve with it', async () => {
    await using rig = await openCliRig();
    const printed = Promise.withResolvers<string>();
    const app = appOf({ runNode: async () => ({ url: 'http://n:1', tokenFile: '/t', close: async () => {} }) });
    const running = rig.runBare(['node'], {
      loadApp: async () => app,
      stdout: { isTerminal: false, write: async (text) => printed.resolve(String(text)) },
    });
    expect(await printed.promise).toContain('atoll serve --node-url http://n:1 --node-token-file /t');
    rig.interrupt();
    expect((await running).exitCode).toBe(0);
  });

  test('doctor shows each check, and fails when a required one does', async () => {
    await using rig = await openCliRig();
    const check = { name: 'cgroups', required: true, message: 'limits cannot be set', fix: 'mount cgroup2' };
    const loadApp = (ok: boolean) => async () => appOf({ runDoctor: async () => ({ ok, checks: [{ ...check, ok }] }) });
    const bad = await rig.runBare(['doctor'], { loadApp: loadApp(false) });
    expect(bad.exitCode).toBe(1);
    expect(bad.stdout).toContain('MISSING cgroups: limits cannot be set\n        fix: mount cgroup2\n');
    const good = await rig.runBare(['doctor', '--json'], { loadApp: loadApp(true) });
    expect([good.exitCode, JSON.parse(good.stdout)]).toMatchObject([0, { ok: true }]);
  });
});

test('every command that changes something takes an idempotency key, and every one takes --json', () => {
  const program = buildProgram();
  const leaves = (command: typeof program): (typeof program)[] =>
    command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
  const reading = new Set([
    'ls',
    'changes',
    'cat',
    'download',
    'stat',
    'info',
    'show',
    'ps',
    'logs',
    'log',
    'attached',
    'wait',
    'events',
    'operations',
    'doctor',
    'serve',
    'node',
    'tunnel',
    'help',
    'status',
    'checkpoints',
  ]);
  // Cycles of many calls, each with a key of its own, and what changes only files here.
  const ofCheckouts = new Set(['init', 'reset', 'undo', 'apply', 'applied', 'mcp', 'completion', '__complete']);
  const isOfCheckout = (command: typeof program) =>
    ofCheckouts.has(command.name()) || ['bg', 'sync'].includes(command.parent?.name() ?? '');
  for (const command of leaves(program).filter((leaf) => !isOfCheckout(leaf))) {
    const flags = command.options.map((option) => option.long);
    expect(flags.includes('--idempotency-key'), command.name()).toBe(!reading.has(command.name()));
  }
  expect(program.options.map((option) => option.long)).toContain('--json');
});

test('help and version are no failures', async () => {
  await using rig = await openCliRig();
  expect(await rig.run('--version')).toMatchObject({ exitCode: 0, stdout: '0.0.0-test\n' });
  const help = await rig.run('help', 'exec');
  expect(help).toMatchObject({ exitCode: 0, stderr: '' });
  expect(help.stdout).toContain('--timeout <time>');
});

function appOf(parts: Partial<AppPort>): AppPort {
  return { defaultDataDirectory: () => '/default', ...parts } as AppPort;
}
