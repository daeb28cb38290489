/**
 * Images made to leave their tree, to fill the disk, or to be other than they say. Each is refused, and nothing outside the tree has changed; what is
 * just within the rules is taken, so that a refusal is of the attack and not of the way it is made.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ImageLimits, unpackImage } from '../../src/layers/index.ts';
import type { ErrorCode } from '../../src/protocol/index.ts';
import { type BuildOptions, buildImage, writeLayout } from '../support/image-builder.ts';
import { describeWith, requires } from '../support/requires.ts';
import { buildTar, type TarItem } from '../support/tar-builder.ts';

const program = join(import.meta.dirname, '../../native/atoll-init');
const canary = 'CANARY-OUTSIDE-THE-TREE';
const file: TarItem = { name: 'file', content: 'content' };
const link = (name: string, target: string): TarItem => ({ name, type: '2', target });
const hard = (name: string, target: string): TarItem => ({ name, type: '1', target });

interface Attack {
  readonly layers: readonly (readonly TarItem[])[];
  readonly limits?: Partial<ImageLimits>;
  /** By default `image_refused`. */
  readonly code?: ErrorCode;
}

const attacks: Readonly<Record<string, Attack>> = {
  'an absolute name': { layers: [[{ ...file, name: '/etc/canary' }]] },
  'a name that leads upward': { layers: [[{ ...file, name: '../outside/canary' }]] },
  'a name that leads upward and back': { layers: [[{ ...file, name: 'a/../../outside/canary' }]] },
  'a pax name that leads upward': { layers: [[{ ...file, pax: { path: '../outside/canary' } }]] },
  'a pax name with a NUL': { layers: [[{ ...file, pax: { path: 'a\0/../../x' } }]] },
  'a long name that leads upward': {
    layers: [[{ name: '././@LongLink', type: 'L', content: '../outside/canary\0' }, file]],
  },
  'a file through a link of its own layer': { layers: [[link('way', '../outside'), { ...file, name: 'way/canary' }]] },
  'a file through a link of an earlier layer': {
    layers: [[link('way', '../outside')], [{ ...file, name: 'way/canary' }]],
  },
  'a file through a link that stays inside': {
    layers: [[{ name: 'in', type: '5' }, link('way', 'in')], [{ ...file, name: 'way/x' }]],
  },
  'a file through a hard-linked link': {
    layers: [[link('one', '../outside'), hard('two', 'one'), { ...file, name: 'two/canary' }]],
  },
  'a directory through a link': { layers: [[link('way', '/')], [{ name: 'way/etc', type: '5', mode: 0o777 }]] },
  'a whiteout through a link': { layers: [[link('way', '../outside')], [{ name: 'way/.wh.canary' }]] },
  'an opaque whiteout through a link': { layers: [[link('way', '../outside')], [{ name: 'way/.wh..wh..opq' }]] },
  'a whiteout of the parent': { layers: [[file], [{ name: '.wh...' }]] },
  'a whiteout of nothing': { layers: [[file], [{ name: '.wh.' }]] },
  'a name through a whiteout': { layers: [[{ ...file, name: '.wh.a/b' }]] },
  'a file through a file': { layers: [[file], [{ ...file, name: 'file/below' }]] },
  'a hard link to an absolute name': { layers: [[hard('mine', '/etc/passwd')]] },
  'a hard link that leads upward': { layers: [[hard('mine', '../outside/canary')]] },
  'a hard link through a link': { layers: [[link('way', '../outside'), hard('mine', 'way/canary')]] },
  'a hard link to what is not there': { layers: [[hard('mine', 'absent')]] },
  'a hard link to a directory': { layers: [[{ name: 'in', type: '5' }, hard('mine', 'in')]] },
  'a hard link to itself': { layers: [[file, hard('file', 'file')]] },
  'a hard link in place of the directory of its target': {
    layers: [[{ ...file, name: 'in/file' }, hard('in', 'in/file')]],
  },
  'a top that is a link': { layers: [[link('./', '/')]] },
  'a device': { layers: [[{ name: 'sda', type: '4' }]] },
  'a whiteout as overlays store it': { layers: [[{ name: 'etc/null', type: '3' }]] },
  'a sparse file': { layers: [[{ ...file, type: 'S' }]] },
  'a sparse file of pax': { layers: [[{ ...file, pax: { 'GNU.sparse.major': '1' } }]] },
  'a type that nobody knows': { layers: [[{ ...file, type: 'Z' }]] },
  'an owner outside the sandbox': { layers: [[{ ...file, uid: 65_536 }]] },
  'an owner outside the sandbox by pax': { layers: [[{ ...file, pax: { gid: '4294967295' } }]] },
  'capabilities for a user of the machine': {
    layers: [
      [{ ...file, pax: { 'SCHILY.xattr.security.capability': Buffer.from(`01000003${'00'.repeat(20)}`, 'hex') } }],
    ],
  },
  'an entry that is longer than its archive': { layers: [[{ ...file, size: 100_000 }]] },
  'an entry that announces more than may be': {
    layers: [[{ ...file, size: 2 ** 32 }]],
    limits: { totalBytes: 1024 ** 3 },
    code: 'image_too_large',
  },
  'a bomb': {
    layers: [[{ ...file, content: Buffer.alloc(8 * 1024 * 1024) }]],
    limits: { totalBytes: 4 * 1024 * 1024 },
    code: 'image_too_large',
  },
  'a bomb of many layers': {
    layers: Array.from({ length: 5 }, () => [{ ...file, content: Buffer.alloc(1024 * 1024) }]),
    limits: { totalBytes: 4 * 1024 * 1024 },
    code: 'image_too_large',
  },
  'too many entries': {
    layers: [Array.from({ length: 101 }, (_, at) => ({ name: `f${at}` }))],
    limits: { entries: 100 },
    code: 'image_too_large',
  },
  'too many directories that entries only imply': {
    layers: [Array.from({ length: 20 }, (_, at) => ({ name: `${at}/${'d/'.repeat(9)}f` }))],
    limits: { entries: 100 },
    code: 'image_too_large',
  },
  'too many layers': { layers: [[file], [file], [file]], limits: { layers: 2 }, code: 'image_too_large' },
  'a path that is too long': {
    layers: [[{ ...file, pax: { path: 'd/'.repeat(60) + 'x'.repeat(100) } }]],
    limits: { pathBytes: 200 },
    code: 'image_too_large',
  },
  'a path that is too deep': {
    layers: [[{ ...file, pax: { path: `${'d/'.repeat(200)}x` } }]],
    code: 'image_too_large',
  },
  'a name that is too long': { layers: [[{ ...file, pax: { path: 'x'.repeat(256) } }]] },
};

