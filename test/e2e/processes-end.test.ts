/** How processes end and what is waited for: signals, trees, input, output and ports. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Process, Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { outputOf, touch, waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create({
    env: { FROM_SANDBOX: 'sandbox', BOTH: 'sandbox', LANG: 'sandbox' },
  });
});
afterAll(() => platform.close());

/** A server of HTTP in a language that every Debian has: `/` is there, and nothing else. */
const httpServer = String.raw`my $server = IO::Socket::IP->new(LocalHost => $ARGV[0], LocalPort => $ARGV[1], Listen => 8) or die $@;
while (my $client = $server->accept) {
  my $asked = <$client> // "";
  while (defined(my $line = <$client>)) { last if $line =~ /^\r?\n$/ }
  my $status = $asked =~ m{^GET / } ? "200 OK" : "404 Not Found";
  print $client "HTTP/1.1 $status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  close $client;
}`;
const httpServerOn = (host: string, port: number) => ['perl', '-MIO::Socket::IP', '-e', httpServer, host, String(port)];

const file = () => `/tmp/${randomUUID()}`;

async function startReady(command: string): Promise<Process> {
  const process = await sandbox.processes.start(command);
  await process.waitForLog('ready');
  return process;
}

test('E89: any signal by name or number, TERM unless told; a kill answers when it is sent', async () => {
  const gentle = await startReady('trap "echo bye; exit 9" TERM; echo ready; while :; do sleep 0.02; done');
  await gentle.kill();
  expect((await gentle.wait({ for: 'tree' })).exit).toMatchObject({ exitCode: 9, signal: null });
  expect((await outputOf(gentle)).stdout).toContain('bye');

  for (const [signal, name, exitCode] of [
    ['USR1', 'SIGUSR1', 138],
    ['SIGHUP', 'SIGHUP', 129],
    [3, 'SIGQUIT', 131],
    ['RTMIN+2', 'SIGRTMIN+2', 164],
  ] as const) {
    // What is ready says so itself: a bash that has not yet made way for it ignores QUIT.
    const process = await startReady(`exec perl -e '$| = 1; print "ready\\n"; sleep 600'`);
    await process.signal(signal, { target: 'leader' });
    expect((await process.wait()).exit).toMatchObject({ signal: name, exitCode, killed: true });
  }
  await expect(gentle.signal('NOPE')).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(gentle.signal(65)).rejects.toMatchObject({ code: 'invalid_request' });
});

test('E89: with a grace KILL follows for what ignores the signal', async () => {
  const process = await startReady('trap "" TERM; echo ready; while :; do sleep 0.02; done');
  await process.kill({ graceMs: 200 });
  expect((await process.wait({ for: 'tree' })).exit).toMatchObject({ signal: 'SIGKILL', exitCode: 137, killed: true });
});

test('E90: nothing of a tree survives its kill: levels, background, TERM ignored, setsid, double forks', async () => {
  const mark = String(700_000 + Math.floor(Math.random() * 100_000));
  const process = await startReady(`
    bash -c 'bash -c "sleep ${mark}; :" & sleep ${mark}; :' &
    (trap "" TERM; sleep ${mark}; :) &
    setsid sleep ${mark} &
    (setsid sh -c 'sleep ${mark} & exit' &)
    until [ "$(pgrep -fxc "sleep ${mark}")" = 5 ]; do sleep 0.02; done
    echo ready; sleep ${mark}`);
  await process.kill({ signal: 'KILL' });
  await process.wait({ for: 'tree' });
  expect((await sandbox.exec(`pgrep -fx "sleep ${mark}"`)).stdout).toBe('');
});

test('E91: the end of the leader and the end of the tree are two facts, and it runs until the second', async () => {
  const go = file();
  const process = await sandbox.processes.start(`(${waitForFile(go)}; echo late) & exit 7`);
  await process.wait();
  expect(process.view).toMatchObject({ running: true, exit: { exitCode: 7, killed: false }, treeEndedAt: null });
  await touch(sandbox, go);
  await process.wait({ for: 'tree' });
  expect(process.view).toMatchObject({ running: false, exit: { exitCode: 7, killed: false, timedOut: false } });
  expect(process.view.treeEndedAt).not.toBeNull();
  expect(await outputOf(process)).toEqual({ stdout: 'late\n', stderr: '', kinds: ['exited', 'ended'] });
});

