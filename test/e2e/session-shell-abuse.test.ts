/**
 * The line between init and a shell, abused from inside: what can be found, written to, kept or closed there harms its own session and
 * nothing else. Init is built with the sanitizers.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId, PlatformError } from '../../src/protocol/index.ts';
import { initPid } from '../support/node-leftovers.ts';
import { describeWith, requires } from '../support/requires.ts';
import { copySanitizedInit } from '../support/sanitized-init.ts';
import { SessionRig, type SessionUnderTest } from '../support/session-rig.ts';

/** Where a shell has its end of the line. */
const line = 240;
const answer = { ready: 1, missing: 2, done: 3, notRun: 4 };

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
  requires.program('python3'),
)('a session that is hostile', () => {
  let rig: SessionRig;
  let neighbour: SessionUnderTest;
  let directory: string;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'atoll-init-'));
    const program = join(directory, 'atoll-init-sanitized');
    await promisify(execFile)('chmod', ['755', directory]);
    await copySanitizedInit(program);
    rig = await SessionRig.open({}, { initProgram: program });
    neighbour = await rig.session();
    await neighbour.exec('kept=here');
  }, 180_000);

  afterAll(async () => {
    await rig?.close();
    await rm(directory, { recursive: true, force: true });
  });

  /** Init lives, its other sessions are as they were, and new ones can be made. */
  async function expectNoHarm(): Promise<void> {
    expect(await neighbour.out('echo $kept')).toBe('here\n');
    const another = await rig.session();
    expect(await another.exec('exit 3')).toMatchObject({ exitCode: 3 });
  }

  /** A message of the size of an answer; `tail` makes it longer. */
  function forge(fields: { kind: number; serial: number; value?: number }, tail = ''): string {
    const { kind, serial, value = 0 } = fields;
    return `import os,struct; os.write(1, struct.pack("<IIII48s", ${kind}, ${serial}, ${value}, 0, b"") + b"${tail}")`;
  }

  test('control: the line is where these tests look for it, and takes messages', async () => {
    const session = await rig.session();
    expect(await session.out(`readlink /proc/${session.pid}/fd/${line}`)).toMatch(/^socket:/);
    // An answer as the shell would give it: init believes it, in this session.
    expect(
      await session.exec(`python3 -c '${forge({ kind: answer.done, serial: 2, value: 42 })}' >&${line}; sleep 1000`),
    ).toMatchObject({
      exitCode: 42,
    });
    await session.kill();
  });

  test('what is no answer, or comes at the wrong time, ends the session', async () => {
    const messages = [
      `echo garbage >&${line}`,
      `python3 -c '${forge({ kind: answer.ready, serial: 1 })}' >&${line}`,
      `python3 -c '${forge({ kind: answer.missing, serial: 1 })}' >&${line}`,
      `python3 -c '${forge({ kind: answer.notRun, serial: 1 })}' >&${line}`,
      `python3 -c '${forge({ kind: answer.done, serial: 77 })}' >&${line}`,
      `python3 -c '${forge({ kind: 99, serial: 1 })}' >&${line}`,
      `python3 -c '${forge({ kind: answer.done, serial: 1 }, 'more')}' >&${line}`,
    ];
    for (const message of messages) {
      const session = await rig.session();
      expect(await session.exec(`echo before; ${message}; sleep 1000`), message).toMatchObject({
        stdout: 'before\n',
        sessionEnded: { signal: 'SIGKILL', cause: 'itself' },
      });
    }
    await expectNoHarm();
  });

  test('two answers to one order end the session, at the latest when the real one comes', async () => {
    const session = await rig.session();
    await session.exec(`python3 -c '${forge({ kind: answer.done, serial: 1, value: 1 })}' >&${line}`);
    await expect.poll(() => session.entry(), { timeout: 20_000 }).toMatchObject({ state: 'ended' });
    await expectNoHarm();
  });

  test('a line that is closed ends the session with the command', async () => {
    const session = await rig.session();
    expect(await session.exec(`echo so far; exec ${line}>&-`)).toMatchObject({
      stdout: 'so far\n',
      sessionEnded: { exitCode: 1 },
    });
    await expectNoHarm();
  });

  test('a child that keeps the line keeps nothing alive', async () => {
    const session = await rig.session();
    await session.exec(`setsid sleep 1000 >&${line} &`);
    expect(await session.exec('exit 4')).toMatchObject({ sessionEnded: { exitCode: 4 } });
    await expect.poll(() => session.entry(), { timeout: 20_000 }).toMatchObject({ state: 'ended' });
    await expectNoHarm();
  });

  test('a text without output whose shell is killed has run, whether or not a child still has the line', async () => {
    for (const child of ['', '(while :; do sleep 1; done) & ']) {
      const session = await rig.session();
      const killed = { exitCode: 137, signal: 'SIGKILL', cause: 'itself' };
      expect(await session.exec(`${child}kill -9 $$`), child).toMatchObject({ sessionEnded: killed });
    }
    await expectNoHarm();
  });

  test('a text that its shell has not taken when it is killed is refused: nothing ran', async () => {
    const session = await rig.session();
    const { pid } = session;
    await rig.run(`kill -STOP ${pid}; until grep -q '^State:.T' /proc/${pid}/status; do :; done`);
    const runId = newId('operation');
    const outcome = session.exec('touch /tmp/taken', { runId });
    const refused = expect(outcome).rejects.toMatchObject({ code: 'session_terminated' });
    await expect.poll(() => rig.entry(runId), { timeout: 20_000 }).toMatchObject({ state: 'running' });
    await rig.run(`kill -KILL ${pid}`);
    await refused;
    expect((await rig.run('ls /tmp/taken')).exitCode).toBe(2);
    await expectNoHarm();
  });

  test('a text that is silent and then speaks is heard when it speaks, and one that gives its pipes away when it ends', async () => {
    const session = await rig.session();
    const outcome = await session.exec('sleep 0.3; echo late; echo wrong >&2');
    expect(outcome).toMatchObject({ stdout: 'late\n', stderr: 'wrong\n', exitCode: 0 });
    // Its start is when it was asked for, not when it was first heard of; the clock may round.
    expect(outcome.startedAtMs).toBeLessThanOrEqual(Date.now() - 290);
    expect(await session.exec('exec >/tmp/away 2>&1; sleep 0.1; echo kept; (exit 6)')).toMatchObject({ exitCode: 6 });
    expect((await rig.run('cat /tmp/away')).stdout).toBe('kept\n');
    await session.kill();
  });

  test('a child that takes orders away leaves a command to its timeout', async () => {
    const session = await rig.session();
    await session.exec(`(while :; do dd bs=100000 count=1; done) <&${line} >/dev/null 2>&1 &`);
    // Some orders may reach the shell; what does not is ended by its time.
    for (let i = 0; i < 20; i++) {
      const outcome = await session.exec('echo', { timeoutMs: 2_000 });
      if (outcome.sessionEnded === null) continue;
      expect(outcome).toMatchObject({ timedOut: true, sessionEnded: { cause: 'timeout' } });
      break;
    }
    await session.kill().catch(() => {});
    await expectNoHarm();
  });

  test('a shell without a free descriptor is told, and nothing runs', async () => {
    const session = await rig.session();
    await session.exec('ulimit -S -n 3');
    await expect(session.exec('touch /tmp/ran')).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect((await rig.run('ls /tmp/ran')).exitCode).toBe(2);
    await session.kill();
    await expectNoHarm();
  });

  test('an open file that loses its mark is lost to its own session only', async () => {
    const session = await rig.session();
    await session.exec(`python3 -c 'import fcntl; [fcntl.fcntl(n, fcntl.F_SETSIG, 0) for n in (0, 1, 2)]'`);
    expect(await session.exec('echo unseen')).toMatchObject({ exitCode: 0, stdout: '' });
    await expectNoHarm();
  });

  test('a process that is forked while its session dies is refused or ended, and never left', async () => {
    for (let i = 0; i < 10; i++) {
      const session = await rig.session();
      const started = session.start('sleep 1000').catch((error: unknown) => error);
      await session.kill();
      await started;
    }
    await expect.poll(async () => (await rig.run('pgrep -c sleep')).stdout, { timeout: 20_000 }).toBe('0\n');
    await expectNoHarm();
  });

  test('any bytes on the line, in any state: init goes on and loses no descriptor', async () => {
    const pid = await initPid(rig.harness.dataDirectory, rig.sandbox.mark.sandboxId);
    await expectNoHarm();
    const before = await descriptorsOf(pid);
    const message = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc
        .record({ kind: fc.integer({ min: 0, max: 7 }), serial: fc.integer({ min: 0, max: 3 }), value: fc.nat(300) })
        .map((fields) => {
          const bytes = Buffer.alloc(64);
          bytes.writeUInt32LE(fields.kind, 0);
          bytes.writeUInt32LE(fields.serial, 4);
          bytes.writeUInt32LE(fields.value, 8);
          return new Uint8Array(bytes);
        }),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { minLength: 1, maxLength: 6 }),
        fc.boolean(),
        async (messages, inBackground) => {
          const session = await rig.session();
          const texts = messages.map((bytes) => `bytes.fromhex("${Buffer.from(bytes).toString('hex')}")`);
          const attack = `python3 -c 'import os; [os.write(1, m) for m in (${texts.join(',')},)]' >&${line}`;
          // The text may fail, be forged (also that it was not run) or be killed with its session; it always ends.
          const text = inBackground ? `${attack} & wait` : attack;
          await session.exec(text, { timeoutMs: 20_000 }).catch(expectRefusal);
          await session.exec(':', { timeoutMs: 20_000 }).catch(() => {});
          await session.kill().catch(() => {});
        },
      ),
      { numRuns: 40, endOnFailure: true },
    );
    await expectNoHarm();
    expect(await initPid(rig.harness.dataDirectory, rig.sandbox.mark.sandboxId)).toBe(pid);
    await expect.poll(() => descriptorsOf(pid), { timeout: 20_000 }).toBeLessThanOrEqual(before + 4);
  });

  test('a shell that closes its stderr before it begins costs init nothing', async () => {
    const pid = await initPid(rig.harness.dataDirectory, rig.sandbox.mark.sandboxId);
    await rig.run("printf '#!/bin/sh\nexec 2>&-\nsleep 3\n' > /tmp/mute; chmod 755 /tmp/mute");
    const before = await ticksOf(pid);
    await expect(rig.session({ shell: '/tmp/mute' })).rejects.toMatchObject({ code: 'session_shell_not_usable' });
    // Hundredths of a second; to be woken by a closed pipe again and again takes all three.
    expect((await ticksOf(pid)) - before).toBeLessThan(100);
    await expectNoHarm();
  });

  test('a kill that comes after the answer of a text does not reach its session', async () => {
    const session = await rig.session();
    const runId = newId('operation');
    expect(await session.exec('sleep 1000 & echo $!', { runId })).toMatchObject({ exitCode: 0 });
    await expect(rig.client.control((connection) => connection.killTree(runId))).rejects.toThrow();
    expect(await session.out('echo alive')).toBe('alive\n');
    await session.kill();
  });
});

function expectRefusal(error: unknown): void {
  expect(error).toBeInstanceOf(PlatformError);
}

/** Processor time that it has used, in hundredths of a second. */
async function ticksOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** Those of the groups of runs are kept for the next. */
async function descriptorsOf(pid: number): Promise<number> {
  const directory = `/proc/${pid}/fd`;
  const links = (await readdir(directory)).map((name) => readlink(join(directory, name)).catch(() => ''));
  return (await Promise.all(links)).filter((path) => path !== '' && !/\/run\/\d+(\/|$)/.test(path)).length;
}
