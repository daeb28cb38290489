import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isPlatformError, type PlatformError } from '../../protocol/index.ts';
import { debianDefaults } from './build-plan.ts';
import { definitionLimits, parseDefinition } from './definition.ts';

function refusalOf(text: string): PlatformError {
  try {
    parseDefinition(text);
  } catch (error) {
    if (isPlatformError(error, 'invalid_definition')) return error;
    throw error;
  }
  throw new Error('It was not refused.');
}

test('env, workdir and user hold from where they stand to the end, and are what commands have later', () => {
  const plan = parseDefinition(`
from: debian
packages: [git, libstdc++6, python3=3.11.2-1+b1]
env: { A: 1 }
steps:
  - run: one
  - env: { A: 2, B: true }
  - workdir: /srv
  - workdir: deeper
  - user: 1000
  - run: [two, "a b"]
  - run: { command: three, user: root }
  - copy: { from: ., to: /app }
start: { command: serve, ready: { port: 80 } }
`);
  expect(plan.origin).toEqual({ kind: 'debian', packages: ['git', 'libstdc++6', 'python3=3.11.2-1+b1'] });
  const { steps, defaults } = plan.steps(debianDefaults);
  const late = { env: { A: '2', B: 'true' }, workdir: '/srv/deeper', hasNetwork: true };
  expect(steps).toEqual([
    { kind: 'run', command: 'one', user: 'root', env: { A: '1' }, workdir: '/workspace', hasNetwork: true },
    { kind: 'run', command: ['two', 'a b'], user: '1000', ...late },
    { kind: 'run', command: 'three', user: 'root', ...late },
    { kind: 'copy', from: '.', to: '/app', owner: null },
  ]);
  expect(plan.stepCount).toBe(steps.length);
  expect(defaults).toEqual({
    env: { A: '2', B: 'true' },
    workdir: '/srv/deeper',
    user: '1000',
    start: { command: 'serve', ready: { port: 80, command: null, timeoutMs: definitionLimits.readyMsDefault } },
  });
});

describe('what is refused, with its place', () => {
  const cases: readonly [what: string, text: string, place: { line: number; column: number }, message: RegExp][] = [
    ['text that is no YAML', 'from: base\nsteps: [', { line: 2, column: 9 }, /./],
    ['a key twice', 'from: base\nfrom: host', { line: 2, column: 1 }, /unique/],
    ['an unknown key', 'from: base\nrnu: x', { line: 2, column: 6 }, /rnu/],
    ['no origin', 'steps: []', { line: 1, column: 1 }, /from/],
    ['the host as origin', 'from: host', { line: 1, column: 7 }, /name of a template/],
    ['an unknown step', 'from: base\nsteps:\n  - rum: x', { line: 3, column: 5 }, /one of: run, copy/],
    [
      'two things in one step',
      'from: base\nsteps:\n  - run: x\n    user: y',
      { line: 3, column: 5 },
      /one of: run, copy/,
    ],
    ['a number as a word', 'from: base\nsteps:\n  - run: [1]', { line: 3, column: 11 }, /string/],
    [
      'a copy without a target',
      'from: base\nsteps:\n  - copy: { from: a }',
      { line: 3, column: 11 },
      /steps.0.copy.to/,
    ],
    [
      'a copy from outside',
      'from: base\nsteps:\n  - copy: { from: a/../../b, to: /c }',
      { line: 3, column: 19 },
      /leave/,
    ],
    [
      'a copy of an absolute path',
      'from: base\nsteps:\n  - copy: { from: /etc/shadow, to: /c }',
      { line: 3, column: 19 },
      /relative/,
    ],
    ['a NUL byte', 'from: base\nsteps:\n  - run: "a\\0b"', { line: 3, column: 10 }, /NUL/],
    ['an option as a package', 'from: debian\npackages: [git, -oDir::Etc=/x]', { line: 2, column: 17 }, /package/],
    ['a removal as a package', 'from: debian\npackages: [dpkg-]', { line: 2, column: 12 }, /package/],
    ['packages elsewhere', 'from: base\npackages: [git]', { line: 2, column: 11 }, /only a template from "debian"/],
    [
      'readiness beyond a create',
      'from: base\nstart:\n  command: x\n  ready: { timeoutMs: 9999999 }',
      { line: 4, column: 23 },
      /./,
    ],
    ['a name that is a path', 'from: ../../etc', { line: 1, column: 7 }, /name of a template/],
    ['a variable that is none', 'from: base\nenv: { "A=B": c }', { line: 2, column: 15 }, /A=B: Invalid key/],
  ];
  for (const [what, text, place, message] of cases) {
    test(what, () => {
      const refusal = refusalOf(text);
      expect(refusal.message).toMatch(message);
      expect(refusal.details).toEqual(place);
      expect(refusal.message.startsWith(`line ${place.line}, column ${place.column}: `)).toBe(true);
    });
  }

  test('aliases that multiply', () => {
    const levels = Array.from({ length: 12 }, (_, i) => `l${i}: &l${i} [${`*l${i - 1},`.repeat(9)}]`);
    levels[0] = 'l0: &l0 [x]';
    expect(refusalOf(levels.join('\n')).code).toBe('invalid_definition');
  });

  test('too much', () => {
    expect(refusalOf(`from: base # ${'x'.repeat(definitionLimits.bytes)}`).message).toContain('too long');
    const steps = '  - run: x\n'.repeat(definitionLimits.steps + 1);
    expect(refusalOf(`from: base\nsteps:\n${steps}`).code).toBe('invalid_definition');
  });
});

test('whatever is written, it is a plan or a refusal with a place', () => {
  const word = fc.constantFrom(
    'from',
    'base',
    ':',
    '- ',
    '\n',
    '  ',
    'steps',
    'run',
    '{',
    '}',
    '[',
    ']',
    '&a',
    '*a',
    '"',
    '!!js',
    '0',
    '|',
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(word, fc.string({ maxLength: 5 })), { maxLength: 40 }), (parts) => {
      try {
        parseDefinition(parts.join(''));
      } catch (error) {
        expect(isPlatformError(error, 'invalid_definition')).toBe(true);
        expect((error as PlatformError).details).toMatchObject({
          line: expect.any(Number),
          column: expect.any(Number),
        });
      }
    }),
    { numRuns: 500 },
  );
});
