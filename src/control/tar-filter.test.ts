import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { IgnoreRules } from './ignore-rules.ts';
import { filterTar, readTarFiles } from './tar-filter.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-tar-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

function put(path: string, text: string): void {
  mkdirSync(dirname(join(directory, 'tree', path)), { recursive: true });
  writeFileSync(join(directory, 'tree', path), text);
}

/** In pieces of any size: entries and pieces have nothing to do with each other. */
async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

const tarOf = (format: string) =>
  execFileSync('tar', ['-c', `--format=${format}`, '-C', join(directory, 'tree'), '.'], { maxBuffer: 2 ** 26 });

for (const format of ['gnu', 'pax', 'ustar']) {
  test(`entries of a ${format} archive are left out with their bodies and long names, and the rest is as it was`, async () => {
    const long = format === 'ustar' ? 'n'.repeat(90) : 'n'.repeat(180);
    put(`keep/${long}/${long}`, 'x'.repeat(1_000));
    put(`drop/${long}/${long}`, 'y'.repeat(5_000));
    put('keep/empty', '');
    put('ünï/日本', 'unicode');
    symlinkSync('keep/empty', join(directory, 'tree', 'link'));
    const chunks: Uint8Array[] = [];
    const kept = filterTar(inPieces(tarOf(format), 700), (path) => path !== 'drop' && !path.startsWith('drop/'));
    for await (const chunk of kept) chunks.push(chunk);
    const listed = execFileSync('tar', ['-t', '--quoting-style=literal'], { input: Buffer.concat(chunks) });
    const names = listed.toString().trim().split('\n').sort();
    expect(names).toEqual(
      [
        './',
        './keep/',
        './keep/empty',
        `./keep/${long}/`,
        `./keep/${long}/${long}`,
        './link',
        './ünï/',
        './ünï/日本',
      ].sort(),
    );
  });
}

test('small files are read; too many, too large, and what is no archive are refused', async () => {
  put('.gitignore', 'a\n');
  put('deep/.gitignore', 'b\n');
  const isWanted = (path: string) => path.endsWith('.gitignore');
  const read = (files: number, bytes: number) =>
    readTarFiles(inPieces(tarOf('gnu'), 1_000), { isWanted, files, bytes });
  expect(await read(2, 10)).toEqual(
    new Map([
      ['.gitignore', 'a\n'],
      ['deep/.gitignore', 'b\n'],
    ]),
  );
  await expect(read(1, 10)).rejects.toMatchObject({ code: 'limit_exceeded' });
  await expect(read(2, 1)).rejects.toMatchObject({ code: 'limit_exceeded' });
  const broken = readTarFiles(inPieces(tarOf('gnu').subarray(0, 700), 100), { isWanted, files: 1, bytes: 1 });
  await expect(broken).rejects.toMatchObject({ code: 'invalid_request' });
});

test('rules are read as git reads them', () => {
  const cases: [rules: string, path: string, isDirectory: boolean, isIgnored: boolean][] = [
    ['*.log', 'a/b.log', false, true],
    ['/top', 'a/top', false, false],
    ['/top', 'top', false, true],
    ['dir/', 'dir', false, false],
    ['dir/', 'dir', true, true],
    ['dir/', 'a/dir/file', false, true],
    ['*.log\n!keep.log', 'keep.log', false, false],
    ['dir/\n!dir/file', 'dir/file', false, true],
    ['a/**/b', 'a/x/y/b', false, true],
    ['a/**/b', 'a/b', false, true],
    ['**/b', 'x/b', false, true],
    ['a/**', 'a/x', false, true],
    ['a?c', 'abc', false, true],
    ['a?c', 'a/c', false, false],
    ['[a-c]x', 'bx', false, true],
    ['[!a-c]x', 'bx', false, false],
    ['\\#x', '#x', false, true],
    ['# x', '# x', false, false],
    ['trail  ', 'trail', false, true],
    ['a/b', 'x/a/b', false, false],
    ['', '.git/HEAD', false, true],
  ];
  for (const [rules, path, isDirectory, isIgnored] of cases) {
    const found = new IgnoreRules(new Map([['.gitignore', rules]])).isIgnored(path, isDirectory);
    expect(found, `${JSON.stringify(rules)} on ${path}`).toBe(isIgnored);
  }
});
