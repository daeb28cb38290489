/**
 * Writes what `scripts/test.ts` needs to know about a vitest run to the file named by ATOLL_TEST_RESULTS. vitest's own JSON
 * reporter leaves out errors that belong to no test, and a run with one of those is not a good run.
 */
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

export interface TestResult {
  /** From the repository's root. */
  readonly file: string;
  /** Suites and test as `vitest -t` matches them: `suite > test`. */
  readonly title: string;
  readonly state: 'passed' | 'failed' | 'skipped';
  readonly error?: string;
}

export interface RunResults {
  readonly tests: readonly TestResult[];
  /** Errors of no single test: a file that cannot be loaded, a hook that failed, a promise nobody awaited. */
  readonly errors: readonly { readonly file?: string; readonly message: string }[];
}

export default class ResultReporter implements Reporter {
  onTestRunEnd: NonNullable<Reporter['onTestRunEnd']> = (modules, unhandledErrors) => {
    const path = process.env['ATOLL_TEST_RESULTS'];
    if (path === undefined) return;
    const results: RunResults = {
      tests: modules.flatMap(testsOf),
      errors: [...modules.flatMap(suiteErrorsOf), ...unhandledErrors.map((error) => ({ message: textOf(error) }))],
    };
    writeFileSync(path, JSON.stringify(results));
  };
}

function testsOf(module: TestModule): readonly TestResult[] {
  const file = fileOf(module);
  return Array.from(module.children.allTests(), (test): TestResult => {
    const result = test.result();
    const title = test.fullName;
    // Pending: the run was cut short before it. That is no pass and no allowed skip.
    if (result.state === 'pending') return { file, title, state: 'failed', error: 'did not run to its end' };
    const error = result.errors?.[0];
    return { file, title, state: result.state, ...(error === undefined ? {} : { error: textOf(error) }) };
  });
}

function suiteErrorsOf(module: TestModule): RunResults['errors'] {
  const file = fileOf(module);
  const suites = Array.from(module.children.allSuites());
  return [module, ...suites].flatMap((owner) => owner.errors().map((error) => ({ file, message: textOf(error) })));
}

function fileOf(module: TestModule): string {
  return relative(process.cwd(), module.moduleId);
}

function textOf(error: { readonly message: string; readonly stack?: string | undefined }): string {
  if (!error.stack?.includes(error.message)) return error.message;
  const isOurs = (line: string) => !line.includes('/node_modules/');
  return error.stack.split('\n').filter(isOurs).join('\n');
}