describeWith(requires.root, requires.compiler)('hostile images', () => {
  let home: string;
  let made = 0;

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'atoll-images-'));
    await mkdir(join(home, 'outside'));
    await writeFile(join(home, 'outside', 'canary'), canary);
  });
  afterAll(() => rm(home, { recursive: true, force: true }));

  /** The names in the tree, when it is taken. */
  async function unpack(layers: readonly Buffer[], options: BuildOptions & { limits?: Partial<ImageLimits> } = {}) {
    made += 1;
    const directory = join(home, `tree-${made}`);
    const layout = join(home, `layout-${made}`);
    await writeLayout(layout, buildImage(layers, options));
    try {
      await unpackImage({ kind: 'layout', directory: layout }, { directory, program, limits: options.limits ?? {} });
      return (await readdir(directory, { recursive: true })).sort();
    } finally {
      await rm(directory, { recursive: true, force: true });
      await rm(layout, { recursive: true });
    }
  }

  async function expectUntouched(): Promise<void> {
    expect(await readFile(join(home, 'outside', 'canary'), 'utf8')).toBe(canary);
    expect(await readdir(join(home, 'outside'))).toEqual(['canary']);
    expect(await readdir(home)).toEqual(['outside']);
  }

  test.each(Object.entries(attacks))(
    '%s is refused',
    async (_name, { layers, limits = {}, code = 'image_refused' }) => {
      const tars = layers.map((items) => buildTar(items));
      await expect(unpack(tars, { limits })).rejects.toMatchObject({ code });
      await expectUntouched();
    },
  );

  test('the controls: what is just within the rules is taken', async () => {
    const tars = [
      [{ name: './', type: '5' }, { ...file, name: './a/./b' }, link('way', '../outside/canary'), link('loop', 'loop')],
      [
        hard('a/c', 'a/b'),
        hard('way2', './way'),
        { name: '.wh.absent' },
        { name: 'absent/.wh.x' },
        { ...file, name: 'way' },
      ],
      [{ ...file, uid: 65_535, pax: { path: `${'d/'.repeat(100)}${'x'.repeat(255)}` } }],
    ].map((items) => buildTar(items));
    const implied = 1 + 100;
    const names = await unpack(tars, { limits: { entries: 10 + implied, layers: 3 } });
    expect(names).toEqual(expect.arrayContaining(['a', 'a/b', 'a/c', 'loop', 'way', 'way2']));
    expect(names).toHaveLength(6 + 101);
    await expectUntouched();
  });

  test('blobs that are not what was promised are refused', async () => {
    const tar = buildTar([{ ...file, content: Buffer.alloc(300_000, 'abc') }]);
    const bent = (bend: NonNullable<BuildOptions['bend']>) => expect(unpack([tar], { bend })).rejects;
    const flipped = Buffer.from(tar);
    flipped[700]! ^= 1;

    expect(await unpack([tar])).toEqual(['file']);
    await bent(({ layers }) => (layers[0]!.size += 1)).toMatchObject({ code: 'image_refused' });
    await bent(({ layers }) => (layers[0]!.size -= 1)).toMatchObject({ code: 'image_refused' });
    await bent(
      ({ layers }) => (layers[0]!.mediaType = 'application/vnd.oci.image.layer.v1.tar+encrypted'),
    ).toMatchObject({
      code: 'image_refused',
    });
    await bent(({ layers }) => (layers[0]!.digest = 'sha256:../../../../etc/passwd')).toMatchObject({
      code: 'image_refused',
    });
    // Right as a blob, and another tar than its configuration names.
    await expect(unpack([tar], { compress: () => gzipSync(flipped) })).rejects.toMatchObject({ code: 'image_refused' });
    await expect(unpack([tar], { compress: () => gzipSync(tar).subarray(0, -9) })).rejects.toMatchObject({
      code: 'image_refused',
    });
    await expect(
      unpack([tar], { compress: () => Buffer.concat([gzipSync(tar), Buffer.from('more')]) }),
    ).rejects.toMatchObject({ code: 'image_refused' });
    await expect(unpack([tar], { architecture: 'other' })).rejects.toMatchObject({ code: 'image_refused' });
    await expectUntouched();
  });

  test('a place that others can change is refused', async () => {
    const layout = join(home, 'layout');
    const shared = join(home, 'shared');
    await writeLayout(layout, buildImage([buildTar([file])]));
    await mkdir(shared);
    const unpackThere = () =>
      unpackImage({ kind: 'layout', directory: layout }, { directory: join(shared, 'tree'), program });
    await chmod(shared, 0o777);
    await expect(unpackThere()).rejects.toMatchObject({ code: 'isolation_failed' });
    await chmod(shared, 0o755);
    await expect(unpackThere()).resolves.toMatchObject({ entries: 1 });
    await rm(shared, { recursive: true });
    await rm(layout, { recursive: true });
  });

  test('the program that writes refuses by itself: ways through links, other entries than it is told, a directory that is open to others', async () => {
    const frame = (type: number, body: Buffer) => {
      const head = Buffer.alloc(5);
      head.writeUInt32LE(body.byteLength + 1);
      head.writeUInt8(type, 4);
      return Buffer.concat([head, body]);
    };
    const entry = (kind: string, path: string, target = '') => {
      const head = Buffer.alloc(37);
      head.write(kind);
      head.writeUInt32LE(0o644, 1);
      head.writeUInt16LE(path.length, 33);
      head.writeUInt16LE(target.length, 35);
      return frame(1, Buffer.concat([head, Buffer.from(path + target)]));
    };
    const end = frame(5, Buffer.alloc(0));
    const write = async (frames: readonly Buffer[], mode = 0o700) => {
      const directory = join(home, 'direct');
      await mkdir(directory, { mode });
      try {
        const child = spawn(program, ['unpack', directory], { stdio: ['pipe', 'ignore', 'inherit'] });
        child.stdin.on('error', () => {});
        child.stdin.end(Buffer.concat(frames));
        const [code] = (await once(child, 'close')) as [number];
        return code;
      } finally {
        await rm(directory, { recursive: true });
      }
    };

    expect(await write([entry('d', 'a'), entry('f', 'a/b'), entry('h', 'c', 'a/b'), end])).toBe(0);
    expect(await write([entry('f', 'a')])).toBe(1); // No END.
    expect(await write([end], 0o755)).toBe(1);
    expect(await write([entry('l', 'way', '../outside'), entry('f', 'way/x'), end])).toBe(1);
    expect(await write([entry('f', '../outside/x'), end])).toBe(1);
    expect(await write([entry('f', '/outside/x'), end])).toBe(1);
    expect(await write([entry('h', 'x', '../outside/canary'), end])).toBe(1);
    expect(await write([entry('f', 'a'), entry('f', 'a'), end])).toBe(1);
    expect(await write([frame(3, Buffer.from('\0../outside/canary')), end])).toBe(1);
    expect(await write([frame(2, Buffer.from('data of nothing')), end])).toBe(1);
    expect(await write([frame(1, Buffer.alloc(3)), end])).toBe(1);
    expect(await write([frame(99, Buffer.alloc(0)), end])).toBe(1);
    await expectUntouched();
  });
});
