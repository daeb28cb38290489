/**
 * Runs every test and ends with the line `N passed, N failed, N skipped`.
 *
 *   npm test                          everything
 *   npm test -- test/e2e/exec.test.ts arguments go to vitest
 *
 * First the project `unit`, then `real` and `alone`, which make sandboxes and so feel what else the machine is doing. Therefore a test
 * of these that fails is run once more at the end, alone with the other failed ones of its file, in a fresh process. If it
 * passes then, it counts as passed and is named loudly, as `unstable: <title>` with its first error: that is a bug to be
 * found, in the test or in the code, and only not one of this change. What fails twice has failed. When many fail, the
 * machine is not the reason, and nothing is repeated. A failure in `unit` is never repeated.
 *
 * A skipped test says in its title what it needs (test/support/requires.ts). Under CI, as root on Linux with cgroups, where
 * everything can run, a skipped test fails the run. A run without a single test fails too.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { requires } from '../test/support/requires.ts';
import type { RunResults, TestResult } from './result-reporter.ts';

/** More failures than this are not the machine's noise. */
const repeatLimit = 12;
/**
 * For everything together; what still runs then is ended, so that a hanging test gives a report instead of nothing. A run takes about 16
 * minutes on two cores.
 */
const runLimitMs = 40 * 60_000;
const sandboxProjects = ['--project', 'real', '--project', 'alone'];
/** vitest gets this long to end by itself before it is killed. */
const graceMs = 10_000;

interface Failure {
  readonly title: string;
  readonly error: string;
  /** Absent when no file can be blamed: then there is nothing to repeat. */
  readonly file?: string;
  /** Absent for what failed outside of a test, such as a hook or the loading of a file. */
  readonly test?: string;
}

interface Repeated {
  readonly unstable: readonly Failure[];
  readonly failed: readonly Failure[];
  /** The results to count, in which a file that was repeated as a whole stands with its second run. */
  readonly tests: readonly TestResult[];
}

const root = dirname(import.meta.dirname);
const deadline = Date.now() + runLimitMs;
const filters = process.argv.slice(2);

process.exitCode = (await runAll()) ? 0 : 1;

async function runAll(): Promise<boolean> {
  const unit = await runVitest(['--project', 'unit', ...filters]);
  const real = await runVitest([...sandboxProjects, ...filters]);
  const repeated = await repeat(real);

  const tests = [...unit.tests, ...repeated.tests];
  const failures = [...failuresOf(unit), ...repeated.failed];
  const skipped = tests.filter((test) => test.state === 'skipped');
  const passed = tests.filter((test) => test.state === 'passed').length;
  const mustRunAll = isCi() && canRunEverything();

  say('');
  for (const test of skipped)
    say(`${mustRunAll ? 'skipped, but could run here' : 'skipped'}: ${test.title} (${test.file})`);
  for (const failure of repeated.unstable) say(`unstable: ${describe(failure)}\n${indent(failure.error)}`);
  for (const failure of failures) say(`failed: ${describe(failure)}`);
  if (passed === 0 && failures.length === 0) say('failed: no test ran');

  say(`${passed} passed, ${failures.length} failed, ${skipped.length} skipped`);
  return passed > 0 && failures.length === 0 && !(mustRunAll && skipped.length > 0);
}

function isCi(): boolean {
  return !['', 'false', '0'].includes(process.env['CI'] ?? '');
}

function canRunEverything(): boolean {
  return [requires.linux, requires.root, requires.cgroups].every((need) => need.missing() === undefined);
}

/** Each failed test once; an error outside of tests counts as one failure. */
function failuresOf(results: RunResults): Failure[] {
  const failed = results.tests.filter((test) => test.state === 'failed');
  return [
    ...failed.map(({ file, title, error }) => ({ file, title, test: title, error: error ?? 'no error given' })),
    ...results.errors.map(({ file, message }) => ({
      ...(file === undefined ? {} : { file }),
      title: firstLine(message),
      error: message,
    })),
  ];
}

