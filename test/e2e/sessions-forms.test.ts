/** What may stand in a command of a session: every form that a shell reads, and every way to end or break one. */
import { createHash } from 'node:crypto';
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

const alive = async () => {
  expect(await say(session, 'echo alive')).toBe('alive\n');
};

test('E38: several lines, heredocs, trailing comments and continued lines', async () => {
  expect(await say(session, 'echo one\necho two\n\n')).toBe('one\ntwo\n');
  expect(await say(session, 'cat <<END\nheld $((1+1))\nEND\necho behind')).toBe('held 2\nbehind\n');
  expect(await say(session, "cat <<'END'\n$raw\nEND")).toBe('$raw\n');
  expect(await say(session, 'echo kept # not this')).toBe('kept\n');
  expect(await say(session, '# only a comment')).toBe('');
  expect(await say(session, 'echo con\\\ntinued')).toBe('continued\n');
  expect(await say(session, 'for i in 1 2\ndo\n  echo $i\ndone | tac')).toBe('2\n1\n');
});

test('E39: an unbalanced quote or bracket is an error of the command, and the session lives', async () => {
  for (const text of [
    'echo "open',
    "echo 'open",
    'echo $(',
    'if true; then',
    '( echo',
    'echo )',
    '{ echo',
    'case x in',
    '${',
  ]) {
    const result = await session.exec(text);
    expect([text, result.sessionEnded]).toEqual([text, null]);
    expect([text, result.exitCode]).not.toEqual([text, 0]);
    expect(result.stderr).not.toBe('');
    await alive();
  }
});

test('E40: a heredoc without its end ends with the text', async () => {
  const result = await session.exec('cat <<END\nheld');
  expect(result).toMatchObject({ exitCode: 0, sessionEnded: null });
  expect(result.stdout).toMatch(/^held\n?$/);
  await alive();
});

test('E41: return, break and continue at top level never hang', async () => {
  for (const text of ['return', 'return 3', 'break', 'continue', 'break 2', 'echo a; return 4; echo b']) {
    const result = await session.exec(text);
    expect([text, result.sessionEnded]).toEqual([text, null]);
    await alive();
  }
});

test('E42: exit N ends the session with N; what was written before is there, and the next call is told', async () => {
  const result = await session.exec('echo before; echo too >&2; exit 7; echo after');
  expect(result).toMatchObject({ stdout: 'before\n', stderr: 'too\n', exitCode: 7, signal: null });
  expect(result.sessionEnded).toMatchObject({ exitCode: 7, signal: null, reason: 'exited' });
  const next = session.exec('echo ran > /tmp/e42');
  await expect(next).rejects.toMatchObject({ code: 'session_terminated', details: { exitCode: 7, reason: 'exited' } });
  expect(await sandbox.files.exists('/tmp/e42')).toBe(false);
  expect((await session.refresh()).view).toMatchObject({ state: 'ended', end: { exitCode: 7 }, cwd: null });
});

test('E44: set -e ends the session at a failure as it ends a script; pipefail and set -u do what bash does', async () => {
  await say(session, 'set -o pipefail');
  expect(await session.exec('false | true')).toMatchObject({ exitCode: 1, sessionEnded: null });
  const unset = await session.exec('set -u; echo "$never_set"; echo behind');
  expect(unset.stdout).not.toContain('behind');
  expect(unset.stderr).toContain('never_set');
  expect(unset.exitCode).not.toBe(0);
  await using strict = await sandbox.sessions.create();
  await say(strict, 'set -e; if false; then :; fi; false || true');
  const failed = await strict.exec('echo before; (exit 9); echo after');
  expect(failed).toMatchObject({ stdout: 'before\n', exitCode: 9, sessionEnded: { exitCode: 9, reason: 'exited' } });
});

