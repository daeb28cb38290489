/** Which way imports point, and what is deliberately absent. CONTRIBUTING.md explains the table. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { findViolations, type SourceRules } from './support/source-rules.ts';

const rules: SourceRules = {
  imports: {
    protocol: [],
    base: [],
    isolation: ['base', 'protocol'],
    execution: ['base', 'protocol', 'isolation'],
    layers: ['base', 'protocol', 'isolation'],
    node: ['base', 'protocol', 'isolation', 'execution', 'layers'],
    store: ['base', 'protocol'],
    control: ['base', 'protocol', 'store'],
    server: ['base', 'protocol', 'control'],
    sdk: ['protocol'],
    dashboard: ['protocol', 'sdk'],
    checkout: ['base', 'protocol', 'sdk'],
    app: ['base', 'protocol', 'isolation', 'execution', 'layers', 'node', 'store', 'control', 'server', 'sdk'],
    cli: ['base', 'protocol', 'sdk', 'app', 'checkout'],
  },
  packagesOnlyIn: { 'node:sqlite': ['store', 'checkout'], pg: ['store'], kysely: ['store'] },
  textOnlyIn: { '/sys/fs/cgroup': ['isolation'] },
  processOnlyIn: { env: ['app', 'cli'], argv: ['app', 'cli'], exit: ['app', 'cli'] },
  browserModules: ['protocol', 'sdk', 'dashboard'],
  lineLimit: 500,
  lineLimitExcuse: 'Over 500 lines because',
};

test('the sources keep to the import table and to what is deliberately absent', () => {
  const root = dirname(import.meta.dirname);
  const paths = globSync('src/**/*.ts', { cwd: root }).sort();
  const files = paths.map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));

  expect(files.length).toBeGreaterThan(0);
  expect(findViolations(files, rules)).toEqual([]);
});

describe('the check itself finds', () => {
  const long = 'export const a = 1;\n'.repeat(501);
  const cases: readonly [what: string, path: string, text: string, violation: string | undefined][] = [
    [
      'an import against the direction',
      'src/store/a.ts',
      `import { b } from '../control/index.ts';`,
      'store may not import control',
    ],
    [
      'a type import',
      'src/store/a.ts',
      `import type { B } from '../control/index.ts';`,
      'store may not import control',
    ],
    [
      'an inline type import',
      'src/store/a.ts',
      `type B = import('../control/index.ts').B;`,
      'store may not import control',
    ],
    ['a dynamic import', 'src/store/a.ts', `await import('../control/index.ts');`, 'store may not import control'],
    ['a re-export', 'src/store/a.ts', `export { b } from '../control/index.ts';`, 'store may not import control'],
    [
      'a re-export of everything',
      'src/store/a.ts',
      `export * from '../control/index.ts';`,
      'store may not import control',
    ],
    [
      'an import against the direction in a test',
      'src/store/a.test.ts',
      `import '../control/b.ts';`,
      'store may not import control',
    ],
    [
      'an import from a deeper folder',
      'src/store/sqlite/a.ts',
      `import '../../control/index.ts';`,
      'store may not import control',
    ],
    [
      'an import past the entry',
      'src/control/a.ts',
      `import '../store/store.ts';`,
      'entered through src/store/index.ts',
    ],
    ['an import from outside src', 'src/control/a.ts', `import '../../scripts/a.ts';`, 'not part of the built package'],
    ['a file in no module', 'src/utils/a.ts', '', 'in no module'],
    [
      'SQL outside store',
      'src/control/a.ts',
      `import { DatabaseSync } from 'node:sqlite';`,
      'only store and checkout may',
    ],
    ['a cgroup path outside isolation', 'src/node/a.ts', `const a = '/sys/fs/cgroup/b';`, 'only isolation may'],
    ['a cgroup path in a template', 'src/node/a.ts', `const a = \`/sys/fs/cgroup/\${b}\`;`, 'only isolation may'],
    ['process.env', 'src/node/a.ts', 'const a = process.env.HOME;', 'only app and cli may'],
    ['process.env by name', 'src/node/a.ts', `const a = process['env'];`, 'only app and cli may'],
    ['process.argv taken apart', 'src/node/a.ts', 'const { argv } = process;', 'only app and cli may'],
    ['exit imported', 'src/node/a.ts', `import { exit } from 'node:process';`, 'only app and cli may'],
    [
      'a Node module in the sdk',
      'src/sdk/a.ts',
      `import type { Readable } from 'node:stream';`,
      'must work in a browser',
    ],
    ['a Node global in the sdk', 'src/sdk/a.ts', `const a = Buffer.from('b');`, 'must work in a browser'],
    ['any', 'src/base/a.ts', 'export const a: any = 1;', 'uses `any`'],
    ['an enum', 'src/base/a.ts', 'enum A { B }', 'declares an enum'],
    ['a long file', 'src/base/a.ts', long, 'has 501 lines'],
    [
      'nothing in a long file that says why',
      'src/base/a.ts',
      `/** Over 500 lines because it is one table. */\n${long}`,
      undefined,
    ],
    ['nothing in an allowed import', 'src/control/a.ts', `import { b } from '../store/index.ts';`, undefined],
    ['nothing in an import inside a module', 'src/control/a.ts', `import { b } from './c/d.ts';`, undefined],
    [
      'nothing in a comment',
      'src/node/a.ts',
      `// process.env and /sys/fs/cgroup and import '../control/b.ts'`,
      undefined,
    ],
    [
      'nothing in a test that enters a module anywhere',
      'src/control/a.test.ts',
      `import '../store/store.ts';`,
      undefined,
    ],
  ];

  test.each(cases)('%s', (_what, path, text, violation) => {
    const found = findViolations([{ path, text }], rules);
    if (violation === undefined) expect(found).toEqual([]);
    else expect(found.join('\n')).toContain(violation);
  });
});
