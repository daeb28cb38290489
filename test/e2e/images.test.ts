/**
 * Images made by umoci, in every form that skopeo writes and from a registry, become the tree that umoci itself unpacks: content, mode,
 * owner, time, links and attributes, entry by entry.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import {
  type ImageProgress,
  type ImageSource,
  parseImageSource,
  type UnpackedImage,
  unpackImage,
} from '../../src/layers/index.ts';
import { buildImage, writeLayout, writeSaved } from '../support/image-builder.ts';
import { describeWith, requires } from '../support/requires.ts';
import { buildTar } from '../support/tar-builder.ts';
import { type ListedEntry, listTree } from '../support/tree-listing.ts';

const program = join(import.meta.dirname, '../../native/atoll-init');
const run = promisify(execFile);

/** What the image holds: three layers, of which each changes what the one below has. */
const firstLayer = `
set -e; cd "$1"
mkdir -p etc/deep/er gone/below swapped linked/below many 'name with spaces'
printf hello > etc/file; printf suid > etc/suid; chown 12:34 etc/suid etc/file; chmod 4755 etc/suid; chmod 2640 etc/file
ln -s ../etc/file etc/deep/link; ln -s /absolute/nowhere etc/dangling; ln etc/file etc/deep/hard
head -c 3000000 /dev/urandom > etc/large; : > etc/empty; mkfifo -m 620 etc/fifo
chmod 1777 many; for i in $(seq 200); do echo $i > many/$i; done
printf x > gone/below/file; printf y > swapped/file; printf y > linked/below/file; printf z > becomes-directory
printf n > 'name with spaces/ümläut'; printf l > "$(printf 'l%.0s' $(seq 150))"
python3 - <<'P'
import os, struct
os.setxattr('etc/file', 'user.note', b'kept\\x00binary')
os.setxattr('etc', 'user.directory', b'kept')
os.setxattr('etc/suid', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 13, 0, 0, 0))
P
chmod 4755 etc/suid; touch -d '1999-01-02 03:04:05' etc/empty etc/deep; touch -h -d '2001-01-01' etc/dangling
`;
const secondLayer = `
set -e; cd "$1"
rm -r gone; rm etc/empty many/7; rm -r swapped; printf file > swapped; rm -r linked; ln -s etc linked
rm becomes-directory; mkdir becomes-directory; printf in > becomes-directory/it
chmod 700 etc/deep; printf second > etc/file2; ln etc/file2 etc/file3
`;

