/** What a session keeps from one command to the next, and what it shows of how it is made: nothing. */
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { Sandbox, Session } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { say } from '../support/sessions.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));

let platform: Platform;
let sandbox: Sandbox;
let session: Session;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());
beforeEach(async () => {
  session = await sandbox.sessions.create();
});
afterEach(() => session[Symbol.asyncDispose]());

test('E23: the working directory persists', async () => {
  expect(await say(session, 'pwd')).toBe('/workspace\n');
  await say(session, 'mkdir -p /tmp/e23 && cd /tmp/e23');
  expect(await say(session, 'pwd')).toBe('/tmp/e23\n');
  expect((await session.refresh()).view.cwd).toBe('/tmp/e23');
  await say(session, 'cd - >/dev/null; cd /usr; pushd /tmp >/dev/null');
  expect(await say(session, 'dirs')).toBe('/tmp /usr\n');
});

test('E24: exported and plain variables persist', async () => {
  await say(session, 'PLAIN=one; export SHOWN="two words"');
  expect(await say(session, 'echo "$PLAIN|$SHOWN"')).toBe('one|two words\n');
  expect(await say(session, 'bash -c \'echo "${PLAIN-unset}|$SHOWN"\'')).toBe('unset|two words\n');
  await say(session, 'unset PLAIN; export -n SHOWN');
  expect(await say(session, 'echo "${PLAIN-unset}|$SHOWN"; bash -c \'echo "${SHOWN-unset}"\'')).toBe(
    'unset|two words\nunset\n',
  );
});

test('E25: E26: aliases and functions persist', async () => {
  await say(session, 'alias greet="echo hello"; shout() { echo "${1^^}"; }');
  expect(await say(session, 'greet you; shout loud')).toBe('hello you\nLOUD\n');
  await say(session, 'unalias greet; unset -f shout');
  const gone = await session.exec('greet you; shout loud');
  expect(gone.exitCode).toBe(127);
});

test('E27: what a sourced file does persists', async () => {
  await sandbox.files.write('/tmp/e27.sh', 'FROM_FILE=yes\ncd /usr/lib\nof_file() { echo "called $FROM_FILE"; }\n');
  await say(session, 'source /tmp/e27.sh');
  expect(await say(session, 'of_file; pwd')).toBe('called yes\n/usr/lib\n');
});

test('E28: options, umask and limits persist', async () => {
  await say(session, 'set -o noglob; shopt -s nullglob extglob; umask 027; ulimit -n 123');
  expect(await say(session, 'echo *; shopt nullglob extglob; umask; ulimit -n')).toBe(
    '*\nnullglob       \ton\nextglob        \ton\n0027\n123\n',
  );
  await say(session, 'set +o noglob; cd /tmp; touch e28');
  expect(await say(session, 'stat -c %a e28')).toBe('640\n');
});

test('E29: declared variables keep their kind: arrays, associative arrays, integers, readonly', async () => {
  await say(
    session,
    'declare -a list=(a "b c" d); declare -A map=([one]=1 [two]=2); declare -i sum=4; readonly FIXED=f',
  );
  expect(await say(session, 'echo "${#list[@]}:${list[1]}"; echo "${map[two]}"; sum+=3; echo $sum')).toBe(
    '3:b c\n2\n7\n',
  );
  expect(await session.exec('FIXED=g')).toMatchObject({ exitCode: 1, sessionEnded: null });
  expect(await say(session, 'echo $FIXED; declare -p list')).toBe('f\ndeclare -a list=([0]="a" [1]="b c" [2]="d")\n');
});

test('E30: positional parameters persist', async () => {
  await say(session, 'set -- first "second one"');
  expect(await say(session, 'echo "$#:$1:$2"; shift')).toBe('2:first:second one\n');
  expect(await say(session, 'echo "$#:$1"')).toBe('1:second one\n');
});

test('E32: traps persist, fire for what the user runs, and never for anything of ours', async () => {
  await say(session, 'trap \'echo "debug: $BASH_COMMAND"\' DEBUG');
  expect(await say(session, 'true')).toBe('debug: true\n');
  expect(await say(session, ':')).toBe('debug: :\n');
  await say(session, 'trap - DEBUG');
  await say(session, "trap 'echo failed' ERR; trap 'echo usr1' USR1");
  expect((await session.exec('false')).stdout).toBe('failed\n');
  expect(await say(session, 'kill -USR1 $$; :')).toBe('usr1\n');
  await say(session, 'trap \'echo "bye $x"\' EXIT; x=1');
  expect(await session.exec('echo last; exit 5')).toMatchObject({ stdout: 'last\nbye 1\n', exitCode: 5 });
});

test('E34: nothing of ours is visible: no variable, function, alias, trace line, job or history', async () => {
  const fresh = 'declare -F; alias -p; jobs; history';
  expect(await say(session, fresh)).toBe('');
  const ours = 'compgen -v | grep -iE "atoll|session|protocol" || echo none';
  expect(await say(session, ours)).toBe('none\n');
  expect(await say(session, 'echo "${BASH_EXECUTION_STRING-unset}"')).toBe('unset\n');
  await say(session, 'set -x');
  const traced = await session.exec('echo seen');
  expect(traced.stdout).toBe('seen\n');
  expect(traced.stderr.trim().split('\n')).toHaveLength(1);
  expect(traced.stderr).toMatch(/^\++ echo seen\n$/);
  await session.exec('set +x');
  await session.exec('false');
  expect(await say(session, 'echo "$?"')).toBe('1\n');
  await say(session, 'true kept-argument');
  expect(await say(session, 'echo "$_"')).toBe('kept-argument\n');
  const environment = await say(session, 'env');
  expect(environment).not.toMatch(/atoll/i);
});

test('E35: redefined builtins and programs change what the user runs and nothing else', async () => {
  const names = [
    'printf',
    'echo',
    'base64',
    'rm',
    'cat',
    'test',
    '[',
    'read',
    'eval',
    'exec',
    'exit',
    'builtin',
    'command',
  ];
  const all = [...names, 'source', 'trap', 'set', 'unset', 'cd', 'pwd', 'declare', 'true', 'enable', 'return', 'kill'];
  await say(
    session,
    all
      .map((name) => `function ${name} { \\printf 'mine\\n'; }`)
      .join('; ')
      .replaceAll('\\printf', '/usr/bin/printf'),
  );
  expect((await session.exec('echo hello')).stdout).toBe('mine\n');
  expect((await session.exec('cd /tmp; eval x')).stdout).toBe('mine\nmine\n');
  expect(await session.exec('/usr/bin/env pwd', { cwd: '/usr' })).toMatchObject({ stdout: '/usr\n', exitCode: 0 });
  expect((await session.exec('/usr/bin/printf "$GIVEN"', { env: { GIVEN: 'g' } })).stdout).toBe('g');
  expect((await session.refresh()).view).toMatchObject({ state: 'running', cwd: '/workspace' });
});

test('E37: two sessions share files and processes, and nothing of their shells', async () => {
  await using other = await sandbox.sessions.create();
  await say(
    session,
    'cd /tmp; export ONLY=here; alias only=echo; only_here() { :; }; echo file > /tmp/e37; sleep 876 &',
  );
  const there = await other.exec(
    'pwd; echo "${ONLY-unset}"; type only only_here 2>&1 | grep -c "not found"; cat /tmp/e37',
  );
  expect(there.stdout).toBe('/workspace\nunset\n2\nfile\n');
  expect((await other.exec('pgrep -fx "sleep 876" | wc -l')).stdout).toBe('1\n');
  expect(await say(session, 'kill %1; wait; echo ended')).toContain('ended\n');
});
