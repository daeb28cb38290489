/** bin/atoll.mjs keeps what Node compiles in a place of the user's own, and starts without such a place too. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const bin = join(import.meta.dirname, '..', 'bin', 'atoll.mjs');
const version = /^\d+\.\d+\.\d+/;

async function printVersion(home: string): Promise<string> {
  const { XDG_CACHE_HOME: _, NODE_COMPILE_CACHE: __, ...env } = process.env;
  const run = promisify(execFile)(process.execPath, [bin, '--version'], {
    env: { ...env, HOME: home },
    timeout: 15_000,
  });
  return (await run).stdout;
}

test('what Node compiles is kept below the home, for its user alone', async () => {
  const home = await mkdtemp(join(tmpdir(), 'atoll-home-'));
  try {
    expect(await printVersion(home)).toMatch(version);
    const compiled = join(home, '.cache/atoll/compiled');
    expect((await readdir(compiled, { recursive: true })).length).toBeGreaterThan(10);
    expect((await stat(join(home, '.cache'))).mode & 0o777).toBe(0o700);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});

test('a home in which nothing can be made keeps nobody from starting', async () => {
  expect(await printVersion('/proc/nope')).toMatch(version);
});
