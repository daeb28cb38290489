/** scripts/setup.mjs, on a made-up checkout whose build script notes that it ran. */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';

const root = dirname(import.meta.dirname);
let checkout: string;

beforeEach(() => {
  checkout = mkdtempSync(join(tmpdir(), 'atoll-setup-'));
  mkdirSync(join(checkout, 'scripts'));
  mkdirSync(join(checkout, 'native'));
  cpSync(join(root, 'scripts', 'setup.mjs'), join(checkout, 'scripts', 'setup.mjs'));
  writeFileSync(join(checkout, 'native', 'init.c'), 'first');
  // Long enough that runs started together meet.
  const build = 'cd "$(dirname "$0")"; echo build >>../builds; sleep 0.3; cp init.c atoll-init';
  writeFileSync(join(checkout, 'native', 'build.sh'), `${build}\n`);
});

afterEach(() => {
  rmSync(checkout, { recursive: true, force: true });
});

test('the init is built once, and a second run is silent', async () => {
  const first = await setUp();
  const second = await setUp();

  expect(first).toEqual({ exitCode: 0, output: 'setup: building native/atoll-init\n' });
  expect(second).toEqual({ exitCode: 0, output: '' });
  expect(countBuilds()).toBe(1);
});

test('changed sources are built anew', async () => {
  await setUp();
  writeFileSync(join(checkout, 'native', 'init.c'), 'second');
  await setUp();

  expect(readFileSync(join(checkout, 'native', 'atoll-init'), 'utf8')).toBe('second');
});

test('of several runs at once one builds and the others wait for it', async () => {
  const runs = await Promise.all([setUp(), setUp(), setUp()]);

  expect(runs.map((run) => run.exitCode)).toEqual([0, 0, 0]);
  expect(countBuilds()).toBe(1);
  expect(readdirSync(join(checkout, 'build'))).toEqual(['atoll-init.stamp']);
});

test('several runs get past the lock of one that died, and still only one builds', async () => {
  mkdirSync(join(checkout, 'build', 'setup.lock'), { recursive: true });
  // This process lives, but it is not the one that started at that time: its number was used again.
  writeFileSync(join(checkout, 'build', 'setup.lock', 'pid'), `${process.pid} 1`);

  const runs = await Promise.all([setUp(), setUp(), setUp()]);

  expect(runs.map((run) => run.exitCode)).toEqual([0, 0, 0]);
  expect(countBuilds()).toBe(1);
});

test('without a compiler it says which command helps', async () => {
  const run = await setUp({ CC: 'no-such-compiler' });

  expect(run.exitCode).toBe(1);
  expect(run.output).toContain('apt-get install gcc libc6-dev');
});

test('a build that fails is tried again the next time', async () => {
  const script = join(checkout, 'native', 'build.sh');
  const good = readFileSync(script, 'utf8');
  writeFileSync(script, 'exit 1\n');
  const failed = await setUp();
  writeFileSync(script, good);
  const repaired = await setUp();

  expect(failed.exitCode).toBe(1);
  expect(repaired.exitCode).toBe(0);
  expect(existsSync(join(checkout, 'native', 'atoll-init'))).toBe(true);
});

test('an unknown option is refused', async () => {
  expect(await setUp({}, ['--tset'])).toEqual({
    exitCode: 1,
    output: 'setup: unknown option --tset; known are --test and --native\n',
  });
});

function countBuilds(): number {
  return readFileSync(join(checkout, 'builds'), 'utf8').split('\n').length - 1;
}

function setUp(env: NodeJS.ProcessEnv = {}, args = ['--native']): Promise<{ exitCode: number; output: string }> {
  const { promise, resolve } = Promise.withResolvers<{ exitCode: number; output: string }>();
  const options = { env: { ...process.env, ...env } };
  execFile(process.execPath, [join(checkout, 'scripts', 'setup.mjs'), ...args], options, (error, stdout, stderr) => {
    resolve({ exitCode: error === null ? 0 : Number(error.code), output: stdout + stderr });
  });
  return promise;
}
