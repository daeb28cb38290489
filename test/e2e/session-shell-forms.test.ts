/** Every form that a text can have, every way in which it can end, and what it does with descriptors. Through the engine alone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith, requires } from '../support/requires.ts';
import { SessionRig } from '../support/session-rig.ts';

describeWith(requires.root, requires.cgroups)('texts in a session', () => {
  let rig: SessionRig;

  beforeAll(async () => {
    rig = await SessionRig.open();
  });

  afterAll(async () => {
    await rig?.close();
  });

  test('E38: lines, here-documents, comments and continued lines are what they are to bash', async () => {
    const session = await rig.session();
    const text = 'cat <<EOF\n$HOME\n  "quoted"\nEOF\nif true\nthen\n  echo in \\\n   one # not this\nfi\n# end';
    expect(await session.out(text)).toBe('/root\n  "quoted"\nin one\n');
    expect(await session.out("cat <<'END'\n$x `y`\nEND")).toBe('$x `y`\n');
    expect(await session.exec('# nothing')).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
    expect(await session.exec('')).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
    expect(await session.exec('false\n\n# comment')).toMatchObject({ exitCode: 1 });
    expect(await session.out(`echo ${'x'.repeat(300_000)} | wc -c; echo "$LINENO"`)).toBe('300001\n1\n');
  });

  test('E39 E40: what cannot be parsed is 2 with a message, and the session lives', async () => {
    const session = await rig.session();
    await session.exec('kept=1');
    for (const text of [
      'echo "open',
      "echo 'open",
      'echo $(open',
      'if true; then',
      '{ echo',
      '(',
      ')',
      'for in',
      'case x in',
      ';;',
      'echo `open',
    ]) {
      const outcome = await session.exec(text);
      expect(outcome, text).toMatchObject({ exitCode: 2, stdout: '', sessionEnded: null });
      expect(outcome.stderr, text).toMatch(/^bash: line \d+: /);
    }
    expect(await session.exec('echo before; cat <<EOF\nno end')).toMatchObject({
      stdout: 'before\nno end\n',
      exitCode: 0,
    });
    expect(await session.out('echo $kept $?')).toBe('1 0\n');
  });

  test('E41: return, break and continue at top level never hang', async () => {
    const session = await rig.session();
    expect(await session.exec('return 3')).toMatchObject({ sessionEnded: null });
    expect(await session.exec('break')).toMatchObject({ sessionEnded: null });
    expect(await session.exec('continue 2; echo on')).toMatchObject({ stdout: 'on\n', sessionEnded: null });
    expect(await session.exec('for i in 1 2; do break 5; done; echo $i')).toMatchObject({ stdout: '1\n' });
    expect(await session.exec('f() { return 6; }; f')).toMatchObject({ exitCode: 6 });
  });

  test('E42: exit ends the session with its code, and its output so far is there', async () => {
    const session = await rig.session();
    const outcome = await session.exec('echo out; echo err >&2; f() { exit 7; }; f; echo never');
    expect(outcome).toMatchObject({
      stdout: 'out\n',
      stderr: 'err\n',
      exitCode: 7,
      sessionEnded: { exitCode: 7, signal: null, cause: 'itself' },
    });
    await expect(session.exec('echo again')).rejects.toMatchObject({ code: 'session_terminated' });
    await expect
      .poll(() => session.entry(), { timeout: 20_000 })
      .toMatchObject({ kind: 'session', state: 'ended', waitStatus: 7 << 8 });
    expect(await (await rig.session()).exec('(exit 4)')).toMatchObject({ exitCode: 4, sessionEnded: null });
  });

  test('E44: set -e, set -u and pipefail do what they do in a script', async () => {
    const strict = await rig.session();
    expect(await strict.exec('set -e; false || echo handled')).toMatchObject({
      stdout: 'handled\n',
      sessionEnded: null,
    });
    expect(await strict.exec('echo a; false; echo b')).toMatchObject({
      stdout: 'a\n',
      exitCode: 1,
      sessionEnded: { exitCode: 1 },
    });

    const unset = await rig.session();
    expect(await unset.exec('set -u; echo ${x-fine}')).toMatchObject({ stdout: 'fine\n', sessionEnded: null });
    expect(await unset.exec('echo $nothing')).toMatchObject({ exitCode: 1, sessionEnded: { exitCode: 1 } });

    const pipes = await rig.session();
    await pipes.exec('set -o pipefail');
    expect(await pipes.exec('(exit 3) | true')).toMatchObject({ exitCode: 3, sessionEnded: null });
  });

  test('E44: an error of expansion ends its line; the rest of the text and the session go on', async () => {
    const session = await rig.session();
    const outcome = await session.exec('echo $((1/0)); echo same line\necho next line');
    expect(outcome).toMatchObject({ stdout: 'next line\n', exitCode: 0, sessionEnded: null });
    expect(await session.exec('echo ${x!bad}', { env: { V: 'set' }, cwd: '/usr' })).toMatchObject({
      exitCode: 1,
      sessionEnded: null,
    });
    expect(await session.out('echo "${V-restored} $PWD"')).toBe('restored /workspace\n');
    // An error in an assignment to an integer is one that bash gives the whole text up for.
    const given = await session.exec('declare -i n; n=1/0; echo never\necho never', { env: { V: 'set' }, cwd: '/usr' });
    expect(given).toMatchObject({ stdout: '', exitCode: 1, sessionEnded: null });
    expect(await session.exec('echo $?; (n=1/0); n=1/0 & wait $!; echo $?')).toMatchObject({
      stdout: '1\n1\n',
      sessionEnded: null,
    });
    expect(await session.out('echo "${V-restored} $PWD"')).toBe('restored /workspace\n');
    expect(await session.exec(': ${x:?gone}')).toMatchObject({ exitCode: 1, sessionEnded: { exitCode: 1 } });
  });

  test('E45: exec of a command is the end of the session; exec of a redirection stays', async () => {
    const session = await rig.session();
    await session.exec('exec >/tmp/out');
    expect(await session.exec('echo to the file; echo err >&2')).toMatchObject({ stdout: '', stderr: 'err\n' });
    await session.exec('exec 2>&1');
    expect(await session.exec('echo too >&2')).toMatchObject({ stdout: '', stderr: '' });
    expect((await rig.run('cat /tmp/out')).stdout).toBe('to the file\ntoo\n');
    expect(await session.exec('exec sh -c "exit 5"')).toMatchObject({ exitCode: 5, sessionEnded: { exitCode: 5 } });

    const other = await rig.session();
    expect(await other.exec('echo one; exec sh -c "echo two; exit 0"')).toMatchObject({
      stdout: 'one\ntwo\n',
      sessionEnded: { exitCode: 0 },
    });
    expect(await (await rig.session()).exec('exec /nowhere')).toMatchObject({
      exitCode: 127,
      sessionEnded: { exitCode: 127 },
    });
  });

  test('E45: a stdout that was put aside is the stdout of the command that takes it back', async () => {
    const session = await rig.session();
    await session.exec('exec 3>&1 >/tmp/aside 2>&3');
    expect(await session.exec('echo hidden; echo shown >&3; echo err >&2')).toMatchObject({
      stdout: 'shown\nerr\n',
      stderr: '',
    });
    expect(await session.exec('exec 1>&3 3>&-; echo back')).toMatchObject({ stdout: 'back\n' });
    expect(await session.exec('echo still; ls /proc/self/fd | wc -l')).toMatchObject({ stdout: 'still\n4\n' });
  });

  test('E46: kill -9 of the shell is 137', async () => {
    const session = await rig.session();
    expect(await session.exec('echo so far; kill -9 $$')).toMatchObject({
      stdout: 'so far\n',
      exitCode: 137,
      signal: 'SIGKILL',
      timedOut: false,
      killed: false,
      sessionEnded: { exitCode: 137, signal: 'SIGKILL', cause: 'itself' },
    });
  });

  test('E47: closing and redirecting 0 to 9 does not break the protocol', async () => {
    const session = await rig.session();
    const numbers = Array.from({ length: 10 }, (_, number) => number);
    expect(await session.exec(`exec ${numbers.map((number) => `${number}>&-`).join(' ')}`)).toMatchObject({
      sessionEnded: null,
    });
    expect(await session.exec('(exit 3)', { stdin: Buffer.from('x') })).toMatchObject({
      exitCode: 3,
      stdout: '',
      stderr: '',
    });
    await session.exec(`exec ${numbers.map((number) => `${number}<>/dev/null`).join(' ')}`);
    expect(await session.exec('(exit 4)')).toMatchObject({ exitCode: 4, sessionEnded: null });
    expect(await session.exec('echo seen', { cwd: '/usr' })).toMatchObject({ exitCode: 0, stdout: '' });
  });

  test('E49 E50: no newline is added, and stderr is apart', async () => {
    const session = await rig.session();
    expect(await session.exec('printf out; printf err >&2')).toMatchObject({ stdout: 'out', stderr: 'err' });
    expect(await session.exec('printf ""')).toMatchObject({ stdout: '', stderr: '' });
  });

  test('E51 E52: 10 MB and any bytes arrive whole', async () => {
    const session = await rig.session();
    const big = await rig.execBytes(session.order('head -c 10000000 /dev/urandom | tee /tmp/big; echo -n end >&2'));
    expect(big.stdout.byteLength).toBe(10_000_000);
    expect(Buffer.from(big.stderr).toString()).toBe('end');
    const sum = (await rig.run('sha256sum </tmp/big')).stdout.split(' ')[0];
    const digest = await crypto.subtle.digest('SHA-256', new Uint8Array(big.stdout));
    expect(Buffer.from(digest).toString('hex')).toBe(sum);
    const bytes = await rig.execBytes(session.order("printf '\\000\\377\\376ab\\200\\000'"));
    expect([...bytes.stdout]).toEqual([0, 255, 254, 97, 98, 128, 0]);
  });

  test('E53: stdin is the end of input, or what the caller gives, and never ours', async () => {
    const session = await rig.session();
    expect(await session.exec('cat; read x; echo "$? [$x]"')).toMatchObject({ stdout: '1 []\n' });
    const stdin = Buffer.from('first\nsecond\nrest'.repeat(20_000));
    expect(await session.exec('read a; read b; echo "$a $b"; cat | wc -c', { stdin })).toMatchObject({
      stdout: `first second\n${stdin.byteLength - 13}\n`,
    });
    // What a command leaves of its input is gone with it.
    await session.exec('read a', { stdin: Buffer.from('one\ntwo\n') });
    expect(await session.exec('read a || echo nothing')).toMatchObject({ stdout: 'nothing\n' });
    await session.exec('exec </etc/hostname');
    expect((await session.exec('cat', { stdin: Buffer.from('not this') })).stdout).not.toBe('not this');
  });

  test('E54 E55 E56: directory and variables of one command are put back, whatever they were before', async () => {
    const session = await rig.session();
    await session.exec(
      'plain=p; export exported=e; readonly fixed=f; declare -ai list=(1 2); unset none; declare -n ref=plain',
    );
    const before = await session.out('declare -p plain exported fixed list ref PWD OLDPWD; export -p | grep -c .');
    const env = { plain: '1', exported: '2', fixed: '3', list: '4', none: '5', ref: '6', HOME: null, IFS: ':' };
    const inside =
      'echo "$PWD $plain $exported $fixed $list $none $ref ${HOME-gone}"; env | grep -cE "^(plain|exported|fixed|list|none|ref)="';
    expect(
      await session.exec(`${inside}; plain=x; unset exported; list=(7 8); cd /; false`, { cwd: '/usr', env }),
    ).toMatchObject({
      stdout: '/usr 1 2 3 4 5 6 gone\n6\n',
      exitCode: 1,
    });
    expect(await session.out('declare -p plain exported fixed list ref PWD OLDPWD; export -p | grep -c .')).toBe(
      before,
    );
    expect(await session.out('x="a b"; set -- $x; echo "$# $HOME ${none-unset}"')).toBe('2 /root unset\n');
    await expect(session.exec('touch /tmp/ran', { cwd: '/nowhere', env })).rejects.toMatchObject({
      code: 'cwd_not_usable',
    });
    expect(await session.out('declare -p plain exported fixed list ref PWD OLDPWD; export -p | grep -c .')).toBe(
      before,
    );
    expect(await session.exec('ls /tmp/ran')).toMatchObject({ exitCode: 2 });
    await expect(session.exec('pwd', { cwd: 'lib' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
    await session.exec('cd /usr');
    expect(await session.out('pwd', { cwd: 'lib' })).toBe('/usr/lib\n');
    expect(await session.out('pwd')).toBe('/usr\n');
  });

  test('E58: a timeout ends the foreground, the background and the session; the output so far is there', async () => {
    const session = await rig.session();
    const outcome = await session.exec("trap '' TERM INT; sleep 1000 & setsid sleep 1000 & echo so far; sleep 1000", {
      timeoutMs: 2_000,
    });
    expect(outcome).toMatchObject({
      stdout: 'so far\n',
      timedOut: true,
      exitCode: 137,
      sessionEnded: { exitCode: 137, signal: 'SIGKILL', cause: 'timeout' },
    });
    await expect.poll(() => session.entry(), { timeout: 20_000 }).toMatchObject({ state: 'ended', cause: 'timeout' });
    await expect(session.exec('echo')).rejects.toMatchObject({ code: 'session_terminated' });
    expect((await rig.run('pgrep -c sleep')).stdout).toBe('0\n');
  });

  test('E58: an abort ends the session, and the answer tells', async () => {
    const session = await rig.session();
    const abort = new AbortController();
    const running = session.exec('echo so far; touch /tmp/aborting; sleep 1000', {}, abort.signal);
    await expect.poll(async () => (await rig.run('ls /tmp/aborting')).exitCode, { timeout: 20_000 }).toBe(0);
    abort.abort();
    expect(await running).toMatchObject({ stdout: 'so far\n', killed: true, sessionEnded: { cause: 'asked' } });
  });

  test('E61: a background child does not hold the command, and its late output is not in the next one', async () => {
    const session = await rig.session();
    await session.exec('mkfifo /tmp/late');
    const outcome = await session.exec('(read x </tmp/late; echo late; echo late >&2; touch /tmp/was-late) & echo now');
    expect(outcome).toMatchObject({ stdout: 'now\n', exitCode: 0 });
    const running = session.exec('echo next; while [ ! -e /tmp/was-late ]; do sleep 0.05; done');
    await rig.run('echo go >/tmp/late');
    expect(await running).toMatchObject({ stdout: 'next\n', stderr: '' });
    expect(await session.out('wait; echo $?')).toBe('0\n');
  });

  test('E67: a kill ends what runs, what is in the background, and the command that waits is told', async () => {
    const session = await rig.session();
    const running = session.exec('sleep 1000 & echo up; touch /tmp/up; sleep 1000');
    await expect.poll(async () => (await rig.run('ls /tmp/up')).exitCode, { timeout: 20_000 }).toBe(0);
    await session.kill();
    expect(await running).toMatchObject({
      stdout: 'up\n',
      killed: true,
      sessionEnded: { exitCode: 137, cause: 'asked' },
    });
    expect((await rig.run('pgrep -c sleep')).stdout).toBe('0\n');
  });

  test('E69: variables are set for good, all or none, without a word in the shell', async () => {
    const session = await rig.session();
    await session.exec('old=1; export gone=1; readonly fixed=1; declare -i number=1; trap "echo never" DEBUG');
    await session.setEnv({ old: 'new', fresh: 'a b', gone: null, number: '1/0' });
    await session.exec('trap - DEBUG');
    expect(await session.out('declare -p old fresh number; echo ${gone-unset}')).toBe(
      'declare -x old="new"\ndeclare -x fresh="a b"\ndeclare -x number="1/0"\nunset\n',
    );
    await expect(session.setEnv({ other: '1', fixed: '2' })).rejects.toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('fixed'),
    });
    expect(await session.out('echo ${other-unset} $fixed')).toBe('unset 1\n');
  });

  test('E71: a shell that dies in a command is told, not waited for', async () => {
    const small = await SessionRig.open({
      spec: { limits: { memoryBytes: 96 * 1024 * 1024, cpuMillis: 2_000, processes: 64, diskBytes: null } },
    });
    try {
      const session = await small.session();
      const outcome = await session.exec('echo so far; x=x; while :; do x=$x$x$x$x; done');
      expect(outcome).toMatchObject({ stdout: 'so far\n', sessionEnded: { exitCode: outcome.exitCode } });
      if (outcome.signal === 'SIGKILL')
        expect(outcome).toMatchObject({ outOfMemory: true, sessionEnded: { cause: 'out of memory' } });
    } finally {
      await small.close();
    }
    const crashing = await rig.session();
    expect(await crashing.exec('kill -SEGV $$')).toMatchObject({
      signal: 'SIGSEGV',
      sessionEnded: { signal: 'SIGSEGV', cause: 'itself' },
    });
  });

  test('a run id is taken once, and a second command at the same time is refused', async () => {
    const session = await rig.session();
    const order = session.order('touch /tmp/first; while [ ! -e /tmp/second ]; do sleep 0.05; done');
    const running = rig.exec(order);
    await expect.poll(async () => (await rig.run('ls /tmp/first')).exitCode, { timeout: 20_000 }).toBe(0);
    expect(await rig.entry(order.runId)).toMatchObject({
      kind: 'in session',
      session: session.id,
      state: 'running',
      pid: session.pid,
    });
    await expect(session.exec('echo')).rejects.toMatchObject({ name: 'SessionBusy' });
    await rig.run('touch /tmp/second');
    expect(await running).toMatchObject({ exitCode: 0 });
    await expect(rig.exec(order)).rejects.toMatchObject({ code: 'operation_in_doubt' });
    await expect(rig.exec({ ...order, runId: 'another', sessionId: 'unknown' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
  });

  test('a shell that is no bash, or is not there, is refused by name', async () => {
    for (const shell of ['dash', '/bin/cat', '/nowhere/bash']) {
      const refused = await rig.session({ shell }).catch((error: unknown) => error);
      expect(refused, shell).toMatchObject({
        code: 'session_shell_not_usable',
        message: expect.stringContaining(shell),
      });
    }
    await expect(rig.session({ cwd: '/nowhere' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
    await expect(rig.session({ user: 'nobody-here' })).rejects.toMatchObject({ code: 'user_not_usable' });
  });
});
