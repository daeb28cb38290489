import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SmallFiles } from './small-files.ts';

let directory: string;
let files: SmallFiles;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-small-'));
  files = new SmallFiles(directory, { mode: 0o600 });
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const inodeOf = async (name: string) => (await stat(join(directory, name))).ino;
const read = async (name: string) => JSON.parse(await readFile(join(directory, name), 'utf8')) as unknown;
const write = (name: string, value: unknown) => files.write(name, JSON.stringify(value));

test('what is written is there, whatever was before: nothing, longer, shorter, or longer than a page', async () => {
  const values = ['first', 'a longer one than the first', 'short', 'x'.repeat(5_000), 'y'.repeat(6_000), 'again short'];
  for (const value of values) {
    write('a', { value });
    expect(await read('a')).toEqual({ value });
  }
  expect((await stat(join(directory, 'a'))).mode & 0o777).toBe(0o600);
  expect(await readdir(directory)).toEqual(['a']);
});

test('a new file is the one that was made ahead, and one that is there stays the same file', async () => {
  await Promise.all([files.prepare(), files.prepare()]);
  const ahead = await inodeOf('.spare');
  write('a', 1);
  expect(await inodeOf('a')).toBe(ahead);
  await files.prepare();
  const next = await inodeOf('.spare');
  write('a', 2);
  expect(await inodeOf('a')).toBe(ahead);
  write('b', 3);
  expect(await inodeOf('b')).toBe(next);
  expect([await read('a'), await read('b')]).toEqual([2, 3]);
});

test('a file that is made is the one made ahead, or one like it, also over one that is there', async () => {
  await files.prepare();
  const ahead = await inodeOf('.spare');
  files.create('a', '1');
  expect(await inodeOf('a')).toBe(ahead);
  files.create('a', '2');
  expect(await read('a')).toBe(2);
  expect(await readdir(directory)).toEqual(['a']);
});

test('without one made ahead, or when somebody removed it, a file is made as it is needed', async () => {
  await files.prepare();
  await rm(join(directory, '.spare'));
  write('a', 1);
  write('b', 2);
  expect([await read('a'), await read('b')]).toEqual([1, 2]);
  await rm(directory, { recursive: true });
  await files.prepare();
  expect(() => write('a', 1)).toThrow('ENOENT');
});

test('whenever the program dies, the file is whole', async () => {
  const program = `
    import { SmallFiles } from ${JSON.stringify(import.meta.resolve('./small-files.ts'))};
    const files = new SmallFiles(${JSON.stringify(directory)}, { mode: 0o600 });
    for (let turn = 0; ; turn++) {
      files.write('a', JSON.stringify({ turn, fill: 'x'.repeat((turn * 37) % 3500) }));
      if (turn === 1000) console.log('busy');
    }`;
  for (let round = 0; round < 3; round++) {
    const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(createInterface({ input: child.stdout }), 'line');
    child.kill('SIGKILL');
    await once(child, 'close');
    const { turn, fill } = (await read('a')) as { turn: number; fill: string };
    expect(turn).toBeGreaterThanOrEqual(1000);
    expect(fill).toHaveLength((turn * 37) % 3500);
  }
});
