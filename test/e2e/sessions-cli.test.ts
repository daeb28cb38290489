/** `atoll session` against a real server. */
import { afterAll, beforeAll, expect } from 'vitest';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));

let platform: Platform;

beforeAll(async () => {
  platform = await Platform.start();
  await platform.client.sandboxes.create({ name: 'box' });
});
afterAll(() => platform.close());

const cli = (...words: string[]) => platform.cli(...words);

test('each verb of session does what its name says', async () => {
  const made = await cli('session', 'create', 'box', 'work', '--cwd', '/tmp', '--env', 'GIVEN=yes');
  expect(made).toMatchObject({ code: 0, stderr: '' });
  expect(made.stdout).toMatch(/^ses[a-z0-9]{20}\n$/);
  expect(await cli('session', 'exec', 'box', 'work', '--', 'x=1;', 'cd', '/usr')).toMatchObject({
    code: 0,
    stdout: '',
  });
  const shown = await cli('session', 'exec', 'box', 'work', '--', 'echo "$x $PWD $GIVEN"; echo err >&2; (exit 3)');
  expect(shown).toEqual({ code: 3, stdout: '1 /usr yes\n', stderr: 'err\n' });
  expect(await cli('session', 'env', 'box', 'work', 'A=1', 'B=two words', '--unset', 'GIVEN')).toMatchObject({
    code: 0,
  });
  const env = await cli('session', 'exec', 'box', 'work', '--', 'echo "$A $B ${GIVEN-unset}"');
  expect(env.stdout).toBe('1 two words unset\n');
  const fed = await platform.cliWith({ stdin: 'fed' }, 'session', 'exec', '-i', 'box', 'work', '--', 'cat');
  expect(fed).toMatchObject({ code: 0, stdout: 'fed' });
  const ran = await cli('session', 'run', 'box', 'work', '--', 'echo "$x $PWD"; exit 5');
  expect(ran).toEqual({ code: 5, stdout: '1 /usr\n', stderr: '' });
  const left = (await cli('session', 'run', '-d', 'box', 'work', '--', 'sleep 600')).stdout.trim();
  expect((await cli('ps', 'box', '-q', '--session', made.stdout.trim())).stdout).toBe(`${left}\n`);
  const listed = JSON.parse((await cli('--json', 'session', 'ls', 'box')).stdout) as { items: object[] };
  expect(listed.items).toMatchObject([{ name: 'work', state: 'running', cwd: '/usr', queued: 0, current: null }]);
  expect((await cli('session', 'ls', 'box')).stdout).toMatch(/work\s+idle\s+0\s.*\/usr/);
  const json = JSON.parse((await cli('--json', 'session', 'exec', 'box', 'work', '--', 'echo out')).stdout);
  expect(json).toMatchObject({ stdout: 'out\n', exitCode: 0, sessionEnded: null, encoding: 'utf8' });
});

test('what fails says what to do next', async () => {
  await cli('session', 'create', 'box', 'once');
  const again = await cli('session', 'create', 'box', 'once');
  expect(again).toMatchObject({ code: 73, stdout: '' });
  expect(again.stderr).toContain('atoll session rm');
  const ended = await cli('session', 'exec', 'box', 'once', '--', 'echo bye; exit 9');
  expect(ended).toMatchObject({ code: 9, stdout: 'bye\n' });
  expect(ended.stderr).toContain('the session has ended (exited, exit 9)');
  const next = await cli('session', 'exec', 'box', 'once', '--', 'true');
  expect(next).toMatchObject({ code: 73, stdout: '' });
  expect(next.stderr).toContain('atoll session create');
  expect(await cli('session', 'rm', 'box', 'once')).toMatchObject({ code: 0, stdout: '' });
  expect(await cli('session', 'rm', 'box', 'once')).toMatchObject({ code: 66 });
  expect(await cli('session', 'env', 'box', 'work')).toMatchObject({ code: 2 });
});