describeWith(
  requires.root,
  requires.compiler,
  requires.program('umoci'),
  requires.program('skopeo'),
  requires.program('docker-registry'),
)('images', () => {
  let home: string;
  let expected: Readonly<Record<string, ListedEntry>>;
  let registry: { readonly child: ChildProcess; readonly host: string };
  const layout = () => join(home, 'layout');
  let made = 0;

  async function unpack(source: ImageSource, options: { onProgress?: (progress: ImageProgress) => void } = {}) {
    made += 1;
    const directory = join(home, `tree-${made}`);
    const image: UnpackedImage = await unpackImage(source, {
      directory,
      program,
      cacheDirectory: join(home, 'cache'),
      rules: { allowedHosts: ['127.0.0.1'] },
      ...options,
    });
    const tree = await listTree(directory);
    await rm(directory, { recursive: true });
    return { image, tree };
  }

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'atoll-images-'));
    const image = ['--image', `${layout()}:made`];
    const bundle = join(home, 'bundle');
    await run('umoci', ['init', '--layout', layout()]);
    await run('umoci', ['new', ...image]);
    await run('umoci', ['unpack', ...image, bundle]);
    for (const script of [firstLayer, secondLayer]) {
      await run('sh', ['-c', script, 'sh', join(bundle, 'rootfs')]);
      await run('umoci', ['repack', '--refresh-bundle', ...image, bundle]);
    }
    const words = [
      '--config.env',
      'A=1',
      '--config.workingdir',
      '/etc',
      '--config.user',
      '12:34',
      '--config.cmd',
      'sh',
    ];
    await run('umoci', ['config', ...image, ...words, '--config.entrypoint', '/bin/entry']);
    await run('umoci', ['unpack', ...image, join(home, 'expected')]);
    expected = await listTree(join(home, 'expected', 'rootfs'));
    registry = await startRegistry(home);
  });

  afterAll(async () => {
    registry?.child.kill();
    await rm(home, { recursive: true, force: true });
  });

  const skopeo = (to: string, ...words: string[]) =>
    run('skopeo', ['--insecure-policy', 'copy', ...words, `oci:${layout()}:made`, to]);

  test('a layout becomes the tree that umoci unpacks, and its configuration comes with it', async () => {
    const told: ImageProgress[] = [];
    const { image, tree } = await unpack(parseImageSource(`oci:${layout()}:made`), {
      onProgress: (one) => told.push(one),
    });

    // The control: the comparison is of something.
    expect(Object.keys(expected).length).toBeGreaterThan(210);
    expect(expected['etc/suid']).toMatchObject({ mode: 0o4755, uid: 12, gid: 34 });
    expect(expected['etc/suid']?.attributes).toHaveProperty(['security.capability']);
    expect(expected['etc/file']?.attributes).toEqual({ 'user.note': '6b6570740062696e617279' });
    expect(expected['etc/file']?.sameAs).toBe('etc/deep/hard');
    expect(expected['gone']).toBeUndefined();
    expect(tree).toEqual(expected);
    expect(image.config).toEqual({
      env: { A: '1' },
      workdir: '/etc',
      user: '12:34',
      entrypoint: ['/bin/entry'],
      cmd: ['sh'],
    });
    expect(image.layers).toBe(2);
    expect(told.filter(({ bytes, totalBytes }) => bytes === totalBytes).length).toBe(2);
  });

  test('an oci-archive and a docker-archive of it become the same tree', async () => {
    await skopeo(`oci-archive:${join(home, 'oci.tar')}:made`);
    await skopeo(`docker-archive:${join(home, 'docker.tar')}:made:latest`);

    expect((await unpack(parseImageSource(`oci-archive:${join(home, 'oci.tar')}`))).tree).toEqual(expected);
    expect((await unpack(parseImageSource(`docker-archive:${join(home, 'docker.tar')}`))).tree).toEqual(expected);
    await expect(unpack(parseImageSource(`docker-archive:${join(home, 'docker.tar')}:other`))).rejects.toMatchObject({
      code: 'image_not_found',
    });
  });

  test('a registry gives the same tree, by tag and by digest, and the second time from the cache', async () => {
    await skopeo(`docker://${registry.host}/some/made:one`, '--dest-tls-verify=false', '--dest-creds', 'tester:secret');
    const source = (reference: string, password = 'secret'): ImageSource => ({
      kind: 'registry',
      reference,
      credentials: { username: 'tester', password },
    });
    const downloads: string[] = [];
    const onProgress = (one: ImageProgress) => void (one.kind === 'download' && downloads.push(one.digest));
    const byTag = await unpack(source(`${registry.host}/some/made:one`), { onProgress });
    expect(byTag.tree).toEqual(expected);
    expect(new Set(downloads).size).toBe(3);

    downloads.length = 0;
    const byDigest = await unpack(source(`${registry.host}/some/made@${byTag.image.digest}`), { onProgress });
    expect(byDigest.tree).toEqual(expected);
    expect(byDigest.image).toEqual(byTag.image);
    expect(downloads).toEqual([]);

    // What changed in the cache is fetched anew.
    const cache = join(home, 'cache');
    for (const name of await readdir(cache)) await writeFile(join(cache, name), 'damaged', { flag: 'r+' });
    expect((await unpack(source(`${registry.host}/some/made:one`), { onProgress })).tree).toEqual(expected);
    expect(new Set(downloads).size).toBe(3);

    await expect(unpack(source(`${registry.host}/some/absent`))).rejects.toMatchObject({ code: 'image_not_found' });
    await expect(unpack(source(`${registry.host}/some/made:one`, 'wrong'))).rejects.toMatchObject({
      code: 'registry_denied',
    });
    await expect(unpack({ kind: 'registry', reference: `${registry.host}/some/made:one` })).rejects.toMatchObject({
      code: 'registry_denied',
    });
  });

  test('opaque directories, implied parents, replaced kinds and zstd are as an overlay shows them', async () => {
    const lower = buildTar([
      { name: './', type: '5', mode: 0o711, mtime: 5 },
      { name: './opaque/old', content: 'old' },
      { name: 'late/old', content: 'old' },
      { name: 'late/both', content: 'old' },
      { name: 'link', type: '2', target: 'opaque' },
      { name: 'dev/null', type: '3' },
      { name: 'plain', content: 'a', pax: { mtime: '-1.25', 'SCHILY.xattr.trusted.overlay.opaque': 'y' } },
    ]);
    const upper = buildTar([
      { name: 'opaque/.wh..wh..opq' },
      { name: 'opaque/new', content: 'new' },
      // Behind what it must not hide.
      { name: 'late/both', content: 'new' },
      { name: 'late/.wh..wh..opq' },
      { name: '.wh..wh.plnk/1.2', content: 'book-keeping' },
      { name: 'link', type: '5', mode: 0o750 },
      { name: 'link/inside', content: 'in a directory' },
      { name: 'linked', type: '1', target: 'plain' },
    ]);
    const image = buildImage([lower, upper], { compress: zstdCompressSync });
    await writeLayout(join(home, 'handmade'), image);
    await writeSaved(join(home, 'handmade.tar'), image);
    const { tree, image: unpacked } = await unpack({ kind: 'layout', directory: join(home, 'handmade') });

    expect(Object.keys(tree).sort()).toEqual([
      '',
      'late',
      'late/both',
      'link',
      'link/inside',
      'linked',
      'opaque',
      'opaque/new',
      'plain',
    ]);
    expect(tree['']).toMatchObject({ mode: 0o711, mtime: '5000000000' });
    expect(tree['link']).toMatchObject({ kind: '0o40000', mode: 0o750 });
    expect(tree['opaque']).toMatchObject({ mode: 0o755, mtime: '1700000000000000000' });
    expect(tree['plain']).toMatchObject({ attributes: {}, mtime: '-1250000000', sameAs: 'linked' });
    expect(unpacked).toMatchObject({ skippedDevices: 1, skippedAttributes: 1, digest: image.manifestDigest });
    expect((await unpack({ kind: 'archive', path: join(home, 'handmade.tar') })).tree).toEqual(tree);
  });

  test('an aborted unpacking ends at once with the reason, and its program with it', async () => {
    const stop = new AbortController();
    const directory = join(home, 'aborted');
    const unpacking = unpackImage(parseImageSource(`oci:${layout()}:made`), {
      directory,
      program,
      signal: stop.signal,
      onProgress: () => stop.abort(new Error('enough')),
    });
    await expect(unpacking).rejects.toThrow('enough');
    await vi.waitFor(() => expect(processesOn(directory)).resolves.toBe(0), { timeout: 20_000 });
    await rm(directory, { recursive: true });
  });
});

async function processesOn(directory: string): Promise<number> {
  const { stdout } = await run('ps', ['-eo', 'args']);
  return stdout.split('\n').filter((line) => line.includes(`unpack ${directory}`)).length;
}

const hashOfSecret = '$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a';

/** Debian's registry on a loopback port, for one who knows the password. */
async function startRegistry(home: string): Promise<{ readonly child: ChildProcess; readonly host: string }> {
  const port = await freePort();
  await mkdir(join(home, 'registry'));
  await writeFile(join(home, 'htpasswd'), `tester:${hashOfSecret}\n`);
  const config = {
    version: 0.1,
    log: { level: 'error' },
    storage: { filesystem: { rootdirectory: join(home, 'registry') } },
    http: { addr: `127.0.0.1:${port}` },
    auth: { htpasswd: { realm: 'tests', path: join(home, 'htpasswd') } },
  };
  // JSON is YAML.
  await writeFile(join(home, 'registry.yml'), JSON.stringify(config));
  const child = spawn('docker-registry', ['serve', join(home, 'registry.yml')], { stdio: 'ignore' });
  const host = `127.0.0.1:${port}`;
  await vi.waitFor(() => fetch(`http://${host}/v2/`), { timeout: 30_000, interval: 100 });
  return { child, host };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
