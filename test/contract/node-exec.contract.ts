/** What `exec` of every NodeApi does: part A of the acceptance list, as a node sees it. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { NodeApi, NodeSandbox } from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, execOrder, run } from '../support/node-orders.ts';

const mebibyte = 1024 * 1024;

export function nodeExecContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let node: NodeApi;
  let sandbox: NodeSandbox;

  beforeAll(async () => {
    harness = await open();
    node = harness.node;
    sandbox = await node.createSandbox(createOrder({ spec: { env: { FROM_SANDBOX: 'yes', BOTH: 'sandbox' } } }));
  });

  afterAll(() => harness?.close());

  test('E1: stdout, stderr and the exit code come back apart, byte for byte', async () => {
    const outcome = await run(node, sandbox, 'printf out; printf "err\\n\\n" >&2; exit 3');
    expect(outcome).toMatchObject({ stdout: 'out', stderr: 'err\n\n', exitCode: 3, signal: null });
  });

  test('E2: an unknown program is 127 and one that cannot be run 126, as results', async () => {
    expect(await run(node, sandbox, ['no-such-program'])).toMatchObject({ exitCode: 127, stdout: '', stderr: '' });
    expect(await run(node, sandbox, ['/etc/passwd'])).toMatchObject({ exitCode: 126 });
    expect(await run(node, sandbox, 'no-such-program')).toMatchObject({ exitCode: 127 });
    expect(await run(node, sandbox, ['false'])).toMatchObject({ exitCode: 1 });
  });

  test('E3: an end by signal is named and told from an exit with the same code', async () => {
    expect(await run(node, sandbox, 'kill -TERM $$')).toMatchObject({
      exitCode: 143,
      signal: 'SIGTERM',
      killed: false,
    });
    expect(await run(node, sandbox, 'exit 143')).toMatchObject({ exitCode: 143, signal: null });
  });

  test('E4: cwd is for one call', async () => {
    expect((await run(node, sandbox, ['pwd'], { cwd: '/usr/bin' })).stdout).toBe('/usr/bin\n');
    expect((await run(node, sandbox, ['pwd'])).stdout).toBe('/workspace\n');
  });

  test('E5: env is for one call, and wins over the environment of the sandbox', async () => {
    const command = 'echo "$FROM_SANDBOX $BOTH $ONCE $HOME $USER"';
    const outcome = await run(node, sandbox, command, { env: { BOTH: 'call', ONCE: '1' } });
    expect(outcome.stdout).toBe('yes call 1 /root root\n');
    expect((await run(node, sandbox, command)).stdout).toBe('yes sandbox  /root root\n');
  });

  test('E6: nothing of one call is seen by the next', async () => {
    await run(node, sandbox, 'cd /; export LEFT=1; f() { :; }; alias ll=ls');
    const outcome = await run(node, sandbox, 'pwd; echo "[$LEFT]"; type f; alias');
    expect(outcome.stdout).toBe('/workspace\n[]\n');
  });

  test('E7: a cwd that is not there is refused by name, and nothing runs', async () => {
    const refused = run(node, sandbox, 'touch /tmp/ran', { cwd: '/not/there' });
    await expect(refused).rejects.toMatchObject({ code: 'cwd_not_usable', details: { cwd: '/not/there' } });
    expect((await run(node, sandbox, ['test', '-e', '/tmp/ran'])).exitCode).toBe(1);
  });

  test('E8: a bad variable name, a NUL byte and an unknown user are refused', async () => {
    for (const env of [{ '': 'x' }, { 'A=B': 'x' }, { A: 'x\0y' }]) {
      await expect(run(node, sandbox, 'true', { env })).rejects.toMatchObject({ code: 'invalid_request' });
    }
    await expect(run(node, sandbox, 'true\0')).rejects.toMatchObject({ code: 'invalid_command' });
    await expect(run(node, sandbox, 'true', { user: 'nosuchuser' })).rejects.toMatchObject({ code: 'user_not_usable' });
  });

  test('E9: stdin is at its end at once, or has the bytes given', async () => {
    expect(await run(node, sandbox, ['cat'])).toMatchObject({ exitCode: 0, stdout: '' });
    const stdin = randomBytes(3 * mebibyte);
    const outcome = await node.exec(execOrder(sandbox, { command: ['cat'], stdin, outputLimitBytes: 4 * mebibyte }));
    expect(Buffer.compare(outcome.stdout, stdin)).toBe(0);
  });

  test('E9: a command that does not read its stdin to the end is not hurt by what is left', async () => {
    const stdin = randomBytes(3 * mebibyte);
    const some = await Promise.all(Array.from({ length: 20 }, () => run(node, sandbox, ['true'], { stdin })));
    for (const outcome of some) expect(outcome.exitCode).toBe(0);
    const part = await run(node, sandbox, ['head', '-c', '70000'], { stdin });
    expect(part).toMatchObject({ exitCode: 0, stdoutTruncated: false });
  });

  test('E10: a background child that holds stdout does not delay the result', async () => {
    const outcome = await run(node, sandbox, 'sleep 300 & echo done');
    expect(outcome).toMatchObject({ exitCode: 0, stdout: 'done\n' });
    expect(outcome.durationMs).toBeLessThan(60_000);
  });

  test('E11, E13: a timeout gives what was printed so far, and adds nothing', async () => {
    const outcome = await run(node, sandbox, 'echo out; echo err >&2; sleep 300', { timeoutMs: 1_500 });
    expect(outcome).toMatchObject({ timedOut: true, killed: false, stdout: 'out\n', stderr: 'err\n' });
    expect(outcome.exitCode).toBe(143);
  });

  test('E12: a timeout ends children that ignore TERM or left the process group', async () => {
    const mark = `${4_000 + Math.floor(Math.random() * 1000)}.25`;
    const command = `setsid sleep ${mark} & (trap '' TERM; sleep ${mark}; sleep ${mark}) & trap '' TERM; sleep ${mark}; sleep ${mark}`;
    expect(await run(node, sandbox, command, { timeoutMs: 300 })).toMatchObject({ timedOut: true });
    const left = await run(node, sandbox, ['sh', '-c', `grep -lz '^${mark}' /proc/[0-9]*/cmdline | wc -l`]);
    expect(left.stdout.trim()).toBe('0');
  });

  test('E14: invalid UTF-8, NUL bytes and cut characters come back as they were', async () => {
    const bytes = Buffer.from([0xff, 0x00, 0xc3, 0x0a, 0xe2, 0x82]);
    const outcome = await node.exec(execOrder(sandbox, { command: ['cat'], stdin: bytes }));
    expect(Buffer.from(outcome.stdout)).toEqual(bytes);
  });

  test('E15: 50 MB of output complete; beyond the limit it is cut and says so', async () => {
    const command = 'head -c 50000000 /dev/zero; head -c 10000000 /dev/zero >&2';
    const whole = await node.exec(execOrder(sandbox, { command, outputLimitBytes: 50_000_000 }));
    expect(whole.stdout.byteLength).toBe(50_000_000);
    expect(whole.stderr.byteLength).toBe(10_000_000);
    expect(whole).toMatchObject({ exitCode: 0, stdoutTruncated: false, stderrTruncated: false });
    const cut = await run(node, sandbox, 'head -c 3000000 /dev/zero; echo end >&2', { outputLimitBytes: 1000 });
    expect(cut.stdout.length).toBe(1000);
    expect(cut).toMatchObject({ exitCode: 0, stdoutTruncated: true, stderr: 'end\n', stderrTruncated: false });
  });

  test('E16: a command text of 200 KB works and sees nothing of how it got there', async () => {
    const filler = `# ${'x'.repeat(1000)}\n`.repeat(200);
    const outcome = await run(node, sandbox, `${filler}echo "line $LINENO"; ls /proc/self/fd | tr '\\n' ' '; exit 5`);
    expect(outcome.exitCode).toBe(5);
    const short = await run(node, sandbox, `ls /proc/self/fd | tr '\\n' ' '`);
    expect(outcome.stdout).toBe(`line 201\n${short.stdout}`);
  });

  test('E16: what the kernel cannot take is refused as a command', async () => {
    const refused = run(node, sandbox, ['echo', 'x'.repeat(200_000)]);
    await expect(refused).rejects.toMatchObject({ code: 'invalid_command' });
    const tooLong = run(node, sandbox, 'x'.repeat(9 * mebibyte));
    await expect(tooLong).rejects.toMatchObject({ code: 'invalid_command' });
  });

  test('E17: 100 commands at once do not mix their output', async () => {
    const numbers = Array.from({ length: 100 }, (_, index) => index);
    const outcomes = await Promise.all(
      numbers.map((n) =>
        run(node, sandbox, `for i in 1 2 3 4 5; do echo out-${n}; echo err-${n} >&2; done; exit ${n}`),
      ),
    );
    expect(outcomes.map(({ exitCode, stdout, stderr }) => ({ exitCode, stdout, stderr }))).toEqual(
      numbers.map((n) => ({ exitCode: n, stdout: `out-${n}\n`.repeat(5), stderr: `err-${n}\n`.repeat(5) })),
    );
  });

  test('E19: an abort kills the whole tree, and the outcome says so', async () => {
    const abort = new AbortController();
    const mark = `${5_000 + Math.floor(Math.random() * 1000)}.25`;
    const command = `echo begun; setsid sleep ${mark} & touch /tmp/begun-${mark}; sleep ${mark}`;
    const outcome = node.exec(execOrder(sandbox, { command }), abort.signal);
    await run(node, sandbox, `until test -e /tmp/begun-${mark}; do sleep 0.02; done`);
    abort.abort();
    expect(await outcome).toMatchObject({ killed: true, timedOut: false, exitCode: 137, signal: 'SIGKILL' });
    const left = await run(node, sandbox, ['sh', '-c', `grep -lz '^${mark}' /proc/[0-9]*/cmdline | wc -l`]);
    expect(left.stdout.trim()).toBe('0');
  });

  test('E19: an abort reaches a command that does not read the stdin it was given', async () => {
    const abort = new AbortController();
    const command = 'touch /tmp/not-reading; sleep 1000';
    const outcome = node.exec(execOrder(sandbox, { command, stdin: Buffer.alloc(2 * mebibyte) }), abort.signal);
    await run(node, sandbox, 'until test -e /tmp/not-reading; do sleep 0.02; done');
    abort.abort();
    expect(await outcome).toMatchObject({ killed: true, exitCode: 137 });
  });

  test('E19: an abort before the start, at it and right after never breaks the call', async () => {
    const before = await node.exec(execOrder(sandbox, { command: 'sleep 300' }), AbortSignal.abort());
    expect(before).toMatchObject({ killed: true, exitCode: 137 });
    const at = new AbortController();
    const outcome = node.exec(execOrder(sandbox, { command: 'sleep 300' }), at.signal);
    at.abort();
    expect(await outcome).toMatchObject({ killed: true, exitCode: 137 });
  });

  test('E21: an empty command is refused', async () => {
    for (const command of ['', [], ['']]) {
      await expect(run(node, sandbox, command)).rejects.toMatchObject({ code: 'invalid_command' });
    }
  });

  test('E22: the outcome carries when it began and how long it took', async () => {
    const before = Date.now();
    const outcome = await run(node, sandbox, 'sleep 0.2');
    expect(outcome.durationMs).toBeGreaterThanOrEqual(150);
    expect(outcome.startedAtMs).toBeGreaterThanOrEqual(before - 1);
    expect(outcome.startedAtMs + outcome.durationMs).toBeLessThanOrEqual(Date.now() + 1_000);
  });

  test('a run id is used once, and what became of it can be asked', async () => {
    const lifeOf = { sandboxId: sandbox.mark.sandboxId, generation: sandbox.generation };
    const order = execOrder(sandbox, { command: 'exit 9' });
    expect(await node.findRun({ ...lifeOf, runId: order.runId })).toEqual({ kind: 'unknown' });
    expect((await node.exec(order)).exitCode).toBe(9);
    await expect(node.exec(order)).rejects.toMatchObject({ code: 'operation_in_doubt' });
    const report = { kind: 'ended', exitCode: 9, signal: null, timedOut: false, killed: false };
    expect(await node.findRun({ ...lifeOf, runId: order.runId })).toEqual(report);
  });

  test('a command that takes more memory than the sandbox has is ended, and the sandbox goes on', async () => {
    const small = await node.createSandbox(
      createOrder({
        spec: { limits: { memoryBytes: 64 * mebibyte, cpuMillis: 2_000, processes: 64, diskBytes: null } },
      }),
    );
    const hog = await run(node, small, ['tail', '/dev/zero'], { timeoutMs: 50_000 });
    expect(hog).toMatchObject({ exitCode: 137, signal: 'SIGKILL', outOfMemory: true, timedOut: false });
    expect((await run(node, small, ['echo', 'alive'])).stdout).toBe('alive\n');
  });

  test('a user other than root runs as that user', async () => {
    const outcome = await run(node, sandbox, 'id -un; echo "$HOME"; touch mine && stat -c %U mine', { user: 'user' });
    expect(outcome).toMatchObject({ exitCode: 0, stdout: 'user\n/home/user\nuser\n' });
  });
}