async function repeat(first: RunResults): Promise<Repeated> {
  const failures = failuresOf(first);
  const isHopeless = failures.length > repeatLimit || failures.some((failure) => failure.file === undefined);
  if (isHopeless) return { unstable: [], failed: failures, tests: first.tests };

  const unstable: Failure[] = [];
  const failed: Failure[] = [];
  let tests = first.tests;
  for (const [file, ofFile] of Map.groupBy(failures, (failure) => failure.file ?? '')) {
    say(`\nOnce more, alone: ${file}`);
    const titles = ofFile.map((failure) => failure.test);
    const isWholeFile = titles.includes(undefined);
    const selection = isWholeFile ? [] : ['-t', `^(?:${titles.map((title) => escapePattern(title ?? '')).join('|')})$`];
    const again = await runVitest([...sandboxProjects, file, ...selection]);
    if (isWholeFile) {
      // What a failed hook kept from running has run now, and may have failed for the first time.
      tests = [...tests.filter((test) => test.file !== file), ...again.tests];
      failed.push(
        ...failuresOf(again).filter((failure) => failure.test !== undefined && !titles.includes(failure.test)),
      );
    }
    for (const failure of ofFile) {
      if (isPassed(again, failure)) unstable.push(failure);
      else failed.push(failure);
    }
  }
  const isUnstable = (test: TestResult) =>
    unstable.some((failure) => failure.file === test.file && failure.test === test.title);
  return { unstable, failed, tests: tests.map((test) => (isUnstable(test) ? { ...test, state: 'passed' } : test)) };
}

function isPassed(again: RunResults, failure: Failure): boolean {
  if (again.errors.length > 0) return false;
  if (failure.test === undefined) return again.tests.length > 0;
  const ofTitle = again.tests.filter((test) => test.title === failure.test);
  return ofTitle.length > 0 && ofTitle.every((test) => test.state === 'passed');
}

function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

/** One vitest process of its own. Whatever goes wrong with it becomes an error in its results. */
async function runVitest(args: readonly string[]): Promise<RunResults> {
  const directory = mkdtempSync(join(tmpdir(), 'atoll-test-'));
  const path = join(directory, 'results.json');
  const argv = [
    join(root, 'node_modules', 'vitest', 'vitest.mjs'),
    'run',
    '--passWithNoTests',
    '--reporter=default',
    `--reporter=${join(root, 'scripts', 'result-reporter.ts')}`,
    ...args,
  ];
  try {
    const ended = await runToEnd(argv, { ...colourEnvironment(), ATOLL_TEST_RESULTS: path });
    const results = readResults(path);
    if (results === undefined) return { tests: [], errors: [{ message: `vitest ${ended} without results` }] };
    const hasFailure = results.errors.length > 0 || results.tests.some((test) => test.state === 'failed');
    if (ended === 'ended with 0' || hasFailure) return results;
    return { tests: results.tests, errors: [{ message: `vitest ${ended} although no test failed` }] };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function runToEnd(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const child = spawn(process.execPath, argv, { cwd: root, env, stdio: 'inherit' });
  const stop = () => {
    say(`\nThe limit of ${runLimitMs / 60_000} minutes is reached; ending the run.`);
    child.kill('SIGINT');
    setTimeout(() => child.kill('SIGKILL'), graceMs).unref();
  };
  const timer = setTimeout(stop, Math.max(0, deadline - Date.now()));
  child.on('error', reject);
  child.on('exit', (code, signal) => {
    clearTimeout(timer);
    resolve(signal === null ? `ended with ${code}` : `was ended by ${signal}`);
  });
  return promise;
}

function readResults(path: string): RunResults | undefined {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}

function colourEnvironment(): NodeJS.ProcessEnv {
  if (process.stdout.isTTY) return process.env;
  const { FORCE_COLOR: _, ...rest } = process.env;
  return { ...rest, NO_COLOR: '1' };
}

function describe(failure: Failure): string {
  return failure.file === undefined ? failure.title : `${failure.title} (${failure.file})`;
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, '    ');
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
