/** Processes from a session: what they see, where they are, how they end. Through the engine alone. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { JournalReader } from '../../src/execution/index.ts';
import { describeWith, requires } from '../support/requires.ts';
import { SessionRig } from '../support/session-rig.ts';

describeWith(requires.root, requires.cgroups)('processes from a session', () => {
  let rig: SessionRig;

  beforeAll(async () => {
    rig = await SessionRig.open();
  });

  afterAll(async () => {
    await rig?.close();
  });

  /** Waits for the end of its tree; everything it wrote. */
  async function outputOf(id: string): Promise<{ stdout: string; stderr: string; waitStatus: number }> {
    await expect.poll(() => rig.entry(id), { timeout: 30_000 }).toMatchObject({ state: 'ended' });
    const directory = join(rig.harness.dataDirectory, 'sandboxes', rig.sandbox.mark.sandboxId, 'journals', id);
    const chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
    const reader = JournalReader.open(directory)!;
    for (let cursor = 0, more = true; more; ) {
      const { records, next } = await reader.read(cursor);
      for (const record of records) {
        if (record.kind === 'stdout' || record.kind === 'stderr') chunks[record.kind].push(record.bytes);
      }
      more = next > cursor;
      cursor = next;
    }
    reader.close();
    const entry = await rig.entry(id);
    return {
      stdout: Buffer.concat(chunks.stdout).toString('utf8'),
      stderr: Buffer.concat(chunks.stderr).toString('utf8'),
      waitStatus: entry!.waitStatus,
    };
  }

  const exists = async (path: string) => (await rig.run(`test -e ${path}`)).exitCode === 0;
  const waitFor = async (path: string) => await expect.poll(() => exists(path), { timeout: 30_000 }).toBe(true);

  test('E73: it sees the directory, unexported variables, functions, aliases and options of that moment', async () => {
    const session = await rig.session();
    await session.exec(
      'cd /usr/lib; v=unexported; a=(1 2); f() { echo "f $v ${a[1]}"; }; alias say="echo said"; set -o pipefail; umask 027; set -- p q',
    );
    const { id, pid } = await session.start(
      'f; say it; pwd; umask; echo "$# $2"; shopt -oq pipefail && echo pipefail; echo err >&2; echo $BASHPID',
    );
    expect(await outputOf(id)).toEqual({
      stdout: `f unexported 2\nsaid it\n/usr/lib\n0027\n2 q\npipefail\n${pid}\n`,
      stderr: 'err\n',
      waitStatus: 0,
    });
  });

  test('E73: directory and variables can be its own; a directory that is not there is told, and nothing runs', async () => {
    const session = await rig.session();
    await session.exec('mine=session');
    const { id } = await session.start('echo "$PWD $mine $(env | grep ^mine=)"; exit 3', {
      cwd: '/usr',
      env: { mine: 'own' },
    });
    expect(await outputOf(id)).toMatchObject({ stdout: '/usr own mine=own\n', waitStatus: 3 << 8 });
    await expect(session.start('touch /tmp/never', { cwd: '/nowhere' })).rejects.toMatchObject({
      code: 'cwd_not_usable',
    });
    expect(await session.out('echo "$mine $PWD"')).toBe('session /workspace\n');
    expect(await exists('/tmp/never')).toBe(false);
  });

  test('E74: nothing is written back', async () => {
    const session = await rig.session();
    await session.exec('v=1; f() { echo old; }; trap "echo chld" CHLD; trap "touch /tmp/exit-trap" EXIT');
    const { id } = await session.start(
      'v=2; f() { echo new; }; cd /; alias x=y; set -f; exec 5>/tmp/five; echo $v; f; exit 9',
    );
    expect(await outputOf(id)).toMatchObject({ stdout: '2\nnew\n', waitStatus: 9 << 8 });
    expect(await session.out('echo $v $PWD $- $?; f; alias; jobs; [ -e /proc/$$/fd/5 ] || echo no 5')).toBe(
      '1 /workspace hB 0\nold\nno 5\n',
    );
    // The session's traps are not the process's, as in any subshell.
    expect(await exists('/tmp/exit-trap')).toBe(false);
  });

  test('E75: it waits for a command that runs, and holds the session only while it is launched', async () => {
    const session = await rig.session();
    const running = session.exec('touch /tmp/runs; while [ ! -e /tmp/may-end ]; do sleep 0.05; done');
    await waitFor('/tmp/runs');
    await expect(session.start('echo')).rejects.toMatchObject({ name: 'SessionBusy' });
    await rig.run('touch /tmp/may-end');
    await running;
    const { id, pid } = await session.start('sleep 1000');
    expect(await session.out('echo free')).toBe('free\n');
    expect(await rig.entry(id)).toMatchObject({ state: 'running', kind: 'from session', session: session.id, pid });
    // A child of init with a session of its own, in a group that is not the shell's; its one command took the place of the shell.
    expect((await rig.run(`ps -o ppid=,sid=,args= -p ${pid} | tr -s " "`)).stdout.trim()).toBe(`1 ${pid} sleep 1000`);
    const groups = (await rig.run(`grep ^0: /proc/${pid}/cgroup /proc/${session.pid}/cgroup | cut -d: -f4`)).stdout
      .trim()
      .split('\n');
    expect(groups[0]).not.toBe(groups[1]);
    await rig.client.control((connection) => connection.killTree(id));
    await expect.poll(() => rig.entry(id), { timeout: 20_000 }).toMatchObject({ state: 'ended', cause: 'asked' });
  });

  test('E76 E77: its first bytes come before its end, and 10 MB come whole', async () => {
    const session = await rig.session();
    const first = await session.start('echo first; while [ ! -e /tmp/seen ]; do sleep 0.05; done');
    await rig.client.control((connection) => connection.follow({ run: first.id, offset: 0, follower: 1 }));
    expect(await rig.entry(first.id)).toMatchObject({ state: 'running' });
    await rig.run('touch /tmp/seen');
    expect(await outputOf(first.id)).toMatchObject({ stdout: 'first\n' });
    const big = await session.start('head -c 10000000 /dev/zero | tr "\\0" x');
    expect((await outputOf(big.id)).stdout).toHaveLength(10_000_000);
  });

  test('E78: it ends with the session, unless it is detached', async () => {
    const session = await rig.session();
    const bound = await session.start('setsid sleep 1000 & sleep 1000');
    const free = await session.start('echo up; sleep 1000', { detach: true });
    await session.kill();
    await expect.poll(() => rig.entry(bound.id), { timeout: 20_000 }).toMatchObject({ state: 'ended' });
    expect(await rig.entry(free.id)).toMatchObject({ state: 'running' });
    await rig.client.control((connection) => connection.killTree(free.id));
    expect(await outputOf(free.id)).toMatchObject({ stdout: 'up\n' });
    expect((await rig.run('pgrep -c sleep')).stdout).toBe('0\n');
  });

  test('E79: its kill and its timeout leave the session usable', async () => {
    const session = await rig.session();
    const slow = await session.start('sleep 1000', { timeoutMs: 1_500 });
    const killed = await session.start('trap "" TERM; sleep 1000');
    await rig.client.control((connection) => connection.killTree(killed.id));
    await expect
      .poll(() => rig.entry(slow.id), { timeout: 30_000 })
      .toMatchObject({ state: 'ended', cause: 'timeout' });
    await expect
      .poll(() => rig.entry(killed.id), { timeout: 20_000 })
      .toMatchObject({ state: 'ended', cause: 'asked' });
    expect(await session.out('echo usable')).toBe('usable\n');
  });

  test('E80: the exit of the session, and the timeout of a command in it, end its processes', async () => {
    for (const [text, timeoutMs] of [
      ['exit 0', null],
      ['sleep 1000', 1_500],
    ] as const) {
      const session = await rig.session();
      const { id } = await session.start('sleep 1000');
      expect(await session.exec(text, { timeoutMs })).toMatchObject({
        sessionEnded: { cause: timeoutMs === null ? 'itself' : 'timeout' },
      });
      await expect.poll(() => rig.entry(id), { timeout: 20_000 }).toMatchObject({ state: 'ended' });
    }
  });

  test('its input is fed as that of any process, and its descriptors are its own whatever the session has redirected', async () => {
    const session = await rig.session();
    await session.exec('exec >/tmp/redirected 2>&1 5>&1');
    const { id } = await session.start('read -r line; echo "got $line"; echo err >&2', { stdinOpen: true });
    await rig.client.control((connection) => connection.input({ run: id, offset: 0, bytes: Buffer.from('hello\n') }));
    expect(await outputOf(id)).toMatchObject({ stdout: 'got hello\n', stderr: 'err\n' });
  });
});