test('E45: exec of a program takes the place of the shell; exec of a redirection stays', async () => {
  await say(session, 'exec >/tmp/e45');
  expect(await session.exec('echo into the file; echo error >&2')).toMatchObject({ stdout: '', stderr: 'error\n' });
  expect(await sandbox.files.readText('/tmp/e45')).toBe('into the file\n');
  const replaced = await session.exec('exec bash -c "echo new >&2; exit 6"');
  expect(replaced).toMatchObject({ stderr: 'new\n', exitCode: 6, sessionEnded: { exitCode: 6, reason: 'exited' } });
  await expect(session.exec('true')).rejects.toMatchObject({ code: 'session_terminated', details: { exitCode: 6 } });
});

test('E46: kill -9 $$ ends it with 137', async () => {
  const killed = await session.exec('echo before; kill -9 $$');
  expect(killed).toMatchObject({ stdout: 'before\n', exitCode: 137, signal: 'SIGKILL', timedOut: false });
  expect(killed.sessionEnded).toMatchObject({ exitCode: 137, signal: 'SIGKILL', reason: 'crashed' });
  await expect(session.exec('true')).rejects.toMatchObject({ code: 'session_terminated', details: { exitCode: 137 } });
});

test('E47: closed and redirected descriptors 0 to 9 do not break it', async () => {
  for (let descriptor = 3; descriptor <= 9; descriptor++) {
    await session.exec(`exec ${descriptor}>&-`);
    await session.exec(`exec ${descriptor}>/tmp/e47`);
    await session.exec(`exec ${descriptor}<&-`);
  }
  await alive();
  expect(await session.exec('exec 0<&-; cat; echo $?')).toMatchObject({ sessionEnded: null });
  await session.exec('exec 2>&-');
  expect(await session.exec('echo out; echo err >&2')).toMatchObject({ sessionEnded: null, stderr: '' });
  await session.exec('exec 1>&-');
  expect(await session.exec('echo out; exec 1>/tmp/e47-out; echo kept')).toMatchObject({
    sessionEnded: null,
    stdout: '',
  });
  expect(await sandbox.files.readText('/tmp/e47-out')).toBe('kept\n');
});

test('E49: E50: the two streams come apart, and no newline is added or removed', async () => {
  expect(await session.exec('printf out; printf err >&2')).toMatchObject({ stdout: 'out', stderr: 'err' });
  expect(await session.exec('printf "a\\n\\n"')).toMatchObject({ stdout: 'a\n\n', stderr: '' });
  expect(await session.exec(':')).toMatchObject({ stdout: '', stderr: '', exitCode: 0 });
});

test('E51: 10 MB of output are complete', async () => {
  const result = await session.exec('head -c 10485760 /dev/zero | tr "\\0" x');
  expect(result).toMatchObject({ exitCode: 0, stdoutTruncated: false });
  expect(result.stdoutBytes.byteLength).toBe(10_485_760);
  expect(result.stdoutBytes.every((byte) => byte === 0x78)).toBe(true);
  const cut = await session.exec('head -c 100000 /dev/zero', { outputLimitBytes: 1_000 });
  expect(cut).toMatchObject({ stdoutTruncated: true, exitCode: 0 });
  expect(cut.stdoutBytes.byteLength).toBe(1_000);
});

test('E52: bytes that are no text come through as they are', async () => {
  const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  await sandbox.files.write('/tmp/e52', Buffer.concat(Array.from({ length: 64 }, () => every)));
  const { stdoutBytes } = await session.exec('cat /tmp/e52');
  const sent = createHash('sha256').update(Buffer.concat(Array.from({ length: 64 }, () => every)));
  expect(createHash('sha256').update(stdoutBytes).digest('hex')).toBe(sent.digest('hex'));
});

test('E53: a command that reads its input finds its end, or what it was given, and never anything of ours', async () => {
  expect(await session.exec('cat; read -r line; echo "$?"')).toMatchObject({ stdout: '1\n', sessionEnded: null });
  expect((await session.exec('read -r a; cat; echo "[$a]"', { stdin: 'first\nrest\n' })).stdout).toBe(
    'rest\n[first]\n',
  );
  const bytes = Buffer.from([0, 255, 10, 13, 0]);
  expect(Buffer.from((await session.exec('cat', { stdin: bytes })).stdoutBytes)).toEqual(bytes);
  expect((await session.exec('cat')).stdout).toBe('');
  await alive();
});
