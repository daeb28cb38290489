/** What `tar` of this machine writes is read as it was, in every format; what is damaged is refused or read, and nothing else happens. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, lstat, mkdir, mkdtemp, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requires, testWith } from '../../../test/support/requires.ts';
import { buildTar } from '../../../test/support/tar-builder.ts';
import { isPlatformError } from '../../protocol/index.ts';
import { ByteReader } from './byte-reader.ts';
import { readTar, type TarEntry } from './tar-reader.ts';

type ReadEntry = Omit<TarEntry, 'content' | 'offset' | 'attributes'> & { readonly hash: string };

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer, void> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

async function readAll(bytes: Buffer, pieceBytes = 1_000): Promise<ReadEntry[]> {
  const entries: ReadEntry[] = [];
  for await (const { content, offset: _, attributes: __, ...entry } of readTar(
    new ByteReader(inPieces(bytes, pieceBytes)),
  )) {
    const hash = createHash('sha256');
    for await (const part of content()) hash.update(part);
    entries.push({ ...entry, hash: hash.digest('hex') });
  }
  return entries;
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');

describe('the tar of this machine', () => {
  let home: string;
  /** Fits the oldest format. */
  const shortName = 'directory/file';
  const longName = `directory/${'n'.repeat(99)}/${'m'.repeat(120)}`;

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'atoll-tar-'));
    await mkdir(join(home, 'directory', 'n'.repeat(99)), { recursive: true });
    await writeFile(join(home, shortName), 'x'.repeat(70_000));
    await chmod(join(home, shortName), 0o4751);
    await utimes(join(home, shortName), 1_000_000, 1_234_567_890.123);
    await symlink(`${'t'.repeat(150)}`, join(home, 'directory/link'));
    await writeFile(join(home, longName), 'long');
  });
  afterAll(() => rm(home, { recursive: true, force: true }));

  testWith(requires.program('tar'))('is read in every format, whatever the pieces', async () => {
    for (const format of ['v7', 'ustar', 'oldgnu', 'gnu', 'posix']) {
      const isLong = !['v7', 'ustar'].includes(format);
      const names = ['directory/file', ...(isLong ? [longName, 'directory/link'] : [])];
      const path = join(home, `${format}.tar`);
      await promisify(execFile)('tar', [
        '-C',
        home,
        `--format=${format}`,
        '--no-recursion',
        '-cf',
        path,
        'directory',
        ...names,
      ]);
      const archive = await readFile(path);
      const { uid, gid } = await lstat(join(home, shortName));
      const entries = await readAll(archive);

      expect(entries.map(({ name }) => name.replace(/\/$/, ''))).toEqual(['directory', ...names]);
      expect(entries[1], format).toMatchObject({
        type: '0',
        mode: 0o4751,
        uid,
        gid,
        size: 70_000,
        hash: hashOf('x'.repeat(70_000)),
      });
      expect(entries[1]!.mtime.seconds).toBe(1_234_567_890);
      expect(Math.round(entries[1]!.mtime.nanoseconds / 1e6)).toBe(format === 'posix' ? 123 : 0);
      if (isLong) expect(entries[2]).toMatchObject({ type: '0', hash: hashOf('long') });
      if (isLong) expect(entries[3]).toMatchObject({ type: '2', target: 't'.repeat(150) });
      for (const size of [1 << 20, 511, 7]) expect(await readAll(archive, size)).toEqual(entries);
    }
  });
});

test('numbers in base 256, before 1970 and too wide for octal, and sizes of what has no content', async () => {
  const header = buildTar([{ name: 'a' }]).subarray(0, 512);
  const resum = (block: Buffer) => {
    block.fill(0x20, 148, 156);
    block.write(
      block
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, '0'),
      148,
      'latin1',
    );
    return block;
  };
  const early = Buffer.from(header);
  early.fill(0xff, 136, 148);
  const wide = Buffer.from(header);
  wide.write('800000000000ffff', 108, 'hex');
  expect((await readAll(resum(early)))[0]?.mtime).toEqual({ seconds: -1, nanoseconds: 0 });
  expect((await readAll(resum(wide)))[0]?.uid).toBe(65_535);
  const entries = await readAll(
    buildTar([
      { name: 'd', type: '5', size: 5_000 },
      { name: 'after', content: 'x' },
    ]),
  );
  expect(entries.map(({ name, size }) => [name, size])).toEqual([
    ['d', 0],
    ['after', 1],
  ]);
});

test('an archive may end behind its last byte of content, and not before', async () => {
  const archive = buildTar(
    [
      { name: 'a', content: 'x' },
      { name: 'b', content: 'content' },
    ],
    { isOpen: true },
  );
  const padding = 512 - 'content'.length;
  for (const cut of [0, 1, padding]) {
    expect(await readAll(archive.subarray(0, archive.byteLength - cut))).toHaveLength(2);
  }
  await expect(readAll(archive.subarray(0, archive.byteLength - padding - 1))).rejects.toMatchObject({
    code: 'image_refused',
  });
});

test('damage of any kind is refused by name or changes what is read, and never more than that', async () => {
  const whole = buildTar([
    { name: 'a', content: 'content of a', pax: { path: 'long/name/of/a', mtime: '12.5', 'SCHILY.xattr.user.x': 'y' } },
    { name: 'd', type: '5' },
    { name: '././@LongLink', type: 'L', content: 'another/long/name\0' },
    { name: 'b', content: Buffer.alloc(3_000, 7) },
    { name: 'l', type: '2', target: 'a' },
  ]);
  expect(await readAll(whole)).toHaveLength(4);
  const damages = fc.array(fc.record({ at: fc.nat(whole.byteLength - 1), value: fc.nat(255) }), { maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(damages, fc.nat(whole.byteLength), fc.boolean(), async (changes, cut, isCut) => {
      const bytes = Buffer.from(isCut ? whole.subarray(0, cut) : whole);
      for (const { at, value } of changes) if (at < bytes.byteLength) bytes[at] = value;
      try {
        const entries = await readAll(bytes);
        expect(entries.reduce((sum, { size }) => sum + size, 0)).toBeLessThanOrEqual(bytes.byteLength);
      } catch (error) {
        expect(isPlatformError(error, 'image_refused'), String(error)).toBe(true);
      }
    }),
    { numRuns: 1_500 },
  );
});
