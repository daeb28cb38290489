/** `atoll session` against a real server. */
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('bash'));
/** Every command line is a process of its own, which takes seconds on a busy machine. */
const manyCommands = { timeout: 180_000 };

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create({ name: 'box' });
});
afterAll(() => platform.close());

const cli = (...words: string[]) => platform.cli(...words);

test(
  'create, exec and env: output, exit code, input and state come through',
  async () => {
    const made = await cli('session', 'create', 'box', 'work', '--cwd', '/tmp', '--env', 'GIVEN=yes');
    expect(made).toMatchObject({ code: 0, stderr: '' });
    expect(made.stdout).toMatch(/^ses[a-z0-9]{20}\n$/);
    expect(await cli('session', 'exec', 'box', 'work', '--', 'x=1;', 'cd', '/usr')).toMatchObject({ code: 0 });
    const shown = await cli('session', 'exec', 'box', 'work', '--', 'echo "$x $PWD $GIVEN"; echo err >&2; (exit 3)');
    expect(shown).toEqual({ code: 3, stdout: '1 /usr yes\n', stderr: 'err\n' });
    const set = await cli('session', 'env', 'box', 'work', 'A=1', 'B=two words', '--unset', 'GIVEN');
    expect(set).toMatchObject({ code: 0, stdout: '' });
    const env = await cli('session', 'exec', 'box', 'work', '--', 'echo "$A $B $GIVEN."');
    expect(env.stdout).toBe('1 two words .\n');
    const fed = await platform.cliWith({ stdin: 'fed' }, 'session', 'exec', '-i', 'box', 'work', '--', 'cat');
    expect(fed).toMatchObject({ code: 0, stdout: 'fed' });
    const json = JSON.parse((await cli('--json', 'session', 'exec', 'box', 'work', '--', 'echo out')).stdout);
    expect(json).toMatchObject({ stdout: 'out\n', exitCode: 0, sessionEnded: null, encoding: 'utf8' });
  },
  manyCommands,
);

test(
  'run, ls and rm: a process from a session, what there is, and its end',
  async () => {
    const session = await sandbox.sessions.create({ name: 'runs', cwd: '/usr' });
    await session.exec('x=1');
    const ran = await cli('session', 'run', 'box', 'runs', '--', 'echo "$x $PWD"; exit 5');
    expect(ran).toEqual({ code: 5, stdout: '1 /usr\n', stderr: '' });
    const left = (await cli('session', 'run', '-d', 'box', 'runs', '--', 'sleep 600')).stdout.trim();
    expect((await cli('ps', 'box', '-q', '--session', session.id)).stdout).toContain(left);
    const listed = JSON.parse((await cli('--json', 'session', 'ls', 'box')).stdout) as { items: object[] };
    expect(listed.items[0]).toMatchObject({ name: 'runs', state: 'running', cwd: '/usr', queued: 0, current: null });
    expect((await cli('session', 'ls', 'box')).stdout).toMatch(/runs\s+idle\s+0\s.*\/usr/);
    expect(await cli('session', 'rm', 'box', 'runs')).toMatchObject({ code: 0, stdout: '' });
    expect((await (await sandbox.processes.get(left)).wait({ for: 'tree' })).exit).toMatchObject({ signal: 'SIGKILL' });
  },
  manyCommands,
);

test(
  'what fails says what to do next',
  async () => {
    await sandbox.sessions.create({ name: 'once' });
    const again = await cli('session', 'create', 'box', 'once');
    expect(again).toMatchObject({ code: 73, stdout: '' });
    expect(again.stderr).toContain('atoll session rm');
    const ended = await cli('session', 'exec', 'box', 'once', '--', 'echo bye; exit 9');
    expect(ended).toMatchObject({ code: 9, stdout: 'bye\n' });
    expect(ended.stderr).toContain('the session has ended (exited, exit 9)');
    const next = await cli('session', 'exec', 'box', 'once', '--', 'true');
    expect(next).toMatchObject({ code: 73, stdout: '' });
    expect(next.stderr).toContain('atoll session create');
    expect(await cli('session', 'rm', 'box', 'nobody')).toMatchObject({ code: 66 });
    expect(await cli('session', 'env', 'box', 'once')).toMatchObject({ code: 64 });
  },
  manyCommands,
);
