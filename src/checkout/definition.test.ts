import { expect, test } from 'vitest';
import { parseDefinition, parseEnvFile } from './definition.ts';

const parse = (text: string, envFile = '') => parseDefinition(text, { name: 'atoll.yml', readEnvFile: () => envFile });

test('an empty definition has defaults, and everything that can be said arrives', () => {
  expect(parse('')).toMatchObject({ template: 'host', directory: '/workspace', setup: [], expires: 'never' });
  const full = parse(
    [
      'template: host',
      'limits: { memory: 512m, cpus: 0.5, processes: 100 }',
      'expires: 2h',
      'env: { A: given, N: 1 }',
      'envFiles: [.env]',
      'setup: [npm ci]',
      'ports: [3000]',
      'background: { web: { run: npm start, port: 3000 } }',
    ].join('\n'),
    'A=file\nexport B="two words" \n# no\n',
  );
  expect(full).toMatchObject({
    limits: { memory: 512 * 1024 ** 2, cpus: 0.5, processes: 100 },
    expires: 7_200_000,
    env: { A: 'given', B: 'two words', N: '1' },
    background: { web: { run: 'npm start', port: 3000 } },
  });
});

test.each([
  ['template: host\nlimts: {}\n', 'atoll.yml:2:1', 'Known here: template'],
  ['limits:\n  memory: 5\n', 'atoll.yml:2:3', 'limits.memory'],
  ['setup:\n  - npm ci\n  - 7\n', 'atoll.yml:3:5', 'setup.1'],
  ['background:\n  Web Server:\n    run: x\n', 'atoll.yml:2:3', 'background'],
  ['background:\n  web:\n    run: x\n    prt: 1\n', 'atoll.yml:4:5', 'Known here: run, port, env'],
  ['env: {A: 1\n', 'atoll.yml:', ''],
  ['template: a\ntemplate: b\n', 'atoll.yml:2:1', 'unique'],
])('a mistake in %j is told at %s', (text, place, said) => {
  expect(() => parse(text)).toThrow(place);
  expect(() => parse(text)).toThrow(said);
});

test('P59: only what a new sandbox takes on changes the hash; set-up has its own', () => {
  const [plain, step, bigger] = [parse(''), parse('setup: [a]'), parse('limits: { memory: 1g }')];
  expect(step.hash).toBe(plain.hash);
  expect(step.setupHash).not.toBe(plain.setupHash);
  expect(bigger.hash).not.toBe(plain.hash);
  expect(parse('# only a comment\n').hash).toBe(plain.hash);
});

test('a line of an env file that is none is told with its number', () => {
  expect(() => parseEnvFile('A=1\nwhat\n', '.env')).toThrow('.env:2:1');
});
