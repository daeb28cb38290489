/** What stays in the shell of a session between commands, and that nothing of ours is in it. Through the engine alone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith, requires } from '../support/requires.ts';
import { SessionRig } from '../support/session-rig.ts';

describeWith(requires.root, requires.cgroups)('the state of a session', () => {
  let rig: SessionRig;

  beforeAll(async () => {
    rig = await SessionRig.open();
  });

  afterAll(async () => {
    await rig?.close();
  });

  test('E23: the working directory persists, and is told while a command runs', async () => {
    const session = await rig.session();
    await session.exec('mkdir -p "/tmp/a b"; cd "/tmp/a b"');
    expect(await session.out('pwd')).toBe('/tmp/a b\n');
    expect(await session.out('cd - >/dev/null; echo "$PWD $OLDPWD"')).toBe('/workspace /tmp/a b\n');
    await session.exec('mkfifo /tmp/gate');
    const running = session.exec('cd /usr; read -r line </tmp/gate; pwd');
    await expect.poll(() => session.directory(), { timeout: 20_000 }).toBe('/usr');
    await rig.run('echo go >/tmp/gate');
    expect(await running).toMatchObject({ stdout: '/usr\n', exitCode: 0 });
  });

  test('E23: the directory of a user who is not root is told as well', async () => {
    const session = await rig.session({ user: '1000' });
    expect(await session.out('cd /usr/lib; id -u')).toBe('1000\n');
    expect(await session.directory()).toBe('/usr/lib');
  });

  test('E24: plain and exported variables persist; only the exported ones are in the environment', async () => {
    const session = await rig.session({ env: { GIVEN: 'at the start' } });
    await session.exec('plain=1; export exported=2');
    expect(await session.out('echo $plain $exported; env | grep -E "^(plain|exported|GIVEN)=" | sort')).toBe(
      '1 2\nGIVEN=at the start\nexported=2\n',
    );
  });

  test('E25 E26 E27: aliases, functions and what a sourced file does persist', async () => {
    const session = await rig.session();
    await session.exec('alias greet="echo hello"; f() { echo "f got $1"; return 4; }');
    await session.exec('printf "sourced=yes\\ng() { echo g; }\\n" >/tmp/lib.sh; . /tmp/lib.sh');
    expect(await session.exec('greet you; g; echo $sourced; f 1')).toMatchObject({
      stdout: 'hello you\ng\nyes\nf got 1\n',
      exitCode: 4,
    });
  });

  test('E28: shopt, set -o, umask and ulimit persist', async () => {
    const session = await rig.session();
    await session.exec('shopt -s nullglob extglob; set -o noglob -o pipefail; umask 027; ulimit -S -n 200');
    expect(
      await session.out('shopt -q nullglob && shopt -q extglob && echo on; echo $SHELLOPTS; umask; ulimit -n'),
    ).toMatch(/^on\n.*noglob.*pipefail.*\n0027\n200\n$/);
    expect(await session.exec('false | true')).toMatchObject({ exitCode: 1 });
  });

  test('E29: declared integers, arrays, maps and readonly variables persist', async () => {
    const session = await rig.session();
    await session.exec('declare -i n=5; a=(x "y z"); declare -A m=([k]=v); readonly r=fixed');
    expect(await session.out('n+=2; echo $n "${a[1]}" ${#a[@]} ${m[k]}')).toBe('7 y z 2 v\n');
    expect(await session.exec('r=2\necho "still $r"')).toMatchObject({ stdout: 'still fixed\n', exitCode: 0 });
  });

  test('E30: positional parameters persist', async () => {
    const session = await rig.session();
    await session.exec('set -- one "two words"');
    expect(await session.out('echo $# "$2"; shift; echo $1')).toBe('2 two words\ntwo words\n');
  });

  test('E32: traps persist, and fire for nothing of ours', async () => {
    const session = await rig.session();
    await session.exec(
      'trap "echo dbg >>/tmp/trapped" DEBUG; trap "echo err >>/tmp/trapped" ERR; trap "echo chld >>/tmp/trapped" CHLD',
    );
    await session.exec(': one', { cwd: '/usr', env: { A: '1' }, stdin: Buffer.from('x') });
    await session.setEnv({ KEPT: '1' });
    await session.exec('trap - DEBUG ERR CHLD');
    // For the two other traps of the first line, for ":" and for "trap -".
    expect((await rig.run('cat /tmp/trapped')).stdout).toBe('dbg\ndbg\ndbg\ndbg\n');
    await session.exec('trap "echo bye; touch /tmp/left" EXIT; trap "echo usr1" USR1');
    expect(await session.out('trap -p EXIT USR1')).toBe(
      "trap -- 'echo bye; touch /tmp/left' EXIT\ntrap -- 'echo usr1' SIGUSR1\n",
    );
    expect(await session.out('kill -USR1 $$; echo after')).toBe('usr1\nafter\n');
    // One that comes while nothing runs is for the next command.
    await rig.run(`kill -USR1 ${session.pid}`);
    await expect.poll(async () => (await session.exec(':')).stdout, { timeout: 20_000 }).toBe('usr1\n');
    expect(await session.exec('exit 3')).toMatchObject({ stdout: 'bye\n', exitCode: 3 });
  });

  test('E34: nothing of ours is visible', async () => {
    const session = await rig.session();
    const looks = 'declare -p; declare -F; alias -p; enable -a; set -o; shopt -p; history; trap -p; jobs; complete -p';
    const [inSession, plain] = [await session.exec(looks), await rig.run(looks)];
    expect(inSession.stdout).not.toContain('atoll');
    const names = (text: string) => [...text.matchAll(/^declare -\S+ (\w+)/gm)].map(([, name]) => name);
    // `bash -c` has its text in a variable; a script, like a session, has not.
    expect(names(inSession.stdout)).toEqual(names(plain.stdout).filter((name) => name !== 'BASH_EXECUTION_STRING'));
    expect(await session.exec('set -x; echo a; set +x')).toMatchObject({
      stdout: 'a\n',
      stderr: '+ echo a\n+ set +x\n',
    });
    expect(await session.out('echo "$0 $- $LINENO $BASH_SUBSHELL ${#FUNCNAME[@]} ${BASH_EXECUTION_STRING-none}"')).toBe(
      'bash hB 1 0 0 none\n',
    );
    await session.exec('echo last-word >/dev/null; (exit 9)');
    expect(await session.out('echo $? $_')).toBe('9 last-word\n');
    expect(await session.out('history')).toBe('');
  });

  test('E34: a command gets the descriptors 0, 1 and 2 and no other', async () => {
    const session = await rig.session();
    expect(await session.out('ls /proc/self/fd')).toBe('0\n1\n2\n3\n'); // 3 is the directory that ls reads.
    expect(await session.out('ls /proc/self/fd', { cwd: '/usr', stdin: Buffer.from('') })).toBe('0\n1\n2\n3\n');
    // The shell itself has two more, as documented.
    expect(await session.out(`ls /proc/${session.pid}/fd`)).toBe('0\n1\n2\n240\n241\n');
  });

  test('E35: what the user redefines is not what a session uses', async () => {
    const session = await rig.session();
    const names = [
      'printf',
      'echo',
      'base64',
      'rm',
      'cat',
      'test',
      'builtin',
      'command',
      'eval',
      'exec',
      'read',
      'enable',
      'cd',
    ];
    await session.exec(names.map((name) => `${name}() { :; }; alias ${name}=false`).join('\n'));
    await session.exec('PATH=/nowhere; IFS=x; unset HOME; set -f; set -C');
    expect(await session.exec('/bin/echo works; (exit 3)', { cwd: '/usr', env: { V: '1' } })).toMatchObject({
      stdout: 'works\n',
      exitCode: 3,
    });
    expect(await session.exec('\\unset -f printf; \\unalias -a; \\printf "%s\\n" "$PWD"')).toMatchObject({
      stdout: '/workspace\n',
    });
  });

  test('E37: two sessions share files and processes, and nothing else', async () => {
    const [one, other] = [await rig.session(), await rig.session()];
    await one.exec(
      'cd /tmp; v=1; export e=1; f() { :; }; alias x=y; umask 077; echo shared >/tmp/shared; sleep 1000 & ',
    );
    expect(await other.out('echo "$PWD ${v-} ${e-} $(umask)"; declare -F; alias; cat /tmp/shared')).toBe(
      '/workspace   0022\nshared\n',
    );
    const pid = (await one.out('echo $!')).trim();
    expect(await other.exec(`kill ${pid}`)).toMatchObject({ exitCode: 0 });
    expect(await one.exec(`wait ${pid}`)).toMatchObject({ exitCode: 143 });
  });
});