test('E93: killAll tells how many ran; two at once count each once', async () => {
  const own = await platform.client.sandboxes.create();
  await Promise.all(Array.from({ length: 8 }, () => own.processes.start('sleep 600')));
  const ended = await own.processes.start('true');
  await ended.wait({ for: 'tree' });
  const counts = await Promise.all([own.processes.killAll(), own.processes.killAll(), own.processes.killAll()]);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(8);
  await vi.waitFor(async () => {
    const { items } = await own.processes.list();
    expect(items.filter(({ view }) => view.running)).toEqual([]);
  }, patience);
  expect(await own.processes.killAll()).toBe(0);
  await own.delete();
});

test('E98: waitForLog finds old output, matches split over chunks, stderr, groups', async () => {
  const process = await startReady(
    "echo ready; printf 'port='; sleep 0.1; printf '80'; sleep 0.1; echo '80 now' >&2; echo '80'",
  );
  await process.wait({ for: 'tree' });
  const found = await process.waitForLog(/port=(?<port>\d+)\n/);
  expect(found).toMatchObject({ match: ['port=8080\n', '8080'], groups: { port: '8080' }, stream: 'stdout' });
  expect(await process.waitForLog('80 now', { stream: 'stderr' })).toMatchObject({ stream: 'stderr' });
  const reused = /ready/g;
  for (let i = 0; i < 3; i++) expect((await process.waitForLog(reused)).match[0]).toBe('ready');
});

test('E98: waitForLog times out, is cancelled, and ends with the process; the last chunk still counts', async () => {
  const running = await startReady('echo ready; sleep 600');
  await expect(running.waitForLog('never', { timeoutMs: 200 })).rejects.toMatchObject({ code: 'wait_timeout' });
  const stop = new AbortController();
  const waiting = running.waitForLog('never', { signal: stop.signal });
  stop.abort();
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
  expect((await running.refresh()).view.running).toBe(true);
  await running.kill({ signal: 'KILL' });
  await expect(running.waitForLog('never')).rejects.toMatchObject({ code: 'output_ended' });
  const brief = await sandbox.processes.start('printf last');
  expect((await brief.waitForLog('last')).match[0]).toBe('last');
});

test('E99: waitForPort for tcp, and for http with path and status', async () => {
  const go = file();
  const waiting = ['sh', '-c', `${waitForFile(go)}; exec "$@"`, 'sh', ...httpServerOn('0.0.0.0', 8123)];
  const process = await sandbox.processes.start(waiting);
  const ready = process.waitForPort(8123);
  await touch(sandbox, go);
  await ready;
  await process.waitForPort(8123, { path: '/' });
  await process.waitForPort(8123, { path: '/no-such-file', status: { from: 404, to: 404 } });
  const wrong = process.waitForPort(8123, { path: '/no-such-file', timeoutMs: 300 });
  await expect(wrong).rejects.toMatchObject({ code: 'wait_timeout' });
  await process.kill({ signal: 'KILL' });
});

test('E99: waitForPort over IPv6; an end before it is ready, and a cancel', async () => {
  const six = await sandbox.processes.start(httpServerOn('::1', 8124));
  await six.waitForPort(8124, { family: 6, path: '/' });
  await expect(six.waitForPort(8124, { family: 4, timeoutMs: 300 })).rejects.toMatchObject({ code: 'wait_timeout' });
  const stop = new AbortController();
  const waiting = six.waitForPort(8199, { signal: stop.signal });
  stop.abort();
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
  await six.kill({ signal: 'KILL' });
  const brief = await sandbox.processes.start('exit 1');
  await expect(brief.waitForPort(8125)).rejects.toMatchObject({ code: 'output_ended' });
});

test('input is written in order, exactly once by offset, and ends when it is closed', async () => {
  const process = await sandbox.processes.start('cat', { stdin: 'open' });
  const big = 'x'.repeat(200_000);
  expect(await process.write('one\n')).toBe(4);
  expect(await process.write('one\ntwo\n', { offset: 0 })).toBe(8);
  expect(await process.write('two\n', { offset: 4 })).toBe(8);
  await expect(process.write('gap', { offset: 99 })).rejects.toMatchObject({ code: 'invalid_request' });
  expect(await process.write(big)).toBe(200_008);
  await process.closeStdin();
  await process.closeStdin();
  expect((await process.wait({ for: 'tree' })).exit).toMatchObject({ exitCode: 0 });
  expect((await outputOf(process)).stdout).toBe(`one\ntwo\n${big}`);
  await expect(process.write('late')).rejects.toMatchObject({ code: 'stdin_closed' });
  const without = await sandbox.processes.start('cat; echo done');
  expect((await outputOf(without)).stdout).toBe('done\n');
});

