import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SharedPlaces } from './shared-places.ts';
import { SpareDirectories } from './spare-directories.ts';

const shared = new SharedPlaces(undefined);
let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atoll-spare-'));
});
afterEach(() => rm(root, { recursive: true }));

test('every taker gets a complete directory of its own, spare or not', async () => {
  const spares = new SpareDirectories({ parent: root, shared, limit: 3 });
  const paths = Array.from({ length: 10 }, (_, index) => join(root, `taken-${index}`));
  await Promise.all(paths.slice(0, 5).map((path) => spares.take(path)));
  for (const path of paths.slice(5)) await spares.take(path);
  for (const path of paths) {
    expect((await readdir(path)).sort()).toEqual(['settings', 'shared']);
  }
  await spares.close();
});

test('a parent that is not there keeps nobody from a directory', async () => {
  const spares = new SpareDirectories({ parent: join(root, 'missing'), shared });
  await spares.take(join(root, 'a'));
  await spares.take(join(root, 'b'));
  expect((await readdir(root)).sort()).toEqual(['a', 'b']);
  await spares.close();
});

test('a path that is taken already is refused, and keeps what it has', async () => {
  const spares = new SpareDirectories({ parent: root, shared, limit: 1 });
  await spares.take(join(root, 'a'));
  await expect(spares.take(join(root, 'a'))).rejects.toThrow();
  await spares.close();
  await expect(spares.take(join(root, 'a'))).rejects.toThrow();
});
