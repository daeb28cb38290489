import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openCliRig } from '../../test/support/cli-rig.ts';
import { sandboxAndCommand } from './checkout-words.ts';
import type { CommandCall } from './command-call.ts';

const of = (dashed: number | undefined, ...words: string[]) => sandboxAndCommand({ dashed } as CommandCall, words);

test('a word before "--" is the sandbox; nothing there means the checkout', () => {
  expect(of(2, 'npm', 'test')).toEqual({ sandbox: undefined, command: ['npm', 'test'] });
  expect(of(1, 'box', 'ls')).toEqual({ sandbox: 'box', command: ['ls'] });
  expect(of(undefined, 'box', 'ls')).toEqual({ sandbox: 'box', command: ['ls'] });
  expect(of(undefined)).toEqual({ sandbox: undefined, command: [] });
  expect(of(0, 'box')).toEqual({ sandbox: 'box', command: [] });
  expect(() => of(1, 'a', 'b', 'c')).toThrow('Only one word');
});

test('init writes a definition that fits the project, and never over one that is there', async () => {
  const cwd = mkdtempSync(join(tmpdir(), 'atoll-init-'));
  try {
    writeFileSync(join(cwd, 'package-lock.json'), '{}');
    await using rig = await openCliRig({ cwd, env: { PATH: process.env['PATH'] } });
    expect(await rig.run('init')).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining(join(cwd, 'atoll.yml')),
    });
    expect(readFileSync(join(cwd, 'atoll.yml'), 'utf8')).toContain('setup:\n  - npm ci\n');
    const again = await rig.run('--json', 'init');
    expect([again.exitCode, JSON.parse(again.stdout).error.code]).toEqual([73, 'definition_exists']);
  } finally {
    rmSync(cwd, { recursive: true, force: true });
  }
});

test('what is typed is completed from the commands themselves; behind "--" nothing is', async () => {
  await using rig = await openCliRig();
  const complete = async (...words: string[]) =>
    (await rig.run('__complete', '--', ...words)).stdout.split('\n').slice(0, -1);
  expect(await complete('bg', 'st')).toEqual(['start', 'stop']);
  expect(await complete('exec', '--no-p')).toEqual(['--no-pull', '--no-pull-on-timeout']);
  expect(await complete('')).toContain('sync');
  expect(await complete('exec', '--', 'np')).toEqual([]);
  expect(await complete('')).not.toContain('__complete');
  for (const shell of ['bash', 'zsh', 'fish']) {
    expect((await rig.run('completion', shell)).stdout).toContain('atoll __complete --');
  }
});