test('E127: env goes image < sandbox < call, null unsets, for processes and for exec; the user is the one named', async () => {
  const env = { BOTH: 'call', CALL: 'call', FROM_SANDBOX: null, LANG: null };
  const show = 'echo "${FROM_SANDBOX-unset} ${BOTH-unset} ${CALL-unset} ${LANG-unset} ${PATH:+path} $(id -un)"';
  const process = await sandbox.processes.start(show, { env, user: 'user' });
  expect((await outputOf(process)).stdout).toBe('unset call call unset path user\n');
  expect((await sandbox.exec(show, { env, user: 'user' })).stdout).toBe('unset call call unset path user\n');
  const plain = await sandbox.processes.start(show);
  expect((await outputOf(plain)).stdout).toBe('sandbox sandbox unset sandbox path root\n');
  expect((await sandbox.exec('id -u', { user: '1000' })).stdout).toBe('1000\n');
});

test('E128: a start that is not admitted says so, and that repeating it is of no use', async () => {
  const own = await platform.client.sandboxes.create();
  await own.stop();
  const refused = await own.processes.start('true').catch((error: unknown) => error);
  expect(refused).toMatchObject({ code: 'sandbox_wrong_state', retry: 'never' });
  await own.delete();
});

test('E131: E132: no session and no shell is left behind, and no process carries a session', async () => {
  const own = await platform.client.sandboxes.create();
  const process = await own.processes.start('echo done');
  await process.wait({ for: 'tree' });
  await own.exec('true');
  expect(process.view.sessionId).toBeNull();
  expect((await own.processes.list({ sessionId: 'sesaaaaaaaaaaaaaaaaaaaa' })).items).toEqual([]);
  const { stdout } = await own.exec(['sh', '-c', 'cat /proc/[0-9]*/comm']);
  expect(stdout.split('\n').filter((name) => name === 'bash' || name === 'dash')).toEqual([]);
  await own.delete();
});

test('E133: exec takes no streaming options, and a stream with autoCleanup leaves no record', async () => {
  const response = await fetch(`${platform.server.url}/v1/sandboxes/${sandbox.id}/exec`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${platform.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ command: 'true', stream: true }),
  });
  expect(response.status).toBe(400);
  const process = await sandbox.processes.start('echo out; exit 2', { autoCleanup: true });
  expect(await outputOf(process)).toMatchObject({ stdout: 'out\n', kinds: ['exited', 'ended'] });
  const gone = () => process.refresh();
  await vi.waitFor(() => expect(gone()).rejects.toMatchObject({ code: 'process_not_found' }), patience);
});

test('the command line runs, lists, follows, waits for and kills processes', async () => {
  const front = await platform.cli('run', sandbox.id, '-c', 'echo out; echo err >&2; exit 5');
  expect(front).toEqual({ code: 5, stdout: 'out\n', stderr: 'err\n' });
  const go = file();
  const started = await platform.cli(
    'run',
    '-d',
    '-n',
    'job',
    sandbox.id,
    '-c',
    `echo begun; ${waitForFile(go)}; exit 3`,
  );
  const id = started.stdout.trim();
  expect((await platform.cli('ps', '-q', sandbox.id)).stdout.split('\n')[0]).toBe(id);
  const following = platform.cli('logs', '-f', sandbox.id, 'job');
  await touch(sandbox, go);
  expect(await following).toEqual({ code: 0, stdout: 'begun\n', stderr: '' });
  expect((await platform.cli('wait', sandbox.id, id)).code).toBe(3);
  expect((await platform.cli('logs', sandbox.id, id)).stdout).toBe('begun\n');
  const long = (await platform.cli('run', '-d', sandbox.id, '--', 'sleep', '600')).stdout.trim();
  expect((await platform.cli('kill', '-s', 'KILL', sandbox.id, long)).code).toBe(0);
  expect((await platform.cli('wait', '--tree', sandbox.id, long)).code).toBe(137);
  expect((await platform.cli('kill', sandbox.id, 'nobody')).code).toBe(66);
});
