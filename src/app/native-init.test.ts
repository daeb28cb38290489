import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ensureNativeInit } from './native-init.ts';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-native-init-'));
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** A package whose build script notes that it ran and copies its source. */
function makePackage(
  buildScript = 'cp "$(dirname "$0")/init.c" "$1.$$" && mv "$1.$$" "$1" && echo built >>"$BUILDS"',
): string {
  const packageDirectory = join(directory, 'package');
  mkdirSync(join(packageDirectory, 'native'), { recursive: true });
  writeFileSync(join(packageDirectory, 'package.json'), '{"version":"1.2.3"}');
  writeFileSync(join(packageDirectory, 'native', 'init.c'), 'first');
  writeFileSync(
    join(packageDirectory, 'native', 'build.sh'),
    `BUILDS='${join(directory, 'builds')}'\n${buildScript}\n`,
  );
  return packageDirectory;
}

function countBuilds(): number {
  const path = join(directory, 'builds');
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').length - 1 : 0;
}

test('an installed package builds its init once, in the package', async () => {
  const packageDirectory = makePackage();
  const options = { packageDirectory, cacheDirectory: join(directory, 'cache') };

  const path = await ensureNativeInit(options);
  const again = await ensureNativeInit(options);

  expect(path.startsWith(join(packageDirectory, 'build'))).toBe(true);
  expect(again).toBe(path);
  expect(readFileSync(path, 'utf8')).toBe('first');
  expect(countBuilds()).toBe(1);
});

test('other sources are built anew', async () => {
  const options = { packageDirectory: makePackage(), cacheDirectory: join(directory, 'cache') };
  await ensureNativeInit(options);
  writeFileSync(join(options.packageDirectory, 'native', 'init.c'), 'second');

  expect(readFileSync(await ensureNativeInit(options), 'utf8')).toBe('second');
});

test('a package that cannot be written is built in the cache, under its version', async () => {
  const packageDirectory = makePackage();
  // A file in the way stops even root.
  writeFileSync(join(packageDirectory, 'build'), '');

  const path = await ensureNativeInit({ packageDirectory, cacheDirectory: join(directory, 'cache') });

  expect(path).toMatch(/\/cache\/1\.2\.3-[0-9a-f]{16}\/atoll-init$/);
});

test('two at once both get a whole program', async () => {
  const options = { packageDirectory: makePackage(), cacheDirectory: join(directory, 'cache') };

  const [first, second] = await Promise.all([ensureNativeInit(options), ensureNativeInit(options)]);

  expect(first).toBe(second);
  expect(readFileSync(first, 'utf8')).toBe('first');
});

test('a build that fails says what to install and repeats what the compiler said, and leaves nothing behind', async () => {
  const packageDirectory = makePackage('echo "cc: not found" >&2; exit 1');

  const attempt = ensureNativeInit({ packageDirectory, cacheDirectory: join(directory, 'cache') });

  await expect(attempt).rejects.toThrow(/apt-get install gcc libc6-dev\ncc: not found/);
  const left = readdirSync(join(packageDirectory, 'build'), { recursive: true });
  expect(left).toHaveLength(1); // Only the empty directory named for the sources.
});

test('a program that others may write is not run', async () => {
  const options = { packageDirectory: makePackage(), cacheDirectory: join(directory, 'cache') };
  const path = await ensureNativeInit(options);
  chmodSync(path, statSync(path).mode | 0o002);

  await expect(ensureNativeInit(options)).rejects.toThrow(/Remove it/);
});
