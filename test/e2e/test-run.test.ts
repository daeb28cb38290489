/** scripts/test.ts, on a made-up checkout with tests that fail once, fail always, are skipped or are not there. */
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { requires, testWith } from '../support/requires.ts';

const root = dirname(dirname(import.meta.dirname));
const test = testWith();
/** Each run starts vitest at least twice. */
const options = { timeout: 60_000 };

const passing = `import { test } from 'vitest'; test('passes', () => {});`;
const failing = `import { expect, test } from 'vitest'; test('fails', () => { expect(1).toBe(2); });`;
const skipped = `import { test } from 'vitest'; test.skip('is skipped', () => {});`;
const stray = `import { test } from 'vitest'; test('leaves a promise', async () => {
  Promise.reject(new Error('nobody waits')); await new Promise((resolve) => setTimeout(resolve, 50)); });`;
const leaving = `import { spawn } from 'node:child_process'; import { mkdtempSync } from 'node:fs'; import { tmpdir } from 'node:os';
  import { test } from 'vitest';
  test('leaves a directory and a process', () => {
    mkdtempSync(tmpdir() + '/forgotten-');
    spawn('sleep', ['30'], { detached: true, stdio: 'ignore' }).unref();
  });`;
const failingOnce = `import { existsSync, writeFileSync } from 'node:fs';
  import { beforeAll, describe, expect, test } from 'vitest';
  const isFirst = (name) => { const is = !existsSync(name); writeFileSync(name, ''); return is; };
  describe('a (suite) [of] tests', () => {
    test('fails once', () => { expect(isFirst('once')).toBe(false); });
    test('passes beside it', () => {});
  });`;
const failingHookOnce = `import { existsSync, writeFileSync } from 'node:fs';
  import { beforeAll, test } from 'vitest';
  beforeAll(() => { if (!existsSync('hook')) { writeFileSync('hook', ''); throw new Error('hook fails once'); } });
  test('comes after the hook', () => {});`;

const support = ['requires.ts', 'run-leftovers.ts', 'whole-run.ts'].map((name) => join('test', 'support', name));

let checkout: string;

beforeEach(() => {
  checkout = mkdtempSync(join(tmpdir(), 'atoll-test-run-'));
  mkdirSync(join(checkout, 'src'));
  mkdirSync(join(checkout, 'test', 'e2e'), { recursive: true });
  for (const path of ['package.json', 'vitest.config.ts', 'scripts', ...support]) {
    cpSync(join(root, path), join(checkout, path), { recursive: true });
  }
  // There are no locks to watch and no programs in a made-up checkout.
  writeFileSync(join(checkout, 'test', 'support', 'check-lock-order.ts'), '');
  writeFileSync(join(checkout, 'test', 'support', 'bundle-programs.ts'), 'export function setup() {}');
  symlinkSync(join(root, 'node_modules'), join(checkout, 'node_modules'));
});

afterEach(() => {
  rmSync(checkout, { recursive: true, force: true });
});

test(
  'a real test that fails once counts as passed and is called unstable, with its error',
  async () => {
    const run = await runTests({ 'src/a.test.ts': passing, 'test/e2e/b.test.ts': failingOnce });

    expect(run.output).toContain(
      'unstable: a (suite) [of] tests > fails once (test/e2e/b.test.ts)\n    AssertionError',
    );
    expect(run).toMatchObject({ lastLine: '3 passed, 0 failed, 0 skipped', exitCode: 0 });
  },
  options,
);

test(
  'a hook that fails once makes its file run again as a whole',
  async () => {
    const run = await runTests({ 'src/a.test.ts': passing, 'test/e2e/b.test.ts': failingHookOnce });

    expect(run.output).toContain('unstable: Error: hook fails once');
    expect(run).toMatchObject({ lastLine: '2 passed, 0 failed, 0 skipped', exitCode: 0 });
  },
  options,
);

test(
  'a real test that fails twice has failed, and so has a unit test that fails once',
  async () => {
    const run = await runTests({ 'src/a.test.ts': failing, 'test/e2e/b.test.ts': failing });

    expect(run.output.match(/Once more, alone/g)).toHaveLength(1);
    expect(run).toMatchObject({ lastLine: '0 passed, 2 failed, 0 skipped', exitCode: 1 });
  },
  options,
);

test(
  'an error that belongs to no test fails the run',
  async () => {
    const run = await runTests({ 'src/a.test.ts': passing, 'test/e2e/b.test.ts': stray });

    expect(run.output).toContain('failed: Error: nobody waits');
    expect(run).toMatchObject({ lastLine: '2 passed, 1 failed, 0 skipped', exitCode: 1 });
  },
  options,
);

testWith(requires.linux)(
  'a run that leaves a directory and a process behind fails, and names them',
  async () => {
    const run = await runTests({ 'src/a.test.ts': passing, 'test/e2e/b.test.ts': leaving });

    expect(run.errors).toMatch(/The tests left something behind: .*"\d+: sleep 30 .*"forgotten-/s);
    expect(run.output).toContain('failed: vitest ended with 1 although no test failed');
    expect(run).toMatchObject({ lastLine: '2 passed, 1 failed, 0 skipped', exitCode: 1 });
  },
  options,
);

testWith(requires.linux, requires.root, requires.cgroups)(
  'a skipped test fails the run in CI on a machine that can run everything, and only there',
  async () => {
    const files = { 'src/a.test.ts': passing, 'test/e2e/b.test.ts': skipped };
    const inCi = await runTests(files, { CI: 'true' });
    const elsewhere = await runTests(files, { CI: '' });

    expect(inCi).toMatchObject({ lastLine: '1 passed, 0 failed, 1 skipped', exitCode: 1 });
    expect(elsewhere).toMatchObject({ lastLine: '1 passed, 0 failed, 1 skipped', exitCode: 0 });
  },
  options,
);

test(
  'a run without a test fails',
  async () => {
    expect(await runTests({})).toMatchObject({ lastLine: '0 passed, 0 failed, 0 skipped', exitCode: 1 });
  },
  options,
);

interface Run {
  readonly exitCode: number;
  readonly output: string;
  readonly errors: string;
  readonly lastLine: string | undefined;
}

function runTests(files: Readonly<Record<string, string>>, env: NodeJS.ProcessEnv = {}): Promise<Run> {
  for (const [path, text] of Object.entries(files)) writeFileSync(join(checkout, path), text);
  const { promise, resolve } = Promise.withResolvers<Run>();
  // What the vitest around this one has set is not meant for the one inside.
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(VITEST|NODE_ENV|TEST|MODE|DEV|PROD|CI|ATOLL)/.test(name),
  );
  const settings = { cwd: checkout, env: { ...Object.fromEntries(inherited), ...env } };
  execFile(process.execPath, [join(checkout, 'scripts', 'test.ts')], settings, (error, stdout, stderr) => {
    resolve({
      exitCode: error === null ? 0 : Number(error.code),
      output: stdout,
      errors: stderr,
      lastLine: stdout.trimEnd().split('\n').at(-1),
    });
  });
  return promise;
}
