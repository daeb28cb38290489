import { expect, test } from 'vitest';
import {
  admitsWorktree,
  failureText,
  hasWorktree,
  metadataKeys,
  newClientState,
  readClientState,
} from './client-state.ts';

const identity = { repository: 'c:h/a', worktree: 'w1', ref: 'branch:main', configPath: 'atoll.yml' };
const metadata = newClientState(identity, { machineId: 'm1', definition: 'd' });

test('P25: what is written is read again', () => {
  expect(readClientState(metadata)).toEqual({
    repository: 'c:h/a',
    configPath: 'atoll.yml',
    ref: 'branch:main',
    worktrees: [['m1', 'w1']],
    definition: 'd',
    setup: null,
    failure: null,
  });
  const failure = { reason: 'failed' as const, step: 'npm ci', exitCode: 1, tail: `${'x'.repeat(5_000)}end` };
  const text = failureText(failure);
  expect(text.length).toBeLessThan(2_048);
  expect(readClientState({ ...metadata, [metadataKeys.failure]: text })?.failure?.tail).toMatch(/end$/);
});

test.each([
  [{}],
  [{ ...metadata, [metadataKeys.worktrees]: 'no json' }],
  [{ ...metadata, [metadataKeys.worktrees]: '{"a":1}' }],
  [{ ...metadata, [metadataKeys.ref]: '' }],
])('P25, P61: the record %j belongs to nobody', (broken) => {
  expect(readClientState(broken)).toBeUndefined();
});

test('P0a, P42: another worktree of the same machine is kept out, another machine is not', () => {
  const state = readClientState(metadata)!;
  expect(admitsWorktree(state, 'm1', 'w1')).toBe(true);
  expect(admitsWorktree(state, 'm1', 'w2')).toBe(false);
  expect(admitsWorktree(state, 'm2', 'w9')).toBe(true);
  expect([hasWorktree(state, 'w1'), hasWorktree(state, 'w9')]).toEqual([true, false]);
});
