/** Templates through the real server: `base` from Debian packages, what sandboxes of it have, names, and what keeps their files. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { debianRepository } from '../support/debian-repository.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { buildLimitMs, collected, definitionOf } from '../support/templates.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('apt-get'), requires.program('gpg'));

let platform: Platform;
let sandbox: Sandbox;
let directory: string;

beforeAll(async () => {
  process.env['ATOLL_APT'] = await debianRepository();
  directory = await mkdtemp(join(tmpdir(), 'atoll-definition-'));
  platform = await Platform.start();
  const refusal = platform.client.sandboxes.create({ template: 'base' });
  await expect(refusal).rejects.toMatchObject({
    code: 'template_not_built',
    details: { command: 'atoll template build base' },
  });
  const answer = await platform.cli('template', 'build', 'base');
  expect(answer.stderr).toContain('[1/3] Debian from');
  expect(answer).toMatchObject({ code: 0, stdout: expect.stringMatching(/^tpl[a-z0-9]{20}\n$/) });
  sandbox = await platform.client.sandboxes.create({ template: 'base', env: { FROM_SANDBOX: 'yes' } });
}, buildLimitMs);
afterAll(async () => {
  await platform.close();
  await rm(directory, { recursive: true });
});

const say = async (command: string | readonly string[], options = {}) => {
  const { stdout, stderr, exitCode } = await sandbox.exec(command, options);
  expect(stderr, stderr).toBe('');
  expect(exitCode).toBe(0);
  return stdout.trim();
};

test('base has what agents expect: tools, Node, an ordinary user who may become root', async () => {
  expect(await say('id -un; id -gn; pwd; echo "$HOME"')).toBe('user\nuser\n/home/user\n/home/user');
  expect(await say('sudo -n id -u')).toBe('0');
  expect(await say('git --version && curl --version | head -1 && python3 --version && python --version')).toMatch(
    /git version .*\ncurl .*\nPython 3.*\nPython 3/,
  );
  expect(await say('node --version')).toBe(process.version);
  expect(await say('TERM=xterm tput cols; realpath /bin/sh; ps -o comm= -p 1 | wc -l')).toMatch(
    /^80\n\/usr\/bin\/dash\n1$/,
  );
  expect(await say('locale 2>/dev/null | grep LC_CTYPE')).toContain('C.UTF-8');
  expect(await say('touch /code/x /usr/local/x /usr/local/bin/x && echo done')).toBe('done');
  expect(await say('test -s /etc/ssl/certs/ca-certificates.crt && echo there')).toBe('there');
});

test('what the template says holds for every way to run, and the sandbox and the caller say otherwise', async () => {
  expect(await say('echo $FROM_SANDBOX')).toBe('yes');
  expect(await say('id -un; pwd', { user: 'root', cwd: '/tmp' })).toBe('root\n/tmp');
  await say('mkdir -p inner');
  expect(await say('pwd', { cwd: 'inner' })).toBe('/home/user/inner');
  const started = await sandbox.processes.start('id -un; pwd');
  await started.wait();
  const { items } = await started.readOutput();
  expect(items.map((item) => (item.kind === 'output' ? item.data : '')).join('')).toBe('user\n/home/user\n');
  await using session = await sandbox.sessions.create();
  expect((await session.exec('id -un; pwd')).stdout).toBe('user\n/home/user\n');
  const terminal = await sandbox.terminals.open({ command: ['/bin/true'] });
  expect(terminal.view).toMatchObject({ user: 'user', cwd: '/home/user' });
});

test('apt-get installs from a repository of files, as root and with sudo', async () => {
  const made = `set -e
rm -rf /tmp/repository && mkdir -p /tmp/repository/hello/DEBIAN /tmp/repository/hello/usr/bin && cd /tmp/repository
printf '#!/bin/sh\\necho hello\\n' > hello/usr/bin/hello-$1 && chmod 755 hello/usr/bin/hello-$1
printf 'Package: hello-%s\\nVersion: 1\\nArchitecture: all\\nMaintainer: nobody <n@example.org>\\nDescription: a test\\n' $1 > hello/DEBIAN/control
printf '#!/bin/sh\\necho configured > /var/lib/hello-%s\\n' $1 > hello/DEBIAN/postinst && chmod 755 hello/DEBIAN/postinst
dpkg-deb --root-owner-group --build hello hello.deb > /dev/null
dpkg-deb --field hello.deb > Packages
printf 'Filename: ./hello.deb\\nSize: %s\\nSHA256: %s\\n' $(stat -c %s hello.deb) $(sha256sum hello.deb | cut -d' ' -f1) >> Packages
chmod -R a+rX /tmp/repository
`;
  for (const [name, sudo] of [
    ['plain', ''],
    ['sudo', 'sudo -n '],
  ] as const) {
    const user = sudo === '' ? { user: 'root' } : {};
    expect((await sandbox.exec(['bash', '-c', made, 'sh', name], { user: 'root' })).exitCode).toBe(0);
    const list = '/etc/apt/sources.list.d/files.list';
    const install = `echo 'deb [trusted=yes] file:/tmp/repository ./' | ${sudo}tee ${list} && ${sudo}apt-get update && ${sudo}apt-get install -y hello-${name} && hello-${name} && cat /var/lib/hello-${name}`;
    const { stdout, exitCode, stderr } = await sandbox.exec(install, user);
    expect(stderr + stdout).toContain('hello\nconfigured\n');
    expect(exitCode).toBe(0);
  }
  expect(await say("dpkg-query -W -f '${Status}' hello-sudo")).toBe('install ok installed');
});

test('a definition is built step by step, and the same steps are not run again', async () => {
  await writeFile(join(directory, 'greeting.txt'), 'good morning\n');
  const definition = `from: base
env: { GREETING: hello, NUMBER: 7 }
steps:
  - copy: { from: greeting.txt, to: /srv/greeting.txt, owner: user }
  - user: root
  - workdir: /srv
  - run: id -un > who; pwd > where; echo "$GREETING $NUMBER" > said; rm /etc/sudoers.d/user
  - env: { LATE: one }
  - user: user
`;
  await writeFile(join(directory, 'greeter.yaml'), definition);
  const built = await platform.cli('template', 'build', join(directory, 'greeter.yaml'));
  expect(built.stderr).toContain('[1/2] copy greeting.txt to /srv/greeting.txt\n');
  expect(built.code).toBe(0);
  const again = await platform.cli('template', 'build', join(directory, 'greeter.yaml'), '--name', 'second:v1.0');
  expect(again.stderr).toContain('[2/2] run id -un > who');
  expect(again.stderr.match(/\(was there\)/g)).toHaveLength(2);
  expect(again.stdout).toBe(built.stdout);
  // One step changes: what is before it stays.
  await writeFile(join(directory, 'greeter.yaml'), definition.replace('rm /etc', 'rm -f /etc'));
  const changed = await platform.cli('template', 'build', join(directory, 'greeter.yaml'));
  expect(changed.stderr.match(/\(was there\)/g)).toHaveLength(1);

  await using greeter = await platform.client.sandboxes.create({ template: 'second:v1.0' });
  const { stdout } = await greeter.exec(
    'id -un; pwd; cat who where said greeting.txt; echo $LATE; stat -c %U greeting.txt; ls /etc/sudoers.d',
  );
  expect(stdout).toBe('user\n/srv\nroot\n/srv\nhello 7\ngood morning\none\nuser\nREADME\n');
  const listed = await platform.client.templates.list();
  expect(listed.map(({ name }) => name)).toEqual(['host', 'base', 'greeter', 'second:v1.0']);
  const shown = await platform.cli('template', 'show', 'second:v1.0');
  expect(shown.stdout).toMatch(/Directory: +\/srv/);
});

test('a start command runs in every life, and the sandbox is not there before it is ready', async () => {
  const serve = 'sleep 1; exec python3 -m http.server 8080 --directory /srv';
  const definition = { from: 'base', user: 'root', start: { command: serve, ready: { port: 8080 } } };
  await (await platform.client.templates.build('web', definitionOf(definition))).wait();
  await using web = await platform.client.sandboxes.create({ template: 'web' });
  const look = () => web.exec('curl -fs -o /dev/null -w "%{http_code}" http://127.0.0.1:8080/');
  expect((await look()).stdout).toBe('200');
  expect((await web.processes.get('start')).view).toMatchObject({ running: true, command: serve });
  await web.stop();
  await web.start();
  expect((await look()).stdout).toBe('200');

  const broken = { ...definition, start: { command: 'exit 3', ready: { command: 'false', timeoutMs: 20_000 } } };
  await (await platform.client.templates.build('broken', definitionOf(broken))).wait();
  const refused = platform.client.sandboxes.create({ template: 'broken', name: 'never' });
  await expect(refused).rejects.toMatchObject({
    code: 'template_start_failed',
    message: expect.stringContaining('with 3'),
  });
  expect((await platform.client.sandboxes.list()).items.map(({ name }) => name)).not.toContain('never');
});

test('a build that fails says where and why, and leaves no template', async () => {
  const { templates } = platform.client;
  const failing = await templates.build(
    'failing',
    definitionOf({ from: 'base', steps: [{ run: 'echo so far; exit 9' }] }),
  );
  await expect(failing.wait()).rejects.toMatchObject({ code: 'build_step_failed', details: { exitCode: 9 } });
  await expect(templates.get('failing')).rejects.toMatchObject({ code: 'template_not_found' });
  // Its log can be read again, by whoever has the id, from any place.
  const again = await templates.findBuild(failing.id);
  const items = await collected(again.log());
  expect(items).toContainEqual(expect.objectContaining({ kind: 'log', text: 'so far\n' }));
  expect((await collected(again.log({ cursor: items.at(-2)!.cursor }))).map(({ kind }) => kind)).toEqual(['ended']);

  const missing = await templates.build('missing', { kind: 'debian', packages: ['no-such-package-anywhere'] });
  await expect(missing.wait()).rejects.toMatchObject({
    code: 'packages_unavailable',
    message: expect.stringContaining('no-such-package-anywhere'),
  });
  await expect(templates.build('x', definitionOf({ from: 'nowhere' })).then((one) => one.wait())).rejects.toMatchObject(
    {
      code: 'template_not_found',
    },
  );
  const wrong = templates.build('x', { kind: 'definition', text: 'from: base\nsteps:\n  - run: [1]\n' });
  await expect(wrong).rejects.toMatchObject({ code: 'invalid_definition', details: { line: 3, column: 11 } });
});

test('the same thing asked for while it is built is one build, and a build is cancelled with everything in it', async () => {
  const { templates } = platform.client;
  const source = definitionOf({ from: 'base', steps: [{ run: 'echo begun; sleep 600' }] });
  const first = await templates.build('slow', source);
  for await (const item of first.log()) if (item.kind === 'log' && item.text.includes('begun')) break;
  expect((await templates.build('slow', source)).id).toBe(first.id);
  expect(await first.cancel()).toMatchObject({ state: 'failed', error: { code: 'build_cancelled' } });
  await expect(templates.get('slow')).rejects.toMatchObject({ code: 'template_not_found' });
});

test('a name that is built anew or taken away changes nothing for sandboxes that are there', async () => {
  const { templates, sandboxes } = platform.client;
  const build = async (text: string) =>
    await (
      await templates.build(
        'moving',
        definitionOf({ from: 'base', user: 'root', steps: [{ run: `echo ${text} > /mark` }] }),
      )
    ).wait();
  await build('one');
  await using old = await sandboxes.create({ template: 'moving' });
  await build('two');
  await using young = await sandboxes.create({ template: 'moving' });
  await platform.cli('template', 'rm', 'moving');
  await expect(sandboxes.create({ template: 'moving' })).rejects.toMatchObject({ code: 'template_not_found' });
  await old.stop();
  await old.start();
  expect((await old.exec('cat /mark')).stdout).toBe('one\n');
  expect((await young.exec('cat /mark')).stdout).toBe('two\n');
});
