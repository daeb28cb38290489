/** What somebody does in the first five minutes, with the command line. */
import { afterAll, beforeAll, expect } from 'vitest';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ program: 'sources' });
});
afterAll(() => platform.close());

test('a command shows the sandbox, not the host', async () => {
  const created = await platform.cli('create', 'first');
  expect(created).toMatchObject({ code: 0, stderr: '' });
  const id = created.stdout.trim();
  const shown = await platform.cli(
    'exec',
    id,
    '--',
    'sh',
    '-c',
    'id; hostname; cat /proc/1/comm; ls /home; cat /etc/shadow',
  );
  expect(shown.code).toBe(0);
  const [who, host, init, home, ...shadow] = shown.stdout.trim().split('\n');
  expect(who).toContain('uid=0(root)');
  expect(host).toBe(id);
  expect(init).toBe('atoll-init');
  expect(home).toBe('user');
  // No account has a password: the host's file is not there.
  for (const line of shadow) expect(line.split(':')[1]).toMatch(/^[*!]+$/);
});

test('list, info, stop, start and remove do what they say; exit codes pass through', async () => {
  const id = (await platform.cli('create', 'second', '--json')).stdout;
  const { id: sandboxId } = JSON.parse(id) as { id: string };
  expect((await platform.cli('exec', 'second', '--', 'sh', '-c', 'echo kept > /root/file; exit 42')).code).toBe(42);
  expect((await platform.cli('ls')).stdout).toContain(sandboxId);
  expect((await platform.cli('info', 'second')).stdout).toContain('running');
  expect((await platform.cli('stop', 'second')).code).toBe(0);
  expect((await platform.cli('exec', 'second', '--', 'true')).stderr).toContain('stopped');
  expect((await platform.cli('start', 'second')).code).toBe(0);
  expect((await platform.cli('exec', 'second', '--', 'cat', '/root/file')).stdout).toBe('kept\n');
  expect((await platform.cli('rm', 'second')).code).toBe(0);
  expect((await platform.cli('ls')).stdout).not.toContain(sandboxId);
});

test('standard input and output are bytes', async () => {
  const given = 'line one\nno newline at the end';
  const answer = await platform.cliWith({ stdin: given }, 'exec', '-i', 'first', '--', 'cat');
  expect(answer).toMatchObject({ code: 0, stdout: given });
});

test('a mistyped verb, an unknown sandbox and a wrong key say what is wrong and what to do', async () => {
  const typo = await platform.cli('creat');
  expect(typo.code).not.toBe(0);
  expect(typo.stderr).toContain('create');
  const unknown = await platform.cli('exec', 'sbxaaaaaaaaaaaaaaaaaaaa', '--', 'true');
  expect(unknown.code).not.toBe(0);
  expect(unknown.stderr).toContain('sbxaaaaaaaaaaaaaaaaaaaa');
  const wrong = await platform.cliWith({ env: { ATOLL_API_KEY: `atoll_${'0'.repeat(40)}` } }, 'ls');
  expect(wrong.code).not.toBe(0);
  expect(wrong.stderr.toLowerCase()).toContain('key');
});
