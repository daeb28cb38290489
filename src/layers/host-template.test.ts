import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { requires, testWith } from '../../test/support/requires.ts';
import { HostTemplate, removeUnfinishedTemplates } from './host-template.ts';

const test = testWith(requires.root);
let root: string;
let host: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atoll-template-'));
  host = join(root, 'host');
  for (const name of ['bin', 'sbin', 'lib']) await link(`usr/${name}`, name);
  await file('etc/passwd', 'root:hash:0:0:root:/root:/bin/bash\nann:x:1001:1001::/home/ann:/bin/zsh\n');
  await file('etc/group', 'root:x:0:\nsudo:x:27:ann\nshadow:x:42:\nann:x:1001:\n');
  await file('etc/shadow', 'root:$6$secret:1::::::\n');
  await file('etc/os-release', 'ID=test\n');
  await file('etc/skel/.bashrc', '# skel\n');
});

afterEach(() => rm(root, { recursive: true, force: true }));

async function file(path: string, content: string, mode = 0o644): Promise<void> {
  await mkdir(dirname(join(host, path)), { recursive: true });
  await writeFile(join(host, path), content);
  await chmod(join(host, path), mode);
}

async function link(to: string, path: string): Promise<void> {
  await mkdir(dirname(join(host, path)), { recursive: true });
  await symlink(to, join(host, path));
}

async function build(): Promise<string> {
  const template = new HostTemplate({ directory: join(root, 'layers'), hostRoot: host });
  return (await template.ensure()).layers[0]!;
}

test('what the list does not name stays out', async () => {
  await file('etc/wifi-password', 'secret');
  await file('etc/apt/auth.conf', 'secret');
  await file('root/.ssh/id_rsa', 'secret');
  await file('opt/tool', 'x');
  const layer = await build();
  expect(await readdir(join(layer, 'etc'))).not.toContain('wifi-password');
  expect(await readdir(join(layer, 'root'))).toEqual([]);
  expect(await readdir(join(layer, 'opt'))).toEqual([]);
});

test("no field of the host's shadow file gets in, and accounts have no passwords or ordinary users", async () => {
  const layer = await build();
  const shadow = await readFile(join(layer, 'etc/shadow'), 'utf8');
  expect(shadow).not.toContain('secret');
  expect(shadow).toContain('user:*:');
  expect(await readFile(join(layer, 'etc/passwd'), 'utf8')).toBe(
    'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n',
  );
  expect(await readFile(join(layer, 'etc/group'), 'utf8')).toContain('sudo:x:27:user\n');
});

test('a file that not everybody on the host may read stays out, also below a named directory', async () => {
  await file('etc/ssl/certs/public.pem', 'public');
  await file('etc/ssl/certs/private.key', 'secret', 0o640);
  await file('etc/security/opasswd', 'secret', 0o600);
  await file('etc/perl/hidden/file', 'secret');
  await chmod(join(host, 'etc/perl/hidden'), 0o700);
  const layer = await build();
  expect(await readdir(join(layer, 'etc/ssl/certs'))).toEqual(['public.pem']);
  expect(await readdir(join(layer, 'etc/security'))).toEqual([]);
  expect(await readdir(join(layer, 'etc/perl'))).toEqual([]);
});

test('a link is copied as a link and never followed', async () => {
  await file('srv/secret/key', 'secret');
  await link('/srv/secret', 'etc/alternatives');
  await link('../srv/secret/key', 'etc/profile');
  await link('../srv', 'etc/ssl');
  await file('srv/certs/x.pem', 'secret');
  const layer = await build();
  expect(await readlink(join(layer, 'etc/alternatives'))).toBe('/srv/secret');
  expect(await readlink(join(layer, 'etc/profile'))).toBe('../srv/secret/key');
  // A named path that leads through a link is left out.
  expect(await readdir(join(layer, 'etc'))).not.toContain('ssl');
});

test('set-id bits and group or other write permission are dropped', async () => {
  await file('etc/pam.d/odd', 'x', 0o6777);
  const layer = await build();
  expect((await lstat(join(layer, 'etc/pam.d/odd'))).mode & 0o7777).toBe(0o755);
});

test('callers at the same time share one build, and a second build of the same host is the same layer', async () => {
  const template = new HostTemplate({ directory: join(root, 'layers'), hostRoot: host });
  const [a, b] = await Promise.all([template.ensure(), template.ensure()]);
  expect(a).toBe(b);
  const [c, d] = await Promise.all([build(), build()]);
  expect([c, d]).toEqual([a.layers[0], a.layers[0]]);
  expect(await readdir(join(root, 'layers'))).toHaveLength(1);
});

test("a change of the host's packages gives another layer", async () => {
  const before = await build();
  await file('var/lib/dpkg/status', 'Package: new\n');
  expect(await build()).not.toBe(before);
});

test('a host without a merged /usr is refused, and nothing is left', async () => {
  await rm(join(host, 'lib'));
  await mkdir(join(host, 'lib'));
  await expect(build()).rejects.toMatchObject({ code: 'isolation_failed' });
  expect(await readdir(join(root, 'layers'))).toEqual([]);
});

test('unfinished builds of a crash are removed, finished ones are kept', async () => {
  const layer = await build();
  await mkdir(join(root, 'layers/making-0123/etc'), { recursive: true });
  await removeUnfinishedTemplates(join(root, 'layers'));
  expect(await readdir(join(root, 'layers'))).toEqual([layer.split('/').at(-1)]);
});
