/** Stateless exec through the SDK, HTTP, control, node and init, in a real sandbox. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

test('E1: stdout, stderr and exit code come apart, no newline added or removed', async () => {
  const result = await sandbox.exec('printf out; printf err >&2; exit 3');
  expect(result).toMatchObject({ stdout: 'out', stderr: 'err', exitCode: 3, signal: null });
  expect((await sandbox.exec('printf "a\\n\\n"')).stdout).toBe('a\n\n');
});

test('E2: a command that fails is a result; an unknown one ends with 127', async () => {
  expect((await sandbox.exec(['false'])).exitCode).toBe(1);
  expect((await sandbox.exec(['no-such-program-anywhere'])).exitCode).toBe(127);
  expect((await sandbox.exec('no-such-program-anywhere')).exitCode).toBe(127);
  expect((await sandbox.exec(['/etc/passwd'])).exitCode).toBe(126);
});

test('E3: an end by signal names it and gives 128+n; a real exit with that code does not', async () => {
  expect(await sandbox.exec('kill -TERM $$')).toMatchObject({ exitCode: 143, signal: 'SIGTERM', killed: false });
  expect(await sandbox.exec('exit 143')).toMatchObject({ exitCode: 143, signal: null });
});

test('E4: a working directory is for one call', async () => {
  expect((await sandbox.exec('pwd', { cwd: '/usr/lib' })).stdout).toBe('/usr/lib\n');
  expect((await sandbox.exec('pwd')).stdout).toBe('/workspace\n');
});

test('E5: an environment is for one call; null and undefined entries are left out', async () => {
  const env = { GIVEN: 'yes', ABSENT: null, MISSING: undefined };
  const show = 'echo "${GIVEN-unset} ${ABSENT-unset} ${MISSING-unset}"';
  expect((await sandbox.exec(show, { env })).stdout).toBe('yes unset unset\n');
  expect((await sandbox.exec(show)).stdout).toBe('unset unset unset\n');
});

test('E6: what one call does to its shell is not seen by the next', async () => {
  await sandbox.exec('cd /tmp; export LEFT=over; alias ll=ls; there() { :; }');
  const next = await sandbox.exec('pwd; echo "${LEFT-unset}"; type there ll 2>&1 | grep -c "not found"');
  expect(next.stdout).toBe('/workspace\nunset\n2\n');
});

test('E7: a missing working directory is refused by name, and nothing runs', async () => {
  const refused = sandbox.exec('touch /tmp/ran-without-cwd', { cwd: '/no/such/place' });
  await expect(refused).rejects.toMatchObject({ code: 'cwd_not_usable', details: { cwd: '/no/such/place' } });
  expect((await sandbox.exec('test -e /tmp/ran-without-cwd')).exitCode).toBe(1);
});

test('E8: an impossible variable name and a NUL byte are refused before anything runs', async () => {
  const refused = { code: 'invalid_request' };
  await expect(sandbox.exec('true', { env: { 'A-B': 'x' } })).rejects.toMatchObject(refused);
  await expect(sandbox.exec('true', { env: { '1A': 'x' } })).rejects.toMatchObject(refused);
  await expect(sandbox.exec('true', { env: { A: 'x\0y' } })).rejects.toMatchObject(refused);
  await expect(sandbox.exec('true', { cwd: '/tmp\0' })).rejects.toMatchObject(refused);
  await expect(sandbox.exec(['echo', 'a\0b'])).rejects.toMatchObject(refused);
});

test('E9: without stdin a reader finds its end at once; given bytes arrive', async () => {
  expect(await sandbox.exec('cat; echo done')).toMatchObject({ stdout: 'done\n', exitCode: 0 });
  const bytes = new Uint8Array(300_000).map((_, index) => index % 251);
  const digest = createHash('sha256').update(bytes).digest('hex');
  expect((await sandbox.exec('sha256sum', { stdin: bytes })).stdout).toContain(digest);
});

test('E10: a background child that holds stdout does not delay the result', async () => {
  const result = await sandbox.exec('sleep 600 & echo started');
  expect(result).toMatchObject({ stdout: 'started\n', exitCode: 0 });
  // The child may not have become `sleep` yet.
  await sandbox.exec('until pkill -x sleep; do :; done', { timeoutMs: 20_000 });
});

test('E11: E13: a timeout returns what there was, says so, and puts no text of ours into it', async () => {
  const result = await sandbox.exec('echo before; echo problem >&2; sleep 600', { timeoutMs: 1_500 });
  expect(result).toMatchObject({
    stdout: 'before\n',
    stderr: 'problem\n',
    timedOut: true,
    signal: 'SIGTERM',
    exitCode: 143,
  });
});

test('E12: a timeout ends children that ignore TERM, and those in sessions of their own', async () => {
  const command = 'trap "" TERM; setsid sh -c \'trap "" TERM; while :; do sleep 1111; done\' & sleep 2222';
  expect((await sandbox.exec(command, { timeoutMs: 300 })).timedOut).toBe(true);
  const left = await sandbox.exec('pgrep -x sleep | wc -l');
  expect(left.stdout.trim()).toBe('0');
});

test('E14: bytes that are not text survive', async () => {
  const result = await sandbox.exec(['printf', '\\377\\000\\303']);
  expect([...result.stdoutBytes]).toEqual([0xff, 0x00, 0xc3]);
  expect((await sandbox.exec("printf '\\303'; sleep 0.05; printf '\\251'")).stdout).toBe('é');
});

test('E15: 10 and 50 MB of output arrive whole; beyond a declared limit it is cut and says so', async () => {
  for (const megabytes of [10, 50]) {
    const result = await sandbox.exec(`head -c ${megabytes * 1_000_000} /dev/zero`);
    expect(result.stdoutBytes.byteLength).toBe(megabytes * 1_000_000);
    expect(result.stdoutTruncated).toBe(false);
  }
  const cut = await sandbox.exec('head -c 5000 /dev/zero; echo end >&2', { outputLimitBytes: 1_000 });
  expect(cut.stdoutBytes.byteLength).toBe(1_000);
  expect(cut).toMatchObject({ stdoutTruncated: true, stderrTruncated: false, stderr: 'end\n', exitCode: 0 });
});

test('E16: a command of 200 KB works as a text', async () => {
  const filler = 'x'.repeat(200_000);
  const result = await sandbox.exec(`v='${filler}'; echo \${#v}; ls /proc/self/fd | wc -l`);
  expect(result.stdout).toBe('200000\n4\n');
});

test('E17: a hundred commands at once do not mix their output', async () => {
  const results = await Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      sandbox.exec(`for i in 1 2 3; do echo out-${index}; echo err-${index} >&2; done`),
    ),
  );
  for (const [index, result] of results.entries()) {
    expect(result).toMatchObject({
      stdout: `out-${index}\n`.repeat(3),
      stderr: `err-${index}\n`.repeat(3),
      exitCode: 0,
    });
  }
});

test('E18: a command is not delayed by a long one, in this sandbox or another', async () => {
  const other = await platform.client.sandboxes.create();
  const stop = new AbortController();
  const long = [sandbox, other].map((box) =>
    box.exec('echo up; sleep 600', { signal: stop.signal }).catch(() => 'stopped'),
  );
  expect((await sandbox.exec('echo quick')).stdout).toBe('quick\n');
  expect((await other.exec('echo quick')).stdout).toBe('quick\n');
  stop.abort();
  expect(await Promise.all(long)).toEqual(['stopped', 'stopped']);
  await other.delete();
});

test("E19: the caller's abort stops the command and everything it started, and later calls work", async () => {
  const stop = new AbortController();
  const running = sandbox.exec('touch /tmp/began; setsid sleep 3333 & sleep 3333', { signal: stop.signal });
  await expect.poll(async () => (await sandbox.exec('test -e /tmp/began')).exitCode, { timeout: 20_000 }).toBe(0);
  stop.abort();
  await expect(running).rejects.toMatchObject({ name: 'AbortError' });
  await expect
    .poll(async () => (await sandbox.exec('pgrep -x sleep | wc -l')).stdout.trim(), { timeout: 20_000 })
    .toBe('0');
});

test('E20: a caller that disconnects does not stop the command', async () => {
  const leaving = new AbortController();
  const body = JSON.stringify({
    command: 'touch /tmp/e20-began; while [ ! -e /tmp/e20-go ]; do sleep 0.05; done; touch /tmp/e20-done',
  });
  const headers = { Authorization: `Bearer ${platform.key}`, 'Content-Type': 'application/json' };
  const url = `${platform.server.url}/v1/sandboxes/${sandbox.id}/exec`;
  const lost = fetch(url, { method: 'POST', headers, body, signal: leaving.signal }).catch(() => 'left');
  await expect.poll(async () => (await sandbox.exec('test -e /tmp/e20-began')).exitCode, { timeout: 20_000 }).toBe(0);
  leaving.abort();
  expect(await lost).toBe('left');
  await sandbox.exec('touch /tmp/e20-go');
  await expect.poll(async () => (await sandbox.exec('test -e /tmp/e20-done')).exitCode, { timeout: 20_000 }).toBe(0);
});

test('E21: an empty command is refused', async () => {
  for (const command of ['', '   ', [], ['']]) {
    await expect(sandbox.exec(command)).rejects.toMatchObject({ code: 'invalid_command' });
  }
});

test('E22: a result carries when it began and how long it took', async () => {
  const before = Date.now();
  const result = await sandbox.exec('sleep 0.2');
  expect(result.durationMs).toBeGreaterThanOrEqual(190);
  expect(Date.parse(result.startedAt)).toBeGreaterThanOrEqual(before - 1_000);
  expect(Date.parse(result.startedAt)).toBeLessThanOrEqual(Date.now() + 1_000);
});
