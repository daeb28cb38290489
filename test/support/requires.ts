/**
 * What a test needs of the machine it runs on. A test whose needs are not met is skipped and says so in its title; the full
 * run (`scripts/test.ts`) fails if that happens on a machine that could have run it.
 *
 *   const test = testWith(requires.root, requires.cgroups);
 *   test('a fork bomb meets its limit', async () => { … });
 *
 *   describeWith(requires.root)('the namespaces driver', () => { … });
 *
 * Each need is looked at once, when it is first asked for.
 */
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { describe, type TestFunction, type TestOptions, test } from 'vitest';

export interface Requirement {
  readonly name: string;
  /** What is missing, in words that fit behind "needs", or `undefined` when all is there. */
  readonly missing: () => string | undefined;
}

export const requires = {
  linux: requirement('linux', () => (process.platform === 'linux' ? undefined : 'Linux')),
  root: requirement('root', () => (process.geteuid?.() === 0 ? undefined : 'root')),
  cgroups: requirement('cgroups', () => (canMakeCgroup() ? undefined : 'a cgroup tree that can be written')),
  compiler: requirement('compiler', () => (findProgram('cc') === undefined ? 'a C compiler' : undefined)),
  program: (name: string): Requirement =>
    requirement(`program ${name}`, () => (findProgram(name) === undefined ? `the program ${name}` : undefined)),
};

/** `test` for tests with these needs. */
export function testWith(...needs: readonly Requirement[]) {
  return (title: string, run: TestFunction, options: TestOptions = {}): void => {
    const missing = missingOf(needs);
    if (missing === undefined) test(title, options, run);
    else test.skip(`${title} (skipped: needs ${missing})`, options, run);
  };
}

/** `describe` for tests with these needs. */
export function describeWith(...needs: readonly Requirement[]) {
  return (title: string, define: () => void): void => {
    const missing = missingOf(needs);
    if (missing === undefined) describe(title, define);
    else describe.skip(`${title} (skipped: needs ${missing})`, define);
  };
}

function missingOf(needs: readonly Requirement[]): string | undefined {
  const missing = needs.map((need) => need.missing()).filter((text) => text !== undefined);
  return missing.length === 0 ? undefined : missing.join(', ');
}

function requirement(name: string, look: () => string | undefined): Requirement {
  let answer: { readonly missing: string | undefined } | undefined;
  const missing = () => {
    answer ??= { missing: look() };
    return answer.missing;
  };
  return { name, missing };
}

/** Tries it: a tree that is mounted may still be read-only. In a hybrid machine the v2 tree is one of several. */
function canMakeCgroup(): boolean {
  if (process.platform !== 'linux') return false;
  const tree = cgroup2MountPoint();
  if (tree === undefined) return false;
  const probe = join(tree, `atoll-probe-${process.pid}`);
  try {
    mkdirSync(probe);
    rmdirSync(probe);
    return true;
  } catch {
    return false;
  }
}

function cgroup2MountPoint(): string | undefined {
  for (const line of readFileSync('/proc/self/mountinfo', 'utf8').split('\n')) {
    const [before, after] = line.split(' - ');
    if (after?.startsWith('cgroup2 ')) return before?.split(' ')[4];
  }
  return undefined;
}

export function findProgram(name: string): string | undefined {
  const directories = (process.env['PATH'] ?? '').split(delimiter).filter((directory) => directory !== '');
  return directories.map((directory) => join(directory, name)).find((path) => existsSync(path) && isExecutable(path));
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
