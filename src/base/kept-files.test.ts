import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { KeptFiles } from './kept-files.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-kept-'));
});
afterEach(() => rm(directory, { recursive: true }));

async function* bytes(...texts: readonly (string | Error)[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) {
    if (text instanceof Error) throw text;
    yield Buffer.from(text);
  }
}

test('a name leads to a whole file or to none', async () => {
  const files = await KeptFiles.open(directory);
  expect(await files.write('one', bytes('ab', 'c'))).toEqual({ sizeBytes: 3 });
  await expect(files.write('two', bytes('ab', new Error('broke off')))).rejects.toThrow('broke off');
  expect(await readdir(directory)).toEqual(['one']);
  const reading = await files.read('one');
  await files.remove('one');
  await files.remove('one');
  expect((await buffer(reading)).toString()).toBe('abc');
  expect(await files.list()).toEqual([]);
});

test('what was half-written goes when it is opened again, and no name leads elsewhere', async () => {
  await writeFile(join(directory, '.half.tmp'), 'ha');
  const files = await KeptFiles.open(directory);
  expect(await readdir(directory)).toEqual([]);
  await expect(files.read('../key')).rejects.toThrow('letters and digits');
  await expect(files.write('a/b', bytes('x'))).rejects.toThrow('letters and digits');
});
