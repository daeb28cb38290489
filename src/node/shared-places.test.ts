import { lstat, mkdir, mkdtemp, readdir, readlink, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SharedPlaces } from './shared-places.ts';

let root: string;
let memory: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atoll-shared-'));
  memory = join(root, 'memory');
  await mkdir(memory);
});
afterEach(() => rm(root, { recursive: true }));

async function made(places: SharedPlaces, name: string): Promise<string> {
  const directory = join(root, name);
  await mkdir(directory);
  await places.make(directory);
  await places.ready(directory);
  return directory;
}

test('what a sandbox sees lies in memory, moves with its directory, and goes with it', async () => {
  const places = new SharedPlaces(memory);
  const directory = await made(places, 'making');
  await rename(directory, join(root, 'box'));
  await writeFile(join(root, 'box', 'shared', 'metadata.json'), '{}');
  const [name, ...others] = await readdir(memory);
  expect([others, await readdir(join(memory, name!))]).toEqual([[], ['metadata.json']]);
  expect((await stat(join(root, 'box', 'shared'))).mode & 0o777).toBe(0o755);
  await places.remove(join(root, 'box'));
  expect(await readdir(memory)).toEqual([]);
});

test('after a boot there is a place again, before anything is written to it', async () => {
  const places = new SharedPlaces(memory);
  const directory = await made(places, 'box');
  await rm(memory, { recursive: true });
  await places.ready(directory);
  await writeFile(join(directory, 'shared', 'metadata.json'), '{}');
  expect(await readdir(memory)).toHaveLength(1);
  expect((await stat(memory)).mode & 0o777).toBe(0o700);
});

test('a data directory that was copied leads to a place of its own, and one without memory to a plain directory', async () => {
  const directory = await made(new SharedPlaces(memory), 'box');
  const first = await readlink(join(directory, 'shared'));
  const elsewhere = join(root, 'elsewhere');
  await new SharedPlaces(elsewhere).ready(directory);
  expect(dirname(await readlink(join(directory, 'shared')))).toBe(elsewhere);
  expect((await lstat(first)).isDirectory()).toBe(true);
  await new SharedPlaces(undefined).ready(directory);
  expect((await lstat(join(directory, 'shared'))).isDirectory()).toBe(true);
  // What is plain stays so, and is not taken for something to remove.
  await new SharedPlaces(memory).ready(directory);
  await new SharedPlaces(memory).remove(directory);
  expect((await lstat(join(directory, 'shared'))).isDirectory()).toBe(true);
});

test('a node that starts removes what none of its sandboxes leads to, and nothing else', async () => {
  const places = new SharedPlaces(memory);
  const kept = await made(places, 'kept');
  await made(places, 'left by a crash');
  const plain = await made(new SharedPlaces(undefined), 'plain');
  await places.removeOthers([kept, plain]);
  expect((await readdir(memory)).map((name) => join(memory, name))).toEqual([await readlink(join(kept, 'shared'))]);
  await places.close({ isEmpty: false });
  expect(await readdir(memory)).toHaveLength(1);
  await places.close({ isEmpty: true });
  expect(await readdir(root)).not.toContain('memory');
});
