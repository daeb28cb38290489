/** An image made by other tools becomes a template, from Debian's registry on loopback and from an archive, and runs. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { Atoll } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { buildImage, writeLayout } from '../support/image-builder.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const run = promisify(execFile);
const test = testWith(requires.root, requires.cgroups, requires.program('skopeo'), requires.program('docker-registry'));

let platform: Platform;
let home: string;
let registry: { readonly child: ChildProcess; readonly host: string };

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'atoll-image-'));
  const config = { Env: ['FROM_IMAGE=yes', 'BOTH=image'], WorkingDir: '/srv', User: '1000:1000', Cmd: ['/bin/false'] };
  const upper = join(home, 'upper');
  await mkdir(join(upper, 'srv'), { recursive: true });
  await writeFile(join(upper, 'srv/said'), 'hello\n');
  await writeFile(join(upper, 'srv/.wh.gone'), '');
  await writeLayout(join(home, 'layout'), buildImage([await tarOf(await shellTree()), await tarOf(upper)], { config }));
  registry = await startRegistry();
  const copy = (to: string, ...words: string[]) =>
    run('skopeo', ['copy', '--insecure-policy', ...words, `oci:${join(home, 'layout')}`, to]);
  await copy(`docker://${registry.host}/some/tiny:one`, '--dest-tls-verify=false');
  await copy(`docker-archive:${join(home, 'tiny.tar')}:tiny:one`);
  platform = await Platform.start({ serverEnvironment: { ATOLL_PRIVATE_HOSTS: '127.0.0.1' } });
}, 120_000);
afterAll(async () => {
  registry.child.kill();
  await platform.close();
  await rm(home, { recursive: true });
});

/** This machine's `sh`, with what it needs. */
async function shellTree(): Promise<string> {
  const tree = join(home, 'shell');
  const { stdout } = await run('ldd', ['/bin/dash']);
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1]!);
  for (const [from, to] of [['/bin/dash', '/bin/sh'], ...libraries.map((path) => [path, path])] as [string, string][]) {
    await mkdir(join(tree, to, '..'), { recursive: true });
    await writeFile(join(tree, to), await readFile(from), { mode: 0o755 });
  }
  await mkdir(join(tree, 'srv'));
  await writeFile(join(tree, 'srv/gone'), 'of the lower layer\n');
  return tree;
}

async function tarOf(tree: string): Promise<Buffer> {
  const words = ['-c', '--owner=0', '--group=0', '-C', tree, '.'];
  const { stdout } = await run('tar', words, { encoding: 'buffer', maxBuffer: 2 ** 28 });
  return stdout;
}

async function startRegistry(): Promise<{ child: ChildProcess; host: string }> {
  const finder = createServer().listen(0, '127.0.0.1');
  await once(finder, 'listening');
  const { port } = finder.address() as { port: number };
  finder.close();
  await once(finder, 'close');
  const host = `127.0.0.1:${port}`;
  const storage = { filesystem: { rootdirectory: join(home, 'registry') } };
  await writeFile(join(home, 'registry.yml'), JSON.stringify({ version: '0.1', storage, http: { addr: host } }));
  const child = spawn('docker-registry', ['serve', join(home, 'registry.yml')], { stdio: 'ignore' });
  await vi.waitFor(async () => expect((await fetch(`http://${host}/v2/`)).status).toBe(200), patience);
  return { child, host };
}

async function checkTiny(template: string): Promise<void> {
  await using tiny = await platform.client.sandboxes.create({ template, env: { BOTH: 'sandbox' } });
  // Without a bash a text runs with sh.
  const { stdout, stderr } = await tiny.exec('echo "$FROM_IMAGE $BOTH $PWD"; read line < said; echo "$line"; echo *');
  expect(stderr).toBe('');
  expect(stdout).toBe('yes sandbox /srv\nhello\nsaid\n');
  expect((await tiny.exec('echo > new')).exitCode).not.toBe(0); // The image's user owns nothing.
  expect((await tiny.exec('echo > new', { user: '0:0' })).exitCode).toBe(0);
}

test('an image is pulled from a registry by whoever runs the installation, and runs', async () => {
  const built = await platform.cli('template', 'build', `docker://${registry.host}/some/tiny:one`);
  expect(built).toMatchObject({ code: 0, stdout: expect.stringMatching(/^tpl/) });
  await checkTiny('tiny:one');
  const definition = `from: docker://${registry.host}/some/tiny:one\nsteps: [{ user: "0:0" }, { run: "echo more > more" }]\n`;
  await (await platform.client.templates.build('more', { kind: 'definition', text: definition })).wait();
  await using more = await platform.client.sandboxes.create({ template: 'more' });
  expect((await more.exec('echo *')).stdout).toBe('more said\n');

  const absent = await platform.client.templates.build('x', {
    kind: 'image',
    reference: `${registry.host}/some/absent`,
  });
  await expect(absent.wait()).rejects.toMatchObject({ code: 'image_not_found' });
  const { key } = await platform.client.keys.create({ name: 'other', scopes: ['sandboxes:write', 'sandboxes:read'] });
  const other = new Atoll({ url: platform.server.url, apiKey: key });
  const pulling = await other.templates.build('x', { kind: 'image', reference: `${registry.host}/some/tiny:one` });
  await expect(pulling.wait()).rejects.toMatchObject({ code: 'forbidden' });
});

test('an archive that is sent along is a template, whoever sends it, and a broken one is refused', async () => {
  expect(await platform.cli('template', 'build', `docker-archive:${join(home, 'tiny.tar')}`)).toMatchObject({
    code: 0,
  });
  await checkTiny('tiny');
  const bytes = await readFile(join(home, 'tiny.tar'));
  const contextId = await platform.client.templates.uploadContext(bytes.subarray(0, bytes.byteLength / 2));
  const broken = await platform.client.templates.build('broken', { kind: 'imageArchive', contextId });
  await expect(broken.wait()).rejects.toMatchObject({ code: 'image_refused' });
});
